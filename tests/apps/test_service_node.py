"""``fairway node``: what it says when it serves, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading

import pytest

from fairway.apps.service_node import NodeSettings, request_rate, retention_of, serve
from fairway.errors import ConfigurationError
from fairway.service.options import ServiceOptions
from fairway.service.rest import RestOptions
from fairway.waku.discovery.node_record import NodeRecord
from fairway.waku.discovery.state_folder import default_state
from fairway.waku.libp2p import keeper
from fairway.waku.libp2p.host import Host
from fairway.waku.libp2p.keys import IdentityKey
from fairway.waku.libp2p.peer_id import PeerId
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


def test_people_are_told_where_the_node_is_and_what_to_give_to_other_programs():
    lines = first_words(NodeSettings(options=ServiceOptions())).splitlines()
    tcp, websocket, record, rest = (line.split()[1] for line in lines[2:6])
    assert "/ws/" not in tcp
    assert "/ws/" in websocket
    assert rest.startswith("http://127.0.0.1:")
    # What a list in DNS is made of, or `records` in a network's file.
    assert [str(address) for address in NodeRecord.parse(record).addresses] == [tcp, websocket]
    assert lines[6] == f"in other terminals: export FAIRWAY_NODE={tcp}"


@contextlib.asynccontextmanager
async def serving(settings: NodeSettings, warn):
    """Run a node, from its first words on."""
    said = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve(settings, lambda line: None if said.done() else said.set_result(line), warn))
    try:
        await asyncio.wait([task, said], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        assert said.done()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_people_are_told_when_a_peer_cannot_be_reached_comes_and_goes(monkeypatch):
    monkeypatch.setattr(keeper, "FIRST_PAUSE_S", 0.02)

    async def work():
        key = IdentityKey.generate()
        async with await Host.start(key=key, listen=["/ip4/127.0.0.1/tcp/0"]) as there:
            (address,) = there.addresses
        told: asyncio.Queue[str] = asyncio.Queue()
        settings = NodeSettings(options=ServiceOptions(peers=(str(address),)), rest=None)
        async with asyncio.timeout(PATIENCE_S), serving(settings, told.put_nowait):
            assert await told.get() == f"peer {address}: cannot be reached: Connection refused (trying on)"
            async with await Host.start(key=key, listen=[address.without_peer_id()]):
                assert await told.get() == f"peer {address}: connected"
            assert await told.get() == f"peer {address}: the connection has ended (trying on)"
            assert await told.get() == f"peer {address}: cannot be reached: Connection refused (trying on)"

    asyncio.run(work())


def test_what_people_are_told_of_peers_is_on_standard_error():
    program = [sys.executable, "-c", "from fairway.cli import main; main()"]
    words = ["node", "--no-rest", "--until-stdin-closes", "--peer", "/ip4/127.0.0.1/tcp/1"]
    with subprocess.Popen(
        [*program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        timer = threading.Timer(PATIENCE_S, process.kill)
        timer.start()
        try:
            told = process.stderr.readline()
            said, rest = process.communicate()
        finally:
            timer.cancel()
            process.kill()
    assert told == "peer /ip4/127.0.0.1/tcp/1: cannot be reached: Connection refused (trying on)\n"
    assert rest == ""
    assert said.startswith("node ")
    assert "cannot be reached" not in said
    assert process.returncode == 0


def test_programs_are_told_nothing_of_peers(monkeypatch):
    monkeypatch.setattr(keeper, "FIRST_PAUSE_S", 0.02)
    calls = []

    async def hang_up(_, writer):
        calls.append(writer)
        writer.close()

    async def work():
        told = []
        peers = ("/ip4/127.0.0.1/tcp/1",)
        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as rude:
            port = rude.sockets[0].getsockname()[1]
            options = ServiceOptions(peers=(f"/ip4/127.0.0.1/tcp/{port}",))
            async with serving(NodeSettings(options=options, rest=None, as_json=True), told.append):
                await until(lambda: len(calls) > 1)  # who calls again knows of the first failure
        assert told == []
        async with serving(NodeSettings(options=ServiceOptions(peers=peers), rest=None), told.append):
            await until(lambda: told)
        assert told == ["peer /ip4/127.0.0.1/tcp/1: cannot be reached: Connection refused (trying on)"]

    asyncio.run(work())


def test_a_node_comes_back_with_its_peer_id_and_says_where_that_is_kept(tmp_path):
    settings = NodeSettings(options=ServiceOptions(), rest=None, state=tmp_path / "state" / "fairway")
    first, second = (first_words(settings).splitlines() for _ in range(2))
    kept = tmp_path / "state" / "fairway" / "node.key"
    assert first[0] == second[0] == f"node {PeerId.from_public_key(IdentityKey.load(kept).public_key)}"
    assert f"its key, and so its peer id, is kept in {kept}" in first
    assert kept.stat().st_mode & 0o077 == kept.parent.stat().st_mode & 0o077 == 0


def test_a_second_node_beside_the_first_has_a_new_key_and_says_why(tmp_path):
    settings = NodeSettings(options=ServiceOptions(), rest=None, state=tmp_path)

    async def work():
        told, others = [], []
        async with serving(settings, told.append), serving(settings, others.append):
            return told, others

    told, others = asyncio.run(work())
    assert told == []
    assert len(others) == 1
    assert "new peer id: another node runs with" in others[0]
    assert "--state" in others[0]


def test_a_node_whose_folder_of_state_cannot_be_made_serves_with_a_new_key(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    settings = NodeSettings(options=ServiceOptions(), rest=None, state=tmp_path / "file" / "state")

    async def work():
        told = []
        async with serving(settings, told.append):
            return told

    (told,) = asyncio.run(work())
    assert "cannot be used" in told
    assert "--state" in told


def test_the_folder_of_state_is_where_the_desktop_keeps_such_things(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state() == tmp_path / "fairway"
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/somewhere")
    assert str(default_state()) == "/somewhere/.local/state/fairway"


def test_a_key_file_is_made_once_and_keeps_the_peer_id(tmp_path):
    settings = NodeSettings(options=ServiceOptions(), rest=None, key=tmp_path / "node.key")
    first, second = (first_words(settings).splitlines()[0] for _ in range(2))
    key = IdentityKey.load(tmp_path / "node.key")
    assert first == second == f"node {PeerId.from_public_key(key.public_key)}"


@pytest.mark.parametrize(
    ("content", "told"), [(None, "No such file"), (b"no key", "not the protobuf"), (b"-----BEGIN", "PEM")]
)
def test_a_key_that_cannot_be_had_is_an_error_with_its_path(tmp_path, content, told):
    path = tmp_path / "folder" / "node.key"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"{path}: no key can be had from there: .*{told}.*; give a file"):
        first_words(NodeSettings(options=ServiceOptions(), key=path))


def test_a_name_is_no_address_to_listen_at():
    with pytest.raises(ConfigurationError, match=r"at an IP address, not at 'my-host'; give one of this machine"):
        first_words(NodeSettings(options=ServiceOptions(host="my-host")))


@pytest.mark.parametrize(
    ("options", "rest"),
    [
        (ServiceOptions(host="192.0.2.1"), RestOptions()),
        (ServiceOptions(), RestOptions(host="192.0.2.1")),
    ],
)
def test_an_address_of_another_machine_is_an_error_that_asks_for_one_of_this(options, rest):
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
        ("12", None, "--keep '12' is no time .*; give one like 12h"),
        ("-1h", None, "--keep '-1h' is no time"),
        ("0d", None, "--keep '0d' is no time"),
        ("9" * 400 + "d", None, "is no time"),
        (None, "5XB", "--keep-size '5XB' is no size; give one like 500MB"),
        (None, "1MB", r"--keep-size 1MB is 1,000,000 bytes; give at least 1MiB \(1,048,576 bytes\)"),
    ],
)
def test_what_is_no_duration_or_size_is_an_error_in_the_words_of_the_options(keep, size, words):
    with pytest.raises(ConfigurationError, match=words):
        retention_of(keep, size)


def test_only_a_time_to_keep_that_is_given_is_applied_at_once():
    assert retention_of("30d", None).notice_s == 0
    assert retention_of(None, "20GB").notice_s > 0


def test_no_requests_per_second_is_no_limit():
    assert request_rate(0) is None
    limit = request_rate(2.5)
    assert limit is not None
    assert (limit.per_second, limit.burst) == (2.5, 5)
