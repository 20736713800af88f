"""`stream`: a stream from its start to its end: queries, progress, refreshes.

Invariant: after any end of the process, the next start continues after the last micro-batch in the folder. Before a
regular end, the stream processes all recorded messages with the cores and writes them into the tables.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.location import local_path
from fairway.pipeline.run.failures import SlowStartError, named_failures
from fairway.pipeline.run.folder import read_run
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.running import Recorded, run_with
from fairway.pipeline.run.sources import RunSource, parse_sources
from fairway.pipeline.run.summary import balance_from
from fairway.pipeline.session import session_or_own
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA
from fairway.pipeline.streaming import queries
from fairway.pipeline.streaming.ending import end_query, ending_on_signals, failure_of_query
from fairway.pipeline.streaming.figures import StreamFigures
from fairway.pipeline.streaming.folder import DELIVER, RECORD, StreamFolder
from fairway.pipeline.streaming.late import look_back
from fairway.pipeline.streaming.options import StreamOptions
from fairway.pipeline.streaming.progress import Listener, Phase, StreamSummary
from fairway.pipeline.streaming.settling import settle

_POLL_S: Final = 0.25
_LOOK_BACK_S: Final = 600.0
"""Time between two searches for late messages if the tables are made only at the end."""
_STARTS: Final = 5
"""Starts of a stream if Python starts too slowly for Spark, which has a fixed timeout."""


def stream(
    sources: Sequence[str],
    out: str | PathLike[str],
    *,
    options: StreamOptions | None = None,
    keys: ChannelKeys | None = None,
    spark: SparkSession | None = None,
    progress: Listener | None = None,
    stop: threading.Event | None = None,
    signals: bool = False,
) -> StreamSummary:
    """Follow archives into a folder: deliver each message once, when it is complete, and update the tables.

    ``sources`` are URIs as for `fairway.pipeline.run.run`; ``parquet:`` is a folder that gains files. The stream runs
    until ``stop`` is set, with ``StreamOptions.once`` until all messages are read. With ``signals``, in the main
    thread, Ctrl-C and SIGTERM set ``stop``. It works in a clone of ``spark``, or of the active session, or in its
    own session, which ends with the stream. A new start with the same sources, options and keys continues the stream.

    Raises `ConfigurationError` for invalid sources or options, or an unusable folder. Raises `PipelineError` if Spark
    ends a query with an error; a new start then continues.
    """
    options = options or StreamOptions()
    place = local_path(out, "--out")
    # Sorted, because Spark identifies a source by its position.
    parsed = tuple(sorted(parse_sources(sources), key=lambda source: (source.label or "", source.uri)))
    queries.check_sources(parsed)
    ended = stop or threading.Event()
    with (
        closing(StreamFolder.open_for(place, parsed, options, keys)) as folder,
        named_failures(folder.path),
        session_or_own(
            spark, "fairway pipeline stream", little_java=options.once, settings=queries.settings_of(folder)
        ) as session,
        ending_on_signals(ended) if signals else nullcontext(),
    ):
        starts_left = _STARTS
        while True:
            try:
                with named_failures(folder.path):
                    return _Stream(session, folder, parsed, options, keys, progress, ended).work()
            except SlowStartError:
                starts_left -= 1
                if not starts_left or ended.is_set():
                    raise


@dataclass(slots=True)
class _Stream:
    """One start of a stream."""

    spark: SparkSession
    folder: StreamFolder
    sources: tuple[RunSource, ...]
    options: StreamOptions
    keys: ChannelKeys | None
    progress: Listener | None
    stop: threading.Event
    figures: StreamFigures = field(init=False)
    refreshes: int = 0

    def __post_init__(self) -> None:
        self.figures = StreamFigures(self.folder)

    def work(self) -> StreamSummary:
        began_s = time.monotonic()
        if self.options.once:
            with self._query(RECORD) as query:
                self._follow([query])
            if not self.stop.is_set() and self._look_back():
                with self._query(RECORD) as query:
                    self._follow([query])
        else:
            with self._query(RECORD) as first, self._query(DELIVER) as second:
                self._follow([first, second])
        # A new event: the cores process all recorded messages, also after `stop` was set.
        self.stop = threading.Event()
        with self._query(DELIVER, once=True) as query:
            self._follow([query])
        run = self._refresh()
        delivered = RunTables(self.folder.path).dataframe(self.spark, "delivered")
        settled = settle(self.spark, self.folder, delivered)
        self.figures.update()
        self.folder.compact(self.options.join_batches)
        return StreamSummary(
            folder=self.folder.path,
            recorded=self.figures.recorded,
            delivered=self.figures.delivered,
            settled=settled,
            missing=run["tables"]["missing_messages"]["rows"],
            balance=balance_from(run["balance"]),
            seconds=round(time.monotonic() - began_s, 3),
        )

    @contextmanager
    def _query(self, name: str, *, once: bool = False) -> Iterator[StreamingQuery]:
        options = replace(self.options, once=once or self.options.once)
        if name == RECORD:
            query = queries.record(self.spark, self.folder, self.sources, options, self.keys)
        else:
            query = queries.deliver(self.spark, self.folder, options, self.keys)
        try:
            yield query
        except BaseException:
            end_query(query)
            raise
        end_query(query)
        self._tell(query)

    def _follow(self, running: Sequence[StreamingQuery]) -> None:
        """Report the progress of queries until one of them ends, or the stop event is set."""
        interval_s = self.options.refresh_s or _LOOK_BACK_S
        due_s = time.monotonic() + interval_s
        while not self.stop.is_set():
            ended = [query for query in running if not query.isActive]
            for query in running:
                self._tell(query)
            if ended:
                failures = [failure_of_query(query, self.folder.path) for query in ended]
                # At Ctrl-C the terminal also signals Spark's processes, so a query may fail then.
                if not self.stop.is_set():
                    for failure in filter(None, failures):
                        raise failure
                return
            began_s = time.monotonic()
            if not self.options.once and began_s >= due_s and self.figures.recorded:
                if self.options.refresh_s:
                    self._refresh()
                self._look_back()
                due_s = time.monotonic() + max(interval_s, time.monotonic() - began_s)
            self.figures.update()
            self.folder.compact(self.options.join_batches)
            self.stop.wait(_POLL_S)

    def _tell(self, query: StreamingQuery) -> None:
        is_record = (query.name or "").startswith(f"fairway {RECORD} ")
        for told in self.figures.news(query, is_record=is_record):
            if self.progress is not None:
                self.progress(told)

    def _look_back(self) -> int:
        return look_back(self.folder, self.sources, self.options, self.keys)

    def _refresh(self) -> dict[str, Any]:
        """Update the tables by a run over all recorded rows, and return its description (`read_run`).

        So a stream has the same tables as a run over the same rows, in any order of arrival. The run adds the newly
        recorded rows, or makes the tables anew if it cannot (`fairway.pipeline.run.growth`).
        """
        self.refreshes += 1
        began_s = time.monotonic()
        self._say(phase=Phase.REFRESHING, rows=0, seconds=0.0)
        self.figures.update()
        rows = self.folder.recorded
        version, through = rows.state()
        late = Counter(self.folder.late.dataset().to_table(columns=["source"])["source"].to_pylist())
        recorded = Recorded(
            uri=f"parquet:{rows.place}@v{version}",
            described=tuple({"label": one.label, "uri": one.shown, "late": late[one.label]} for one in self.sources),
            stores=tuple(one.label for one in self.sources if one.label),
            through=through,
            rows_after=lambda after, columns: rows.rows(after, through, columns or ARROW_SCHEMA.names),
        )
        mode = run_with(self.options.tables, recorded, self.folder.path, keys=self.keys, spark=self.spark).mode
        run = read_run(self.folder.path)
        took_s = time.monotonic() - began_s
        self._say(phase=Phase.REFRESHED, rows=run["balance"]["rows_in"], seconds=took_s, mode=mode)
        return run

    def _say(self, **step: Any) -> None:
        if self.progress is not None:
            self.progress(self.figures.told(batch=self.refreshes, **step))
