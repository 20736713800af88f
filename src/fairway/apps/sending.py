"""Sends one message or one file, and waits until it is sent or acknowledged.

Received messages are not read: with a store they wait for a program that reads them. A message that is not acknowledged
at the end stays in the store, and the next program that opens the channel with it continues the send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from fairway.apps.settings import ChannelSettings
from fairway.channel.receipt import Progress, Receipt, Wait
from fairway.channel.reliable_channel import ReliableChannel
from fairway.environment import time_ns
from fairway.errors import ConfigurationError, DeliveryFailedError, RlnError
from fairway.events import (
    DeliveryError,
    Event,
    MessageAcknowledged,
    MessageDelivered,
    MessagePossiblyAcknowledged,
    MessageQueued,
    MessageSendError,
    MessageSending,
    MessageSent,
    RequestSent,
)
from fairway.files.sending import FileDelivery, FileProgress, is_file_request, send_file
from fairway.nodes.node import WakuNode
from fairway.nodes.proving import quota_of
from fairway.units import NS_PER_MS, counted
from fairway.wire.topics import autoshard

_OF_SENDS = (
    MessageSending,
    MessageSent,
    RequestSent,
    MessageQueued,
    MessagePossiblyAcknowledged,
    MessageAcknowledged,
    MessageDelivered,
    MessageSendError,
    DeliveryError,
)


NODE_S: Final = 10.0
"""How long a node is waited for that is not there at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendGoal:
    """What a send is to achieve."""

    wait: Wait = Wait.DELIVERED
    count: int = 1
    """Participants that must acknowledge it."""
    by: tuple[str, ...] = ()
    """Participants that must be among them."""
    timeout_s: float | None = 120.0
    """How long to wait; None: until the retries are exhausted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport:
    """How far a message came while one waited."""

    request_id: str
    message_id: str
    size_bytes: int
    reached: bool
    """Whether it got as far as was waited for."""
    failed: bool
    """Whether it ended without; otherwise its sending may go on."""
    detail: str
    """Why it was not reached; empty if it was."""
    delivered_to: tuple[str, ...]
    """Participants that are known to hold the whole message."""
    earlier_open: int
    """Earlier messages of the store whose sending went on meanwhile."""
    file: FileProgress | None = None
    """How far the file is; None for a payload that is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """The callbacks for events; each is called on the event loop."""

    event: Callable[[Event], None] = lambda _: None
    """Every event of a send."""
    progress: Callable[[Progress], None] = lambda _: None
    """Every progress of the message."""
    file_progress: Callable[[FileProgress], None] = lambda _: None
    """Every progress of the file."""
    accepted: Callable[[str, int], None] = lambda *_: None
    """The channel has the message, or the first one of the file: its message id, and the size of all that is sent."""


