"""Writes what one archive has and another archive or node lacks.

::

    source -> a page of messages -> those that the target lacks -> the target, within limits -> what it keeps

`backfilling` has the loop and the summary, `target` the interface of what is written to, `targets` the kinds of it:
`archive_targets` (SQLite, PostgreSQL), `parquet_target`, `node_target`.

Invariant: the target itself is the record of what was written. So a backfill that was killed goes on when it is started
again, with no file of its own, and a message that the target has is not written again.
"""

from __future__ import annotations

from fairway.archives.backfill.backfilling import BackfillOptions, BackfillProgress, BackfillSummary, backfill

__all__ = ["BackfillOptions", "BackfillProgress", "BackfillSummary", "backfill"]
