"""``fairway identity``, and the options of the commands that open a channel."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from fairway import Identity, Members
from fairway.cli import app
from fairway.cli._channel_options import with_settings
from fairway.cli._notes import Notes
from fairway.cli.send import send
from fairway.errors import ConfigurationError
from fairway.events import MemberTrusted, MessageReceived, SignatureFault, SignatureRefused


@pytest.fixture
def fairway(tmp_path, monkeypatch):
    """Return what runs a command in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        result = CliRunner().invoke(app, ["identity", *words], env={"COLUMNS": "200"})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stdout

    return run


def test_the_steps_of_the_help_text_make_a_list_of_members(fairway, tmp_path):
    alice, bob = fairway("new", "alice.key").strip(), fairway("new", "bob.key", "--secp256k1").strip()
    assert (alice[:8], bob[:10]) == ("ed25519:", "secp256k1:")
    assert fairway("show", "alice.key").strip() == alice == str(Identity.load(tmp_path / "alice.key"))
    assert fairway("trust", "team.json", "alice", alice) == "alice is a member; team.json has 1 member\n"
    assert fairway("trust", "team.json", "bob", bob) == "bob is a member; team.json has 2 members\n"
    assert fairway("show", "team.json") == f"{alice} alice\n{bob} bob\n"
    assert fairway("trust", "team.json", "bob", alice) == "bob has a new key; team.json has 2 members\n"
    assert fairway("forget", "team.json", "bob") == "bob is no member; team.json has 1 member\n"
    assert json.loads((tmp_path / "team.json").read_text()) == {"alice": alice}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("new", "alice.key"), "exists"),
        (("show", "nobody.key"), "fairway identity new"),
        (("trust", "team.json", "bob", "bob.key"), "hexadecimal"),
        (("forget", "alice.json", "bob"), "has no member 'bob'"),
    ],
)
def test_what_cannot_be_done_says_why(fairway, tmp_path, words, text):
    Identity.create(tmp_path / "alice.key")
    (tmp_path / "alice.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=text):
        fairway(*words)


def settings_of(**options):
    """Return the settings that a command gets for options."""
    got = []

    @with_settings
    def command(settings: object) -> None:
        got.append(settings)

    missing = dict.fromkeys(
        ("ca", "topic", "cluster", "shards", "store", "rln", "rln_keystore", "key_file", "profile", "options")
    )
    signatures = dict.fromkeys(("identity", "members", "trust_on_first_use", "accept_unsigned", "group"))
    command(node="local:", channel="team", sender="alice", **{**missing, **signatures, **options})
    return got[0]


def test_commands_that_open_a_channel_sign_and_verify(tmp_path):
    key, listed, learned = tmp_path / "alice.key", tmp_path / "team.json", tmp_path / "known.json"
    identity = Identity.create(key)
    Members.trust_on_first_use(listed).trust("bob", identity.public_key)
    settings = settings_of(identity=key, members=listed)
    assert settings.identity.public_key == identity.public_key
    assert (list(settings.members), settings.members.learns, settings.accepts_unsigned) == (["bob"], False, False)
    settings = settings_of(identity=key, trust_on_first_use=learned, accept_unsigned=True)
    assert (settings.members.learns, settings.accepts_unsigned) == (True, True)
    with pytest.raises(ConfigurationError, match="either --members or --trust-on-first-use"):
        settings_of(identity=key, members=listed, trust_on_first_use=learned)


def test_a_sent_message_is_read_by_a_member_and_a_forged_one_is_not(make_settings, tmp_path):
    keys = {name: Identity.new() for name in ("alice", "bob")}
    members = Members({name: key.public_key for name, key in keys.items()})
    alice, bob = (replace(make_settings(name), identity=key, members=members) for name, key in keys.items())
    forger = make_settings("alice")

    async def work():
        async with bob.open() as (_, channel):
            events = channel.events()
            await channel.start()
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await send(forger, b"I am alice")
            await send(alice, b"hello")
            told = []
            async for event in events:
                told.append(event)
                if isinstance(event, MessageReceived):
                    break
            return told

    told = asyncio.run(asyncio.wait_for(work(), 60))
    assert told[-1].payload == b"hello"
    assert [(each.sender_id, each.fault) for each in told if isinstance(each, SignatureRefused)] == [
        ("alice", SignatureFault.UNSIGNED)
    ]


def test_a_person_reads_who_was_refused_and_who_is_new():
    notes, key = Notes("alice"), bytes(range(32))
    refused = SignatureRefused(
        sender_id="bob\x1b[2J", fault=SignatureFault.KEY_CHANGED, signer="mallory", signer_key=key, count=3
    )
    assert notes.of(refused).text == (
        "a message under the name bob\\x1b[2J was refused: the key has changed; 'fairway identity trust' accepts the "
        "new one, and mallory signed it"
    )
    trusted = MemberTrusted(sender_id="bob", public_key=key)
    assert notes.of(trusted).text == f"bob is here for the first time, with the key ed25519:{key.hex()}"
