"""The quota: several limits that apply together, and one count against each.

Sources of a limit are the configuration, the node, and the RLN proof provider. Each has its own epoch length. A
transmission must fit into *all* limits, so the quota of a node or provider can tighten the configured limit and never
loosen it. RELIABLE-CHANNEL-API, "Rate Limit Management", expects that the node will "expose rate limit information".
Transmissions are counted even without a limit, so a limit that becomes known in the middle of an epoch includes the
earlier ones.

Invariant: at the moment of a charge every limit in force had room for it in its aligned epoch. LIP-173,
"Rate limiting": "Segments MUST NOT be sent at a rate that would violate the RLN message rate limit for the
active epoch."

Each kind of transmission may use a share of the limit L. It depends on the threshold t at which the limit counts as
approached (90 % in RELIABLE-CHANNEL-API, "Rate Limit Management"):

========== ============== ====================================================================
share      of L messages  because
========== ============== ====================================================================
CONTENT    L              Users' messages may use the whole limit.
HELD       floor(t * L)   Repairs leave the rest to content. One is always allowed, so that repairs work
                          under a small limit.
SPREAD     the same       Retries and sync messages are also spread evenly over the epoch. Otherwise they
                          use up its start while a participant is away, and content waits.
EPHEMERAL  ceil(t * L)    "If utilization >= threshold (default: 90%), drop the message"
                          (RELIABLE-CHANNEL-API, "Ephemeral messages").
========== ============== ====================================================================

With L = 0 nothing leaves. A configured 0 is a limit that is always reached. A 0 from a node or provider means that the
membership does not exist (RLN-API): only another limit from the same source changes that, and no later epoch does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING, Any

from fairway.errors import ConfigurationError
from fairway.protocol.ratelimit.epoch import EpochClock, EpochCounter

if TYPE_CHECKING:
    from fairway.options import RateLimitConfig

QuotaState = tuple[tuple[Any, ...], ...]
"""Persisted state: nested tuples of integers, strings, booleans and None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochQuota:
    """The quota of one epoch, from a node or a provider (RLN-API, get_epoch_quota)."""

    epoch_index: int
    """The epoch of the quota: floor(unix_ms / epoch_ms)."""
    rate_limit: int
    """Messages per epoch; 0 means no membership, not an exhausted one."""
    remaining: int | None = None
    """Messages left in that epoch; None if unknown."""
    epoch_ms: int | None = None
    """Length of an epoch; None for the configured length."""

    def __post_init__(self) -> None:
        if self.rate_limit < 0:
            raise ConfigurationError(f"rate_limit must not be negative, not {self.rate_limit}")
        if self.remaining is not None and self.remaining < 0:
            raise ConfigurationError(f"remaining must not be negative, not {self.remaining}")
        if self.epoch_ms is not None and self.epoch_ms <= 0:
            raise ConfigurationError(f"epoch_ms must be positive, not {self.epoch_ms}")


class QuotaSource(Enum):
    """The source of a limit."""

    CONFIGURED = "configured"
    NODE = "node"
    PROVIDER = "provider"


class Share(Enum):
    """The part of a limit that a transmission may use; see the table of the module."""

    CONTENT = "content"
    HELD = "held"
    SPREAD = "spread"
    EPHEMERAL = "ephemeral"


class Verdict(IntEnum):
    """Whether a limit has room; of several limits the greatest verdict applies."""

    OPEN = 0
    """The limit has room."""
    APPROACHED = 1
    """The remaining room is for content."""
    REACHED = 2
    """The limit has no room in this epoch."""
    NO_MEMBERSHIP = 3
    """The node or the provider named a rate limit of 0."""


@dataclass(slots=True)
class _Allowance:
    """One source's limit and the count against it."""

    source: QuotaSource
    limit: int | None
    counter: EpochCounter

    @property
    def no_membership(self) -> bool:
        return self.limit == 0 and self.source is not QuotaSource.CONFIGURED


