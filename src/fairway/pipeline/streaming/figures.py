"""`StreamFigures`: the counts of a stream, from its tables, so that they survive a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc
from pyspark.sql.streaming.query import StreamingQuery

from fairway.pipeline.streaming.batch_table import SETTLEMENTS
from fairway.pipeline.streaming.channel_core import DELIVERED, FOUND, MISSING
from fairway.pipeline.streaming.folder import StreamFolder
from fairway.pipeline.streaming.progress import Phase, StreamProgress
from fairway.units import MS_PER_S, NS_PER_S


class StreamFigures:
    """The counts of a stream. A micro-batch never changes, so `update` counts only the new ones."""

    def __init__(self, folder: StreamFolder) -> None:
        self._folder = folder
        self._told: dict[str, int] = {}
        self.recorded = self.delivered = self.missing = 0
        self._counted = -1
        self._settled = 0
        self.update()

    def update(self) -> None:
        """Count the new micro-batches."""
        self.recorded = self._folder.recorded.count()
        emitted = self._folder.emitted
        last, settled = emitted.last(), emitted.last(SETTLEMENTS)
        for after, through in ((self._counted, last), (-settled - 1, -self._settled - 1)):
            if after < through:
                kinds = emitted.rows(after, through, ["what"])["what"]
                found = {kind: int(pc.sum(pc.equal(kinds, kind)).as_py() or 0) for kind in (DELIVERED, MISSING, FOUND)}
                self.delivered += found[DELIVERED]
                self.missing += found[MISSING] - found[FOUND]
        self._counted, self._settled = last, settled

    def news(self, query: StreamingQuery, *, is_record: bool) -> Iterator[StreamProgress]:
        """Yield the micro-batches of a query that have ended since the last call."""
        for told in query.recentProgress:
            progress: dict[str, Any] = json.loads(told.json)
            run, batch = str(progress["runId"]), int(progress["batchId"])
            # Spark Connect has no field with this sum.
            rows = sum(source["numInputRows"] for source in progress["sources"])
            if not rows or batch <= self._told.get(run, -1):
                continue
            self._told[run] = batch
            self.update()
            yield self.told(
                phase=Phase.RECORDED if is_record else Phase.DELIVERED,
                batch=batch,
                rows=rows,
                seconds=progress.get("durationMs", {}).get("triggerExecution", 0) / MS_PER_S,
                behind_s=_behind_s(progress["sources"]) if is_record else None,
            )

    def told(self, **step: Any) -> StreamProgress:
        """Return the progress of the stream after a step, which gives the other fields of `StreamProgress`."""
        return StreamProgress(recorded=self.recorded, delivered=self.delivered, missing=self.missing, **step)


def _behind_s(sources: list[dict[str, Any]]) -> float | None:
    """Return the largest lag behind an archive, in seconds, by the timestamps of messages; None if unknown."""
    lags_ns = []
    for source in sources:
        match _decoded(source.get("endOffset")), _decoded(source.get("latestOffset")):
            case {"timestamp": int(reached_ns)}, {"timestamp": int(latest_ns)}:
                lags_ns.append(max(0, latest_ns - reached_ns))
    return max(lags_ns) / NS_PER_S if lags_ns else None


def _decoded(offset: Any) -> Any:
    """Return an offset as a value; Spark reports it as JSON, or as a string with JSON."""
    try:
        return json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None
