"""`Dispatcher`: sends rows through a Waku node, each message once; a ledger keeps the state of each message.

Invariant: a message that was sent according to the ledger is not sent again. If a task died while it sent a message,
the dispatcher first queries the store of the node. If it must send the message again, the copy has the same bytes and
hash, so that relays and stores recognise it.

An ephemeral message is sent immediately or never (RELIABLE-CHANNEL-API, "Ephemeral messages"). It has one attempt, none
after its time, and none if an earlier attempt has an unknown result. Otherwise it is dropped; its receipt has the
reason.

Relays and stores reject messages with an old timestamp. So a late message may get a new timestamp before each attempt;
the ledger has the hash of its row and the hash of the sent message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from fairway.errors import ConfigurationError, StoreQueryError
from fairway.nodes.node import RoutedMessage, StoreQuery, WakuNode
from fairway.pipeline.sinks.ledger import Claim, ReceiptLedger, ReceiptStatus
from fairway.storage.lip76 import Shards
from fairway.units import NS_PER_MS, NS_PER_S
from fairway.wire.waku_message import WakuMessage

FIRST_PAUSE_S: Final = 1.0
"""Pause before the second attempt; each further pause is twice as long."""
_LONGEST_PAUSE_S: Final = 60.0

_LONGEST_STEP_S: Final = 1.0
"""Longest step of a wait; after each step an interruption or a change of the clock takes effect."""

REQUIRED_COLUMNS: Final = ("content_topic", "payload", "timestamp_ns")
"""The columns that a row must have; the timestamp makes all attempts the same message."""


@dataclass(slots=True)
class DispatchCounts:
    """The number of rows by result."""

    sent: int = 0
    found: int = 0
    """Rows whose message was sent before, or by another task."""
    refused: int = 0
    failed: int = 0
    later: int = 0
    """Rows with a time of sending beyond the longest wait of the task; they have no receipt."""
    dropped: int = 0
    """Ephemeral messages that could not be sent in their time."""

    def __add__(self, other: DispatchCounts) -> DispatchCounts:
        """Return the sum of both."""
        return DispatchCounts(
            sent=self.sent + other.sent,
            found=self.found + other.found,
            refused=self.refused + other.refused,
            failed=self.failed + other.failed,
            later=self.later + other.later,
            dropped=self.dropped + other.dropped,
        )

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return self.sent + self.found + self.refused + self.failed + self.later + self.dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatcher:
    """Sends the rows of one task, one after the other."""

    node: WakuNode
    ledger: ReceiptLedger
    run: str
    task: int
    shards: Shards = field(default_factory=Shards)
    """Determines the pubsub topic of a row without one."""
    attempts: int = 3
    """Attempts at a message, unless the node refuses it permanently or does not serve its shard. Refusals for the
    node's rate limit do not count."""
    longest_wait_s: float = 3_600.0
    """Longest wait for the ``not_before_ms`` of a row, or for the rate limit of the node."""
    restamp_after_ms: int | None = None
    """Age at which an unsent message gets a new timestamp; None: never."""
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    now_ns: Callable[[], int] = time.time_ns

    async def send_all(self, rows: Iterable[Mapping[str, Any]]) -> DispatchCounts:
        """Send rows and return the counts; the ledger gets a receipt for each row that is due."""
        outcome = DispatchCounts()
        for row in rows:
            outcome += await self._send(row)
        return outcome

    async def _send(self, row: Mapping[str, Any]) -> DispatchCounts:
        try:
            message = message_of(row, self.shards)
        except ConfigurationError as error:
            self._refuse(row, str(error))
            return DispatchCounts(refused=1)
        if not await self._its_time_has_come(row):
            return DispatchCounts(later=1)
        claim = self._claim(message)
        if claim in {Claim.SETTLED, Claim.ANOTHERS}:
            return DispatchCounts(found=1)
        key, message = message.message_hash, self._as_it_left(message)
        if message.message.ephemeral and (why := self._why_dropped(row, claim)):
            self.ledger.settle(key, ReceiptStatus.DROPPED, detail=why, attempts=int(claim is Claim.IN_DOUBT))
            return DispatchCounts(dropped=1)
        if claim is Claim.IN_DOUBT:
            arrived = await self._arrived(message)
            if arrived:
                self.ledger.settle(key, ReceiptStatus.SENT, detail="found in the store", attempts=0)
                return DispatchCounts(found=1)
        may_restamp = claim is Claim.MINE or arrived is False
        status, detail, attempts = await self._transmit(key, message, may_restamp=may_restamp)
        self.ledger.settle(key, status, detail=detail, attempts=attempts)
        return DispatchCounts(
            sent=int(status is ReceiptStatus.SENT),
            refused=int(status is ReceiptStatus.REFUSED),
            failed=int(status is ReceiptStatus.FAILED),
            dropped=int(status is ReceiptStatus.DROPPED),
        )

    def _why_dropped(self, row: Mapping[str, Any], claim: Claim) -> str | None:
        """Return the reason to drop an ephemeral message; None to send it."""
        if claim is Claim.IN_DOUBT:
            return "it was on its way when a process ended, and may have left"
        not_after_ms = row.get("not_after_ms")
        if not_after_ms is not None and self.now_ns() >= not_after_ms * NS_PER_MS:
            return "its epoch of the rate limit is over"
        return row.get("dropped")

    async def _its_time_has_come(self, row: Mapping[str, Any]) -> bool:
        """Wait for the ``not_before_ms`` of a row; return False if the wait would exceed ``longest_wait_s``."""
        not_before_ms = row.get("not_before_ms")
        if not_before_ms is None:
            return True
        waited_s = 0.0
        while (left_s := not_before_ms / 1_000 - self.now_ns() / NS_PER_S) > 0:
            if waited_s + left_s > self.longest_wait_s:
                return False
            step_s = min(left_s, _LONGEST_STEP_S)
            await self.pause(step_s)
            waited_s += step_s
        return True

    def _as_it_left(self, message: RoutedMessage) -> RoutedMessage:
        """Return a message with the new timestamp of an earlier attempt, if it has one."""
        stamp = self.ledger.stamp(message.message_hash)
        return message if stamp is None else _stamped(message, stamp)

    def _restamped(self, key: bytes, message: RoutedMessage) -> RoutedMessage:
        """Return a message with the present time if its own is too old; the ledger gets the new timestamp first."""
        now_ns, stamp = self.now_ns(), message.message.timestamp_ns or 0
        if self.restamp_after_ms is None or now_ns - stamp <= self.restamp_after_ms * NS_PER_MS:
            return message
        message = _stamped(message, now_ns)
        self.ledger.restamp(key, now_ns, message.message_hash)
        return message

    async def _transmit(
        self, key: bytes, message: RoutedMessage, *, may_restamp: bool
    ) -> tuple[ReceiptStatus, str, int]:
        is_ephemeral = message.message.ephemeral
        pause_s, waited_s = FIRST_PAUSE_S, 0.0
        made = failed = 0
        while True:
            if may_restamp:
                message = self._restamped(key, message)
            made += 1
            result = await self.node.send(message)
            if result.accepted or result.permanent or result.unserved:
                return ReceiptStatus.SENT if result.accepted else ReceiptStatus.REFUSED, result.detail, made
            if is_ephemeral:
                return ReceiptStatus.DROPPED, result.detail, made
            # A refusal for the rate limit is no failure of the message: the node accepts it later.
            failed += not result.too_many
            if failed >= self.attempts or (result.too_many and waited_s + pause_s > self.longest_wait_s):
                return ReceiptStatus.FAILED, result.detail, made
            await self.pause(pause_s)
            waited_s += pause_s
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _arrived(self, message: RoutedMessage) -> bool | None:
        """Return whether the store has a message; None if it cannot be queried."""
        if not self.node.status.store:
            return None
        try:
            page = await self.node.query(StoreQuery(message_hashes=(message.message_hash,)))
        except StoreQueryError:
            return None
        return any(found.message_hash == message.message_hash for found in page.messages)

    def _claim(self, message: RoutedMessage) -> Claim:
        content = message.message
        return self.ledger.claim(
            message.message_hash,
            message.pubsub_topic,
            content.content_topic,
            content.timestamp_ns,
            run=self.run,
            task=self.task,
        )

    def _refuse(self, row: Mapping[str, Any], why: str) -> None:
        """Write a receipt for an invalid row, under a hash of the row."""
        key = sha256(repr(sorted(row.items())).encode()).digest()
        topics = (row.get("pubsub_topic") or "", row.get("content_topic") or "")
        if self.ledger.claim(key, *topics, row.get("timestamp_ns"), run=self.run, task=self.task) is not Claim.SETTLED:
            self.ledger.settle(key, ReceiptStatus.REFUSED, detail=why, attempts=0)


