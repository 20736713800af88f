"""`NetworkFaults`: the faults of a network; `FaultDice`: the seeded draws that decide about each message.

The dice read no clock and keep no message. The same seed, faults and sequence of calls give the same answers.

Each receiver of a message is drawn for separately: the message may be lost, delayed or doubled. Random delays reorder
messages. A rate limit counts per node and epoch, as RLN does (17/WAKU2-RLN-RELAY). Refusals are status codes of light
push (`fairway.wire.lightpush.STATUS_TABLE`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError
from fairway.protocol.ratelimit.epoch import EpochClock
from fairway.type_checks import check_fields
from fairway.wire.lightpush import StatusCode
from fairway.wire.waku_message import DEFAULT_MAX_MESSAGE_BYTES

_REFUSALS: Final = ("too_many_requests", "invalid_message", "no_peers_to_relay")
_SHARES: Final = (
    "loss",
    "duplication",
    "store_loss",
    "query_loss",
    "answer_loss",
    "answer_errors",
    "silence",
    "store_lies",
    *_REFUSALS,
)
_NO_PEERS: Final = (StatusCode.SERVICE_NOT_AVAILABLE, StatusCode.NO_PEERS_TO_RELAY)
"""Implementations use either; clients treat them alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """The faults of a network. Shares lie in 0..1. The default delays are those of the internet; see `NO_FAULTS`."""

    loss: float = 0.0
    """Share of deliveries that are lost; each receiver is drawn for separately."""
    duplication: float = 0.0
    """Share of deliveries that are doubled."""
    min_delay_ms: int = 20
    """Shortest delay of a hop."""
    max_delay_ms: int = 250
    """Longest delay of a hop; a larger span reorders more."""
    store_loss: float = 0.0
    """Share of messages that the store does not get."""
    query_loss: float | None = None
    """Share of store queries without an answer; None: the same as ``loss``."""
    answer_loss: float = 0.0
    """Share of sends that the network accepts but whose answer is lost."""
    answer_errors: float = 0.0
    """Share of lost answers for which the node raises `ConnectionResetError`, as other implementations of `WakuNode`
    may."""
    silence: float = 0.0
    """Share of sends and store queries that never end, not even with a timeout; the network accepts half of these
    sends."""
    too_many_requests: float = 0.0
    """Share of sends that are refused with 429: too many requests."""
    invalid_message: float = 0.0
    """Share of sends that are refused with 420: timestamp or proof no longer valid."""
    no_peers_to_relay: float = 0.0
    """Share of sends that are refused with 503 or 505: the node has no peers."""
    store_lag_ms: int = 0
    """Delay with which a message enters the store."""
    store_page: int | None = None
    """Most messages in a page of the store; None: as many as the query asks for, up to 100."""
    store_lies: float = 0.0
    """Share of the store's answers that are falsified (`fairway.nodes.local.lies`)."""
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    """Larger encoded WakuMessages are refused for good. Nodes usually have 153,600 (64/WAKU2-NETWORK)."""
    messages_per_epoch: int | None = None
    """Messages that each node may send in an epoch; None: no rate limit."""
    epoch_ms: int = 600_000
    """Length of an epoch; epoch 0 starts with the Unix epoch (17/WAKU2-RLN-RELAY)."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in _SHARES:
            share = getattr(self, name)
            # "Not inside" rather than "outside": this refuses not-a-number as well.
            if share is not None and not 0 <= share <= 1:
                raise ConfigurationError(f"{name} is a share and must lie in 0..1, not {share}")
        if self.refusals > 1 + 1e-9:
            raise ConfigurationError(f"{', '.join(_REFUSALS)} are shares of one whole, not {self.refusals:g} together")
        if self.store_page is not None and self.store_page < 1:
            raise ConfigurationError(f"store_page must be at least 1 message, or None, not {self.store_page}")
        if self.store_lag_ms < 0:
            raise ConfigurationError(f"store_lag_ms must be at least 0, not {self.store_lag_ms}")
        if not 0 <= self.min_delay_ms <= self.max_delay_ms:
            raise ConfigurationError(
                f"delays need 0 <= min_delay_ms <= max_delay_ms, not {self.min_delay_ms} and {self.max_delay_ms}"
            )
        if not 1 <= self.max_message_bytes <= DEFAULT_MAX_MESSAGE_BYTES:
            raise ConfigurationError(
                f"max_message_bytes must lie in 1..{DEFAULT_MAX_MESSAGE_BYTES} (the longest message that is parsed), "
                f"not {self.max_message_bytes}"
            )
        if self.messages_per_epoch is not None and self.messages_per_epoch < 0:
            raise ConfigurationError(
                f"messages_per_epoch must be at least 0, or None for no limit, not {self.messages_per_epoch}"
            )
        EpochClock(epoch_ms=self.epoch_ms)  # refuses lengths that are not positive

    @property
    def refusals(self) -> float:
        """Share of sends that are refused with 429, 420, 503 or 505."""
        return self.too_many_requests + self.invalid_message + self.no_peers_to_relay


NO_FAULTS: Final = NetworkFaults(min_delay_ms=0, max_delay_ms=0)
"""Each message arrives once, without delay."""


class FaultDice:
    """Draws from a seed which faults apply to messages and queries."""

    def __init__(self, faults: NetworkFaults, seed: int) -> None:
        self.faults = faults
        """Can be replaced at any time; the draws continue."""
        self.random = random.Random(seed)  # noqa: S311 - reproducible, and guards nothing
        """The source of randomness, for further draws of the network."""

    def refusal(self) -> StatusCode | None:
        """Return the status code with which a message is refused, or None."""
        faults = self.faults
        if not faults.refusals:
            return None
        fate = self.random.random()
        if fate < faults.too_many_requests:
            return StatusCode.TOO_MANY_REQUESTS
        if fate < faults.too_many_requests + faults.invalid_message:
            return StatusCode.INVALID_MESSAGE
        return self.random.choice(_NO_PEERS) if fate < faults.refusals else None

    def is_confirmed(self) -> bool:
        """Return whether the sender of an accepted message gets the answer."""
        return not self._happens(self.faults.answer_loss)

    def is_raised(self) -> bool:
        """Return whether the node raises an exception for a lost answer."""
        return self._happens(self.faults.answer_errors)

    def is_silent(self) -> bool:
        """Return whether a request is never answered."""
        return self._happens(self.faults.silence)

    def is_stored(self) -> bool:
        """Return whether the store gets a message."""
        return self.random.random() >= self.faults.store_loss

    def copies(self) -> tuple[int | None, ...]:
        """Return the delay in ms of each copy of a message for one receiver; None: that copy is lost."""
        count = 2 if self.random.random() < self.faults.duplication else 1
        return tuple(None if self.random.random() < self.faults.loss else self.delay_ms() for _ in range(count))

    def is_answered(self) -> bool:
        """Return whether a store query is answered."""
        share = self.faults.query_loss
        return self.random.random() >= (self.faults.loss if share is None else share)

    def is_false(self) -> bool:
        """Return whether the answer of a store is falsified."""
        return self._happens(self.faults.store_lies)

    def delay_ms(self) -> int:
        """Return the delay of the next hop in milliseconds."""
        shortest, longest = self.faults.min_delay_ms, self.faults.max_delay_ms
        return shortest if shortest == longest else self.random.randint(shortest, longest)

    def _happens(self, share: float) -> bool:
        # A fault that is off draws nothing, so that a new fault does not change the runs of old seeds.
        return share > 0 and self.random.random() < share


class Allowance:
    """The messages that one node sent in the current epoch."""

    __slots__ = ("_epoch", "_used")

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._used = 0

    def remaining(self, faults: NetworkFaults, now_ms: int) -> int | None:
        """Return how many messages the node may still send in the epoch of ``now_ms``; None: no limit."""
        if faults.messages_per_epoch is None:
            return None
        epoch = EpochClock(epoch_ms=faults.epoch_ms).index(now_ms)
        if epoch != self._epoch:
            self._epoch, self._used = epoch, 0
        return max(0, faults.messages_per_epoch - self._used)

    def take(self, faults: NetworkFaults, now_ms: int) -> bool:
        """Count a message, and return whether it is within the limit."""
        remaining = self.remaining(faults, now_ms)
        if remaining == 0:
            return False
        if remaining is not None:
            self._used += 1
        return True