class Quota:
    """Every limit in force, and the count against each.

    Each method that takes ``now_ms`` first moves the counts to the epochs of that time.
    """

    def __init__(self, config: RateLimitConfig) -> None:
        self._config = config
        # Converted from decimal text, so that 0.29 of 100 is 29; binary rounding gives 28.
        self._threshold = Fraction(str(config.approached_threshold))
        clock = EpochClock(epoch_ms=config.epoch_ms)
        self._allowances: dict[QuotaSource, _Allowance] = {
            QuotaSource.CONFIGURED: _Allowance(QuotaSource.CONFIGURED, config.messages_per_epoch, EpochCounter(clock))
        }
        self.limiting = config.enabled
        """Whether any limit is in force: configured and enabled, or named by a node or provider."""

    def _limits_changed(self) -> None:
        self.limiting = self._config.enabled or any(
            allowance.limit is not None
            for source, allowance in self._allowances.items()
            if source is not QuotaSource.CONFIGURED
        )

    def tell(self, source: QuotaSource, quota: EpochQuota | None, now_ms: int) -> bool:
        """Set the quota of a node or provider; None withdraws it. Return whether the state changed.

        Its ``remaining`` counts only if its epoch is the current one.
        """
        self.observe(now_ms)
        allowance = self._allowances.get(source)
        if quota is None:
            # The count is kept, because the node may name a limit again within the epoch.
            was_limited = allowance is not None and allowance.limit is not None
            if allowance is not None:
                allowance.limit = None
            self._limits_changed()
            return was_limited
        before = self.state()
        configured = self._allowances[QuotaSource.CONFIGURED].counter
        clock = configured.clock if quota.epoch_ms is None else EpochClock(epoch_ms=quota.epoch_ms)
        if allowance is None:
            allowance = self._allowances[source] = _Allowance(source, None, configured.rebased(clock, now_ms))
        elif allowance.counter.clock != clock:
            allowance.counter = allowance.counter.rebased(clock, now_ms)
        allowance.limit = limit = quota.rate_limit
        self._limits_changed()
        if quota.remaining is not None and quota.epoch_index == allowance.counter.current:
            allowance.counter.report_used(limit - min(quota.remaining, limit))
        return self.state() != before

    def observe(self, now_ms: int) -> None:
        """Move every count to the epoch of ``now_ms``."""
        for allowance in self._allowances.values():
            allowance.counter.observe(now_ms)

    def verdict(self, share: Share, now_ms: int, *, waiting: int = 0) -> Verdict:
        """Return whether one more transmission of this share may leave now.

        ``waiting`` is the number of more urgent transmissions that are not charged yet; they count as used.
        """
        self.observe(now_ms)
        return max([self._judge(a, share, waiting, now_ms) for a in self._allowances.values()])

    def charge(self, now_ms: int, *, configured: bool = True) -> None:
        """Count one transmission against every source, in force or not; the configured one only if ``configured``."""
        self.observe(now_ms)
        for source, allowance in self._allowances.items():
            if configured or source is not QuotaSource.CONFIGURED:
                allowance.counter.charge()

    def refund(self, charged_at_ms: int, *, configured: bool = True) -> None:
        """Remove a charge made at ``charged_at_ms`` for a transmission that was not sent."""
        for source, allowance in self._allowances.items():
            if configured or source is not QuotaSource.CONFIGURED:
                allowance.counter.refund(charged_at_ms)

    def merge(self, other: Quota) -> bool:
        """Raise each count to that of another channel of the same node; return whether any count changed."""
        counted = other._allowances[QuotaSource.CONFIGURED].counter
        learned = [allowance.counter.merge(counted) for allowance in self._allowances.values()]
        return any(learned)

    def exhaust(self, now_ms: int) -> None:
        """Close the running epoch of each limit of a node or provider; without one, of the configured clock."""
        self.observe(now_ms)
        told = [
            allowance
            for source, allowance in self._allowances.items()
            if source is not QuotaSource.CONFIGURED and allowance.limit is not None
        ]
        for allowance in told or [self._allowances[QuotaSource.CONFIGURED]]:
            allowance.counter.closed = True

    def opens_at(self, share: Share, now_ms: int) -> int | None:
        """Return the first time from ``now_ms`` on with room for this share; None if these limits never have room."""
        self.observe(now_ms)
        bounds = [(a.counter, self._allowed(a, share)) for a in self._allowances.values()]
        if any(a.no_membership for a in self._allowances.values()) or any(n == 0 for _, n in bounds):
            return None
        opens, later = now_ms - 1, now_ms
        # Repeated until all limits have room at the same time: their epochs differ.
        while opens < later:
            opens = later
            later = max(_room_from(counter, allowed, share, opens) for counter, allowed in bounds)
        return opens

    def expected_at(self, share: Share, position: int, now_ms: int) -> int | None:
        """Return about when the ``position``-th (from 1) waiting transmission of this share leaves; None if never."""
        opens = self.opens_at(share, now_ms)
        if opens is None or not self.limiting:
            return opens
        for allowance in self._allowances.values():
            allowed = self._allowed(allowance, share)
            counter = allowance.counter
            if allowed is None or counter.current is None:
                continue
            room = 0 if counter.closed else max(0, allowed - counter.used)
            epochs = -(-max(0, position - room) // allowed)
            if epochs:
                opens = max(opens, counter.clock.start(counter.current + epochs))
        return opens

    def utilization(self, now_ms: int) -> int:
        """Return the used part of the tightest limit in percent, rounded down; 0 without a limit."""
        self.observe(now_ms)
        if not self.limiting:
            return 0
        return max(self._percent(allowance) for allowance in self._allowances.values())

    def remaining(self, now_ms: int) -> int | None:
        """Return the number of transmissions that fit into all limits in force now; None without a limit."""
        self.observe(now_ms)
        left = [
            0 if a.counter.closed else max(0, a.limit - a.counter.used)
            for a in self._allowances.values()
            if a.limit is not None and self.limiting
        ]
        return min(left, default=None)

    def state(self) -> QuotaState:
        """Return the persisted state; it must be durable *before* a message that changed it leaves."""
        return tuple(
            (
                source.value,
                allowance.limit,
                allowance.counter.clock.epoch_ms,
                allowance.counter.current,
                allowance.counter.others,
                allowance.counter.closed,
                allowance.counter.record,
            )
            for source, allowance in self._allowances.items()
        )

    def restore(self, state: QuotaState) -> None:
        """Restore the result of `state`; lists may replace tuples.

        The configured limit is that of the present configuration. Limits of the node and the provider are restored, so
        they apply before the node names them again. Raises `ValueError`, `TypeError` or `LookupError` for any other
        value.
        """
        restored: dict[QuotaSource, _Allowance] = {}
        for name, limit, epoch_ms, current, others, closed, record in state:
            clock, source = EpochClock(epoch_ms=epoch_ms), QuotaSource(name)
            counter = EpochCounter(clock, current=current, others=others, closed=closed, used=dict(record))
            restored[source] = _Allowance(source, limit, counter)
        configured = restored[QuotaSource.CONFIGURED]
        configured.limit = self._config.messages_per_epoch
        clock = EpochClock(epoch_ms=self._config.epoch_ms)
        if configured.counter.clock != clock:
            configured.counter = configured.counter.rebased(clock, configured.counter.latest_ms)
        self._allowances = restored
        self._limits_changed()

    def _allowed(self, allowance: _Allowance, share: Share) -> int | None:
        if allowance.limit is None or not self.limiting:
            return None
        if share is Share.CONTENT:
            return allowance.limit
        if share in (Share.HELD, Share.SPREAD):
            return max(min(1, allowance.limit), floor(self._threshold * allowance.limit))
        return ceil(self._threshold * allowance.limit)

    def _judge(self, allowance: _Allowance, share: Share, waiting: int, now_ms: int) -> Verdict:
        counter = allowance.counter
        if allowance.no_membership:
            return Verdict.NO_MEMBERSHIP
        if counter.closed:
            return Verdict.REACHED
        if allowance.limit is None or not self.limiting:
            return Verdict.OPEN
        if counter.used >= allowance.limit:
            return Verdict.REACHED
        allowed = self._allowed(allowance, share)
        if allowed is not None and counter.used + waiting >= allowed:
            return Verdict.APPROACHED
        return Verdict.OPEN if _room_from(counter, allowed, share, now_ms) <= now_ms else Verdict.APPROACHED

    @staticmethod
    def _percent(allowance: _Allowance) -> int:
        if allowance.limit is None or allowance.no_membership:
            return 0
        if allowance.counter.closed or allowance.limit == 0:
            return 100
        return min(100, 100 * allowance.counter.used // allowance.limit)


def _room_from(counter: EpochCounter, allowed: int | None, share: Share, at_ms: int) -> int:
    """Return the first time from ``at_ms`` on at which a count has room for one more transmission of a share."""
    room_ms = counter.room_from(at_ms, allowed)
    if share is not Share.SPREAD or not allowed:
        return room_ms
    epoch = counter.clock.index(room_ms)
    even_ms = counter.clock.start(epoch) + -(-counter.used_in(epoch) * counter.clock.epoch_ms // allowed)
    return max(room_ms, even_ms)
