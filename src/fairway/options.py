"""The options of a channel: one dataclass per layer, and the two profiles.

Defaults of `Profile.WAKU` follow RELIABLE-CHANNEL-API and js-waku, those of `Profile.LOGOS` follow LIP-173;
docs/decisions/specifications.md, "Defaults", has the exceptions. Durations are integer milliseconds, sizes are bytes,
unless a name says otherwise. Each constructor checks its values and raises `ConfigurationError`.
"""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import Any, Final, Self, TypeVar, get_args, get_type_hints

from fairway.errors import ConfigurationError
from fairway.type_checks import check_fields
from fairway.wire.repair_hash import NIM_REPAIR, WAKU_REPAIR, RepairHash
from fairway.wire.sds import NIM_SDS, WAKU_SDS, SdsCodec
from fairway.wire.segment import BARE, LIP_243, WAKU_SEGMENTS, SegmentFormat

_MAX_BATCH_MS: Final = 60_000
"""Longest wait of a send for further messages."""
_LEAST_ENTRY_BYTES: Final = 66
"""Smallest history entry on the wire: an SDS message id of 64 characters, with tag and length."""


class IdRule(Enum):
    """How an SDS message id is computed. Receivers do not check ids."""

    UNIQUE = "unique"
    """SHA-256 over sender id, Lamport timestamp and content: unique per segment."""
    PAYLOAD = "payload"
    """SHA-256 of the content alone, as in js-waku: two participants that send the same content share one id."""
    KECCAK_TIMESTAMP = "keccak-timestamp"
    """Keccak-256 over sender id, Unix nanoseconds and content, as logos-delivery does."""


_WIRES: Final[dict[str, dict[str, Any]]] = {
    "waku": {
        "codec": WAKU_SDS,
        "segments": WAKU_SEGMENTS,
        "repair": WAKU_REPAIR,
        "id_rule": IdRule.UNIQUE,
        "lamport_unit_ms": 1,
        "lamport_lead": 0,
        "marker": None,
        "ephemeral_is_content": False,
    },
    "logos": {
        "codec": NIM_SDS,
        "segments": LIP_243,
        "repair": NIM_REPAIR,
        "id_rule": IdRule.KECCAK_TIMESTAMP,
        "lamport_unit_ms": 1_000,
        "lamport_lead": 1_000,
        "marker": b"RELIABLE-CHANNEL-API/1",  # LIP-173
        "ephemeral_is_content": True,
    },
}
"""The attributes of each `Profile`, which documents them."""


class Profile(Enum):
    """The wire format of a channel. Channels of different profiles cannot read each other.

    The value is the profile's name. Each other difference between the profiles is an attribute; code uses these
    attributes and does not compare profiles.
    """

    WAKU = "waku"
    """SDS as specified and as js-waku writes it; segments as in SEGMENTATION."""
    LOGOS = "logos"
    """SDS as nim-sds writes it; segments as in LIP-243; WakuMessage.meta carries the marker of logos-delivery."""

    codec: SdsCodec
    """Codec of SDS messages."""
    segments: SegmentFormat
    """Format of segments."""
    repair: RepairHash
    """The hashes of SDS-R."""
    id_rule: IdRule
    """How the ids of outgoing SDS messages are computed."""
    lamport_unit_ms: int
    """Milliseconds in one unit of a Lamport timestamp."""
    lamport_lead: int
    """Units by which a message may always lead the receiver's clock, regardless of the wall clock.

    If a unit is a second, a channel with more than one message per second counts messages and not time. Its Lamport
    clock then moves ever further ahead of the wall clock. With a unit of a millisecond this does not happen."""
    marker: bytes | None
    """WakuMessage.meta of everything in a channel; None for none."""
    ephemeral_is_content: bool
    """Whether ephemeral messages are wrapped, logged and cited like any others."""

    def __init__(self, name: str) -> None:
        vars(self).update(_WIRES[name])

    @classmethod
    def of_marker(cls, marker: bytes | None) -> Profile:
        """Return the profile of a WakuMessage by its ``meta``: that of js-waku unless it is another one's marker."""
        return next((profile for profile in cls if marker is not None and profile.marker == marker), cls.WAKU)

    def options(self) -> ReliableChannelOptions:
        """Return the default options of a channel of this profile."""
        return ReliableChannelOptions.logos() if self is Profile.LOGOS else ReliableChannelOptions.waku()


