"""A process that serves a local network: it is killed, it is told to stop, its parent dies, and nobody is harmed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from fairway.cli import app
from fairway.errors import FairwayError, NodeUnavailableError
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.waku import connect
from patience import PATIENCE_S


@contextmanager
def serving(*words):
    """Start ``fairway network`` and give the process and its address; it is dead in the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from fairway.cli import main; main()", "network", "--json", *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, json.loads(process.stdout.readline())["address"]
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdin.close()
        process.stdout.close()


def ending(process):
    """Wait for the end of a process; return its exit code and the statistics that it printed last."""
    printed = process.stdout.read()
    return process.wait(PATIENCE_S), json.loads(printed)["statistics"]


def test_a_server_that_is_killed_and_started_again_is_the_same_network_to_its_nodes(say, tmp_path):
    archive = tmp_path / "messages.sqlite"

    async def story():
        with serving("--archive", archive) as (process, address):
            alice, bob = await connect(address, name="alice"), await connect(address, name="bob")
            heard = await say.listen(bob)
            assert (await alice.send(say.message(1))).accepted
            assert await say.next_of(heard) == [b"message 1"]
            with NwakuArchive(archive, read_only=True) as reader:
                await say.until(lambda: reader.count() == 1)
            process.send_signal(signal.SIGKILL)
            await say.status(alice, connected=False)
            await say.status(bob, connected=False)
            assert not (await alice.send(say.message(2))).accepted
        port = address.rpartition(":")[2]
        with serving("--archive", archive, "--port", port) as (process, again):
            assert again == address
            await say.status(alice, connected=True)
            await say.status(bob, connected=True)
            assert (await alice.send(say.message(3))).accepted
            assert await say.next_of(heard) == [b"message 3"]
            stored = await bob.query(say.query())
            assert say.payloads(stored.messages) == [b"message 1", b"message 3"]
            await alice.close()
            await bob.close()
            process.send_signal(signal.SIGTERM)
            code, statistics = await asyncio.to_thread(ending, process)
            assert (code, statistics["published"], statistics["delivered"]) == (0, 1, 1)

    asyncio.run(story())


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM, "stdin"])
def test_a_server_that_is_told_to_stop_writes_everything_and_says_what_happened(say, tmp_path, way):
    archive = tmp_path / "messages.sqlite"

    async def story():
        with serving("--archive", archive, "--until-stdin-closes", "--loss", 1) as (process, address):
            async with await connect(address) as alice, await connect(address) as bob:
                await say.listen(bob)
                for number in range(10):
                    assert (await alice.send(say.message(number))).accepted
                if way == "stdin":
                    process.stdin.close()
                else:
                    process.send_signal(way)
                return await asyncio.to_thread(ending, process)

    code, statistics = asyncio.run(story())
    assert (code, statistics["published"], statistics["lost"], statistics["stored"]) == (0, 10, 10, 10)
    with NwakuArchive(archive, read_only=True) as reader:
        assert reader.count() == 10


@pytest.mark.parametrize("words", [["--loss", "2"], ["--min-delay-ms", "9"], ["--archive", os.devnull]])
def test_what_cannot_be_served_is_an_error_before_anything_is_served(words):
    result = CliRunner().invoke(app, ["network", *words])
    assert isinstance(result.exception, FairwayError)
    assert result.output == ""


def test_a_port_that_is_taken_is_an_error_with_a_next_step():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(app, ["network", "--port", str(taken.getsockname()[1])])
    assert isinstance(result.exception, NodeUnavailableError)
    assert "choose another port" in str(result.exception)
