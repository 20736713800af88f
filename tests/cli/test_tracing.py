"""The story of a message, told from the stores of those who took part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from fairway.cli._settings import ChannelSettings
from fairway.cli.send import SendGoal, SendReport, send
from fairway.cli.tail import Until, tail
from fairway.cli.trace import describe, trace_message
from fairway.errors import ConfigurationError, StorageError
from fairway.events import MessageReceived, MessageSent, RequestSent
from fairway.files.sending import Wait
from fairway.nodes.local.network import process_network
from fairway.options import SegmentationConfig
from fairway.storage.channel_store import SendOutcome, TracePoint, Write
from fairway.storage.sqlite_store import SqliteStore
from patience import PATIENCE_S, until

MakeSettings = Callable[..., ChannelSettings]
SIZE = 250_000


class Story:
    """A message that alice sent to bob, and the stores of both."""

    def __init__(self, make_settings: MakeSettings, folder: Path) -> None:
        self.alice, self.bob = folder / "alice.db", folder / "bob.db"
        self.settings = make_settings("alice", self.alice), make_settings("bob", self.bob)
        self.report: SendReport = asyncio.run(self._happen())

    async def _happen(self) -> SendReport:
        alice, bob = self.settings
        async with asyncio.timeout(PATIENCE_S):
            receiving = asyncio.ensure_future(tail(bob, Until(count=1), lambda *_: None))
            await until(lambda: process_network(bob.node.removeprefix("local:")).nodes)
            report = await send(alice, b"x" * SIZE, SendGoal(timeout_s=PATIENCE_S))
            await receiving
        assert report.reached
        return report

    def send(self, payload: bytes) -> SendReport:
        return asyncio.run(send(self.settings[0], payload, SendGoal(wait=Wait.NONE)))


@pytest.fixture
def story(make_settings: MakeSettings, tmp_path: Path) -> Story:
    return Story(make_settings, tmp_path)


def test_a_trace_has_the_send_its_transmissions_and_its_receipts(story: Story):
    trace = trace_message(story.report.message_id, [story.alice, story.bob])
    assert trace is not None
    ((who, request),) = trace.sends
    assert (who, request.request_id) == ("alice", story.report.request_id)
    assert (request.outcome, request.size_bytes, request.delivered_to) == (SendOutcome.DELIVERED, SIZE, ("bob",))
    sent = [step.event for step in trace.steps if isinstance(step.event, MessageSent)]
    assert {event.chunk_info.chunk_index for event in sent if not event.chunk_info.is_parity} == {0, 1, 2}
    (receipt,) = trace.receipts
    assert (receipt.who, receipt.size_bytes) == ("bob", SIZE)
    assert isinstance(receipt.event, MessageReceived)
    assert set(receipt.event.message_hashes) <= {event.message_hash for event in sent}
    times = [step.at_ms for step in trace.steps]
    assert times == sorted(times)
    assert all(describe(step.event) for step in trace.steps)


def test_a_message_is_found_by_the_beginning_of_its_id_by_request_and_by_sds_id(story: Story):
    whole = trace_message(story.report.message_id, [story.alice, story.bob])
    assert whole is not None
    received = whole.receipts[0].event
    assert isinstance(received, MessageReceived)
    for identifier in (story.report.message_id[:8].upper(), story.report.request_id, received.sds_ids[0]):
        assert trace_message(identifier, [story.alice, story.bob]) == whole


def test_a_message_is_found_in_one_of_many_channels_of_a_store(story: Story):
    file = SqliteStore(story.alice)
    for number in range(3):
        store = file.beside()
        store.open(f"room-{number}", "alice", "/fairway/1/room/proto")
        event = RequestSent(request_id=f"r{number}", message_id="ab" * 32 if number else "cd" * 32)
        store.submit(Write(trace=(TracePoint(at_ms=number, event=event),)), lambda _: None)
        store.close()
    whole = trace_message(story.report.message_id, [story.alice, story.bob])
    assert whole == trace_message(story.report.message_id, [story.alice, story.bob], whole.channel_id if whole else "")
    assert whole is not None
    assert whole.receipts
    single = trace_message("cd" * 32, [story.alice])
    assert single is not None
    assert (single.channel_id, len(single.steps)) == ("room-0", 1)
    with pytest.raises(ConfigurationError, match="is in the channels room-1, room-2; name one with --channel"):
        trace_message("ab" * 32, [story.alice])
    chosen = trace_message("ab" * 32, [story.alice], "room-2")
    assert chosen is not None
    assert [step.at_ms for step in chosen.steps] == [2]
    with pytest.raises(ConfigurationError, match="no channel room-9"):
        trace_message("ab" * 32, [story.alice], "room-9")


def test_two_requests_with_the_same_message_have_separate_traces(story: Story):
    again = story.send(b"x" * SIZE)
    assert again.message_id == story.report.message_id
    both = trace_message(again.message_id, [story.alice])
    one = trace_message(again.request_id, [story.alice])
    assert both is not None
    assert one is not None
    assert [request.request_id for _, request in both.sends] == [story.report.request_id, again.request_id]
    assert [request.request_id for _, request in one.sends] == [again.request_id]


def test_an_unknown_message_has_no_trace(story: Story):
    assert trace_message("f" * 64, [story.alice, story.bob]) is None
    # Too short to be taken for the beginning of an id.
    assert trace_message(story.report.message_id[:3], [story.alice]) is None


def test_a_prefix_of_several_ids_raises_and_lists_them(story: Story, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fairway.cli.trace.SHORTEST_PREFIX", 0)
    other = story.send(b"another")
    with pytest.raises(ConfigurationError, match="the beginning of 2 message ids") as error:
        trace_message("", [story.alice])
    assert other.message_id in str(error.value)


def test_a_missing_store_and_no_store_raise(tmp_path: Path):
    with pytest.raises(StorageError, match="there is no store"):
        trace_message("abcd", [tmp_path / "nowhere.db"])
    with pytest.raises(ConfigurationError, match="--store"):
        trace_message("abcd", [])


@pytest.mark.parametrize("stores", [("alice",), ("bob",), ("alice", "bob")], ids="+".join)
def test_a_file_has_its_name_and_its_parts_from_any_store(make_settings: MakeSettings, tmp_path: Path, stores):
    small = SegmentationConfig(segment_size_bytes=1_024, max_message_size_bytes=10_240)
    settings = {name: make_settings(name, tmp_path / f"{name}.db", segmentation=small) for name in ("alice", "bob")}
    (tmp_path / "chart.pdf").write_bytes(bytes(50_000))

    async def happen() -> SendReport:
        async with asyncio.timeout(PATIENCE_S):
            receiving = asyncio.ensure_future(
                tail(settings["bob"], Until(count=1), lambda *_: None, save=tmp_path / "in")
            )
            await until(lambda: process_network(settings["bob"].node.removeprefix("local:")).nodes)
            report = await send(settings["alice"], tmp_path / "chart.pdf", SendGoal(timeout_s=PATIENCE_S))
            await receiving
        return report

    manifest = asyncio.run(happen()).message_id
    files = [tmp_path / f"{name}.db" for name in stores]
    trace = trace_message(manifest, files)
    assert trace is not None
    assert trace.file is not None
    assert (trace.file.name, trace.file.size_bytes, trace.file.total_parts) == ("chart.pdf", 50_000, 5)
    first, *parts = trace.file.messages
    assert (first.message_id, first.part) == (manifest, None)
    assert [part.part for part in parts] == list(range(5))
    assert {part.outcome for part in parts} == {SendOutcome.DELIVERED if "alice" in stores else None}
    assert {tuple(part.received_by) for part in parts} == {("bob",) if "bob" in stores else ()}
    of_part = trace_message(parts[3].message_id, files)
    assert of_part is not None
    assert of_part.file == trace.file
