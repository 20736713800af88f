"""From ``sds_messages`` to ``acknowledgements``: which participants have which messages of others, and the evidence.

A participant acknowledges a message by citing it in a causal history, or by a bloom filter that contains it together
with the citation of a causal descendant. Bloom filters alone count with at least ``possible_acks_threshold``
participants. Citations are in ``sds_messages``. `bloom_evidence` reads the filters from ``waku_messages``; without it
the result is a lower bound. A sender does not acknowledge its own messages.

Times are the timestamps of the senders, so that a latency includes the difference of two clocks; a negative latency
counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fairway.options import SdsConfig
from fairway.pipeline.codes import NOTHING, Codes, ranked, starts_of_runs
from fairway.pipeline.exchange import Bucket, Cut, bucketed
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.bloom_evidence import BLOOM_EVIDENCE
from fairway.pipeline.stages.citations import CITED, CITING_COLUMNS, citations_in
from fairway.pipeline.stages.keyed import KEY, Keyed, keyed
from fairway.units import NS_PER_MS

ACKNOWLEDGEMENTS: Final = (
    "channel_id string, message_id string, sender_id string, acknowledged_by string, how string,"
    " acknowledged_at timestamp, acknowledged_at_ns bigint"
)
"""The table of acknowledgements, one row for each content message and participant other than its sender."""

ACK_LATENCY: Final = (
    "channel_id string, message_id string, sender_id string, sent_at timestamp, sent_at_ns bigint,"
    " ackers int, first_by string, acked_at timestamp, acked_at_ns bigint, latency_ms bigint"
)
"""The table of latencies, one row for each content message: how many participants acknowledged it, the first of them
(null for none), and the time from ``sent_at`` to ``acked_at``."""

SENT: Final = pa.schema([*((name, pa.string()) for name in (*KEY, "sender_id")), ("timestamp_ns", pa.int64())])
"""The columns of a content message for its acknowledgements."""
EVIDENCE: Final = exact_schema(BLOOM_EVIDENCE)
"""Evidence of bloom filters."""

_SCHEMA: Final = exact_schema(ACKNOWLEDGEMENTS)
_LATENCY_SCHEMA: Final = exact_schema(ACK_LATENCY)
_CITED: Final = "cited"
_POSSIBLE: Final = "bloom"


def acknowledgements(
    sds_messages: DataFrame,
    bloom_evidence: DataFrame | None = None,
    *,
    possible_acks_threshold: int = SdsConfig().possible_acks_threshold,
) -> DataFrame:
    """Return ``acknowledgements`` (`ACKNOWLEDGEMENTS`), one row for each message and participant that has it.

    ``bloom_evidence`` is the result of the stage of that name for the same archive; without it only citations count.
    Either way these are lower bounds: participants may also have messages that no store keeps. The earliest evidence
    counts. Evidence by filters alone counts if at least ``possible_acks_threshold`` participants give it.
    """
    reads_filters = bloom_evidence is not None  # a DataFrame cannot be pickled for Python workers

    def prepare(messages: pa.Table) -> dict[str, pa.Table]:
        return {"sent": sent_in(messages), "cited": citations_in(messages).select(CITED.names)}

    def work(bucket: Bucket) -> Iterator[pa.Table]:
        tables = [bucket.table("sent", SENT), bucket.table("cited", CITED)]
        if reads_filters:
            tables.append(bucket.table("evidence", EVIDENCE))
        yield acknowledgement_rows(*keyed(*tables), possible_acks_threshold=possible_acks_threshold).table

    cuts = [Cut(frame=sds_messages.select(*CITING_COLUMNS), by=KEY, prepare=prepare)]
    if bloom_evidence is not None:
        frame = bloom_evidence.select(*EVIDENCE.names)
        cuts.append(Cut(frame=frame, by=KEY, prepare=lambda table: {"evidence": table.cast(EVIDENCE)}))
    return bucketed(cuts, work, ACKNOWLEDGEMENTS)


def ack_latency(sds_messages: DataFrame, acknowledgements: DataFrame) -> DataFrame:
    """Return ``ack_latency`` (`ACK_LATENCY`), one row for each content message.

    ``latency_ms`` is the time from its timestamp to that of its first acknowledgement, by the clocks of two
    participants. It is at least 0, and null without an acknowledgement.
    """

    def work(bucket: Bucket) -> Iterator[pa.Table]:
        yield latency_rows(*keyed(bucket.table("sent", SENT), bucket.table("acknowledged", _SCHEMA)))

    return bucketed(
        [
            Cut(
                frame=sds_messages.select(*SENT.names, "kind"),
                by=KEY,
                prepare=lambda table: {"sent": sent_in(table)},
            ),
            Cut(
                frame=acknowledgements.select(*_SCHEMA.names),
                by=KEY,
                prepare=lambda table: {"acknowledged": table.cast(_SCHEMA)},
            ),
        ],
        work,
        ACK_LATENCY,
    )


def sent_in(sds_messages: pa.Table) -> pa.Table:
    """Return the content messages (`SENT`) among some messages."""
    return sds_messages.filter(pc.equal(sds_messages.column("kind"), "content")).select(SENT.names)


def acknowledgement_rows(
    sent: Keyed, cited: Keyed, evidence: Keyed | None = None, *, possible_acks_threshold: int
) -> Keyed:
    """Return ``acknowledgements`` of content messages (`SENT`), by all citations (`CITED`) and evidence of them."""
    senders, participants, names = _people(sent, cited, evidence)
    target, at = sent.rows()[cited.keys], cited.table.column("cited_at_ns").to_numpy()
    others = EVIDENCE.empty_table() if evidence is None else evidence.table
    (how, (is_cited, possible)), kinds = ranked(others.column("how"), pa.array([_CITED, _POSSIBLE]))
    how = np.concatenate([np.full(len(at), is_cited), how])
    if evidence is not None:
        target = np.concatenate([target, sent.rows()[evidence.keys]])
        at = np.concatenate([at, others.column("acknowledged_at_ns").to_numpy()])
    heard = np.flatnonzero((target != NOTHING) & (participants != NOTHING))
    heard = heard[(senders[target[heard]] != NOTHING) & (senders[target[heard]] != participants[heard])]
    target, participants, at, how = target[heard], participants[heard], at[heard], how[heard]
    # The first of each message and participant: certain before possible evidence, then the earliest, the least kind.
    pairs = target * len(names) + participants
    order = np.lexsort((at, pairs) if evidence is None else (how, at, how == possible, pairs))
    best = order[starts_of_runs(pairs[order])]
    is_possible = how[best] == possible
    witnesses = np.bincount(target[best[is_possible]], minlength=sent.table.num_rows)
    best = best[~is_possible | (witnesses[target[best]] >= possible_acks_threshold)]
    acknowledged = target[best]
    columns = {
        **{name: sent.table.column(name).take(pa.array(acknowledged)) for name in (*KEY, "sender_id")},
        "acknowledged_by": names.take(pa.array(participants[best])),
        "how": kinds.take(pa.array(how[best])),
        "acknowledged_at_ns": at[best],
    }
    return Keyed(pa.table(columns, schema=_SCHEMA), sent.keys[acknowledged], sent.count)


def latency_rows(sent: Keyed, acknowledged: Keyed) -> pa.Table:
    """Return ``ack_latency`` of content messages (`SENT`), by all acknowledgements of them."""
    rows = sent.rows()[acknowledged.keys]
    here = np.flatnonzero(rows != NOTHING)
    (participants,), names = ranked(acknowledged.table.column("acknowledged_by"))
    at = acknowledged.table.column("acknowledged_at_ns").to_numpy()
    order = here[np.lexsort((participants[here], at[here], rows[here]))]
    first = order[starts_of_runs(rows[order])]
    count = sent.table.num_rows
    first_by = np.full(count, NOTHING, np.int64)
    acked_at = np.zeros(count, np.int64)
    first_by[rows[first]], acked_at[rows[first]] = participants[first], at[first]
    sent_at = sent.table.column("timestamp_ns").to_numpy()
    latency_ns = acked_at - sent_at
    # Senders choose timestamps; a difference that overflows is not a latency.
    runs_over = ((acked_at ^ sent_at) & (acked_at ^ latency_ns)) < 0
    latency_ms = np.maximum(latency_ns, 0) // NS_PER_MS
    by_nobody = first_by == NOTHING
    columns = {
        **{name: sent.table.column(name) for name in (*KEY, "sender_id")},
        "sent_at_ns": sent.table.column("timestamp_ns"),
        "ackers": pa.array(np.bincount(rows[here], minlength=count), pa.int32()),
        "first_by": names.take(pa.array(first_by, mask=by_nobody)),
        "acked_at_ns": pa.array(acked_at, mask=by_nobody),
        "latency_ms": pa.array(latency_ms, mask=by_nobody | runs_over),
    }
    return pa.table(columns, schema=_LATENCY_SCHEMA)


def _people(sent: Keyed, cited: Keyed, evidence: Keyed | None) -> tuple[Codes, Codes, pa.Array]:
    """Return the numbers of the senders, the numbers of the acknowledging participants, and all names."""
    columns = [sent.table.column("sender_id"), cited.table.column("citing_sender_id")]
    if evidence is not None:
        columns.append(evidence.table.column("acknowledged_by"))
    (senders, *participants), names = ranked(*columns)
    return senders, np.concatenate(participants), names
