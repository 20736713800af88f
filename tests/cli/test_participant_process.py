"""`fairway participant` as a process of its own, over a network that is another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from fairway.wire.file_message import WholeFile, encode_file_message
from patience import PATIENCE_S

QUICK = ("--retry-interval-ms", "300", "--sync-interval-ms", "200")
Line = dict[str, Any]


class Child:
    """A process of the command line, whose lines of JSON are read as they come."""

    def __init__(self, *words: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from fairway.cli import main; main()", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        self.told: list[Line] = []
        self.lines: Queue[bytes] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(b"")

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def command(self, name: str, **fields: Any) -> None:
        self.write(json.dumps({"command": name, **fields}))

    def line(self) -> Line:
        """Return the next line."""
        try:
            line = self.lines.get(timeout=PATIENCE_S)
        except Empty:
            raise AssertionError(f"nothing came after {self.told}") from None
        assert line, f"the process ended after {self.told}"
        told: Line = json.loads(line)
        self.told.append(told)
        return told

    def until(self, event: str, **fields: Any) -> Line:
        """Return the next line of a kind with these fields, skipping others."""
        while True:
            told = self.line()
            if told.get("event") == event and fields.items() <= told.items():
                return told

    def end(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """End it by a signal, or by closing its input; return exit code and stderr."""
        assert self.process.stdin is not None
        if number is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE_S)
        else:
            self.process.stdin.close()
            self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.stderr is not None
        told = self.process.stderr.read().decode()
        self.close()
        return self.process.returncode, told

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()


class House:
    """A node process, and participants of one channel."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: list[Child] = []
        self.node = self._child("node", "--json", "--state", str(folder / "state"))
        self.address = self.node.line()["multiaddrs"][0]

    def _child(self, *words: str, **environment: str) -> Child:
        child = Child(*words, **environment)
        self._children.append(child)
        return child

    def participant(self, name: str, *words: str) -> Child:
        child = self._child(
            "participant",
            *("--sender", name, "--store", str(self.folder / f"{name}.db"), *QUICK, *words),
            FAIRWAY_NODE=self.address,
            FAIRWAY_CHANNEL="team",
        )
        assert child.line()["event"] == "ready"
        return child

    def run(self, *words: str) -> Child:
        return self._child(*words, FAIRWAY_NODE=self.address, FAIRWAY_CHANNEL="team")

    def close(self) -> None:
        for child in self._children:
            child.close()


@contextmanager
def house_in(folder: Path) -> Iterator[House]:
    house = House(folder)
    try:
        yield house
    finally:
        house.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with house_in(tmp_path) as opened:
        yield opened


TIDES = WholeFile(name="tides.txt", media_type="text/plain", content=b"low water at noon")


def test_two_processes_exchange_a_text_and_a_file_and_end_well(house: House, tmp_path: Path):
    (tmp_path / "file").write_bytes(os.urandom(300_000))
    alice = house.participant("alice")
    bob = house.participant("bob", "--save", str(tmp_path / "in"))
    assert alice.told[0]["pid"] == alice.process.pid
    alice.command("send", text="hello", tag=1)
    accepted = alice.until("accepted", tag=1)
    assert bob.until("message-received")["sha256"] == accepted["sha256"]
    alice.until("message-delivered", request_id=accepted["request_id"])
    alice.command("send", file=str(tmp_path / "file"))
    received = bob.until("message-received")
    assert (received["size"], len(received["sds_ids"])) == (300_000, 3)
    assert (tmp_path / "in" / received["message_id"]).read_bytes() == (tmp_path / "file").read_bytes()
    alice.command("send", base64=b64encode(encode_file_message(TIDES)).decode())
    received = bob.until("message-received")
    assert received["saved"] == str(tmp_path / "in" / "tides.txt")
    assert (received["file"]["type"], received["file"]["media_type"]) == ("FileReceived", "text/plain")
    assert (tmp_path / "in" / "tides.txt").read_bytes() == TIDES.content
    alice.write("rubbish")
    assert "the commands are" in alice.until("error")["detail"]
    assert alice.end() == (0, "")
    assert alice.told[-1]["event"] != "stopped"
    assert bob.end(signal.SIGTERM) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_signal_stops_it_with_a_last_word(house: House, number: signal.Signals):
    alice = house.participant("alice")
    alice.process.send_signal(number)
    alice.until("stopped")
    assert alice.end() == (0, "")


