"""The options of the data source ``waku``, parsed and checked before an archive is opened.

The names are Kafka's where Kafka has one. Invariant: an option that is unknown or invalid raises a `ConfigurationError`
that names it; no option is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairway.errors import ConfigurationError
from fairway.pipeline.sources.waku_messages import Selection
from fairway.storage.archive import HASH_BYTES, MIN_TIMESTAMP_NS, ArchiveCursor
from fairway.units import NS_PER_MS

DEFAULT_SETTLE_MS: Final = 30_000
"""Nodes relay messages that are up to 20 s old (64/WAKU2-NETWORK); after 30 s a store has all that will arrive."""

_NAMES: Final = (
    "path",
    "uri",
    "label",
    "contentTopics",
    "pubsubTopic",
    "channels",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "settleMs",
)
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a read; `fairway.pipeline.sources.waku` describes each."""

    uri: str
    label: str | None
    selection: Selection
    """The wanted messages, apart from the starting offset."""
    starting: ArchiveCursor | str
    """The starting offset: a cursor, or `EARLIEST` or `LATEST`."""
    min_partitions: int | None
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    settle_ns: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return the options, which may be written in any case, or raise `ConfigurationError`."""
        given = {name.lower(): value for name, value in options.items()}
        unknown = given.keys() - {name.lower() for name in _NAMES}
        if unknown:
            raise ConfigurationError(
                f"the source 'waku' has no option {', '.join(sorted(unknown))}; it has {', '.join(_NAMES)}"
            )
        uri = given.get("uri") or given.get("path")
        if not uri:
            raise ConfigurationError("the source 'waku' needs a path or a URI: .load('sqlite:store.sqlite3')")
        starting = _offset(given, "startingOffsets", EARLIEST)
        ending = _offset(given, "endingOffsets", LATEST)
        if ending == EARLIEST:
            raise ConfigurationError("option endingOffsets is 'latest' or an offset, not 'earliest'")
        settle_ms = _integer(given, "settleMs", at_least=0)
        return cls(
            uri=uri,
            label=given.get("label"),
            selection=Selection(
                start_ns=_integer(given, "startingTimestamp"),
                end_ns=_integer(given, "endingTimestamp"),
                through=None if isinstance(ending, str) else ending,
                pubsub_topic=given.get("pubsubtopic"),
                content_topics=_list(given, "contentTopics"),
                channels=_list(given, "channels"),
            ),
            starting=starting,
            min_partitions=_integer(given, "minPartitions", at_least=1),
            max_offsets_per_trigger=_integer(given, "maxOffsetsPerTrigger", at_least=1),
            fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
            settle_ns=NS_PER_MS * (DEFAULT_SETTLE_MS if settle_ms is None else settle_ms),
        )


def offset_of(place: ArchiveCursor) -> dict[str, Any]:
    """Return a place as the JSON object that checkpoints and options hold."""
    return {"timestamp": place.timestamp_ns, "hash": place.message_hash.hex()}


def place_of(offset: Any) -> ArchiveCursor:
    """Return the place that an offset means, or raise `ConfigurationError`."""
    match offset:
        case {"timestamp": int(timestamp_ns), **rest} if -MIN_TIMESTAMP_NS > timestamp_ns >= MIN_TIMESTAMP_NS:
            text: Any = rest.get("hash", "")
            try:
                message_hash = bytes.fromhex(text.removeprefix("0x"))
            except (AttributeError, ValueError):
                message_hash = None
            if message_hash is not None and len(message_hash) <= HASH_BYTES + 1 and rest.keys() <= {"hash"}:
                return ArchiveCursor(timestamp_ns, message_hash)
    raise ConfigurationError(
        f'{offset!r} is no offset; expected one like {{"timestamp": 1760000000000000000, "hash": "0x..."}}, '
        "nanoseconds and message hash of the last message that is behind it"
    )


def _offset(given: Mapping[str, str], name: str, default: str) -> ArchiveCursor | str:
    text = given.get(name.lower(), default)
    if text.lower() in {EARLIEST, LATEST}:
        return text.lower()
    try:
        return place_of(json.loads(text))
    except ValueError as error:
        raise ConfigurationError(f"option {name}: {error}") from error


def _integer(given: Mapping[str, str], name: str, *, at_least: int | None = None) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError as error:
        raise ConfigurationError(f"option {name} must be a whole number, not {value!r}") from error
    if at_least is not None and number < at_least:
        raise ConfigurationError(f"option {name} must be at least {at_least}, not {number}")
    return number


def _list(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(filter(None, (item.strip() for item in given.get(name.lower(), "").split(","))))


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = given.get(name.lower(), str(default)).lower()
    if value not in {"true", "false"}:
        raise ConfigurationError(f"option {name} must be true or false, not {value!r}")
    return value == "true"