async def send_message(settings: ChannelSettings, payload: bytes, wish: SendGoal, watching: Watching) -> SendReport:
    """Send a payload; raise a `FairwayError` if it was not accepted."""
    _check_store(settings, wish)
    async with settings.open(needs_node=False) as (node, channel):
        for kind in _OF_SENDS:
            channel.on(kind, watching.event)
        delayed: dict[str, MessageQueued] = {}

        def note_delay(event: MessageQueued) -> None:
            if node.status.connected:  # else the message waits for the node
                delayed[event.request_id] = event

        channel.on(MessageQueued, note_delay)
        channel.on(RequestSent, lambda event: delayed.pop(event.request_id, None))
        await channel.start()
        earlier_open = channel.statistics().protocol.open_requests
        receipt = await channel.send(payload, count=wish.count, by=wish.by)
        watching.accepted(receipt.message_id, len(payload))
        following = asyncio.ensure_future(_follow(receipt, watching.progress))
        try:
            reached, delivered_to, detail = await _reach(receipt, wish, node, channel)
            if not reached and not receipt.has_ended and node.status.connected:
                detail += await _delay(node, receipt, delayed.get(receipt.request_id))
            detail += _hint(detail, channel)
            # What happened last is shown as well.
            watching.progress(receipt.progress)
        finally:
            following.cancel()
        return SendReport(
            request_id=receipt.request_id,
            message_id=receipt.message_id,
            size_bytes=len(payload),
            reached=reached,
            failed=not reached and receipt.has_ended,
            detail=detail,
            delivered_to=delivered_to,
            earlier_open=earlier_open if node.status.connected else 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileToSend:
    """A file that is sent with its name and media type."""

    path: Path
    name: str | None = None
    """What receivers see; that of the file if None."""
    media_type: str | None = None
    """What the name tells if None."""


async def send_one_file(settings: ChannelSettings, file: FileToSend, wish: SendGoal, watching: Watching) -> SendReport:
    """Send a file, in parts if it is large; raise a `FairwayError` if it was not accepted.

    ``timeout_s`` is how long to wait without any progress.
    """
    _check_store(settings, wish)
    async with settings.open(needs_node=False) as (node, channel):
        for kind in _OF_SENDS:
            channel.on(kind, watching.event)
        await channel.start()
        earlier_open = sum(not is_file_request(each) for each in channel.protocol.requests.open)
        steps = _Steps(watching)
        sending = asyncio.ensure_future(
            send_file(
                channel,
                file.path,
                name=file.name,
                media_type=file.media_type,
                count=wish.count,
                by=wish.by,
                wait=wish.wait,
                progress=steps.note,
            )
        )
        try:
            detail = await _reach_file(sending, steps, wish, node, channel)
            detail += _hint(detail, channel)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        failure = sending.exception() if not sending.cancelled() else None
        if failure is not None and not isinstance(failure, DeliveryFailedError):
            raise failure
        last = steps.last
        assert last is not None, "what ends before its first progress raises"
        return SendReport(
            request_id=last.request_id,
            message_id=last.message_id,
            size_bytes=last.size_bytes,
            reached=not detail,
            failed=failure is not None,
            detail=detail,
            delivered_to=() if detail else sending.result().delivered_to,
            earlier_open=earlier_open if node.status.connected else 0,
            file=last,
        )


class _Steps:
    """The progress of a file, and waiting for the next."""

    def __init__(self, watching: Watching) -> None:
        self.last: FileProgress | None = None
        self.changed = asyncio.Event()
        self._watching = watching

    def note(self, progress: FileProgress) -> None:
        if self.last is None:
            self._watching.accepted(progress.message_id, progress.size_bytes)
        self.last = progress
        self.changed.set()
        self._watching.file_progress(progress)


async def _reach_file(
    sending: asyncio.Future[FileDelivery], steps: _Steps, wish: SendGoal, node: WakuNode, channel: ReliableChannel
) -> str:
    """Wait while there is progress; return why the file is not where it was to be, or nothing if it is."""
    # What cannot be sent at all raises before the first progress.
    await _first((sending, asyncio.ensure_future(steps.changed.wait())), None)
    if not sending.done() and wish.wait is not Wait.NONE:
        there = asyncio.ensure_future(_is_there(node, wish))
        await _first((sending, there), None)
        if not sending.done() and not there.result():
            return _no_node(node)
    while not sending.done():
        steps.changed.clear()
        await _first((sending, asyncio.ensure_future(steps.changed.wait())), wish.timeout_s)
        if not sending.done() and not steps.changed.is_set():
            return f"no progress within {wish.timeout_s:g} s{_refusal_of(channel)}"
    error = sending.exception()
    return "" if error is None else str(error)


def _no_node(node: WakuNode) -> str:
    """Return that there is no node to send to, and why."""
    return f"not sent, because no node can be used{f': {node.status.detail}' if node.status.detail else ''}"


def _hint(detail: str, channel: ReliableChannel) -> str:
    """Return what to do if a node said that it does not serve the shard of the channel; nothing if it did not."""
    options = channel.options
    topic = autoshard(channel.content_topic, options.cluster_id, options.shard_count)
    if topic not in detail:
        return ""
    where = f"cluster {options.cluster_id} of {counted(options.shard_count, 'shard')}"
    return f". The channel is in {where}: --cluster and --shards give those of the node"


def _refusal_of(channel: ReliableChannel) -> str:
    """Return what the node said last, if it refused."""
    refusal = channel.statistics().refusal
    return f": {refusal}" if refusal else ""


async def _delay(node: WakuNode, receipt: Receipt, queued: MessageQueued | None) -> str:
    """Return that the rate limit holds a message back, and until when; nothing if it does not."""
    allowed_ms = None if queued is None else queued.expected_ms
    if queued is None:
        # What an earlier process used up, the channel learns only when it asks for the first proof.
        quota = None
        if node.rln is not None and not receipt.progress.chunks_sent:
            with suppress(RlnError):
                quota = await quota_of(node.rln, time_ns() // NS_PER_MS)
        if quota is None or quota.remaining != 0:
            return ""
        if quota.epoch_ms is not None:
            allowed_ms = (quota.epoch_index + 1) * quota.epoch_ms
    if allowed_ms is None:
        return ": the rate limit is used up"
    at = datetime.fromtimestamp(allowed_ms / 1_000).astimezone()
    return f": the rate limit is used up, and allows more at about {at:%H:%M:%S}"


async def _first(tasks: tuple[asyncio.Future[Any], asyncio.Future[Any]], timeout_s: float | None) -> None:
    """Wait until one of two is done, and end the second."""
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)


def _check_store(settings: ChannelSettings, wish: SendGoal) -> None:
    if wish.wait is Wait.NONE and settings.store is None:
        raise ConfigurationError(
            "not to wait needs a store, in which the message stays until it is sent: give --store, or --wait sent"
        )


async def _follow(receipt: Receipt, tell: Callable[[Progress], None]) -> None:
    async for progress in receipt.updates():
        tell(progress)


async def _is_there(node: WakuNode, wish: SendGoal) -> bool:
    """Wait a moment for the node, or as long as was wished if that is to the end."""
    try:
        async with asyncio.timeout(None if wish.timeout_s is None else NODE_S):
            async for status in node.status_changes():
                if status.connected:
                    return True
    except TimeoutError:
        pass
    return False


async def _reach(
    receipt: Receipt, wish: SendGoal, node: WakuNode, channel: ReliableChannel
) -> tuple[bool, tuple[str, ...], str]:
    """Wait; return whether it was reached, who has the message, and why not."""
    limit: AbstractAsyncContextManager[object] = (
        nullcontext() if wish.timeout_s is None else asyncio.timeout(wish.timeout_s)
    )
    delivered_to: tuple[str, ...] = ()
    try:
        async with limit:
            if wish.wait is not Wait.NONE and not await _is_there(node, wish):
                return False, (), _no_node(node)
            if wish.wait is Wait.SENT:
                await receipt.sent()
            elif wish.wait is Wait.DELIVERED:
                delivered_to = (await receipt.delivered(count=wish.count, by=wish.by)).delivered_to
    except DeliveryFailedError as error:
        return False, (), str(error)
    except TimeoutError:
        if wish.wait is not Wait.NONE and not node.status.connected:
            return False, (), _no_node(node)
        what = "acknowledged as asked" if wish.wait is Wait.DELIVERED else "sent"
        return False, (), f"not {what} within {wish.timeout_s:g} s{_refusal_of(channel)}"
    return True, delivered_to, ""
