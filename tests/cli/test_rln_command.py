"""``fairway rln`` as a new user calls it: identities, groups, passwords, and what is never shown."""

from __future__ import annotations

import json
import os
import select
import stat
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
from typer.testing import CliRunner

from fairway.cli import app
from fairway.errors import ConfigurationError, StorageError, WrongPasswordError
from fairway.rln.keystore import Keystore
from fairway.rln.membership_file import MembershipFile
from patience import PATIENCE_S

pytestmark = pytest.mark.skipif(find_spec("fairway_rln") is None, reason="fairway-rln is not installed: make rln")

Run = Callable[..., Any]
PASSWORD = "correct horse"
VARIABLE = "FAIRWAY_RLN_PASSWORD"


@pytest.fixture
def fairway(tmp_path, monkeypatch) -> Run:
    """Return what runs a command in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, password: str | None = PASSWORD) -> Any:
        return CliRunner().invoke(app, ["rln", *words], env={"COLUMNS": "200", VARIABLE: password})

    return run


def ok(result: Any) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def told(result: Any) -> dict[str, Any]:
    return json.loads(ok(result))


def created(fairway: Run, *words: str) -> str:
    """Make a keystore, and return the commitment that the command prints."""
    return ok(fairway("create", *words)).split()[1]


def test_the_steps_of_the_help_text_make_a_group_with_a_member(fairway, tmp_path):
    assert "ours.json: 0 members" in ok(fairway("group", "ours.json", "--create", "--identifier", "rln/ours"))
    commitment = created(fairway, "alice.keystore")
    registered = ok(fairway("register", "ours.json", "--commitment", commitment, "--limit", "7"))
    group = MembershipFile("ours.json")
    assert registered == (f"{commitment} is member 0 of ours.json, 7 messages in an epoch\nroot {group.root.hex()}\n")
    identity = Keystore("alice.keystore").membership(PASSWORD).identity
    assert group.member(identity).limit == 7
    shown = ok(fairway("group", "ours.json"))
    for text in (
        "1 member\n",
        f"place 0: {commitment}, 7 messages",
        "network rln/ours, epochs of 600 s",
        group.root.hex(),
    ):
        assert text in shown
    shown = ok(fairway("show", "alice.keystore", "--group", "ours.json"))
    assert shown.startswith(commitment)
    assert shown.endswith(", in the group at place 0, 7 messages in an epoch\n")


def test_group_and_show_print_json(fairway):
    group = told(fairway("group", "ours.json", "--create", "--epoch-ms", "1000", "--json"))
    assert (group["epoch_ms"], group["members"], group["places"]) == (1_000, 0, [])
    commitment = created(fairway, "alice.keystore")
    ok(fairway("register", "ours.json", "--keystore", "alice.keystore", "--limit", "3"))
    shown = told(fairway("group", "ours.json", "--json"))
    assert (shown["members"], shown["places"]) == (1, [{"commitment": commitment, "limit": 3}])
    (membership,) = told(fairway("show", "alice.keystore", "--group", "ours.json", "--json"))["memberships"]
    assert (membership["commitment"], membership["in_group"], membership["index"]) == (commitment, True, 0)
    assert f"root {group['root']}" in ok(fairway("remove", "ours.json", "--index", "0"))
    assert told(fairway("group", "ours.json", "--json"))["places"] == [None]
    result = fairway("show", "alice.keystore", "--group", "ours.json")
    assert (result.exit_code, "not in the group" in result.stdout) == (1, True)


def test_nothing_is_overwritten(fairway, tmp_path):
    ok(fairway("group", "ours.json", "--create"))
    ok(fairway("create", "alice.keystore"))
    before = [(tmp_path / name).read_bytes() for name in ("ours.json", "alice.keystore")]
    for words in (("group", "ours.json", "--create"), ("create", "alice.keystore"), ("create", "ours.json")):
        result = fairway(*words)
        assert isinstance(result.exception, ConfigurationError)
        assert "exists" in str(result.exception)
    assert [(tmp_path / name).read_bytes() for name in ("ours.json", "alice.keystore")] == before


def test_a_password_comes_from_a_file_or_the_environment(fairway, tmp_path):
    (tmp_path / "password").write_text("from a file\nanother line\n")
    ok(fairway("create", "alice.keystore", "--password-file", "password"))
    ok(fairway("show", "alice.keystore", password="from a file"))
    with pytest.raises(WrongPasswordError):
        raise fairway("show", "alice.keystore").exception


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe\n", b"x" * 5_000])
def test_a_password_file_without_a_password_is_refused_and_makes_no_keystore(fairway, tmp_path, content):
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    result = fairway("create", "alice.keystore", "--password-file", "password")
    assert isinstance(result.exception, ConfigurationError)
    assert "password" in str(result.exception)
    assert not (tmp_path / "alice.keystore").exists()


def test_without_a_terminal_a_missing_password_says_where_it_can_come_from(fairway):
    result = fairway("create", "alice.keystore", password=None)
    assert isinstance(result.exception, ConfigurationError)
    assert "--password-file FILE, set FAIRWAY_RLN_PASSWORD, or use a terminal" in str(result.exception)


def test_a_typed_password_is_asked_for_twice_and_never_echoed(tmp_path):
    """At a real terminal: the password does not appear in what the terminal shows."""
    import pty

    def run(*answers: str) -> tuple[int, str]:
        controller, terminal = pty.openpty()
        environment = {name: text for name, text in os.environ.items() if name != VARIABLE}
        process = subprocess.Popen(
            [sys.executable, "-m", "fairway", "rln", "create", "typed.keystore"],
            cwd=tmp_path,
            env=environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        shown = b""
        waiting = list(zip((b"keystore: ", b"again: "), answers, strict=True))
        while True:
            assert select.select([controller], [], [], PATIENCE_S)[0], shown
            try:
                read = os.read(controller, 4_096)
            except OSError:  # the other end is closed
                break
            shown += read
            if not read:
                break
            if waiting and waiting[0][0] in shown:
                os.write(controller, waiting.pop(0)[1].encode() + b"\n")
        os.close(controller)
        return process.wait(PATIENCE_S), shown.decode()

    status, shown = run(PASSWORD, "another")
    assert status == 2
    assert "the two passwords differ" in shown
    assert not (tmp_path / "typed.keystore").exists()
    status, shown = run(PASSWORD, PASSWORD)
    assert status == 0
    assert PASSWORD not in shown
    assert Keystore(tmp_path / "typed.keystore").membership(PASSWORD)


@pytest.mark.full
def test_no_output_has_a_secret(fairway, tmp_path):
    ok(fairway("group", "ours.json", "--create"))
    outputs = [
        fairway(*words)
        for words in (
            ("create", "alice.keystore"),
            ("register", "ours.json", "--keystore", "alice.keystore"),
            ("show", "alice.keystore"),
            ("show", "alice.keystore", "--json", "--group", "ours.json"),
            ("group", "ours.json", "--json"),
            ("create", "alice.keystore"),
        )
    ]
    identity = Keystore("alice.keystore").membership(PASSWORD).identity
    text = "".join(result.output + repr(result.exception) for result in outputs) + (tmp_path / "ours.json").read_text()
    for secret in (identity.trapdoor, identity.nullifier, identity.secret):
        for form in (secret.hex(), repr(secret), str(list(secret)), str(int.from_bytes(secret, "little"))):
            assert form not in text
    assert PASSWORD not in text
    assert stat.S_IMODE((tmp_path / "alice.keystore").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("register", "ours.json"), "either --commitment or --keystore"),
        (("register", "ours.json", "--commitment", "00", "--keystore", "x"), "either --commitment or --keystore"),
        (("register", "ours.json", "--commitment", "0x1234"), "64 hex digits"),
        (("register", "ours.json", "--commitment", "xyz"), "64 hex digits"),
        (("group", "ours.json", "--epoch-ms", "5"), "give --create too"),
        (("remove", "ours.json", "--index", "3"), "no member at place 3"),
    ],
)
def test_wrong_options_raise(fairway, words, said):
    ok(fairway("group", "ours.json", "--create"))
    result = fairway(*words)
    assert isinstance(result.exception, ConfigurationError)
    assert said in str(result.exception)


def test_a_commitment_beyond_the_field_and_a_missing_file_raise(fairway):
    ok(fairway("group", "ours.json", "--create"))
    assert "not below the order" in str(fairway("register", "ours.json", "--commitment", "ff" * 32).exception)
    assert isinstance(fairway("group", "none.json").exception, StorageError)
    assert isinstance(fairway("show", "none.keystore").exception, StorageError)
    assert fairway("register", "ours.json", "--commitment", "00" * 32, "--limit", "65536").exit_code == 2
    assert "'--epoch-ms'" in fairway("group", "new.json", "--create", "--epoch-ms", "0").output
