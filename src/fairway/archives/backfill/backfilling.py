"""`backfill`: reads a source page by page, and writes the missing messages into the target.

Memory holds one page of the source, at most 1,000 messages or 16 MiB of payload. Archives are not trusted: a row whose
message hash does not match its message is left out, because it would block the right message in the target.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from fairway.archives.backfill.hash_set import HashSet
from fairway.archives.backfill.target import Offered, Settled, Target, TargetOptions
from fairway.archives.backfill.targets import is_same_place, open_target
from fairway.errors import ConfigurationError
from fairway.nodes.node import RoutedMessage
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import ArchiveScan, MessageScan, Selection
from fairway.storage.archive import HASH_BYTES
from fairway.storage.lip76 import Shards
from fairway.wire.waku_message import WakuMessage

DEFAULT_EPOCH_MS: Final = 600_000
"""The epoch of RLN memberships on The Waku Network (RELAY-RLN)."""
_LONGEST_STEP_S: Final = 0.5
"""Longest sleep between two reports of progress."""
_ASKED_AT_ONCE: Final = 100
"""Message hashes in one query of the target: a page of a store query."""
_LABELLED: Final = re.compile(r"[^=:/?#\s]+=(?P<address>.+)", re.DOTALL)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9]+:|/ip4/|/ip6/|/dns")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOptions:
    """Options of a backfill."""

    selection: Selection = field(default_factory=Selection)
    """The selected messages of the source; all by default."""
    rate_limit: int | None = None
    """Messages in an epoch, evenly spaced; None: the limit that the target reports, or no limit."""
    epoch_ms: int = DEFAULT_EPOCH_MS
    max_message_bytes: int | None = None
    """Size of an encoded message above which it is left out; None: the target decides."""
    max_bytes: int | None = None
    """Bytes of payload after which the backfill ends; the same command continues it."""
    kept_s: float = 10.0
    """Longest wait for a node's store to show a message that the node accepted."""
    repair: bool = False
    """Whether intact messages of the source replace damaged copies of the target."""
    dry_run: bool = False
    """Whether the backfill only counts, without writing."""

    def __post_init__(self) -> None:
        EvenPace.of(self.rate_limit, self.epoch_ms)
        for name in ("max_message_bytes", "max_bytes"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigurationError(f"{name} is at least 1, not {value}")


@dataclass(slots=True, kw_only=True)
class BackfillProgress:
    """Progress of a backfill."""

    total: int | None
    """Messages of the source; None if unknown."""
    read: int = 0
    lacking: int = 0
    """Messages missing or to be replaced in the target."""
    sent: int = 0
    """Messages that were passed to the target."""


@dataclass(slots=True, kw_only=True)
class BackfillSummary:
    """The result of a backfill."""

    source: str
    """Name of the source; like ``target`` without credentials."""
    target: str
    dry_run: bool
    read: int = 0
    """Rows read from the source."""
    there: int = 0
    """Messages that the target had."""
    repeated: int = 0
    """Rows of the source with the message of an earlier row."""
    lacking: int = 0
    """Messages missing in the target."""
    lacking_bytes: int = 0
    """Bytes of payload of the missing and the damaged messages."""
    damaged: int = 0
    """Damaged messages of the target; counted with ``repair``."""
    written: int = 0
    """Messages that the target keeps now."""
    too_large: int = 0
    """Messages that were left out because of ``max_message_bytes``."""
    invalid: int = 0
    """Rows without a valid message, or with the hash of another message."""
    refused: Counter[str] = field(default_factory=Counter)
    """Messages that the target rejected or did not keep, by reason."""
    reached_max_bytes: bool = False
    """Whether the backfill ended because of ``max_bytes``."""
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether the target has all selected messages; with ``dry_run``, whether it could have them."""
        return not (self.too_large or self.refused or self.reached_max_bytes)

    def as_json(self) -> dict[str, Any]:
        """Return the summary as values for JSON."""
        names = [name for name in self.__slots__ if name not in {"refused", "seconds"}]
        return {
            **{name: getattr(self, name) for name in names},
            "refused": dict(self.refused),
            "complete": self.is_complete,
            "seconds": round(self.seconds, 3),
        }


Progress = Callable[[BackfillProgress], None]


def backfill(
    source: str,
    target: str,
    *,
    options: BackfillOptions | None = None,
    progress: Progress = lambda _: None,
) -> BackfillSummary:
    """Write the messages of ``source`` that are missing in ``target``, and return the counts.

    ``source`` is a source of a run (`fairway.pipeline.sources.open_source`), ``target`` an archive or a node
    (`fairway.archives.backfill.targets`); both may have a name in front, ``a=sqlite:one.db``. Raises
    `ConfigurationError` for an invalid source or target, and the errors of opening, reading and writing them. A new
    start continues.
    """
    options = options or BackfillOptions()
    read = RunSource.parse(source)
    address = _address(target)
    if is_same_place(read.uri, address):
        raise ConfigurationError(f"{read.shown} is both source and target; give two archives")
    scan = scan_of(read.uri, options.selection)
    shown = BackfillProgress(total=_total(scan, options.selection))
    progress(shown)
    began_s = time.monotonic()
    opening = TargetOptions(
        oldest_ns=options.selection.start_ns, create=not options.dry_run, kept_s=options.kept_s, repair=options.repair
    )
    with open_target(address, opening) as opened:
        summary = BackfillSummary(source=read.shown, target=opened.name, dry_run=options.dry_run)
        _Backfill(scan, opened, options, summary, shown, progress).run()
    summary.seconds = time.monotonic() - began_s
    return summary


class _Backfill:
    """One pass over a source."""

    def __init__(
        self,
        scan: MessageScan,
        target: Target,
        options: BackfillOptions,
        summary: BackfillSummary,
        shown: BackfillProgress,
        progress: Progress,
    ) -> None:
        self._scan: Final = scan
        self._target: Final = target
        self._options: Final = options
        self._summary: Final = summary
        self._shown: Final = shown
        self._progress: Final = progress
        quota = target.quota
        if options.rate_limit is None and quota is not None:
            self._pace = EvenPace.of(quota.limit, quota.epoch_ms)
        else:
            self._pace = EvenPace.of(options.rate_limit, options.epoch_ms)
        most = target.rows_at_once if options.rate_limit is None else min(target.rows_at_once, options.rate_limit)
        self._at_once: Final = most
        self._shards: Final = Shards()
        # An archive with an order has each message once.
        self._offered: Final = None if isinstance(scan, ArchiveScan) else HashSet()

    def run(self) -> None:
        """Write until the source or the limit ends."""
        for rows in _pages(self._scan):
            self._summary.read += len(rows)
            for lacking in self._lacking(rows):
                self._write(lacking)
            self._settle(last=False)
            self._show(read=len(rows))
            if self._summary.reached_max_bytes:
                break
        self._settle(last=True)
        self._show()

    def _lacking(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Offered]]:
        """Yield the messages of a page that are missing or damaged in the target, in groups."""
        left = iter(rows)
        while some := list(islice(left, _ASKED_AT_ONCE)):
            by_hash = {row["message_hash"]: row for row in some if len(row["message_hash"]) == HASH_BYTES}
            self._summary.invalid += sum(len(row["message_hash"]) != HASH_BYTES for row in some)
            self._summary.repeated += sum(len(row["message_hash"]) == HASH_BYTES for row in some) - len(by_hash)
            if self._offered is not None:
                again = self._offered.found(tuple(by_hash))
                self._summary.repeated += len(again)
                by_hash = {message_hash: row for message_hash, row in by_hash.items() if message_hash not in again}
                self._offered.add(by_hash)
            there = self._target.known(tuple(by_hash)) if by_hash else set()
            damaged = self._target.damaged(there) if self._options.repair and there else set()
            self._summary.there += len(there - damaged)
            found = (
                self._offer(row, replaces=message_hash in damaged)
                for message_hash, row in by_hash.items()
                if message_hash not in there or message_hash in damaged
            )
            yield [offered for offered in found if offered is not None]

    def _offer(self, row: Mapping[str, Any], *, replaces: bool) -> Offered | None:
        """Return the message of a row; None if it is invalid or too large."""
        offered = _message_of(row, self._shards)
        if offered is None:
            self._summary.invalid += 1
            return None
        limit = self._options.max_message_bytes
        if limit is not None and len(offered.message.encoded) > limit:
            self._summary.too_large += 1
            return None
        self._summary.lacking += not replaces
        self._summary.damaged += replaces
        self._summary.lacking_bytes += len(offered.message.message.payload)
        self._shown.lacking += 1
        return replace(offered, replaces=replaces)

    def _write(self, lacking: list[Offered]) -> None:
        if self._options.dry_run:
            return
        lacking = self._within_max_bytes(lacking)
        for start in range(0, len(lacking), self._at_once):
            some = lacking[start : start + self._at_once]
            self._pace.wait(len(some), self._show)
            self._target.write(some)
            self._shown.sent += len(some)
            self._show()

    def _within_max_bytes(self, lacking: list[Offered]) -> list[Offered]:
        """Return the messages that fit into ``max_bytes``; the first message of a backfill always fits."""
        most = self._options.max_bytes
        if most is None:
            return lacking
        if self._summary.reached_max_bytes:
            return []
        before = self._summary.lacking_bytes - sum(len(each.message.message.payload) for each in lacking)
        taken: list[Offered] = []
        for each in lacking:
            size = len(each.message.message.payload)
            if before + size > most and (before or taken):
                self._summary.reached_max_bytes = True
                break
            before += size
            taken.append(each)
        return taken

    def _settle(self, *, last: bool) -> None:
        settled = Settled() if self._options.dry_run else self._target.settle(last=last)
        self._summary.written += settled.written
        self._summary.refused.update(settled.refused)

    def _show(self, read: int = 0) -> None:
        self._shown.read += read
        self._progress(self._shown)


def _pages(scan: MessageScan) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the rows of a source in its order, a page at a time."""
    for part in scan.plan(1):
        for batch in scan.read(part):
            yield batch.to_pylist()


def _message_of(row: Mapping[str, Any], shards: Shards) -> Offered | None:
    """Return the message of a row if its hash is right.

    A store dates a message without a timestamp by its arrival, but hashes it without a timestamp: so both are tried.
    If a table has no pubsub topic, it is that of the content topic (RELAY-SHARDING, "Automatic sharding").
    """
    topic = row["content_topic"]
    pubsub_topics = dict.fromkeys(filter(None, (row["pubsub_topic"], shards.of(topic) if topic else "")))
    for pubsub_topic in pubsub_topics:
        for timestamp_ns in (row["timestamp_ns"], None):
            message = WakuMessage(
                payload=row["payload"],
                content_topic=topic,
                version=row["version"] or None,
                timestamp_ns=timestamp_ns,
                meta=row["meta"],
            )
            try:
                routed = RoutedMessage.of(pubsub_topic, message)
            except ConfigurationError:
                return None
            if routed.message_hash == row["message_hash"]:
                return Offered(message=routed, timestamp_ns=row["timestamp_ns"])
    return None


def _total(scan: MessageScan, selection: Selection) -> int | None:
    """Return the number of selected messages of a source; None if unknown."""
    if not isinstance(scan, ArchiveScan) or not selection.is_of_times_alone:
        return None
    with scan.open() as archive:
        return archive.estimate(selection.part)


def _address(target: str) -> str:
    """Return the address of a target without the name in front of it; a path alone is a SQLite archive."""
    labelled = _LABELLED.fullmatch(target)
    address = labelled["address"] if labelled else target
    if not address:
        raise ConfigurationError("the target is empty; examples are sqlite:store.sqlite3 and http://127.0.0.1:8645")
    return address if _SCHEME.match(address) else f"sqlite:{address}"


@dataclass(slots=True)
class EvenPace:
    """Spaces messages evenly, so that an epoch with any start has at most as many messages as the rate limit.

    The first message waits, too, because the start of the node's epoch and the messages of earlier processes are
    unknown.
    """

    interval_s: float = 0.0
    """Time between two messages; 0: no limit."""
    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free_s: float | None = field(default=None, init=False)
    """Earliest time of the next message; None before the first."""

    @classmethod
    def of(cls, rate_limit: int | None, epoch_ms: int) -> EvenPace:
        """Return the pace of ``rate_limit`` messages in ``epoch_ms``; None is no limit."""
        if rate_limit is not None and rate_limit < 1:
            raise ConfigurationError(f"a rate limit is at least 1 message in an epoch, not {rate_limit}")
        if epoch_ms < 1:
            raise ConfigurationError(f"an epoch has at least 1 ms, not {epoch_ms}")
        return cls(0.0 if rate_limit is None else epoch_ms / 1_000 / rate_limit)

    def wait(self, messages: int, waiting: Callable[[], None] = lambda: None) -> None:
        """Wait until some messages may be sent together; call ``waiting`` before each sleep."""
        if not self.interval_s:
            return
        if self._free_s is None:
            self._free_s = self.now_s() + self.interval_s * messages
        while (left_s := self._free_s - self.now_s()) > 0:
            waiting()
            self.sleep(min(left_s, _LONGEST_STEP_S))
        self._free_s = max(self.now_s(), self._free_s) + self.interval_s * messages
