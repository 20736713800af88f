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
            seconds = progress.get("durationMs", {}).get("triggerExecution", 0) / MS_PER_S
            yield self.told(
                Phase.RECORDED if is_record else Phase.DELIVERED,
                batch,
                rows,
                seconds,
                _behind_s(progress["sources"]) if is_record else None,
            )

    def told(
        self,
        phase: Phase,
        batch: int,
        rows: int,
        seconds: float,
        behind_s: float | None = None,
        mode: str | None = None,
    ) -> StreamProgress:
        """Return the progress of the stream."""
        return StreamProgress(
            phase=phase,
            batch=batch,
            rows=rows,
            seconds=round(seconds, 3),
            recorded=self.recorded,
            delivered=self.delivered,
            missing=self.missing,
            behind_s=behind_s,
            mode=mode,
        )


def _behind_s(sources: list[dict[str, Any]]) -> float | None:
    """Return the largest lag behind an archive, in seconds, by the timestamps of messages; None if unknown."""
    lags = [_lag_ns(source.get("endOffset"), source.get("latestOffset")) for source in sources]
    known = [lag for lag in lags if lag is not None]
    return max(known) / NS_PER_S if known else None


def _lag_ns(reached: Any, latest: Any) -> int | None:
    match _decoded(reached), _decoded(latest):
        case {"timestamp": int(at)}, {"timestamp": int(there)}:
            return max(0, there - at)
    return None


def _decoded(offset: Any) -> Any:
    """Return an offset as a value; Spark reports it as JSON, or as a string with JSON."""
    try:
        return json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None
