"""`fairway participant` and `fairway chat` as processes, over the network of a node that is another process."""

from __future__ import annotations

import os
import signal
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairway.wire.file_message import WholeFile, encode_file_message
from fairway_processes import ParticipantProcess, ProcessGroup, fairway_command
from patience import PATIENCE_S, run, until

QUICK = ("--options", '{"retry_interval_ms": 300, "sync_min_interval_ms": 200}')
TIDES = WholeFile(name="tides.txt", media_type="text/plain", content=b"low water at noon")
Line = Mapping[str, Any]


class Child(ParticipantProcess):
    """A process of a command, and the lines that it printed."""

    def __init__(self, folder: Path, command: str, name: str, *words: str) -> None:
        super().__init__(name, fairway_command(command, *words), folder / f"{name}.log", self._keep)
        self.printed: list[Line] = []

    def _keep(self, line: Line) -> None:
        self.printed.append(line)

    async def line(self, event: str, **fields: Any) -> Line:
        """Wait for a line with this event and these fields; take it and all before it."""

        def found() -> int | None:
            self.check()
            wanted = {"event": event, **fields}.items()
            return next((place for place, line in enumerate(self.printed) if wanted <= line.items()), None)

        await until(lambda: found() is not None, f"{event} {fields} of {self.name}")
        place = found()
        assert place is not None
        line = self.printed[place]
        del self.printed[: place + 1]
        return line


class House:
    """A node process, and participants of one channel."""

    def __init__(self, folder: Path, group: ProcessGroup) -> None:
        self._folder, self._group = folder, group
        self._address = ""

    async def open(self) -> None:
        node = Child(self._folder, "node", "node", "--json", "--state", str(self._folder / "state"))
        self._group.add(node)
        await node.start()
        await until(lambda: node.printed)
        self._address = node.printed[0]["multiaddrs"][0]

    async def participant(self, name: str, *words: str) -> Child:
        place = ("--node", self._address, "--channel", "team", "--sender", name)
        store = ("--store", str(self._folder / f"{name}.db"))
        child = Child(self._folder, "participant", name, *place, *store, *QUICK, *words)
        self._group.add(child)
        await child.start()
        assert (await child.line("ready"))["pid"] == child.pid
        return child


@asynccontextmanager
async def house_in(folder: Path) -> AsyncIterator[House]:
    async with ProcessGroup() as group:
        house = House(folder, group)
        await house.open()
        yield house


def test_two_processes_exchange_a_text_and_a_file_and_end_well(tmp_path: Path):
    (tmp_path / "file").write_bytes(os.urandom(300_000))

    async def work() -> None:
        async with house_in(tmp_path) as house:
            alice = await house.participant("alice")
            bob = await house.participant("bob", "--save", str(tmp_path / "in"))
            alice.tell(command="send", text="hello", tag=1)
            accepted = await alice.line("accepted", tag=1)
            assert (await bob.line("message-received"))["sha256"] == accepted["sha256"]
            await alice.line("message-delivered", request_id=accepted["request_id"])
            alice.tell(command="send", file=str(tmp_path / "file"))
            received = await bob.line("message-received")
            assert (received["size"], len(received["sds_ids"])) == (300_000, 3)
            assert (tmp_path / "in" / received["message_id"]).read_bytes() == (tmp_path / "file").read_bytes()
            alice.tell(command="send", base64=b64encode(encode_file_message(TIDES)).decode())
            received = await bob.line("message-received")
            assert received["saved"] == str(tmp_path / "in" / "tides.txt")
            assert (received["file"]["type"], received["file"]["media_type"]) == ("FileReceived", "text/plain")
            assert (tmp_path / "in" / "tides.txt").read_bytes() == TIDES.content
            assert (await alice.end(), await bob.end()) == (0, 0)

    run(work())


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_signal_stops_it_after_a_last_line(tmp_path: Path, number: signal.Signals):
    async def work() -> None:
        async with house_in(tmp_path) as house:
            alice = await house.participant("alice")
            assert alice.pid is not None
            os.kill(alice.pid, number)
            await alice.line("stopped")
            assert await alice.end() == 0

    run(work())


def test_a_chat_reads_lines_from_a_pipe():
    words = ("chat", "--node", "local:", "--channel", "team", "--sender", "alice")
    ended = subprocess.run(
        fairway_command(*words),
        input="hello bob\n/quit\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert "alice  hello bob" in ended.stdout
