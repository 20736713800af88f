"""`Plan`: the parameters of a world. Equal plans give equal runs, event for event.

`Plan.drawn` draws a plan from a seed. Each kind of trouble is in some worlds only (Groce et al., "Swarm Testing", ISSTA
2012), because one trouble can hide another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Any, Final, Self

from fairway.errors import ConfigurationError
from fairway.nodes.local import NetworkFaults
from fairway.options import Advanced, Profile, RateLimitConfig, ReliableChannelOptions
from fairway.units import HOUR_MS

MINUTE_MS: Final = 60_000
_SHARE_OF_TROUBLES: Final = (0.1, 0.3, 0.5)
"""Chance of each trouble in a drawn world; the world draws one of these."""
_MANY: Final = 0.04
"""Share of drawn worlds with many participants."""
_DELIVERIES: Final = 2_000
"""Deliveries in a drawn world, roughly; its duration follows."""
_SHORTEST_H: Final = 1 / 12
_LONGEST_H: Final = 2.0
_SEGMENT_BYTES: Final = 1_000
_LOST_TIMEOUT_MS: Final = 20 * MINUTE_MS
"""Time after which an invented message is given up, in worlds with a forger."""


class Trouble(Enum):
    """A kind of fault or limit in a world; loss has a field of its own."""

    CRASH = "crash"
    """A program is killed, and starts again from its store."""
    POWER_CUT = "power-cut"
    """A machine loses power during a write; its disk keeps all or nothing of that write."""
    DISK_FAULT = "disk-fault"
    """A disk is full, or reports an error when it syncs."""
    ABSENCE = "absence"
    """A node goes offline, loses its service node, or receives nothing without notice."""
    PARTITION = "partition"
    """The network is split in two for some minutes."""
    JOIN = "join"
    """A new participant joins."""
    LEAVE = "leave"
    """A participant leaves for good."""
    DUPLICATE = "duplicate"
    """The network delivers every fifth message twice."""
    REORDER = "reorder"
    """The network delays messages by up to 5 s."""
    REFUSE = "refuse"
    """Nodes refuse messages, and answers get lost."""
    CLOCK_JUMP = "clock-jump"
    """A clock is wrong by up to ten minutes for a while."""
    STORE_GAPS = "store-gaps"
    """The store of the network misses a fifth of all messages, and gets the others late."""
    STORE_LIES = "store-lies"
    """The store of the network omits, invents and repeats messages in its answers."""
    FORGERY = "forgery"
    """A hostile member sends forged messages."""
    ENCRYPTION = "encryption"
    """Messages are encrypted; a stranger damages and repeats them."""
    SIGNATURES = "signatures"
    """Participants sign their messages; a stranger forges and alters messages under their names."""
    PARITY = "parity"
    """Long messages have Reed-Solomon parity, half as many segments again."""
    SLOW_READER = "slow-reader"
    """Some applications take seconds over a message."""
    RATE_LIMIT = "rate-limit"
    """Each participant may send a bounded number of messages in ten minutes."""
    SMALL_BUFFERS = "small-buffers"
    """Buffers hold a few dozen messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One world."""

    seed: int = 1
    """Draws all events."""
    participants: int = 8
    """Participants at the start."""
    duration_ms: int = 30 * MINUTE_MS
    """Virtual time with sends and troubles."""
    loss: float = 0.3
    """Share of deliveries and of store answers that are lost."""
    profile: Profile = Profile.WAKU
    """Wire format of the channel."""
    messages_per_hour: float = 30.0
    """Messages that each participant sends in an hour, on average."""
    store: bool = True
    """Whether participants can query a store."""
    troubles: frozenset[Trouble] = frozenset()

    def __post_init__(self) -> None:
        _require(self.seed >= 0, "seed must be 0 or more", self.seed)
        _require(2 <= self.participants <= 1_000, "participants must be 2 to 1000", self.participants)
        _require(MINUTE_MS <= self.duration_ms <= 720 * HOUR_MS, "hours must be 1/60 to 720", self.hours)
        _require(0 <= self.loss <= 0.9, "loss must be 0 to 0.9", self.loss)
        _require(0 < self.messages_per_hour <= HOUR_MS, "messages_per_hour must be above 0", self.messages_per_hour)

    @property
    def hours(self) -> float:
        """Duration in hours."""
        return self.duration_ms / HOUR_MS

    @property
    def on_disk(self) -> bool:
        """Whether channels keep their state on simulated disks, or in memory that survives a crash."""
        return not self.troubles.isdisjoint({Trouble.POWER_CUT, Trouble.DISK_FAULT})

    @property
    def has_forger(self) -> bool:
        """Whether somebody sends forged, damaged or repeated messages."""
        return not self.troubles.isdisjoint({Trouble.FORGERY, Trouble.ENCRYPTION, Trouble.SIGNATURES})

    @classmethod
    def drawn(cls, seed: int, **given: Any) -> Self:
        """Draw a plan from a seed, except for the fields that are given."""
        dice = Random(f"plan/{seed}")  # noqa: S311 - reproducible, not secret
        share = dice.choice(_SHARE_OF_TROUBLES)
        participants = dice.randint(20, 50) if dice.random() < _MANY else dice.randint(2, 12)
        per_hour = float(dice.choice((3, 10, 30, 100)))
        deliveries_per_hour = per_hour * participants * (participants - 1)
        drawn: dict[str, Any] = {
            "participants": participants,
            "messages_per_hour": per_hour,
            "duration_ms": int(HOUR_MS * min(_LONGEST_H, max(_SHORTEST_H, _DELIVERIES / deliveries_per_hour))),
            "loss": dice.choice((0.0, 0.1, 0.3, 0.3, 0.5)),
            "profile": dice.choice(list(Profile)),
            "store": dice.random() < 0.75,
        }
        troubles = frozenset(trouble for trouble in Trouble if dice.random() < share)
        if Trouble.FORGERY in troubles:
            # The channel would give up honest messages that wait for the rate limit, as it gives up invented ones.
            troubles -= {Trouble.RATE_LIMIT}
        drawn["troubles"] = troubles
        troubles = given.get("troubles", troubles)
        # A rate limit leaves too few transmissions for all repairs without a store. A new participant with small
        # buffers needs the first message, which participants drop after a thousand newer ones.
        if Trouble.RATE_LIMIT in troubles or {Trouble.JOIN, Trouble.SMALL_BUFFERS} <= troubles:
            drawn["store"] = True
        return cls(seed=seed, **{**drawn, **given})

    def faults(self) -> NetworkFaults:
        """Return the faults of the network."""
        refuse = 0.1 if Trouble.REFUSE in self.troubles else 0.0
        return NetworkFaults(
            loss=self.loss,
            duplication=0.2 if Trouble.DUPLICATE in self.troubles else 0.0,
            max_delay_ms=5_000 if Trouble.REORDER in self.troubles else 250,
            too_many_requests=refuse,
            invalid_message=refuse,
            no_peers_to_relay=refuse,
            answer_loss=refuse,
            answer_errors=0.5,
            silence=refuse / 10,
            store_loss=0.2 if Trouble.STORE_GAPS in self.troubles else 0.0,
            store_lag_ms=20_000 if Trouble.STORE_GAPS in self.troubles else 0,
            store_page=10 if Trouble.STORE_LIES in self.troubles else None,
            store_lies=0.3 if Trouble.STORE_LIES in self.troubles else 0.0,
        )

    def options(self) -> ReliableChannelOptions:
        """Return the options of the channel: those of the profile, with short segments and without parity."""
        options = self.profile.options()
        parity_rate = 0.5 if Trouble.PARITY in self.troubles else 0.0
        segmentation = replace(options.segmentation, segment_size_bytes=_SEGMENT_BYTES, parity_rate=parity_rate)
        sds, limit = options.sds, options.rate_limit
        if Trouble.FORGERY in self.troubles:
            sds = replace(sds, lost_timeout_ms=_LOST_TIMEOUT_MS)
        if Trouble.RATE_LIMIT in self.troubles:
            limit = RateLimitConfig(enabled=True, messages_per_epoch=self._messages_per_epoch(options))
        if Trouble.SMALL_BUFFERS in self.troubles:
            segmentation = replace(segmentation, max_buffered_bytes=8 * 64 * _SEGMENT_BYTES)
            sds = replace(sds, max_incoming_buffer=50)
            options = replace(
                options,
                max_unread_messages=20,
                advanced=Advanced(
                    max_unread_bytes=80 * _SEGMENT_BYTES, max_active_retries=4, max_store_queries_per_minute=12
                ),
            )
        return replace(options, segmentation=segmentation, sds=sds, rate_limit=limit)

    def _messages_per_epoch(self, options: ReliableChannelOptions) -> int:
        """Return a limit that delays messages, but admits all of them in the end."""
        return int(10 + 1.2 * self.messages_per_hour * options.rate_limit.epoch_ms / HOUR_MS)


def replay_command(plan: Plan) -> str:
    """Return the command that runs a plan again."""
    troubles = ",".join(sorted(trouble.value for trouble in plan.troubles)) or "none"
    return (
        f"fairway simulate --seed {plan.seed} --participants {plan.participants} --hours {_number(plan.hours)} "
        f"--loss {_number(plan.loss)} --profile {plan.profile.value} "
        f"--messages-per-hour {_number(plan.messages_per_hour)} {'--store' if plan.store else '--no-store'} "
        f"--troubles {troubles}"
    )


def _number(value: float) -> str:
    return repr(int(value)) if value == int(value) else repr(value)


def _require(holds: bool, text: str, value: object) -> None:
    if not holds:
        raise ConfigurationError(f"{text}, not {value}")
