"""From ``sds_messages`` to citations: one row for each entry of a causal history.

Content and sync messages cite; an ephemeral message is outside the causal order (SDS, "Ephemeral Messages"). Citations
of messages that no participant waits for are omitted: of the message itself, of an empty id, of a sync message
(`fairway.protocol.sds.dependencies`). A history in `sds_messages` has each message once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from fairway.pipeline.exchange import filtered, mapped
from fairway.pipeline.schema import exact_schema
from fairway.protocol.sds.message_id import SYNC_PREFIX

CITATIONS: Final = (
    "channel_id string, message_id string, retrieval_hint binary, sender_id string, citing_id string,"
    " citing_sender_id string, cited_at timestamp, cited_at_ns bigint"
)
"""The table of citations: the cited message with the fields of the citation, the citing message, and its time."""

CITING_COLUMNS: Final = ("channel_id", "message_id", "sender_id", "timestamp_ns", "kind", "causal_history")
"""The columns of a message that `citations_in` reads."""

_SCHEMA: Final = exact_schema(CITATIONS)

CITED: Final = pa.schema([field for field in _SCHEMA if field.name != "citing_id"])
"""The columns of a citation for the lookup of the cited message."""


def citations(sds_messages: DataFrame) -> DataFrame:
    """Return ``citations`` (`CITATIONS`), one row for each message in the causal history of another one.

    A message does not cite itself, and ephemeral messages cite nothing.
    """
    return mapped(sds_messages.select(*CITING_COLUMNS), citations_in, CITATIONS)


def citations_in(sds_messages: pa.Table, further: Sequence[str] = ()) -> pa.Table:
    """Return the citations (`CITATIONS`) of some messages, in their order, from their `CITING_COLUMNS`.

    A citation also has the columns ``further`` of the citing message.
    """
    citing = filtered(sds_messages, pc.not_equal(sds_messages.column("kind"), "ephemeral"))
    owners, entries = _counted_entries(citing)
    by = pa.array(owners)
    columns = {
        "channel_id": citing.column("channel_id").take(by),
        "message_id": entries.field("message_id"),
        "retrieval_hint": entries.field("retrieval_hint"),
        "sender_id": entries.field("sender_id"),
        "citing_id": citing.column("message_id").take(by),
        "citing_sender_id": citing.column("sender_id").take(by),
        "cited_at_ns": citing.column("timestamp_ns").take(by),
    }
    found = pa.table(columns, schema=_SCHEMA)
    for name in further:
        found = found.append_column(citing.schema.field(name), citing.column(name).take(by))
    return found


def parents_in(messages: pa.Table) -> pa.ListArray:
    """Return for each message the ids that it cites, each once, oldest first; empty without a causal history."""
    owners, entries = _counted_entries(messages)
    counts = np.bincount(owners, minlength=messages.num_rows)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), entries.field("message_id"))


def _counted_entries(messages: pa.Table) -> tuple[NDArray[np.int64], pa.StructArray]:
    """Return the entries of causal histories that a participant may wait for, and the number of the message of each."""
    histories = messages.column("causal_history").combine_chunks()
    owners = np.asarray(pc.list_parent_indices(histories), np.int64)
    entries = pc.list_flatten(histories)
    cited = entries.field("message_id")
    citing = messages.column("message_id").take(pa.array(owners)).combine_chunks()
    is_empty = pc.or_(pc.equal(cited, ""), pc.starts_with(cited, SYNC_PREFIX))
    counts = pc.and_not(pc.not_equal(cited, citing), is_empty).fill_null(False)
    if pc.all(counts).as_py():
        return owners, entries
    return owners[counts.to_numpy(zero_copy_only=False)], entries.filter(counts)
