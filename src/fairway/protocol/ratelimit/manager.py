"""The rate limit manager: the last stage before dispatch.

LIP-173, "Rate Limit Manager" and "Rate limiting"; RELIABLE-CHANNEL-API, "Rate Limit Management" and "Ephemeral
messages". Every transmission passes the manager: segments, retries, repairs and sync messages. Each one is one
WakuMessage, and counts once against the limit. Within the limit a transmission leaves, beyond it a transmission waits
for a later epoch. An ephemeral message leaves at once or is dropped.

::

    enqueue --> waiting --admit--> charged, state saved --> proof --> dispatch
                   ^                                          |
                   +----------------- put_back ---------------+   NOT_READY, TRANSIENT: the charge is returned
                   +---- put_back, exhaust -------------------+   BUDGET_EXHAUSTED: and the epoch is closed

The channels of one node share its rate limit and its pace (`fairway.protocol.ratelimit.membership`). No channel exceeds
either of them.

Segments that are not yet messages wait above this queue (``upstream``). They count as content, and the caller takes the
next one when `has_room_for_content` returns true. After `_IN_A_ROW` transmissions of one class, one of a less urgent
class leaves first, so that a long burst does not delay acknowledgements and repairs. Under a rate limit content yields
only if the pace limits, too. Retries always yield, because they acknowledge nothing.

Invariant: before an item is handed out, its charge is part of `state` and ``on_change`` was called. After a crash the
count may include a transmission that was not sent, and it includes every transmission that was sent. Items are opaque;
the caller stores them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from fairway.events import DropReason
from fairway.protocol.ratelimit.membership import Membership
from fairway.protocol.ratelimit.queue import CLASSES, Priority, T, Waiting, WaitingQueue
from fairway.protocol.ratelimit.quota import EpochQuota, Quota, QuotaSource, QuotaState, Share, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from fairway.options import RateLimitConfig

_SHARE: Final = {
    Priority.CONTENT: Share.CONTENT,
    Priority.REPAIR: Share.HELD,
    # RELIABLE-CHANNEL-API, "Rate Limit Management": "Messages coming from a retry mechanism should be queued when the
    # rate limit is approached."
    Priority.RETRY: Share.SPREAD,
    Priority.SYNC: Share.SPREAD,
}

# RELIABLE-CHANNEL-API, "Rate Limit Management": ephemeral messages are "dropped (not sent nor queued) when the rate
# limit is approached or reached".
_DROP_REASON: Final = {
    Verdict.APPROACHED: DropReason.RATE_LIMIT_APPROACHED,
    Verdict.REACHED: DropReason.RATE_LIMIT_REACHED,
    Verdict.NO_MEMBERSHIP: DropReason.NOT_READY,
}


_IN_A_ROW: Final = 4
"""Transmissions of a class before one of a less urgent class leaves first, so that acknowledgements leave, too."""
_YIELD_MS: Final = 20
"""Pause before this channel checks again whether other channels of the node, which are first, have sent."""
_CLAIM_MS: Final = 1_000
"""Time that a claim of a channel stays valid after the channel could send."""


class Upstream(NamedTuple):
    """Content that waits above the queue."""

    waiting: int = 0
    """Number of segments that will count against the limit."""
    is_ready: bool = False
    """Whether the next segment may leave as soon as the limit has room."""


@dataclass(slots=True, eq=False)
class Admission(Generic[T]):
    """An item that may leave now, and the arguments of `RateLimitManager.put_back`."""

    entry: Waiting[T]
    admitted_at_ms: int
    """The time of the charge. The message's timestamp must lie in the same epoch."""

    @property
    def item(self) -> T:
        """The enqueued item."""
        return self.entry.item