class Delivery(Enum):
    """When the application gets a received message."""

    CAUSAL = "causal"
    """After every message that it depends on, or after the event that reports that message as lost."""
    ARRIVAL = "arrival"
    """As soon as it is complete; ``dependencies_met`` says whether its dependencies arrived before it."""


class Receive(Enum):
    """How an application receives messages, if it gives no handler of its own to ``create_reliable_channel``."""

    LOOP = "loop"
    """By ``async for message in channel``."""
    EVENTS = "events"
    """As the `MessageReceived` among the events of ``channel.events()``."""


class BloomPolicy(Enum):
    """Which outgoing messages have a bloom filter. All policies read the filters of others."""

    ALWAYS = "always"
    """All with a causal history, as SDS has it: 18,752 bytes a message by default."""
    NEWS = "news"
    """Only if a peer needs it: a peer waits for an acknowledgement that the message's citations cannot give."""
    NEVER = "never"
    """None."""


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ConfigurationError(text)


def _require_none_negative(options: Any, *names: str) -> None:
    for name in names:
        value = getattr(options, name) or 0
        _require(value >= 0, f"{name} must not be negative, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentationConfig:
    """Segmentation and reassembly (SEGMENTATION; LIP-243)."""

    segment_size_bytes: int = 102_400
    """`Profile.WAKU`: largest payload of a data segment, rounded down to a multiple of 64 if there is parity.
    `Profile.LOGOS`: largest encoded segment, or with bare_content the largest payload."""
    bare_content: bool = False
    """`Profile.LOGOS`: a payload is the content of its SDS message, without a segment of LIP-243 around it. It is not
    segmented, so that none is longer than segment_size_bytes, and not empty. Received content may have either form.
    For peers of logos-delivery, whose segmentation neither wraps nor unwraps (69fbffa3a)."""
    parity_rate: float = 0.125
    """Parity segments per data segment; 0 turns Reed-Solomon off."""
    max_message_size_bytes: int = 1_048_576
    """Largest payload; `send` refuses larger ones (1 MiB in drafts of LIP-173, "Segmentation")."""
    reassembly_timeout_ms: int = 86_400_000
    """Time without a new segment after which an incomplete message expires. Only time while the node is connected
    counts."""
    max_buffered_bytes: int = 268_435_456
    """Payload kept in incomplete messages, plus 1 KiB per segment; one sender may use an eighth. Above half of it no
    new message begins. The limit is three times as high for segments that wait for no message, and four times if the
    rest of the message fits in."""

    def __post_init__(self) -> None:
        check_fields(self)
        _require(
            self.segment_size_bytes >= 1,
            f"segment_size_bytes must be at least 1, not {self.segment_size_bytes}",
        )
        _require(0 <= self.parity_rate <= 1, f"parity_rate must lie in 0..1, not {self.parity_rate}")
        _require(self.max_message_size_bytes >= 1, "max_message_size_bytes must be at least 1")
        _require(self.reassembly_timeout_ms > 0, "reassembly_timeout_ms must be positive")
        _require(
            self.max_buffered_bytes >= 8 * self.segment_size_bytes,
            "max_buffered_bytes must hold at least eight segments, since one sender may use an eighth of it",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairConfig:
    """SDS-R: participants retransmit messages that another participant misses (SDS, "SDS Repair (SDS-R)")."""

    enabled: bool = True
    """Send and answer repair requests. History entries carry sender ids either way."""
    t_min_ms: int | None = None
    """Shortest time between noticing a missing message and requesting its repair. None: 30 s, and about 1 s if there is
    neither a store nor a rate limit."""
    t_max_ms: int | None = None
    """Longest time until the first request; answers are spread over the same time. None: four times the shortest."""

    def __post_init__(self) -> None:
        check_fields(self)
        t_min_ms, t_max_ms = self.window()
        _require(0 <= t_min_ms <= t_max_ms, "repair needs 0 <= t_min_ms <= t_max_ms")

    def window(self, t_min_ms: int = 30_000) -> tuple[int, int]:
        """Return T_min and T_max in ms; ``t_min_ms`` replaces a T_min that is not set."""
        if self.t_min_ms is not None:
            t_min_ms = self.t_min_ms
        elif self.t_max_ms is not None:
            t_min_ms = min(t_min_ms, self.t_max_ms)
        return t_min_ms, 4 * t_min_ms if self.t_max_ms is None else self.t_max_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class SdsConfig:
    """Scalable Data Sync (SDS; RELIABLE-CHANNEL-API, "SDS MessageChannel integration")."""

    causal_history_size: int = 2
    """Messages that each message cites. SDS recommends 2; js-waku uses 200."""
    bloom_capacity: int = 10_000
    """Messages that the bloom filter is sized for (RELIABLE-CHANNEL-API: bloom_filter_size). js-waku peers must use the
    same value."""
    bloom_error_rate: float = 0.001
    """Rate of false positives of the bloom filter when it holds bloom_capacity messages. Senders believe no filter that
    errs more often than 0.002, and retransmit messages without a citation."""
    bloom_policy: BloomPolicy = BloomPolicy.NEWS
    """Which messages have a bloom filter."""
    possible_acks_threshold: int = 2
    """Participants whose bloom filters must contain a message to acknowledge it without a citation."""
    lost_timeout_ms: int = 3_600_000
    """A dependency missing for this long is declared lost, and the messages that cite it are delivered; 0 = never. Time
    counts over restarts, but only while the node is connected and no store is being read. If the dependency arrives and
    a full buffer refuses it, the time begins again. It ends at the latest four times this long after the dependency was
    noticed, or after a message that it waits for last arrived."""
    gap_timeout_ms: int = 0
    """A received message that waited this long for dependencies is delivered without them, with ``dependencies_met``
    False; 0 = never. The dependencies are still requested, and delivered if they arrive before lost_timeout_ms. Time
    counts as for lost_timeout_ms."""
    max_incoming_buffer: int = 10_000
    """Received messages that wait for their dependencies, of 13 KiB on average. Beyond it the channel refuses further
    ones, which are retransmitted; it accepts up to twice as many if a waiting message depends on them."""
    max_history: int = 100_000
    """Messages in the local history: the newest, at some 400 bytes each (600 with a store in memory), and up to 1/64
    more, because the oldest are evicted in groups. Older messages count as received: a message that first arrives after
    so many newer ones is not delivered. The default covers a day with one message per second. A channel with hundreds
    per second needs more if its participants may be cut off from each other for longer than minutes."""
    repair: RepairConfig = field(default_factory=RepairConfig)
    """SDS-R."""

    def __post_init__(self) -> None:
        check_fields(self)
        _require_none_negative(self, "causal_history_size", "gap_timeout_ms")
        _require(self.bloom_capacity >= 1, "bloom_capacity must be at least 1")
        _require(0 < self.bloom_error_rate < 1, "bloom_error_rate must lie between 0 and 1")
        _require(self.possible_acks_threshold >= 1, "possible_acks_threshold must be at least 1")
        _require(
            self.max_history > self.causal_history_size,
            f"max_history must be more than causal_history_size ({self.causal_history_size}), not {self.max_history}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitConfig:
    """The rate limit manager (RELIABLE-CHANNEL-API, "Rate Limit Management"; LIP-173, "Rate Limit Manager")."""

    enabled: bool = False
    """Whether a limit applies. A quota from the node or the RLN provider turns it on."""
    epoch_ms: int = 600_000
    """Length of an epoch; epochs are aligned to the Unix epoch, as RLN's are."""
    messages_per_epoch: int | None = None
    """Transmissions allowed per epoch; required if ``enabled``."""
    approached_threshold: float = 0.9
    """Used share of the quota, 0 to 1, from which only messages of the application are sent."""
    max_queued: int = 100_000
    """Segments that wait for a later epoch, or for the node; `send` waits at the limit."""

    def __post_init__(self) -> None:
        check_fields(self)
        _require(self.epoch_ms > 0, f"epoch_ms must be positive, not {self.epoch_ms}")
        _require(0 < self.approached_threshold <= 1, "approached_threshold must lie in (0, 1]")
        _require(
            not self.enabled or (self.messages_per_epoch is not None and self.messages_per_epoch >= 0),
            "an enabled rate limit needs messages_per_epoch (0 or more)",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """Bounds and intervals of a channel (RELIABLE-CHANNEL-API, "Security/Privacy Considerations").

    `Limit` says what happens at a bound.
    """

    query_on_connect_interval_ms: int = 300_000
    """Shortest interval between queries for the time offline, if the node was not offline in between."""
    query_on_connect_max_window_ms: int = 2_592_000_000
    """Longest time that such a query covers, and the time that the first one covers: 30 days."""
    max_missing: int = 10_000
    """Missing messages tracked and asked for. From half of it on the channel refuses a message that cites more than 20
    new ones, and from twice of it on any message."""
    max_overdue_bytes: int = 33_554_432
    """Payloads of the sends that failed and are still retried, plus 4 KiB for each segment. Beyond it the channel gives
    up the oldest such send, with an event."""
    max_active_retries: int = 1_000
    """Segments whose retransmission is queued or in flight; further ones wait."""
    max_store_queries_per_minute: int = 60
    """Store queries in any minute; each page counts. Further ones wait."""
    max_unread_bytes: int = 268_435_456
    """Payload of the unread messages; at the limit the channel receives nothing."""
    handling_retry_ms: int = 1_000
    """Pause before a message on which the handler raised is handed over again."""
    max_set_aside: int = 1_000
    """Messages that are set aside; for each further one the channel discards the oldest, with an event."""
    max_concurrent_publishes: int = 32
    """Transmissions that the node has and has not answered."""
    max_wire_message_bytes: int = 153_600
    """Largest encoded WakuMessage to send (64/WAKU2-NETWORK: 150 KiB)."""
    max_received_bytes: int = 1_048_576
    """Largest received payload; larger ones are ignored."""

    def __post_init__(self) -> None:
        check_fields(self)
        _require_none_negative(self, "query_on_connect_interval_ms", "handling_retry_ms")
        for name in (
            "query_on_connect_max_window_ms",
            "max_missing",
            "max_overdue_bytes",
            "max_active_retries",
            "max_store_queries_per_minute",
            "max_unread_bytes",
            "max_set_aside",
            "max_concurrent_publishes",
        ):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliableChannelOptions:
    """The options of one channel.

    RELIABLE-CHANNEL-API, "Create Reliable Channel": ReliableChannelOptions; LIP-173, "Type definitions".

    ``causal_history_size`` and ``bloom_filter_size`` replace the values in ``sds``, also in copies that
    ``dataclasses.replace`` makes; set them to None there to change ``sds`` itself.
    """

    profile: Profile = Profile.WAKU
    """Wire format of the channel."""
    delivery: Delivery = Delivery.CAUSAL
    """When the application gets a received message."""
    sync_min_interval_ms: int | None = None
    """Sync messages are sent at a random time within this after news, and then less and less often; 0 = never.
    None: 2 s, or 30 s under a rate limit."""
    retry_interval_ms: int | None = None
    """Unacknowledged messages are sent again after this; 0 = never. Possibly acknowledged ones wait twice as long.
    None: 30 s, and sooner if a participant that is here misses the message."""
    max_retry_attempts: int = 10
    """Retransmissions of a segment before its send fails with `DeliveryError`. A send that failed is sent again at a
    falling rate, from one copy a minute to one an hour for the whole channel. 0 = no retransmissions at all."""
    retrieve_frequency_ms: int | None = None
    """Interval between store queries for missing messages; 0 = never. None: as soon as a message is later than others
    were, and again after the time that the store's answers take."""
    sweep_in_buf_interval_ms: int = 5_000
    """Interval between sweeps of the incoming buffer (SDS, "Periodic Incoming Buffer Sweep")."""
    query_on_connect: bool = True
    """When a store becomes reachable, query it for the time offline (RELIABLE-CHANNEL-API, "Query on connect")."""
    auto_start: bool = True
    """Start the channel when it is created."""
    batch_ms: int = 0
    """`send` waits this long for further small messages, and sends those that fit one segment in one WakuMessage;
    0 = never. While the rate limit holds that WakuMessage back, later messages join it. Receivers that are not fairway
    cannot read it, so leave it at 0 if js-waku or nim-sds is in the channel."""
    process_task_min_elapse_ms: int = 0
    """Shortest time between two rounds of processing received messages; 0 = no pause."""
    causal_history_size: int | None = None
    """Messages that each message cites; replaces the value in ``sds``. Named as in RELIABLE-CHANNEL-API."""
    bloom_filter_size: int | None = None
    """Messages that the bloom filter is sized for; replaces ``sds.bloom_capacity``. Named as in
    RELIABLE-CHANNEL-API."""
    max_unread_messages: int = 10_000
    """Received messages that the application has not finished; at the limit the channel receives nothing. The last ones
    that come in one batch may exceed it."""
    max_handling_attempts: int = 3
    """Times that handlers may raise on a message, over restarts, before it is set aside (`MessageSetAside`)."""
    cluster_id: int = 1
    """Network cluster (64/WAKU2-NETWORK)."""
    shard_count: int = 8
    """Network shards of the cluster, for autosharding."""
    advanced: Advanced = field(default_factory=Advanced)
    """Bounds and intervals that few programs change."""
    segmentation: SegmentationConfig = field(default_factory=SegmentationConfig)
    """Segmentation layer."""
    sds: SdsConfig = field(default_factory=SdsConfig)
    """SDS layer, with the values in force."""
    rate_limit: RateLimitConfig = field(default_factory=RateLimitConfig)
    """Rate limit manager."""

    def __post_init__(self) -> None:
        check_fields(self)
        _require_none_negative(
            self,
            "sync_min_interval_ms",
            "retry_interval_ms",
            "max_retry_attempts",
            "retrieve_frequency_ms",
            "batch_ms",
            "process_task_min_elapse_ms",
            "causal_history_size",
        )
        for name in ("sweep_in_buf_interval_ms", "max_unread_messages", "max_handling_attempts"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        _require(
            self.batch_ms <= _MAX_BATCH_MS,
            f"batch_ms must be at most {_MAX_BATCH_MS:,}, a minute, not {self.batch_ms:,}: sends wait that long",
        )
        _require(
            not self.segmentation.bare_content or self.profile is Profile.LOGOS,
            "bare_content is for Profile.LOGOS; Profile.WAKU sends a payload that fits one segment unmodified anyway",
        )
        self._apply_names_of_the_api()
        self._check_that_segments_fit()

    @property
    def segment_format(self) -> SegmentFormat:
        """The format of the content of SDS messages."""
        return BARE if self.segmentation.bare_content else self.profile.segments

    def _check_that_segments_fit(self) -> None:
        """Refuse options with which a full segment exceeds ``max_wire_message_bytes``.

        A bloom filter has at least 1.44 log2(1/error rate) bits per element. An entry of the causal history has at
        least an SDS message id of 64 characters.
        """
        content = min(self.segmentation.segment_size_bytes, self.segmentation.max_message_size_bytes)
        bits = math.log2(1 / self.sds.bloom_error_rate) / math.log(2)
        bloom = math.ceil(self.sds.bloom_capacity * bits / 8)
        history = self.sds.causal_history_size * _LEAST_ENTRY_BYTES
        least = content + bloom + history
        _require(
            least <= self.advanced.max_wire_message_bytes,
            f"a message of a full segment would have more than {least:,} bytes: {content:,} of content, {bloom:,} of "
            f"bloom filter for {self.sds.bloom_capacity:,} messages, {history:,} of causal history; at most "
            f"{self.advanced.max_wire_message_bytes:,} may leave (advanced.max_wire_message_bytes). Take a smaller "
            "bloom_filter_size, causal_history_size or segment_size_bytes",
        )

    def _apply_names_of_the_api(self) -> None:
        """Copy ``causal_history_size`` and ``bloom_filter_size`` into ``sds``."""
        given: dict[str, Any] = {}
        if self.causal_history_size is not None:
            given["causal_history_size"] = self.causal_history_size
        if self.bloom_filter_size is not None:
            _require(self.bloom_filter_size >= 1, "bloom_filter_size must be at least 1")
            given["bloom_capacity"] = self.bloom_filter_size
        if given:
            # The class is frozen, but its constructor is still running.
            object.__setattr__(self, "sds", replace(self.sds, **given))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Return the options in a mapping, such as one read from JSON or TOML; missing ones have their defaults.

        Layers are nested mappings; enum values are given by their text (``"logos"``). Raises `ConfigurationError` for
        an unknown name and for a value of the wrong type.

        Four names of LIP-173 are accepted, too: ``segmentation.chunk_size_bytes``, ``sds.acknowledgement_timeout_ms``,
        ``sds.max_retransmissions`` and ``rate_limit.epoch_size_ms``.
        """
        return _from_mapping(cls, _with_our_names(mapping) if isinstance(mapping, Mapping) else mapping, "")

    @classmethod
    def waku(cls) -> ReliableChannelOptions:
        """Return the defaults of `Profile.WAKU`."""
        return cls()

    @classmethod
    def js_waku(cls) -> ReliableChannelOptions:
        """Return the defaults with js-waku's causal history of 200 (40 kB a message)."""
        return cls(sds=SdsConfig(causal_history_size=200))

    @classmethod
    def logos(cls) -> ReliableChannelOptions:
        """Return the defaults of LIP-173 and nim-sds."""
        return cls(
            profile=Profile.LOGOS,
            retry_interval_ms=5_000,
            max_retry_attempts=5,
            segmentation=SegmentationConfig(parity_rate=0.0),
        )


_Options = TypeVar("_Options")

_OTHER_NAMES: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("segmentation", "chunk_size_bytes"): ("segmentation", "segment_size_bytes"),
    ("sds", "acknowledgement_timeout_ms"): ("retry_interval_ms",),
    ("sds", "max_retransmissions"): ("max_retry_attempts",),
    ("rate_limit", "epoch_size_ms"): ("rate_limit", "epoch_ms"),
}
"""Layer and name of an option in LIP-173 -> path of the same option here."""


def _with_our_names(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a mapping of options with the names of LIP-173 replaced by ours."""
    ours = {name: dict(value) if isinstance(value, Mapping) else value for name, value in mapping.items()}
    if isinstance(ours.get("sds"), dict) and "history_backend" in ours["sds"]:
        raise ConfigurationError(
            "sds.history_backend is no option here: give the store to create_reliable_channel(store=...), a path or a "
            "ChannelStore"
        )
    for (layer, name), (*path, option) in _OTHER_NAMES.items():
        given = ours.get(layer)
        if not isinstance(given, dict) or name not in given:
            continue
        place = ours.setdefault(path[0], {}) if path else ours
        if option in place:
            raise ConfigurationError(
                f"{layer}.{name} and {'.'.join((*path, option))} are one option: give only one of them"
            )
        place[option] = given.pop(name)
    return ours


def _from_mapping(cls: type[_Options], mapping: Mapping[str, Any], path: str) -> _Options:
    """Return an options object from a mapping; error texts put ``path`` before the names of options."""
    if not isinstance(mapping, Mapping):
        raise ConfigurationError(f"{path.rstrip('.') or 'options'} must be a mapping of names to values: {mapping!r}")
    hints = get_type_hints(cls)
    known = [option.name for option in fields(cls)]  # type: ignore[arg-type]  # callers give dataclasses
    values: dict[str, Any] = {}
    for name, value in mapping.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
            meant = f"did you mean {path}{near[0]}? " if near else ""
            raise ConfigurationError(f"there is no option {path}{name}; {meant}the options are {', '.join(known)}")
        values[name] = _option_value(hints[name], value, f"{path}{name}")
    return cls(**values)


def _option_value(wanted: Any, value: Any, path: str) -> Any:
    """Return a value as the option's type, or raise `ConfigurationError`."""
    if isinstance(wanted, types.UnionType):
        # The only unions among options are those with None.
        if value is None:
            return None
        wanted = next(choice for choice in get_args(wanted) if choice is not type(None))
    if isinstance(value, wanted) and not (isinstance(value, bool) and wanted is not bool):
        return value
    if isinstance(wanted, type) and is_dataclass(wanted):
        return _from_mapping(wanted, value, f"{path}.")
    if issubclass(wanted, Enum):
        texts = [member.value for member in wanted]
        if value in texts:
            return wanted(value)
        raise ConfigurationError(f"{path} must be one of {', '.join(map(repr, texts))}, not {value!r}")
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    raise ConfigurationError(f"{path} must be of type {wanted.__name__}, not {type(value).__name__} ({value!r})")
