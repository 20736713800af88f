"""The options of the data source ``waku``, parsed and checked before an archive is opened.

The names are those of Kafka's source if it has the option. Invariant: an unknown or invalid option raises a
`ConfigurationError` that names it; no option is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc

from fairway.errors import ConfigurationError
from fairway.pipeline.location import without_secrets
from fairway.pipeline.sources.store_node import REQUEST_OPTIONS
from fairway.pipeline.sources.waku_messages import Selection
from fairway.pipeline.times import duration_ms, exact_text, first_ns, last_ns
from fairway.storage.archive import HASH_BYTES, MIN_TIMESTAMP_NS, ArchiveCursor
from fairway.units import NS_PER_MS

DEFAULT_SETTLE_MS: Final = 30_000
"""Age after which a store has all relayed messages: nodes relay only messages of up to 20 s (64/WAKU2-NETWORK)."""

OPTION_NAMES: Final = (
    "path",
    "paths",
    "label",
    "topics",
    "topicsPattern",
    "pubsubTopic",
    "channels",
    "since",
    "until",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "partitions",
    "pageSize",
    "requestTimeoutMs",
    "maxConcurrentRequests",
    "failOnDataLoss",
    "settleMs",
)
"""All options, in the order of the documentation."""
DEFAULT_TRIGGER_DELAY_MS: Final = 900_000
"""Longest wait for the least messages of a micro-batch: 15 minutes, as in Kafka's source."""
_OF_FILES: Final = frozenset({"files", "position"})
"""Keys in the offset of a stream of files, but not in the offset of an archive."""
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a read; `fairway.pipeline.sources.waku` describes each."""

    uris: tuple[str, ...]
    """One archive, or several for one table."""
    label: str | None
    selection: Selection
    """The wanted messages, apart from the starting offset."""
    starting: ArchiveCursor | dict[str, Any] | str
    """The starting offset: a cursor, the offset of a stream of files, or `EARLIEST` or `LATEST`."""
    min_partitions: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ns: int
    fail_on_data_loss: bool
    settle_ns: int

    @property
    def uri(self) -> str:
        """The only archive; raises `ConfigurationError` if there are several, which only a table can have."""
        if len(self.uris) > 1:
            raise ConfigurationError(f"a stream follows one archive, not {len(self.uris)}: start one for each")
        return self.uris[0]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return the options, whose names may be in any case, or raise `ConfigurationError`."""
        given = {name.lower(): value for name, value in options.items()}
        unknown = given.keys() - {name.lower() for name in OPTION_NAMES}
        if unknown:
            raise ConfigurationError(
                f"the source 'waku' has no option {', '.join(sorted(unknown))}; it has {', '.join(OPTION_NAMES)}"
            )
        path = given.get("path")
        if path and given.get("paths"):
            raise ConfigurationError("options path and paths both name archives; give one of them")
        uris = (path,) if path else _list(given, "paths")
        if not uris:
            raise ConfigurationError("the source 'waku' needs a path or a URI: .load('sqlite:store.sqlite3')")
        starting = _offset(given, "startingOffsets", EARLIEST)
        ending = _offset(given, "endingOffsets", LATEST)
        if ending == EARLIEST or isinstance(ending, dict):
            raise ConfigurationError(f"option endingOffsets is 'latest' or an offset of an archive, not {ending!r}")
        if isinstance(starting, ArchiveCursor) and isinstance(ending, ArchiveCursor) and starting > ending:
            raise ConfigurationError(
                "option startingOffsets is behind endingOffsets, which selects nothing; exchange them"
            )
        most, least = (_integer(given, f"{end}OffsetsPerTrigger", at_least=1) for end in ("max", "min"))
        if most is not None and least is not None and least > most:
            raise ConfigurationError(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}; lower it")
        if "maxtriggerdelay" in given and least is None:
            raise ConfigurationError("maxTriggerDelay is the longest wait for minOffsetsPerTrigger; give both")
        return cls(
            uris=_with_requests(given, uris),
            label=_text(given, "label", "names no store; leave it out for the place of the archive"),
            selection=replace(
                _selection(
                    ("since", given.get("since")),
                    ("until", given.get("until")),
                ),
                topics_pattern=_pattern(given.get("topicspattern"), given.get("topics"), "option topicsPattern"),
                through=None if isinstance(ending, str) else ending,
                pubsub_topic=_text(given, "pubsubTopic"),
                content_topics=_list(given, "topics"),
                channels=_list(given, "channels"),
            ),
            starting=starting,
            min_partitions=_integer(given, "partitions", at_least=1),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_ns=NS_PER_MS * _duration_ms(given, "maxTriggerDelay", DEFAULT_TRIGGER_DELAY_MS),
            fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
            settle_ns=NS_PER_MS * _duration_ms(given, "settleMs", DEFAULT_SETTLE_MS),
        )


