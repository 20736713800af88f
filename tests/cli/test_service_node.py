"""``fairway node``: what it says when it serves, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import subprocess
import sys

import pytest

from fairway.cli._log_lines import LogLine
from fairway.cli._node_process import NodeSettings, retention_of, serve
from fairway.errors import ConfigurationError
from fairway.libp2p import keeper
from fairway.libp2p.host import Host
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.discovery.node_record import NodeRecord
from fairway.service.options import ServiceOptions
from fairway.service.rest import RestOptions
from patience import PATIENCE_S, until


def first_words(settings: NodeSettings) -> str:
    """Run a node until it says something, and return that."""

    async def work() -> str:
        said = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(serve(settings, lambda line: None if said.done() else said.set_result(line)))
        await asyncio.wait([serving, said], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        return said.result()

    return asyncio.run(work())


def test_a_node_prints_its_addresses_and_what_to_export():
    lines = first_words(NodeSettings(options=ServiceOptions())).splitlines()
    tcp, websocket, record, rest = (line.split()[1] for line in lines[2:6])
    assert "/ws/" not in tcp
    assert "/ws/" in websocket
    assert rest.startswith("http://127.0.0.1:")
    # What a list in DNS is made of, or `records` in a network's file.
    assert [str(address) for address in NodeRecord.parse(record).addresses] == [tcp, websocket]
    assert lines[6] == f"in other terminals: export FAIRWAY_NODE={tcp}"


@contextlib.asynccontextmanager
async def serving(settings: NodeSettings):
    """Run a node, from its first words on."""
    said = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve(settings, lambda line: None if said.done() else said.set_result(line)))
    try:
        await asyncio.wait([task, said], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        assert said.done()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("as_json", [False, True])
def test_the_log_says_when_a_peer_cannot_be_reached_connects_and_disconnects(monkeypatch, caplog, as_json):
    monkeypatch.setattr(keeper, "FIRST_PAUSE_S", 0.02)
    caplog.set_level("INFO", "fairway.cli._node_process")

    async def work():
        key = IdentityKey.generate()
        async with await Host.start(key=key, listen=["/ip4/127.0.0.1/tcp/0"]) as there:
            (address,) = there.addresses
        settings = NodeSettings(options=ServiceOptions(peers=(str(address),)), rest=None, as_json=as_json)
        steps = [
            ("WARNING", f"peer {address}: cannot be reached: Connection refused (trying on)"),
            ("INFO", f"peer {address}: connected"),
            ("WARNING", f"peer {address}: the connection has ended (trying on)"),
            ("WARNING", f"peer {address}: cannot be reached: Connection refused (trying on)"),
        ]

        def logged():
            return [(record.levelname, record.getMessage()) for record in caplog.records]

        async with serving(settings):
            await until(lambda: logged() == steps[:1])
            async with await Host.start(key=key, listen=[address.without_peer_id()]):
                await until(lambda: logged() == steps[:2])
            await until(lambda: logged() == steps)

    asyncio.run(work())


@pytest.mark.parametrize("level", ["info", "error"])
def test_the_log_is_on_standard_error_with_times_and_levels(tmp_path, level):
    (tmp_path / "file").write_bytes(b"")
    words = ["node", "--no-rest", "--until-stdin-closes", "--log-level", level, "--state", str(tmp_path / "file" / "x")]
    done = subprocess.run(
        [sys.executable, "-c", "from fairway.cli import main; main()", *words],
        input="",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    logged = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING the node has a new key and .*\n"
    assert re.fullmatch(logged if level == "info" else "", done.stderr)
    assert done.stdout.startswith("node ")


def test_the_log_escapes_control_characters():
    formatted = LogLine().format(logging.makeLogRecord({"levelname": "INFO", "msg": "peer \x1b[2Jhi\nthere"}))
    assert formatted.endswith("INFO peer \\x1b[2Jhi\nthere")


def test_a_restarted_node_has_the_same_peer_id_and_names_its_key_file(tmp_path):
    settings = NodeSettings(options=ServiceOptions(), rest=None, state=tmp_path / "state" / "fairway")
    first, second = (first_words(settings).splitlines() for _ in range(2))
    kept = tmp_path / "state" / "fairway" / "node.key"
    assert first[0] == second[0] == f"node {PeerId.from_public_key(IdentityKey.load(kept).public_key)}"
    assert f"its key, and so its peer id, is kept in {kept}" in first
    assert kept.stat().st_mode & 0o077 == kept.parent.stat().st_mode & 0o077 == 0


def test_a_second_node_beside_the_first_has_a_new_key_and_says_why(tmp_path, caplog):
    settings = NodeSettings(options=ServiceOptions(), rest=None, state=tmp_path)

    async def work():
        async with serving(settings):
            assert caplog.messages == []
            async with serving(settings):
                return

    asyncio.run(work())
    (told,) = caplog.messages
    assert "new peer id: another node runs with" in told
    assert "--state" in told


@pytest.mark.parametrize(
    ("content", "told"), [(None, "No such file"), (b"no key", "not the protobuf"), (b"-----BEGIN", "PEM")]
)
def test_an_unusable_key_file_raises_with_its_path(tmp_path, content, told):
    path = tmp_path / "folder" / "node.key"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"{path} cannot be used as a key: .*{told}.*; give a key"):
        first_words(NodeSettings(options=ServiceOptions(), key=path))


@pytest.mark.parametrize(
    ("options", "rest"),
    [
        (ServiceOptions(host="192.0.2.1"), RestOptions()),
        (ServiceOptions(), RestOptions(host="192.0.2.1")),
    ],
)
def test_an_address_of_another_machine_raises(options, rest):
    with pytest.raises(ConfigurationError, match=r"cannot listen: .*192\.0\.2\.1.*give one of this machine"):
        first_words(NodeSettings(options=options, rest=rest))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000), ("forever", None)]
)
def test_durations_have_a_unit(text, seconds):
    assert retention_of(text, None).max_age_s == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("500MB", 500_000_000), ("1.5gb", 1_500_000_000), ("1048576", 1_048_576), ("512MiB", 2**29), (None, None)],
)
def test_sizes_are_decimal_unless_they_say_otherwise(text, size):
    assert retention_of(None, text).max_bytes == size


@pytest.mark.parametrize(
    ("keep", "size", "words"),
    [
        ("12", None, "--keep '12' is not a duration; give one like 12h"),
        ("-1h", None, "--keep '-1h' is not a duration"),
        ("0d", None, "--keep '0d' is not a duration"),
        ("9" * 400 + "d", None, "is not a duration"),
        (None, "5XB", "--keep-size '5XB' is not a size; give one like 500MB"),
        (None, "1MB", r"--keep-size 1MB is 1,000,000 bytes; give at least 1MiB \(1,048,576 bytes\)"),
    ],
)
def test_a_wrong_duration_or_size_raises_with_the_name_of_the_option(keep, size, words):
    with pytest.raises(ConfigurationError, match=words):
        retention_of(keep, size)


def test_only_a_given_time_to_keep_is_applied_at_once():
    assert retention_of("30d", None).notice_s == 0
    assert retention_of(None, "20GB").notice_s > 0
