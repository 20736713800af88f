"""The archive report: what an archive holds, what can be read from it, and what was lost.

`run_report` is the whole pipeline in one call. It brings back counts and short lists, never the messages: whoever wants
those uses the stages.
"""

from __future__ import annotations

from contextlib import ExitStack
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from fairway.options import Profile
from fairway.pipeline import stages, summaries
from fairway.pipeline.archive_report import ArchiveReport
from fairway.pipeline.session import session_or_own
from fairway.pipeline.sources import read_sqlite_archive
from fairway.protocol.encryption.hook import Encryption

DEFAULT_LIMIT: Final = 20
"""Rows in each list of a report."""

_SMALL_ARCHIVE_BYTES: Final = 268_435_456


def run_report(
    archive_path: str | PathLike[str],
    spark: SparkSession | None = None,
    *,
    profile: Profile | None = Profile.WAKU,
    encryption: Encryption | None = None,
    limit: int = DEFAULT_LIMIT,
) -> ArchiveReport:
    """Return the report of a SQLite archive.

    Uses ``spark`` as it is, or the session that is active, or one of its own that ends with the report. ``encryption``
    opens the messages and must survive being pickled. Raises what `read_sqlite_archive` and `create_session` raise.
    """
    with session_or_own(spark, short_job=_is_small(archive_path)) as session:
        waku_messages = read_sqlite_archive(session, archive_path)
        return report_on(waku_messages, fspath(archive_path), profile=profile, encryption=encryption, limit=limit)


def report_on(
    waku_messages: DataFrame,
    name: str,
    *,
    profile: Profile | None = Profile.WAKU,
    encryption: Encryption | None = None,
    limit: int = DEFAULT_LIMIT,
) -> ArchiveReport:
    """Return the report of any table ``waku_messages``, under a name."""
    with ExitStack() as cleanup:

        def kept(table: DataFrame) -> DataFrame:
            """Compute a table once, in memory as far as it fits, and drop it with the report."""
            table.persist()
            cleanup.callback(table.unpersist)
            return table

        sds = kept(stages.sds_messages(waku_messages, profile, encryption=encryption))
        unique = kept(stages.unique_messages(sds))
        reassembled = kept(stages.reassembled(unique, profile))
        delivered = stages.delivered(unique, reassembled)
        incomplete = stages.incomplete(reassembled)
        missing = kept(stages.without_rebuilt(stages.missing_messages(unique), reassembled))
        latency = kept(stages.ack_latency(unique, stages.acknowledgements(unique)))
        senders = kept(stages.sender_stats(unique, latency, delivered, incomplete, missing))
        contents = summaries.contents(sds)
        return ArchiveReport(
            archive=name,
            **contents,
            channels=summaries.channels(stages.channel_stats(senders, latency)),
            senders=summaries.busiest(senders, limit),
            delivered=summaries.largest(delivered, limit),
            incomplete=summaries.nearly_complete(incomplete, limit),
            missing=summaries.most_cited(missing, limit),
        )


def _is_small(path: str | PathLike[str]) -> bool:
    return Path(path).is_file() and Path(path).stat().st_size < _SMALL_ARCHIVE_BYTES