def selection_of(
    *,
    since: str | None = None,
    until: str | None = None,
    channels: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    topics_pattern: str | None = None,
) -> Selection:
    """Return a selection by times (ISO text or milliseconds), channels, and content topics or a pattern of them.

    Raises `ConfigurationError` for an invalid time or pattern, an empty name or an empty range.
    """
    for name, values in (("--channel", channels), ("--topic", topics)):
        if any(not value for value in values or ()):
            raise ConfigurationError(f"{name} is empty and selects nothing; leave it out for all")
    return replace(
        _selection(("--since", since), ("--until", until)),
        channels=tuple(sorted(set(channels or ()))),
        content_topics=tuple(sorted(set(topics or ()))),
        topics_pattern=_pattern(topics_pattern, topics, "--topic-pattern"),
    )


def option_texts(selection: Selection) -> dict[str, str]:
    """Return the options of the data source for a selection."""
    texts: dict[str, str] = {}
    for name, time_ns in (("since", selection.start_ns), ("until", selection.end_ns)):
        if time_ns is not None:
            texts[name] = exact_text(time_ns)
    for name, values in (("topics", selection.content_topics), ("channels", selection.channels)):
        if values:
            texts[name] = json.dumps(values)
    if selection.topics_pattern is not None:
        texts["topicsPattern"] = selection.topics_pattern
    return texts


def offset_of(place: ArchiveCursor) -> dict[str, Any]:
    """Return a place as the JSON object that checkpoints and options hold."""
    return {"timestamp": place.timestamp_ns, "hash": place.message_hash.hex()}


def place_of(offset: Any) -> ArchiveCursor:
    """Return the cursor of an offset, or raise `ConfigurationError`."""
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


def _offset(given: Mapping[str, str], name: str, default: str) -> ArchiveCursor | dict[str, Any] | str:
    text = given.get(name.lower(), default)
    if text.lower() in {EARLIEST, LATEST}:
        return text.lower()
    try:
        offset: Any = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"option {name} is 'earliest', 'latest' or an offset such as "
            f'{{"timestamp": 1760000000000000000, "hash": "0x..."}}, not {text!r}'
        ) from error
    try:
        return offset if isinstance(offset, dict) and not _OF_FILES.isdisjoint(offset) else place_of(offset)
    except ValueError as error:
        raise ConfigurationError(f"option {name}: {error}") from error


def _selection(starting: tuple[str, str | None], ending: tuple[str, str | None]) -> Selection:
    """Return the selection between two times; each has its name for errors before it."""
    start_ns = None if starting[1] is None else first_ns(starting[1], starting[0])
    end_ns = None if ending[1] is None else last_ns(ending[1], ending[0])
    if start_ns is not None and end_ns is not None and start_ns > end_ns:
        raise ConfigurationError(
            f"{starting[0]} {starting[1]} is after {ending[0]} {ending[1]}, which selects nothing; exchange them"
        )
    return Selection(start_ns=start_ns, end_ns=end_ns)


def _pattern(pattern: str | None, topics: Collection[str] | None, name: str) -> str | None:
    """Return a pattern of content topics, or raise `ConfigurationError`; ``topics`` are those given beside it."""
    if pattern is None:
        return None
    if topics:
        raise ConfigurationError(f"{name} and a list of topics both choose content topics; give one of them")
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise ConfigurationError(
            f"{name} is a regular expression (RE2) for whole content topics, such as '/app/1/.*/proto', not "
            f"{pattern!r}: {error}"
        ) from error
    if not pattern:
        raise ConfigurationError(f"{name} is empty and selects nothing; leave it out for all")
    return pattern


def _text(given: Mapping[str, str], name: str, if_empty: str = "selects nothing; leave it out for all") -> str | None:
    text = given.get(name.lower())
    if text is not None and not text.strip():
        raise ConfigurationError(f"option {name} is empty and {if_empty}")
    return text


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


def _duration_ms(given: Mapping[str, str], name: str, default_ms: int) -> int:
    value = given.get(name.lower())
    return default_ms if value is None else duration_ms(value, f"option {name}")


def _with_requests(given: Mapping[str, str], uris: tuple[str, ...]) -> tuple[str, ...]:
    """Return the URIs with the options of requests in the query, or raise `ConfigurationError` if one is no node."""
    requests = {name: value for name in REQUEST_OPTIONS if (value := given.get(name.lower())) is not None}
    for uri in uris if requests else ():
        if not uri.startswith(("http:", "https:")):
            raise ConfigurationError(
                f"option {', '.join(requests)} is for a node (http:, https:); {without_secrets(uri)} is none"
            )
    return tuple(f"{uri}{'&' if '?' in uri else '?'}{urlencode(requests)}" for uri in uris) if requests else uris


def _list(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return the values of a JSON list, or of a text with commas; none if the option is not given."""
    text = given.get(name.lower())
    if text is None:
        return ()
    values: Any = text.split(",")
    if text.lstrip().startswith("["):
        wrong = f'option {name} is a JSON list of texts such as ["a", "b"], or a text with commas, not {text!r}'
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(f"{wrong}: {error}") from error
        if not all(isinstance(value, str) for value in values):
            raise ConfigurationError(wrong)
    else:
        values = map(str.strip, values)
    found = tuple(filter(None, values))
    if not found:
        raise ConfigurationError(f"option {name} names nothing and selects nothing; leave it out for all")
    return found


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = given.get(name.lower(), str(default)).lower()
    if value not in {"true", "false"}:
        raise ConfigurationError(f"option {name} must be true or false, not {value!r}")
    return value == "true"