@pytest.mark.full
def test_after_kill_9_what_was_accepted_is_sent_and_what_was_told_is_not_told_again(house: House):
    alice = house.participant("alice")
    # Nobody is there: what alice accepts waits in her store, and is killed with her.
    accepted = []
    for number in range(20):
        alice.command("send", text=f"message {number}", tag=number, request_id=f"request-{number}")
        accepted.append(alice.until("accepted", tag=number)["message_id"])
    alice.end(signal.SIGKILL)
    bob = house.participant("bob")
    alice = house.participant("alice")
    received = [bob.until("message-received") for _ in range(20)]
    assert [each["message_id"] for each in received] == accepted
    assert not any(each["redelivered"] for each in received)
    bob.end(signal.SIGKILL)
    bob = house.participant("bob")
    alice.command("send", text="message 0", request_id="request-0", tag="again")
    assert alice.until("accepted", tag="again")["message_id"] == accepted[0]
    alice.command("send", text="the last")
    # The line of the last message may have been on its way when bob was killed: then it comes again, and says so.
    seen = {sds_id for each in received for sds_id in each["sds_ids"]}
    while (each := bob.until("message-received"))["size"] != len("the last"):
        assert each["redelivered"] is True
        assert set(each["sds_ids"]) <= seen


@pytest.mark.full
def test_one_process_per_store(house: House):
    house.participant("alice")
    second = house.run("participant", "--sender", "alice", "--store", str(house.folder / "alice.db"))
    assert second.until("error")["error"] == "StoreLockedError"
    code, told = second.end()
    assert code == 2
    assert told.startswith("fairway: ")
    assert told.count("\n") == 1


@pytest.mark.full
def test_send_and_tail_meet_over_the_network_and_trace_tells_the_story(house: House):
    tail = house.run("tail", "--sender", "bob", "--count", "1", "--json", *QUICK)
    send = house.run("send", "--sender", "alice", "--store", str(house.folder / "alice.db"), "--json", *QUICK, "hello")
    received = tail.until("message-received")
    report = send.until("send-report")
    assert (report["reached"], report["delivered_to"]) == (True, ["bob"])
    assert received["message_id"] == report["message_id"]
    assert tail.end() == (0, "")
    assert send.end() == (0, "")
    trace = house.run("trace", report["message_id"][:10], "--store", str(house.folder / "alice.db"), "--json")
    told = trace.line()
    assert told["message_id"] == report["message_id"]
    assert told["sendings"][0]["request"]["outcome"] == "delivered"
    assert trace.end() == (0, "")


@pytest.mark.full
def test_two_people_chat_over_pipes(house: House):
    alice = house.run("chat", "--sender", "alice", *QUICK)
    bob = house.run("chat", "--sender", "bob", *QUICK)
    alice.write("hello bob")
    assert "alice  hello bob" in plain(bob, "hello bob")
    assert "bob" in plain(alice, "✓")
    alice.write("/quit")
    assert alice.end() == (0, "")
    assert bob.end() == (0, "")


def plain(child: Child, words: str) -> str:
    """Return the next line of text with these words."""
    while True:
        line = child.lines.get(timeout=PATIENCE_S).decode()
        assert line, "the process ended"
        if words in line:
            return line


@pytest.mark.full
def test_a_participant_tells_that_its_node_is_gone(house: House):
    alice = house.participant("alice")
    house.node.process.kill()
    assert alice.until("node-status", connected=False)["health"] == "unhealthy"
    alice.command("send", text="kept until it is back", tag="late")
    alice.until("accepted", tag="late")