def message_of(row: Mapping[str, Any], shards: Shards) -> RoutedMessage:
    """Return the message of a row; raise `ConfigurationError` for an invalid row.

    Columns: `REQUIRED_COLUMNS`; ``pubsub_topic``, by default the shard of the content topic; optionally ``version``,
    ``meta`` and ``ephemeral``; ``message_hash``, if present, must be the hash of the message.
    """
    lacking = ", ".join(name for name in REQUIRED_COLUMNS if row.get(name) is None)
    if lacking:
        raise ConfigurationError(f"the row has no {lacking}")
    pubsub_topic = row.get("pubsub_topic") or shards.of(row["content_topic"])
    if not pubsub_topic:
        raise ConfigurationError(f"no pubsub_topic, and the content topic {row['content_topic']!r} has no shard")
    message = RoutedMessage.of(
        pubsub_topic,
        WakuMessage(
            payload=bytes(row["payload"]),
            content_topic=row["content_topic"],
            version=row.get("version"),
            timestamp_ns=row["timestamp_ns"],
            meta=row.get("meta"),
            ephemeral=row.get("ephemeral"),
        ),
    )
    given = row.get("message_hash")
    if given is not None and bytes(given) != message.message_hash:
        raise ConfigurationError(f"the row says message_hash {bytes(given).hex()}, it is {message.message_hash.hex()}")
    return message


def _stamped(message: RoutedMessage, timestamp_ns: int) -> RoutedMessage:
    return RoutedMessage.of(message.pubsub_topic, replace(message.message, timestamp_ns=timestamp_ns))
