"""`Receipt`: the progress and the outcome of one send; `ReceiptBook` finds the receipt of a request.

A receipt follows the events of its request until its channel closes. `ReliableChannel.receipt` returns a new one for a
request of an earlier run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from msgspec.structs import replace

from fairway.channel.engine import Engine
from fairway.errors import ChannelClosedError, ConfigurationError, DeliveryFailedError, SendExpiredError, copy_of
from fairway.events import (
    ChunkInfo,
    DeliveryError,
    EphemeralMessageDropped,
    Event,
    FailureReason,
    MemberAway,
    MessageAcknowledged,
    MessageDelivered,
    MessageEvent,
    MessagePossiblyAcknowledged,
    MessageQueued,
    MessageSendError,
    MessageSending,
    MessageSent,
    RequestSent,
)
from fairway.loop_binding import LoopBinding
from fairway.storage.channel_store import ChannelStore, SendOutcome, StoredRequest
from fairway.type_checks import check_type
from fairway.waiters import Waiters


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The sent and acknowledged segments of a message."""

    total_chunks: int
    """Number of data segments; 0 until it is known."""
    chunks_sent: tuple[int, ...]
    """Indices of the segments that the node accepted, ascending; parity segments count from ``total_chunks``."""
    chunks_acknowledged: tuple[int, ...]
    """Indices of the acknowledged data segments, ascending."""
    acknowledged_by: tuple[str, ...]
    """Sender ids of the participants that acknowledged any segment."""
    delivered_to: tuple[str, ...]
    """Sender ids of the participants that acknowledged the whole message."""
    possible_ack_count: int
    """Largest number of participants whose bloom filters contain the same segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """The result of `Receipt.delivered`."""

    delivered_to: tuple[str, ...]
    """Sender ids of participants that acknowledged every segment. Empty if only several participants together did."""
    chunks_acknowledged: tuple[int, ...]
    """Indices of the acknowledged data segments, ascending."""
    at_ms: int
    """Arrival of the last required acknowledgement, in Unix milliseconds."""


class EphemeralReceipt:
    """The outcome of an ephemeral send: sent or dropped."""

    def __init__(self, request_id: str, message_id: str, binding: LoopBinding) -> None:
        self.request_id = request_id
        """Unique for this send."""
        self.message_id = message_id
        """SHA-256 of the payload, lower-case hex."""
        self._was_sent = False
        self._failure: BaseException | None = None
        self._waiters = Waiters()
        self._binding = binding

    def __repr__(self) -> str:
        return f"<{type(self).__name__} request {self.request_id[:8]} message {self.message_id[:8]}>"

    async def sent(self) -> None:
        """Wait until the node has accepted every segment of the message.

        Raises `DeliveryFailedError` if the message was dropped or cannot be sent, `ChannelClosedError` if the channel
        closes first.
        """
        await self._until(lambda: self._was_sent)

    def observe(self, event: Event) -> None:
        """Note an event of this request."""
        match event:
            case MessageSent(chunk_info=ChunkInfo(total_chunks=1)) | RequestSent():
                self._was_sent = True
            case EphemeralMessageDropped(reason=reason, rate_limit_utilization=utilization):
                self._failure = DeliveryFailedError(
                    f"the ephemeral message was dropped ({reason.value}, {utilization} % of the rate limit used)"
                )
            case MessageSendError(reason=why, detail=detail) if self._failure is None:
                self._failure = DeliveryFailedError(f"the message cannot be sent: {why.value} {detail}".rstrip())
        self._waiters.wake()

    def end(self, failure: BaseException) -> None:
        """Raise ``failure`` in all waiting calls, unless the request has failed already."""
        self._failure = self._failure or failure
        self._waiters.wake()

    async def _change(self) -> None:
        self._binding.check()
        await self._waiters.wait()

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            if self._failure is not None:
                raise copy_of(self._failure)
            await self._change()


class Receipt(EphemeralReceipt):
    """The progress and the outcome of a send."""

    def __init__(self, request_id: str, message_id: str, binding: LoopBinding, started: Callable[[], Engine]) -> None:
        super().__init__(request_id, message_id, binding)
        self._started = started
        self._total_chunks = 0
        self._sent_chunks: set[int] = set()
        self._sent_parity: set[int] = set()
        self._acknowledged: tuple[int, ...] = ()
        self._by: set[str] = set()
        self._possible = 0
        self._holders: frozenset[str] = frozenset()
        self._acknowledged_at_ms = 0
        """Arrival of the latest acknowledgement."""
        self._is_delivered = False
        self._count = 1
        self._wanted: frozenset[str] = frozenset()
        self._late_failure: DeliveryFailedError | None = None
        """The failure of a send whose acknowledgement may still arrive."""
        self._failures = 0
        """Number of such failures."""
        self._failures_raised = 0

    @classmethod
    def of_stored(
        cls, stored: StoredRequest, so_far: Progress | None, binding: LoopBinding, started: Callable[[], Engine]
    ) -> Receipt:
        """Return the receipt of a stored request, with its progress if it may still be acknowledged."""
        receipt = cls(stored.request_id, stored.message_id, binding, started)
        if so_far is not None:
            receipt._total_chunks, receipt._acknowledged = so_far.total_chunks, so_far.chunks_acknowledged
            receipt._sent_chunks = {index for index in so_far.chunks_sent if index < so_far.total_chunks}
            receipt._sent_parity = {i - so_far.total_chunks for i in so_far.chunks_sent if i >= so_far.total_chunks}
            receipt._by.update(so_far.acknowledged_by)
            receipt._holders = frozenset(so_far.delivered_to)
            # The parity segments are not stored, and not needed to read the message.
            known = receipt._sent_chunks.union(so_far.chunks_acknowledged)
            receipt._was_sent = 0 < so_far.total_chunks == len(known)
        if stored.outcome is SendOutcome.DELIVERED:
            receipt._was_sent = receipt._is_delivered = True
            receipt._holders |= frozenset(stored.delivered_to)
            receipt._acknowledged_at_ms = stored.ended_at_ms or 0
        elif stored.failure is not None:
            error = _error_of(stored.failure)
            if so_far is None or not _may_come_late(stored.failure):
                receipt._failure = error
            else:
                # The earlier run may have ended before it raised this.
                receipt._late_failure, receipt._failures = error, int(not stored.is_settled)
        return receipt

    @property
    def progress(self) -> Progress:
        """The segments that were sent and acknowledged so far."""
        return Progress(
            total_chunks=self._total_chunks,
            chunks_sent=(
                *sorted(self._sent_chunks),
                *(self._total_chunks + index for index in sorted(self._sent_parity)),
            ),
            chunks_acknowledged=self._acknowledged,
            acknowledged_by=tuple(sorted(self._by)),
            delivered_to=tuple(sorted(self._holders)),
            possible_ack_count=self._possible,
        )

    @property
    def has_ended(self) -> bool:
        """Whether the request was delivered as asked, or failed."""
        return self._is_delivered or self.failure is not None

    @property
    def failure(self) -> DeliveryFailedError | None:
        """The failure of the request; None if it did not fail, or was delivered late."""
        failure = None if self._is_delivered else self._failure or self._late_failure
        return failure if isinstance(failure, DeliveryFailedError) else None

    async def delivered(self, *, to_all_present: bool = False) -> Acknowledgement:
        """Wait until as many participants as the send asked for have acknowledged the whole message.

        With ``to_all_present`` this also waits for each member that is present at the call and stays present
        (`ReliableChannel.members`); the channel retransmits the message to them. It does not wait for members that
        arrive later.

        Raises `DeliveryFailedError` if the send fails (`SendExpiredError` if its deadline passes), and
        `ChannelClosedError` if the channel closes first; its next start continues the send.

        A failed send may be acknowledged later. Call this again after the error to wait for that; the channel keeps
        trying unless the deadline has passed. A receipt of an earlier run raises the error once more, unless
        `ReliableChannel.settle` was called after it.
        """
        check_type("to_all_present", to_all_present, bool)
        raised = self._failures_raised
        names: frozenset[str] = self._started().stack.presence.present() if to_all_present else frozenset()

        def reached() -> bool:
            if self._is_delivered:
                return True
            if self._failures > raised:
                self._failures_raised = self._failures
                assert self._late_failure is not None, "a failure was counted"
                raise copy_of(self._late_failure)
            return False

        await self._until(reached)
        if names:
            await self._until_all_hold_it(names & self._started().stack.presence.present() - self._holders)
        return Acknowledgement(
            delivered_to=tuple(sorted(self._holders)),
            chunks_acknowledged=self._acknowledged,
            at_ms=self._acknowledged_at_ms,
        )

    async def _until_all_hold_it(self, names: frozenset[str]) -> None:
        """Wait until each of these participants has acknowledged a delivered message, or is away.

        Raises the failure of the retransmissions, but only if a missing participant was heard meanwhile; a silent one
        may be gone.
        """
        engine, failures = self._started(), self._failures
        presence = engine.stack.presence
        heard = {name: presence.member(name).last_heard_ms for name in names}
        if names and not engine.require(self.request_id, names):
            missing = tuple(sorted(names))
            raise DeliveryFailedError(
                f"the channel cannot send the message again; not acknowledged by {', '.join(missing)}",
                delivered_to=tuple(sorted(self._holders)),
                missing=missing,
                missing_count=len(missing),
            )

        def reached() -> bool:
            nonlocal failures
            if self._started() is not engine:
                raise ChannelClosedError("the channel was stopped meanwhile; call delivered again")
            missing = [name for name in names - self._holders if presence.is_present(name)]
            if missing and self._failures > failures:
                failures = self._failures
                if any(presence.member(name).last_heard_ms != heard[name] for name in missing):
                    assert self._late_failure is not None, "a failure was counted"
                    raise copy_of(self._late_failure)
            return not missing

        await self._until(reached)
        if away := names - self._holders:
            engine.release(self.request_id, away)

    def lacks(self, count: int, names: frozenset[str]) -> bool:
        """Return whether the send failed, or ``count`` and ``names`` require further acknowledgements."""
        return self.failure is not None or self._lacks(count, names)

    def reopen(self, count: int, names: frozenset[str]) -> None:
        """Note that the send was repeated; earlier outcomes that arrive late do not end it."""
        if self._failure is not None or self._late_failure is not None:
            self._count, self._wanted = count, names
        else:
            self._count, self._wanted = max(self._count, count), self._wanted | names
        self._failure = self._late_failure = None
        self._failures_raised = self._failures
        self._is_delivered = False

    def _lacks(self, count: int, names: frozenset[str]) -> bool:
        return (count != 1 or bool(names)) and not (len(self._holders) >= count and names <= self._holders)

    async def updates(self) -> AsyncIterator[Progress]:
        """Yield the progress now and whenever it changes, until the request ends."""
        shown: Progress | None = None
        while True:
            progress = self.progress
            if progress != shown:
                shown = progress
                yield progress
                continue
            if self.has_ended or self._failure is not None:
                return
            await self._change()

    def observe(self, event: Event) -> None:
        """Note an event of this request."""
        match event:
            case MessageSending(chunk_info=chunk) | MessageSent(chunk_info=chunk) | MessageQueued(chunk_info=chunk):
                if not chunk.is_parity:
                    self._total_chunks = chunk.total_chunks
                if isinstance(event, MessageSent):
                    (self._sent_parity if chunk.is_parity else self._sent_chunks).add(chunk.chunk_index)
            case MessagePossiblyAcknowledged(possible_ack_count=count):
                self._possible = max(self._possible, count)
            case MessageAcknowledged(chunks_acknowledged=chunks, total_chunks=total, acknowledged_by=names):
                self._total_chunks, self._acknowledged = total, chunks
                self._by.update(names)
                self._holders |= frozenset(event.delivered_to)
                self._acknowledged_at_ms = event.at_ms
            case MessageDelivered(delivered_to=names, at_ms=at_ms):
                self._was_sent = True
                self._holders |= frozenset(names)
                self._by.update(names)
                self._is_delivered = not self._lacks(self._count, self._wanted)
                self._acknowledged_at_ms = self._acknowledged_at_ms or at_ms
                self._failure = self._late_failure = None
            case DeliveryError(acknowledged_by=names):
                self._by.update(names)
                if _may_come_late(event):
                    self._late_failure = _error_of(event)
                    self._failures += 1
                else:
                    self._failure = _error_of(event)
        super().observe(event)


def _may_come_late(failure: DeliveryError) -> bool:
    return failure.reason is FailureReason.NOT_ACKNOWLEDGED


def _error_of(failure: DeliveryError) -> DeliveryFailedError:
    """Return the error for a failure."""
    kind = SendExpiredError if failure.reason is FailureReason.EXPIRED else DeliveryFailedError
    by, to = failure.acknowledged_by, failure.delivered_to
    cannot_leave = failure.reason is FailureReason.CANNOT_BE_SENT
    parts = [f"{'the message cannot be sent' if cannot_leave else 'delivery is not known'}: {failure.detail}"]
    if to:
        parts.append(f"acknowledged by {', '.join(to)}")
    if partly := [name for name in by if name not in to]:
        parts.append(f"acknowledged in part by {', '.join(partly)}")
    if failure.missing:
        parts.append(f"not acknowledged by {', '.join(failure.missing)}")
    if failure.total_chunks > 1 and failure.chunks_missing:
        parts.append(f"{len(failure.chunks_missing)} of {failure.total_chunks} segments are missing")
    if failure.refusal:
        parts.append(f"the node said: {failure.refusal}")
    return kind(
        "; ".join(parts),
        acknowledged_by=by,
        delivered_to=to,
        missing=failure.missing,
        missing_count=failure.missing_count,
        chunks_missing=failure.chunks_missing,
        total_chunks=failure.total_chunks,
        refusal=failure.refusal,
    )


class ReceiptBook:
    """The receipts that the application holds, by request id."""

    def __init__(
        self,
        store: ChannelStore,
        so_far: Callable[[str], Progress | None],
        started: Callable[[], Engine],
    ) -> None:
        """``so_far`` returns the progress of an open request, also one of an earlier run.

        ``started`` returns the engine of the channel, and raises if the channel is not started.
        """
        self._store = store
        self._so_far = so_far
        self._started = started
        self._binding = LoopBinding("the receipt")
        self._receipts: WeakValueDictionary[str, EphemeralReceipt] = WeakValueDictionary()

    def new(self, request_id: str, message_id: str) -> Receipt:
        """Return the receipt of a send; for a repeated one, the existing receipt."""
        known = self._receipts.get(request_id)
        if isinstance(known, Receipt):
            return known
        receipt = Receipt(request_id, message_id, self._binding, self._started)
        self._receipts[request_id] = receipt
        return receipt

    def new_ephemeral(self, request_id: str, message_id: str) -> EphemeralReceipt:
        """Return the receipt of an ephemeral send."""
        receipt = EphemeralReceipt(request_id, message_id, self._binding)
        self._receipts[request_id] = receipt
        return receipt

    def known(self, request_id: str, message_id: str) -> Receipt | None:
        """Return the receipt of an earlier request with this id, or None.

        Raises `ConfigurationError` if that request sent another message.
        """
        stored = self._store.request(request_id)
        if stored is None:
            return None
        if stored.message_id != message_id:
            raise ConfigurationError(
                f"request id {request_id!r} was used for another payload already; choose one id per message"
            )
        return self.get(request_id)

    def get(self, request_id: str) -> Receipt:
        """Return the receipt of a request of this or an earlier run; raise `ConfigurationError` if unknown."""
        known = self._receipts.get(request_id)
        if isinstance(known, Receipt):
            return known
        stored = self._store.request(request_id)
        if stored is None:
            raise ConfigurationError(f"request {request_id!r} is unknown here; give an id that send returned")
        if stored.outcome is not SendOutcome.OPEN and self._started().is_unsaid(stored.outcome, request_id):
            # The outcome is not durable yet; its event will follow.
            stored = replace(stored, outcome=SendOutcome.OPEN, failure=None)
        receipt = Receipt.of_stored(stored, self._so_far(request_id), self._binding, self._started)
        self._receipts[request_id] = receipt
        return receipt

    def observe(self, event: Event) -> None:
        """Pass an event of a request on to its receipt."""
        if isinstance(event, MemberAway):
            for each in list(self._receipts.values()):
                each.observe(event)
        receipt = self._receipts.get(event.request_id) if isinstance(event, MessageEvent) else None
        if receipt is not None:
            receipt.observe(event)

    def end(self, failure: BaseException) -> None:
        """Raise ``failure`` in all calls that wait for a receipt."""
        for receipt in list(self._receipts.values()):
            receipt.end(failure)
        self._receipts.clear()