class RateLimitManager(Generic[T]):
    """Selects the next transmission and its time.

    The manager calls ``on_change`` after each change of `state`. If ``on_change`` raises during `admit`, the item stays
    in the queue and its charge remains. The manager counts without a limit, too, because a limit may become known in
    the middle of an epoch.
    """

    def __init__(
        self,
        config: RateLimitConfig,
        *,
        on_change: Callable[[], None] | None = None,
        membership: Membership | None = None,
        upstream: Callable[[], Upstream] = Upstream,
    ) -> None:
        self._on_change = on_change
        self._quota = Quota(config)
        membership = Membership() if membership is None else membership
        self.pace = membership.pace
        """The pace of the node; the other channels of the node share it."""
        self._member = membership.join(self._quota, self._changed)
        self._upstream = upstream
        self._runs = [0] * len(CLASSES)
        """Transmissions of each class since the last one of a less urgent class."""
        self._queue: WaitingQueue[T] = WaitingQueue()

    @property
    def limiting(self) -> bool:
        """Whether any limit is in force: configured and enabled, or named by the node or the provider."""
        return self._quota.limiting

    def enqueue(self, item: T, priority: Priority, key: Hashable, sequence: int | None = None) -> None:
        """Add a transmission to its class; it replaces an item with the same key.

        ``key`` identifies the transmission, such as the SDS message id. ``sequence`` is its position in its class; None
        appends it.
        """
        self._queue.add(item, priority, key, sequence)

    def queued(self, priority: Priority | None = None) -> int:
        """Return the number of waiting items, of one class or of all."""
        return len(self._queue) if priority is None else self._queue.count(priority)

    def is_queued(self, key: Hashable) -> bool:
        """Return whether an item with this key waits."""
        return key in self._queue

    def discard(self, key: Hashable) -> bool:
        """Remove the item with this key, such as the retry of an acknowledged message; return whether it waited."""
        return self._queue.remove(key)

    def admit(self, now_ms: int) -> Admission[T] | None:
        """Remove, charge and return the next item; None if none may leave now, or upstream content is first."""
        entry = self._next(now_ms) if self._queue else None
        if entry is None:
            return None
        self._member.charge(now_ms)
        self._queue.remove(entry.key)
        self._runs[entry.priority] += 1
        for more_urgent in CLASSES[: entry.priority]:
            self._runs[more_urgent] = 0
        return Admission(entry, now_ms)

    def has_room_for_content(self, now_ms: int) -> bool:
        """Return whether the next content from upstream would leave at once."""
        return (
            not self._queue.count(Priority.CONTENT)
            and self._upstream_may_leave(now_ms)
            and self._shared_from(now_ms) <= now_ms
            and self._less_urgent_first(now_ms) is None
        )

    def claim(self, now_ms: int) -> None:
        """Announce to the other channels of the node how many transmissions of this channel wait."""
        upstream = self._upstream()
        waiting = len(self._queue) + (upstream.waiting if upstream.is_ready else 0)
        at_ms = self.next_send_at(now_ms) if waiting else None
        self._member.claimed = (waiting, at_ms + _CLAIM_MS) if at_ms is not None else (0, 0)

    def claim_nothing(self) -> None:
        """Withdraw the claim, because no transmission of this channel waits or could leave now."""
        self._member.claimed = (0, 0)

    def put_back(self, admission: Admission[T]) -> None:
        """Return an unsent item to its position in the queue, and refund its charge in the epoch of the charge.

        Its proof failed with NOT_READY, TRANSIENT or BUDGET_EXHAUSTED. Raises `ValueError` for a second call with the
        same admission.
        """
        if not admission.entry.gone:
            raise ValueError("this admission was put back before; each may be put back once")
        admission.entry.gone = False
        self._queue.push(admission.entry)
        self._member.refund(admission.admitted_at_ms)

    def admit_ephemeral(self, now_ms: int) -> DropReason | None:
        """Charge an ephemeral message and return None, or return the reason to drop it.

        RELIABLE-CHANNEL-API, "Ephemeral messages": "If utilization >= threshold (default: 90%), drop the message".
        Waiting content counts as sent, so that ephemeral messages do not use the room of content.
        """
        waiting = self._queue.count(Priority.CONTENT) + self._upstream().waiting
        verdict = self._quota.verdict(Share.EPHEMERAL, now_ms, waiting=waiting)
        if verdict is Verdict.OPEN and self._shared_from(now_ms) > now_ms:
            # The pace has no room now, or other channels are first.
            verdict = Verdict.REACHED
        if verdict is not Verdict.OPEN:
            return _DROP_REASON[verdict]
        self._member.charge(now_ms)
        return None

    def refund_ephemeral(self, admitted_at_ms: int) -> None:
        """Refund the charge of an ephemeral message that was admitted at ``admitted_at_ms`` and not sent."""
        self._member.refund(admitted_at_ms)

    def next_send_at(self, now_ms: int) -> int | None:
        """Return when the next waiting item can leave; ``now_ms`` if at once, None if time alone lets none leave.

        LIP-173, "Rate Limit Manager": "further segment dispatch MUST be delayed until the next epoch".
        """
        fronts = self._queue.classes()
        if self._upstream().is_ready:
            fronts.append(Priority.CONTENT)
        if not fronts:
            return None
        times = [self._quota.opens_at(_SHARE[priority], now_ms) for priority in fronts]
        opens = min((at for at in times if at is not None), default=None)
        return None if opens is None else max(opens, self._shared_from(now_ms))

    def is_closed(self, now_ms: int) -> bool:
        """Return whether an item waits for which no epoch has room: no membership, or a limit of 0."""
        if not self._quota.limiting:
            return False
        waits = bool(self._queue) or self._upstream().is_ready
        return waits and self.next_send_at(now_ms) is None

    def expected_at(self, priority: Priority, now_ms: int, *, behind: int = 0) -> int | None:
        """Return about when the last item of a class leaves, if no further item is added; None if it is unknown.

        With ``behind``, the result is for the item with this many items behind it.

        `fairway.events.MessageQueued` has this time (RELIABLE-CHANNEL-API, "Rate Limit Management": rate limit errors
        "SHOULD be surfaced through events").
        """
        queued = sum(self._queue.count(other) for other in CLASSES if other <= priority)
        ahead = queued + self._upstream().waiting - behind
        expected = self._quota.expected_at(_SHARE[priority], ahead, now_ms)
        if expected is None or self.pace.per_second is None:
            return expected
        return max(expected, now_ms + int(ahead * 1_000 / self.pace.per_second))

    def utilization(self, now_ms: int) -> int:
        """Return the used part of the tightest limit in percent, 0 to 100; 0 without a limit."""
        return self._quota.utilization(now_ms)

    def set_quota(self, source: QuotaSource, quota: EpochQuota | None, now_ms: int) -> None:
        """Set the quota of the node or the RLN proof provider; None withdraws it."""
        if self._quota.tell(source, quota, now_ms):
            self._changed()

    def exhaust(self, now_ms: int) -> None:
        """Hold all transmissions until the next epoch, because the RLN proof provider raised BUDGET_EXHAUSTED.

        This closes the epoch of every limit of a node or provider. Without such a limit it closes the configured epoch,
        even if no limit is in force.
        """
        self._member.exhaust(now_ms)

    def state(self) -> QuotaState:
        """Return the counters and limits as nested tuples of integers, strings, booleans and None."""
        return self._quota.state()

    def restore(self, state: QuotaState) -> None:
        """Restore the result of `state`; call this before any other method (`Quota.restore`)."""
        self._quota.restore(state)
        self._member.learn()

    def _next(self, now_ms: int) -> Waiting[T] | None:
        if self._shared_from(now_ms) > now_ms:
            return None
        other = self._less_urgent_first(now_ms)
        if other is not None:
            return other
        for priority in CLASSES:
            entry = self._queue.front(priority)
            if entry is not None and self._may_leave(priority, now_ms):
                return entry
            if priority is Priority.CONTENT and self._upstream_may_leave(now_ms):
                return None
        return None

    def _less_urgent_first(self, now_ms: int) -> Waiting[T] | None:
        """Return the entry that leaves before a more urgent class: the one with the lowest sequence number."""
        for served in CLASSES if self._queue else ():
            if served is Priority.CONTENT and self._quota.limiting and not self.pace.limiting:
                if self._upstream_may_leave(now_ms) or (self._queue.count(served) and self._may_leave(served, now_ms)):
                    return None
                continue
            if self._runs[served] < _IN_A_ROW:
                continue
            fronts = [self._queue.front(priority) for priority in CLASSES[served + 1 :]]
            ready = [entry for entry in fronts if entry is not None and self._may_leave(entry.priority, now_ms)]
            if ready:
                return min(ready, key=lambda entry: entry.sequence)
        return None

    def _upstream_may_leave(self, now_ms: int) -> bool:
        return self._upstream().is_ready and self._may_leave(Priority.CONTENT, now_ms)

    def _may_leave(self, priority: Priority, now_ms: int) -> bool:
        return self._quota.verdict(_SHARE[priority], now_ms) is Verdict.OPEN

    def _shared_from(self, now_ms: int) -> int:
        """Return when the shared pace and count have room for this channel."""
        opens = self.pace.opens_at(now_ms)
        if opens > now_ms or not (self._quota.limiting or self.pace.limiting):
            return opens
        owed, until_ms = self._member.owed_first(now_ms)
        if not owed:
            return now_ms
        remaining = self._quota.remaining(now_ms)
        if self.pace.limiting or (remaining is not None and remaining <= owed):
            return min(now_ms + _YIELD_MS, until_ms + 1)
        return now_ms

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()
