"""A participant driven by lines: what it answers, what it tells, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairway.cli._lines import LineReader
from fairway.cli._settings import ChannelSettings
from fairway.cli.participant import run_participant
from fairway.errors import ConfigurationError, NodeUnavailableError, StorageError
from patience import PATIENCE_S, run

MakeSettings = Callable[..., ChannelSettings]
Line = dict[str, Any]


class Driver:
    """The other end of one participant that runs in this process."""

    def __init__(self, settings: ChannelSettings, **reporting: Any) -> None:
        commands_out, self._commands = os.pipe()
        events_out, self._events = os.pipe()
        self._pipes = [commands_out, events_out]
        self._reader = LineReader(events_out)
        self.told: list[Line] = []
        self.running = asyncio.ensure_future(
            run_participant(settings, commands=commands_out, events=self._events, **reporting)
        )

    def command(self, name: str, **fields: Any) -> None:
        self.write(json.dumps({"command": name, **fields}).encode() + b"\n")

    def write(self, line: bytes) -> None:
        os.write(self._commands, line)

    async def line(self, event: str, **fields: Any) -> Line:
        """Return the next line of a kind with these fields, skipping others."""
        async for line in self._reader:
            assert isinstance(line, bytes)
            told: Line = json.loads(line)
            self.told.append(told)
            if told["event"] == event and fields.items() <= told.items():
                return told
        raise AssertionError(f"no {event} {fields} among {self.told}")

    async def close(self) -> None:
        os.close(self._commands)
        draining = asyncio.ensure_future(self._drain())
        await asyncio.wait([self.running], timeout=PATIENCE_S)
        os.close(self._events)
        await draining
        for pipe in self._pipes:
            os.close(pipe)

    async def _drain(self) -> None:
        """Read on: a participant that nobody listens to waits for a while before it gives up."""
        async for _ in self._reader:
            continue


@asynccontextmanager
async def driven(settings: ChannelSettings, **reporting: Any) -> AsyncIterator[Driver]:
    driver = Driver(settings, **reporting)
    try:
        yield driver
    finally:
        await driver.close()


def test_a_message_is_accepted_received_and_delivered(make_settings: MakeSettings, tmp_path: Path):
    async def work() -> None:
        async with (
            driven(make_settings("alice")) as alice,
            driven(make_settings("bob"), save=tmp_path, payloads=True) as bob,
        ):
            ready = await bob.line("ready")
            assert (ready["sender_id"], ready["channel_id"], ready["pid"]) == ("bob", "team", os.getpid())
            assert ready["content_topic"] == "/fairway/1/team/proto"
            await alice.line("ready")
            alice.command("send", text="hello", tag={"n": 1}, by=["bob"])
            accepted = await alice.line("accepted")
            assert (accepted["size"], accepted["tag"], accepted["outcome"]) == (5, {"n": 1}, None)
            assert accepted["sha256"] == accepted["message_id"]
            received = await bob.line("message-received")
            assert received["message_id"] == accepted["message_id"]
            assert (received["sender_id"], received["payload_base64"], received["size"]) == ("alice", "aGVsbG8=", 5)
            assert (received["redelivered"], received["ephemeral"], received["dependencies_met"]) == (
                False,
                False,
                True,
            )
            assert (tmp_path / received["message_id"]).read_bytes() == b"hello"
            delivered = await alice.line("message-delivered", request_id=accepted["request_id"])
            assert delivered["delivered_to"] == ["bob"]
            alice.command("send_ephemeral", text="typing", tag=1)
            assert (await alice.line("accepted", tag=1))["ephemeral"] is True
            assert (await bob.line("message-received", ephemeral=True))["size"] == 6

    run(work())


def test_an_answer_precedes_the_events_of_its_request_and_sends_keep_their_order(make_settings: MakeSettings):
    async def work() -> None:
        async with driven(make_settings("alice")) as alice, driven(make_settings("bob")) as bob:
            await alice.line("ready")
            await bob.line("ready")
            for number in range(300):
                alice.command("send", text=f"message {number}", tag=number)
            last = await alice.line("accepted", tag=299)
            await alice.line("request-sent", request_id=last["request_id"])
            answered: set[str] = set()
            for told in alice.told:
                if told["event"] == "accepted":
                    answered.add(told["request_id"])
                elif "request_id" in told:
                    assert told["request_id"] in answered, told
            sent = {told["message_id"]: told["tag"] for told in alice.told if told["event"] == "accepted"}
            received = [(await bob.line("message-received"))["message_id"] for _ in range(300)]
            assert [sent[message_id] for message_id in received] == list(range(300))

    run(work())


@pytest.mark.parametrize(
    ("line", "error", "detail"),
    [
        (b"rubbish\n", "ConfigurationError", "the commands are"),
        (b'{"command":"send","tag":5,"text":""}\n', "EmptyPayloadError", "at least one byte"),
        (b'{"command":"send","tag":5,"text":"a","by":["alice"]}\n', "ConfigurationError", "alice"),
        (b'{"command":"send","tag":5,"file":"not there"}\n', "ConfigurationError", "cannot be read"),
        (b'{"command":"send","tag":5,"text":"' + b"x" * 2_000_000 + b'"}\n', "MessageTooLargeError", "at most"),
        (b"x" * 40_000_000 + b"\n", "ConfigurationError", "the line has more than"),
    ],
    ids=["no json", "empty", "by oneself", "no file", "too large", "too long"],
)
def test_a_wrong_command_is_answered_with_an_error_and_the_participant_continues(
    make_settings: MakeSettings, line: bytes, error: str, detail: str
):
    async def work() -> None:
        async with driven(make_settings("alice")) as alice:
            await alice.line("ready")
            await asyncio.to_thread(alice.write, line)
            told = await alice.line("error")
            assert told["error"] == error
            assert detail in told["detail"]
            assert told["tag"] == (5 if b'"tag":5' in line else None)
            alice.write(b"\n  \n")
            alice.command("statistics")
            await alice.line("statistics")

    run(work())


def test_stop_ends_a_participant_after_all_earlier_commands_are_accepted(make_settings: MakeSettings, tmp_path: Path):
    async def work() -> None:
        async with driven(make_settings("alice", tmp_path / "alice.db")) as alice:
            for number in range(50):
                alice.command("send", text=f"message {number}", tag=number)
            alice.command("stop")
            alice.command("send", text="too late", tag="late")
            await alice.line("stopped")
            await alice.running
            answered = [told["tag"] for told in alice.told if told["event"] == "accepted"]
            assert answered == list(range(50))

    run(work())


def test_a_repeated_request_sends_nothing_and_is_answered_with_its_outcome(make_settings: MakeSettings, tmp_path: Path):
    settings = make_settings("alice", tmp_path / "alice.db")

    async def work() -> None:
        async with driven(make_settings("bob")) as bob:
            await bob.line("ready")
            async with driven(settings) as alice:
                alice.command("send", text="once", request_id="mine")
                assert (await alice.line("accepted"))["outcome"] is None
                await alice.line("message-delivered", request_id="mine")
            async with driven(settings) as alice:
                alice.command("send", text="once", request_id="mine")
                outcome = (await alice.line("accepted", request_id="mine"))["outcome"]
                assert (outcome["delivered"], outcome["delivered_to"]) == (True, ["bob"])
                alice.command("send", text="other", request_id="mine", tag=1)
                assert "used for another payload" in (await alice.line("error", tag=1))["detail"]
            await bob.line("message-received")
            bob.command("statistics")
            await bob.line("statistics")
            assert [told["event"] for told in bob.told].count("message-received") == 1

    run(work())


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"node": "carrier-pigeon:"}, ConfigurationError),
        ({"node": "/ip4/127.0.0.1/tcp/1"}, NodeUnavailableError),
        ({"channel_id": ""}, ConfigurationError),
        ({"content_topic": "no topic"}, ConfigurationError),
        ({"store": Path("no such folder") / "alice.db"}, StorageError),
    ],
    ids=["address", "nobody there", "channel", "topic", "store"],
)
def test_a_failed_start_is_printed_and_raised(
    make_settings: MakeSettings, changed: dict[str, Any], error: type[Exception], monkeypatch: pytest.MonkeyPatch
):
    from dataclasses import replace

    async def work() -> None:
        async with driven(replace(make_settings("alice"), **changed)) as alice:
            told = await alice.line("error")
            with pytest.raises(error) as raised:
                await alice.running
            assert (told["error"], told["detail"]) == (type(raised.value).__name__, str(raised.value))
            assert alice.told == [told]

    run(work())


def test_a_participant_ends_when_its_output_is_closed(make_settings: MakeSettings):
    async def work() -> None:
        commands_out, commands = os.pipe()
        events_out, events = os.pipe()
        os.close(events_out)
        running = asyncio.ensure_future(run_participant(make_settings("alice"), commands=commands_out, events=events))
        try:
            os.write(commands, b'{"command":"send","text":"x"}\n')
            os.close(commands)
            await running
        finally:
            os.close(commands_out)
            os.close(events)

    run(work())
