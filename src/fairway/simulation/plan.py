"""`SimulationPlan`: the options of a simulated world, which with their seed determine all that happens in it.

`replay_command` writes a plan as the command that runs it again. The constructor checks its values and raises
`ConfigurationError`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Final

from fairway.errors import ConfigurationError
from fairway.options import (
    BloomPolicy,
    Delivery,
    Profile,
    RateLimitConfig,
    ReliableChannelOptions,
    RepairConfig,
    SdsConfig,
    SegmentationConfig,
)
from fairway.simulation.light.troubles import Vice
from fairway.units import HOUR_MS
from fairway.waku.local import NetworkFaults

_MAX_PARTICIPANTS: Final = 1_000
_ANSWER_ERRORS: Final = 0.5
"""Share of the lost answers in place of which a node raises."""
MIN_DURATION_MS: Final = 1_000
MAX_DURATION_MS: Final = 24 * 30 * HOUR_MS
_SHARES: Final = (
    "long_share",
    "ephemeral_share",
    "repeat_share",
    "ask_all_share",
    "ask_some_share",
    "ask_more_share",
    "impatience",
    "refusals",
    "answer_loss",
    "silence",
    "store_lies",
    "store_cuts",
    "restamped",
    "garbled",
    "burst_repeats",
    "cipher_failures",
    "option_changes",
    "handler_failures",
    "rln_failures",
)
_RATES: Final = (
    "messages_per_hour",
    "crashes_per_hour",
    "cuts_per_hour",
    "absences_per_hour",
    "node_deaths_per_hour",
    "deaf_per_hour",
    "clock_jumps_per_hour",
    "blips_per_hour",
    "storage_faults_per_hour",
    "pauses_per_hour",
    "resets_per_hour",
    "stalls_per_hour",
)
_COUNTS: Final = ("joins", "leaves", "partitions", "slow_uplinks", "slow_readers", "bursts", "foreign", "hostile")
_OF_LIGHT_CLIENTS: Final = ("resets_per_hour", "stalls_per_hour", "garbled", "bad_nodes")
NOT_OF_LIGHT_CLIENTS: Final = ("restamped", "clock_skew_ms", "clock_jumps_per_hour", "blips_per_hour")
"""Service nodes relay messages as they are, and those of The Waku Network refuse what is stamped 20 s off."""
_MAX_SERVICE_NODES: Final = 20
_MAX_BURST: Final = 1_000
_MAX_SKEW_MS: Final = HOUR_MS
_MAX_DISK_MS: Final = 60_000
LONGEST_HISTORY: Final = 20
"""The most newest messages that a participant with other options cites."""
SHORTEST_INTERVAL_MS: Final = 10_000
"""The shortest interval of sync messages of one with other options."""
FAST_DISK_MS: Final = 10
"""A disk up to this latency answers as soon as a write is on it."""


class StoreKind(Enum):
    """Where participants keep the state of their channels."""

    MEMORY = "memory"
    """In memory that survives a crash."""
    DISK = "disk"
    """In SQLite files on a simulated disk, which loses unsynced writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationPlan:
    """One world. Rates are per participant and hour of virtual time, shares lie in 0..1."""

    participants: int = 20
    """Participants at the beginning."""
    duration_ms: int = 2 * HOUR_MS
    """How long they send; then all come back, and the world runs on until it is quiet."""
    loss: float = 0.3
    """Share of deliveries and store answers that are lost, until the end."""
    seed: int = 1
    """The same plan with the same seed gives the same run, event for event."""
    profile: Profile = Profile.WAKU
    """Wire format of the channel."""
    delivery: Delivery = Delivery.CAUSAL
    """When messages reach the application."""
    duplication: float = 0.1
    """Share of deliveries that are doubled."""
    store_gaps: float = 0.0
    """Share of messages that the store does not get."""
    min_delay_ms: int = 20
    """Shortest delay of a delivery."""
    max_delay_ms: int = 250
    """Longest delay of a delivery; a larger span reorders more."""
    messages_per_hour: float = 6.0
    """Messages that a participant sends, at random times."""
    long_share: float = 0.1
    """Share of messages that take two to six data segments."""
    ephemeral_share: float = 0.1
    """Share of messages that are ephemeral."""
    repeat_share: float = 0.1
    """Share of messages with the payload "ok", which others sent before."""
    ask_all_share: float = 0.5
    """Share of sends that ask all present participants to acknowledge."""
    ask_some_share: float = 0.0
    """Share of the others that ask for two or three acknowledgements; the rest ask for one."""
    ask_more_share: float = 0.0
    """Share of sends that ask for a further participant later, before or after they count as delivered."""
    impatience: float = 0.0
    """Share of sends that an application makes twice, at once or a while later, with the same request id."""
    crashes_per_hour: float = 0.5
    """Crashes of a participant; it starts again at once from its store."""
    cuts_per_hour: float = 0.0
    """Crashes of a participant while it hands a message to its node."""
    absences_per_hour: float = 0.5
    """Times that a participant is offline."""
    absence_ms: int = 180_000
    """Mean length of an absence."""
    joins: int = 2
    """Participants that join later."""
    leaves: int = 2
    """Participants that leave for good."""
    partitions: int = 1
    """Partitions of the network."""
    partition_ms: int = 180_000
    """Length of a partition."""
    partition_sides: int = 2
    """Number of sides of a partition."""
    refusals: float = 0.0
    """Share of sends that a node refuses with 429, 420, 503 or 505."""
    node_rate: float | None = None
    """Messages per second that a node accepts, after ten at once; it refuses others with 429. None for no limit."""
    answer_loss: float = 0.0
    """Share of sends that the network accepts while its answer is lost; instead of half of them a node raises."""
    silence: float = 0.0
    """Share of sends and store queries that never end, not even with a timeout."""
    slow_uplinks: int = 0
    """Participants that can send only one message in two seconds."""
    node_deaths_per_hour: float = 0.0
    """Times that the service node of a participant ends, and is replaced after an absence."""
    deaf_per_hour: float = 0.0
    """Times that a service node forgets the subscriptions of a participant, which notices later."""
    store_lag_ms: int = 0
    """Delay with which a message enters the store."""
    store_page: int | None = None
    """Most messages in a page of the store; None for a hundred."""
    store_lies: float = 0.0
    """Share of the store's answers that are falsified."""
    store_cuts: float = 0.0
    """Share of the store's answers that end before their end, though never two in a row."""
    restamped: float = 0.0
    """Share of messages to which a service node gives another timestamp: hints of their sender lead nowhere."""
    service_nodes: int = 0
    """Service nodes that participants use as light clients over streams; 0 for a network without streams."""
    resets_per_hour: float = 0.0
    """Times that a light client loses connections with service nodes."""
    stalls_per_hour: float = 0.0
    """Times that links of a light client are silent for up to two minutes, of which nobody is told."""
    garbled: float = 0.0
    """Share of the answers of service nodes that are cut short, damaged, too long or slow."""
    bad_nodes: int = 0
    """Service nodes that never answer, refuse, lie, swallow messages, forget subscriptions or push junk, in turn."""
    vice: Vice | None = None
    """What all bad service nodes do for four minutes of every six; None for something else every twenty seconds."""
    store: StoreKind = StoreKind.MEMORY
    """Where participants keep the state of their channels."""
    storage_faults_per_hour: float = 0.0
    """Times that the power or the disk of a participant fails during a write; needs the store on disk."""
    disk_ms: int = 10
    """Longest time until a write is on the disk; a disk slower than 10 ms takes as long again to confirm it."""
    pauses_per_hour: float = 0.0
    """Times that a program stops its channel at any moment, and starts it again after a while."""
    clock_skew_ms: int = 0
    """Largest difference of a participant's clock from the true time, ahead or behind."""
    clock_jumps_per_hour: float = 0.0
    """Times that a participant's clock is set wrongly, by up to the skew or ten minutes."""
    blips_per_hour: float = 0.0
    """Times that a participant's clock is ahead for a few seconds while the participant sends."""
    encrypted: bool = False
    """Whether the channel is encrypted."""
    cipher_delay_ms: int = 0
    """Longest time of the cipher; more than 0 makes it asynchronous."""
    cipher_failures: float = 0.0
    """Share of messages that the cipher fails to decrypt, each time that they arrive."""
    option_changes: float = 0.0
    """Share of restarts with changed options."""
    mixed_options: bool = False
    """Whether participants have different options."""
    tight_quotas: bool = False
    """Whether buffers hold only a few dozen messages."""
    tiny_quotas: bool = False
    """Whether buffers hold only a few messages."""
    slow_readers: int = 0
    """Participants whose application takes two seconds over a message."""
    direct_readers: bool = False
    """Whether handlers are plain functions, and loops call ``finish``."""
    handler_failures: float = 0.0
    """Share of messages on which handlers raise, at each call; programs that read in a loop end instead."""
    bursts: int = 0
    """Times that a participant sends many long messages at once."""
    burst_messages: int = 30
    """Messages of such a burst."""
    burst_repeats: float = 0.0
    """Share of the messages of a burst with the payload "ok"."""
    foreign: int = 0
    """Participants of another make, whose messages say nothing beyond the specifications and have no bloom filter."""
    hostile: int = 0
    """Participants that send forged messages."""
    haste: bool = False
    """Whether these also answer at once what they hear, push messages to single participants, and fill tight quotas."""
    insatiable: bool = False
    """Whether these also ask for everything that was said, over and over."""
    rate_limit: int | None = None
    """Transmissions that a participant may make in ten minutes; None for no limit."""
    rln_limit: int | None = None
    """Messages in ten minutes that every other participant's RLN membership allows, and the others' twice as many;
    None for a network that asks for no proofs."""
    rln_failures: float = 0.0
    """Share of RLN proofs that cannot be made at the moment."""
    rln_shared: bool = False
    """Whether another program sends with each RLN membership, too: up to a quarter of what that allows."""
    segment_size_bytes: int = 1_000
    """Segment size; small, so that a message of several segments costs little to simulate."""
    parity_rate: float | None = None
    """Parity segments per data segment; None for the profile's default."""
    bloom_policy: BloomPolicy = SdsConfig().bloom_policy
    """Which messages have bloom filters."""
    bloom_capacity: int = 10_000
    """Messages that bloom filters are sized for."""
    bloom_error_rate: float = SdsConfig().bloom_error_rate
    """How often a full bloom filter seems to hold what it does not."""
    repairs: bool = True
    """Whether participants ask others for what they lack."""
    response_groups: int = RepairConfig().response_groups
    """Groups of which one answers a first request for what somebody lacks; 0 = by the number of participants."""
    reassembly_timeout_ms: int = SegmentationConfig().reassembly_timeout_ms
    """Time without a further segment after which the rest of a long message is waited for no longer."""
    max_history: int = SdsConfig().max_history
    """Messages in the local history."""
    lost_timeout_ms: int = SdsConfig().lost_timeout_ms
    """Time after which a missing cited message is declared lost; 0 = never."""
    gap_timeout_ms: int = SdsConfig().gap_timeout_ms
    """Time after which a message is delivered without the missing ones that it cites; 0 = never."""
    settle_ms: int = 3 * HOUR_MS
    """Time without a delivery after which the world is quiet; with forged messages at least lost_timeout_ms."""

    def __post_init__(self) -> None:
        _require(2 <= self.participants <= _MAX_PARTICIPANTS, self, "participants", f"2 to {_MAX_PARTICIPANTS}")
        _require(MIN_DURATION_MS <= self.duration_ms <= MAX_DURATION_MS, self, "duration_ms", "one second to 30 days")
        _require(0 <= self.loss < 1, self, "loss", "0 or more and less than 1, for else nothing ever arrives")
        _require(self.seed >= 0, self, "seed", "0 or more")
        for name in _SHARES:
            _require(0 <= getattr(self, name) <= 1, self, name, "a share, 0 to 1")
        for name in _RATES:
            _require(0 <= getattr(self, name) <= HOUR_MS, self, name, "0 or more")
        for name in _COUNTS:
            _require(0 <= getattr(self, name) <= _MAX_PARTICIPANTS, self, name, f"0 to {_MAX_PARTICIPANTS}")
        _require(self.leaves <= self.participants - 2, self, "leaves", "at most all participants but two")
        _require(2 <= self.partition_sides <= self.participants, self, "partition_sides", "2 to the participants")
        _require(0 <= self.clock_skew_ms <= _MAX_SKEW_MS, self, "clock_skew_ms", "0 to one hour")
        _require(0 <= self.cipher_delay_ms <= _MAX_SKEW_MS, self, "cipher_delay_ms", "0 to one hour")
        _require(1 <= self.burst_messages <= _MAX_BURST, self, "burst_messages", f"1 to {_MAX_BURST}")
        needs_disk = self.storage_faults_per_hour == 0 or self.store is StoreKind.DISK
        _require(needs_disk, self, "store", "disk where storage_faults_per_hour are wanted")
        _require(
            self.encrypted or not (self.cipher_delay_ms or self.cipher_failures),
            self,
            "encrypted",
            "given with cipher_delay_ms and cipher_failures",
        )
        _require(1 <= self.disk_ms <= _MAX_DISK_MS, self, "disk_ms", "1 to 60,000 ms")
        _require(self.absence_ms >= 1, self, "absence_ms", "at least 1 ms")
        _require(self.partition_ms >= 1, self, "partition_ms", "at least 1 ms")
        _require(self.lost_timeout_ms >= 0, self, "lost_timeout_ms", "0 or more")
        _require(self.gap_timeout_ms >= 0, self, "gap_timeout_ms", "0 or more")
        _require(self.node_rate is None or self.node_rate > 0, self, "node_rate", "more than 0 messages a second")
        _require(self.settle_ms >= 0, self, "settle_ms", "0 or more")
        _require(self.rate_limit is None or self.rate_limit >= 1, self, "rate_limit", "at least 1 transmission")
        _require(self.rln_limit is None or self.rln_limit >= 1, self, "rln_limit", "at least 1 message")
        for name in ("rln_failures", "rln_shared"):
            _require(self.rln_limit is not None or not getattr(self, name), self, name, "0 without rln_limit")
        _require(0 <= self.service_nodes <= _MAX_SERVICE_NODES, self, "service_nodes", f"0 to {_MAX_SERVICE_NODES}")
        has_filters = self.bloom_policy is BloomPolicy.ALWAYS
        _require(not (self.foreign and has_filters), self, "bloom_policy", "another than always beside foreign")
        for name in _OF_LIGHT_CLIENTS:
            is_off = self.service_nodes or not getattr(self, name)
            _require(bool(is_off), self, name, "0 without service_nodes")
        for name in NOT_OF_LIGHT_CLIENTS:
            is_off = not (self.service_nodes and getattr(self, name))
            _require(is_off, self, name, "0 with service_nodes")
        # Those with a vice that is given have it for a while only.
        most_bad = self.service_nodes if self.vice is not None else max(0, self.service_nodes - 1)
        _require(0 <= self.bad_nodes <= most_bad, self, "bad_nodes", "less than service_nodes")
        _require(self.vice is None or self.bad_nodes > 0, self, "vice", "given with bad_nodes")
        self.faults()
        self.options()

    @property
    def is_anybody_away(self) -> bool:
        """Whether nodes are ever away from the network, and know it."""
        return bool(self.absences_per_hour or self.node_deaths_per_hour or self.deaf_per_hour)

    @property
    def is_limited(self) -> bool:
        """Whether participants may send only so much in an epoch."""
        return self.rate_limit is not None or self.rln_limit is not None

    def faults(self) -> NetworkFaults:
        """Return the faults of the network. Raises `ConfigurationError` for impossible ones."""
        return NetworkFaults(
            loss=self.loss,
            duplication=self.duplication,
            min_delay_ms=self.min_delay_ms,
            max_delay_ms=self.max_delay_ms,
            store_loss=self.store_gaps,
            answer_loss=self.answer_loss,
            answer_errors=_ANSWER_ERRORS,
            silence=self.silence,
            messages_per_second=self.node_rate,
            too_many_requests=self.refusals * 0.4,
            invalid_message=self.refusals * 0.3,
            no_peers_to_relay=self.refusals * 0.3,
            store_lag_ms=self.store_lag_ms,
            store_page=self.store_page,
            store_lies=self.store_lies,
            store_cuts=self.store_cuts,
            restamped=self.restamped,
        )

    def options(self) -> ReliableChannelOptions:
        """Return the channel's options: those of the profile with what the plan changes."""
        base = self.profile.options()
        parity = base.segmentation.parity_rate if self.parity_rate is None else self.parity_rate
        limit = base.rate_limit
        if self.rate_limit is not None:
            limit = RateLimitConfig(enabled=True, messages_per_epoch=self.rate_limit)
        options = replace(
            base,
            delivery=self.delivery,
            segmentation=replace(
                base.segmentation,
                segment_size_bytes=self.segment_size_bytes,
                parity_rate=parity,
                reassembly_timeout_ms=self.reassembly_timeout_ms,
            ),
            sds=replace(
                base.sds,
                bloom_policy=self.bloom_policy,
                bloom_capacity=self.bloom_capacity,
                bloom_error_rate=self.bloom_error_rate,
                max_history=self.max_history,
                lost_timeout_ms=self.lost_timeout_ms,
                gap_timeout_ms=self.gap_timeout_ms,
                repair=replace(
                    base.sds.repair,
                    enabled=base.sds.repair.enabled and self.repairs,
                    response_groups=self.response_groups,
                ),
            ),
            rate_limit=limit,
        )
        if self.tiny_quotas:
            return _tiny(options, is_stored=not self.store_gaps)
        return _tight(options) if self.tight_quotas else options

    def other_options(self, dice: random.Random) -> ReliableChannelOptions:
        """Draw options that get on with those of the plan."""
        options = self.options()
        segment_bytes = self.segment_size_bytes
        if not self.profile.segments.self_describing:
            # LIP-243 has all participants agree on it.
            segment_bytes = max(64, segment_bytes // dice.choice((1, 2)))
        return replace(
            options,
            sync_min_interval_ms=dice.choice((SHORTEST_INTERVAL_MS, 30_000, 60_000)),
            retry_interval_ms=dice.choice((10_000, 30_000, 45_000)),
            retrieve_frequency_ms=dice.choice((5_000, 10_000, 60_000)),
            max_concurrent_publishes=dice.choice((1, 4, 16)),
            segmentation=replace(
                options.segmentation,
                segment_size_bytes=segment_bytes,
                parity_rate=dice.choice((0.0, options.segmentation.parity_rate, 0.5)),
            ),
            sds=replace(
                options.sds,
                causal_history_size=dice.choice((2, 5, LONGEST_HISTORY)),
                bloom_policy=dice.choice(self._other_policies()),
            ),
            max_hashes_per_query=min(options.max_hashes_per_query, dice.choice((2, 50))),
        )

    def _other_policies(self) -> list[BloomPolicy]:
        """Return the bloom policies that get on with that of the plan: whoever wants all filters checks for them."""
        return [self.bloom_policy] if self.bloom_policy is BloomPolicy.ALWAYS else list(BloomPolicy)


def _tight(options: ReliableChannelOptions) -> ReliableChannelOptions:
    """Return options with buffers that fill up: room for a few dozen messages."""
    segment_bytes = options.segmentation.segment_size_bytes + 1_024
    return replace(
        options,
        max_unread_messages=20,
        max_unread_bytes=40 * segment_bytes,
        max_set_aside=4,
        rate_limit=replace(options.rate_limit, max_queued=30),
        max_active_retries=4,
        max_store_queries_per_minute=12,
        segmentation=replace(
            options.segmentation,
            max_sets_per_sender=4,
            max_buffered_bytes_per_sender=32 * segment_bytes,
            max_buffered_bytes=64 * segment_bytes,
        ),
        sds=replace(options.sds, max_incoming_buffer=50),
    )


def _tiny(options: ReliableChannelOptions, *, is_stored: bool) -> ReliableChannelOptions:
    """Return options with buffers that are full most of the time in which anything is amiss.

    What no store has, participants have to retain until the last one has room for it.
    """
    repair = options.sds.repair
    segment_bytes = options.segmentation.segment_size_bytes + 1_024
    return replace(
        _tight(options),
        max_unread_messages=5,
        max_active_retries=2,
        rate_limit=replace(options.rate_limit, max_queued=4),
        max_hashes_per_query=2,
        segmentation=replace(
            options.segmentation,
            max_sets_per_sender=2,
            max_buffered_bytes_per_sender=12 * segment_bytes,
            max_buffered_bytes=20 * segment_bytes,
            max_completed_sets=30,
        ),
        sds=replace(
            options.sds,
            max_incoming_buffer=12,
            max_incoming_buffer_bytes=16 * segment_bytes,
            repair=replace(repair, retained_messages=100) if is_stored else repair,
        ),
    )


def replay_command(plan: SimulationPlan) -> str:
    """Return the command that runs a plan again: the seed, and all options that differ from the defaults."""
    words = ["fairway simulate"]
    for field in fields(plan):
        value = getattr(plan, field.name)
        if field.name == "duration_ms":
            words.append(f"--hours {_number(value / HOUR_MS)}")
        elif field.name in {"participants", "loss", "seed"} or value != field.default:
            words.append(_option(field.name.replace("_", "-"), value))
    return " ".join(words)


def _require(condition: bool, plan: SimulationPlan, name: str, expected: str) -> None:
    if not condition:
        raise ConfigurationError(f"{name} must be {expected}, not {getattr(plan, name)}")


def _option(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if isinstance(value, Enum):
        return f"--{name} {value.value}"
    return f"--{name} {_number(value) if isinstance(value, float) else value}"


def _number(value: float) -> str:
    """Return a number in the fewest digits that give it back."""
    return repr(int(value)) if value == int(value) else repr(value)
