"""Copies the messages of one archive that are missing in another archive or node.

::

    source -> a page of messages -> missing messages -> the target, within limits -> counts of kept messages

`backfilling` has the loop and the summary, `target` the interface of a target, `targets` the kinds of targets:
`archive_targets` (SQLite, PostgreSQL), `parquet_target`, `node_target`.

Invariant: the target itself records the written messages. So a new start continues a killed backfill without a state
file, and does not write a message that the target has.
"""

from __future__ import annotations

from fairway.archives.backfill.backfilling import BackfillOptions, BackfillProgress, BackfillSummary, backfill

__all__ = ["BackfillOptions", "BackfillProgress", "BackfillSummary", "backfill"]
