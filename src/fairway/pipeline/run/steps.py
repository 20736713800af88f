"""The steps of a run: the stage and the inputs of each table.

Every step reads tables of earlier steps and writes one, so that memory is bounded by what Spark is given and an
interrupted run continues with the same step. Two tables are only for later steps and are removed after them:
``decoded`` has decodable and undecodable messages, and ``reassembled`` has complete messages and incomplete sets. With
bloom filters there is ``bloom_evidence`` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from fairway.pipeline import stages
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run.layout import by_lamport, by_position
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.sources import RunSource, open_run_source
from fairway.pipeline.stages.bloom_evidence import BLOOM_EVIDENCE
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION, REASSEMBLED
from fairway.pipeline.stages.sds_messages import SDS_MESSAGES
from fairway.pipeline.tables import TABLES


class Materials(Protocol):
    """The inputs of the steps."""

    spark: SparkSession
    sources: tuple[RunSource, ...]
    options: RunOptions
    keys: ChannelKeys | None

    def table(self, name: str) -> DataFrame:
        """Return a table that an earlier step wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStep:
    """One table, and how it is made."""

    name: str
    make: Callable[[Materials], DataFrame]
    reads_payloads: bool = False
    """Whether the step reads whole messages, each of which may be as large as a batch of other rows."""
    needed_by: tuple[str, ...] = ()
    """For a table that is not kept, the steps that read it; else empty."""
    schema: str

    @property
    def work(self) -> bool:
        """Return whether the table is removed once no later step needs it."""
        return bool(self.needed_by)


def steps(options: RunOptions) -> Iterator[TableStep]:
    """Yield the steps of a run in their order: a step needs only what earlier ones wrote."""
    for table in TABLES:
        yield from (
            step for step in _WORK if table.name == step.needed_by[0] and (options.blooms or step.name != _BLOOM)
        )
        yield TableStep(
            name=table.name,
            make=_MAKERS[table.name],
            schema=table.schema,
            reads_payloads=table.name == "delivered",
        )


def _waku_messages(run: Materials) -> DataFrame:
    opened = [open_run_source(run.spark, source) for source in run.sources]
    alone = len(run.sources) == 1 and run.sources[0].has_unique_hashes
    return stages.deduplicated(reduce(DataFrame.unionByName, opened), unique=alone)


def _decoded(run: Materials) -> DataFrame:
    return stages.sds_messages(run.table("waku_messages"), run.options.profile, keys=run.keys)


def _unique(run: Materials) -> DataFrame:
    return stages.unique_messages(run.table("sds_messages"))


def _reassembled(run: Materials) -> DataFrame:
    config = replace(ARCHIVE_SEGMENTATION, parity_rate=run.options.parity_rate)
    return stages.reassembled(_unique(run), run.options.profile, config=config)


def _delivered(run: Materials) -> DataFrame:
    table = stages.delivered(_unique(run), run.table("reassembled"))
    # By range, so that a channel of most messages is spread over files, and reading them in turn gives each channel's
    # messages in the order of SDS.
    messages = _unique(run).where("kind <> 'sync'").select("channel_id", "lamport", "content_bytes")
    return by_lamport(table, messages).sortWithinPartitions("channel_id", "lamport", "sds_ids")


def _missing_messages(run: Materials) -> DataFrame:
    return stages.without_rebuilt(stages.missing_messages(_unique(run)), run.table("reassembled"))


def _sds_ordered(run: Materials) -> DataFrame:
    table = stages.sds_ordered(
        _unique(run),
        run.table("missing_messages"),
        run.table("reassembled"),
        max_channel_bytes=run.options.max_channel_bytes,
    )
    messages = _unique(run).where("kind = 'content'").select("channel_id")
    return by_position(table, messages).sortWithinPartitions("channel_id", "position")


def _acknowledgements(run: Materials) -> DataFrame:
    return stages.acknowledgements(_unique(run), run.table(_BLOOM) if run.options.blooms else None)


def _sender_stats(run: Materials) -> DataFrame:
    names = ("ack_latency", "delivered", "incomplete", "missing_messages")
    return stages.sender_stats(_unique(run), *map(run.table, names))


def _rate_utilisation(run: Materials) -> DataFrame:
    return stages.rate_utilisation(
        run.table("sds_messages"), epoch_ms=run.options.epoch_ms, limit=run.options.rate_limit
    )


_BLOOM: Final = "bloom_evidence"

_WORK: Final = (
    TableStep(
        name="decoded",
        make=_decoded,
        needed_by=("sds_messages", "quarantine"),
        schema=SDS_MESSAGES.replace("payload_bytes", "sources array<string>, payload_bytes", 1),
    ),
    TableStep(
        name="reassembled",
        make=_reassembled,
        needed_by=("delivered", "incomplete", "missing_messages", "sds_ordered"),
        schema=REASSEMBLED,
    ),
    TableStep(
        name=_BLOOM,
        make=lambda run: stages.bloom_evidence(run.table("waku_messages"), run.options.profile, keys=run.keys),
        needed_by=("acknowledgements",),
        schema=BLOOM_EVIDENCE,
    ),
)

_MAKERS: Final[dict[str, Callable[[Materials], DataFrame]]] = {
    "waku_messages": _waku_messages,
    "sds_messages": lambda run: stages.sighted(run.table("decoded")),
    "quarantine": lambda run: stages.quarantine(run.table("decoded"), run.table("sds_messages")),
    "delivered": _delivered,
    "incomplete": lambda run: stages.incomplete(run.table("reassembled")),
    "missing_messages": _missing_messages,
    "sds_ordered": _sds_ordered,
    "acknowledgements": _acknowledgements,
    "ack_latency": lambda run: stages.ack_latency(_unique(run), run.table("acknowledgements")),
    "sender_stats": _sender_stats,
    "channel_stats": lambda run: stages.channel_stats(run.table("sender_stats"), run.table("ack_latency")),
    "bandwidth": lambda run: stages.bandwidth(run.table("sds_messages")),
    "rate_utilisation": _rate_utilisation,
    "store_completeness": lambda run: stages.store_completeness(
        run.table("waku_messages").select("sources"), [source.label for source in run.sources if source.label]
    ),
}
