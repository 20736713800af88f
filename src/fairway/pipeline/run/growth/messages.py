"""What new rows of the sources do to ``waku_messages``, ``sds_messages`` and ``quarantine``.

Each rule is that of a run (`fairway.pipeline.stages`), over the new rows and the old ones that they meet: copies of a
WakuMessage by its hash, copies of an SDS message by its channel and id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline.channel_topics import ChannelTopics, topic_refusal
from fairway.pipeline.codes import codes_of
from fairway.pipeline.run.growth.held_rows import HeldRows, TableChange, among, are_among
from fairway.pipeline.run.growth.whole_run import WholeRunNeeded
from fairway.pipeline.run.topics import claims_in
from fairway.pipeline.stages.decoding import BatchDecoder, Status, decoding_batches
from fairway.pipeline.stages.deduplicated import each_once, holders, merged_copies
from fairway.pipeline.stages.quarantine import forged, forged_error
from fairway.pipeline.stages.unique_messages import honest_messages, sightings_of
from fairway.pipeline.tables.files import exact_schema_of

_HASH: Final = ("message_hash",)
_KEY: Final = ("channel_id", "message_id")
_SDS: Final = exact_schema_of("sds_messages")
_QUARANTINE: Final = exact_schema_of("quarantine")
_DECODED: Final = pa.schema([field for field in _SDS if field.name not in {"sightings", "sighting"}])
_CONTENT: Final = tuple(
    name for name in exact_schema_of("waku_messages").names if name not in {"sources", "damaged", "copies"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChanges:
    """How the three tables of messages change."""

    tables: Mapping[str, TableChange]
    gone: pa.Table
    """SDS messages, each once, as they were where another copy stands for them now, or none."""
    come: pa.Table
    """SDS messages, each once, that are new, or of which another copy stands for them now."""
    claims: pa.Table
    """On which content topics new messages claim channels (`CLAIMS`)."""


def message_changes(
    held: Mapping[str, HeldRows], fresh: pa.Table, decoder: BatchDecoder, topics: ChannelTopics
) -> MessageChanges:
    """Return what new rows of ``waku_messages``, as sources give them, do; ``topics`` are those of decided channels.

    Raises `WholeRunNeeded` for content that differs from what is known under the same hash.
    """
    once = pa.concat_tables(each_once(fresh)) if fresh.num_rows else exact_schema_of("waku_messages").empty_table()
    once = once.select(exact_schema_of("waku_messages").names).cast(exact_schema_of("waku_messages"))
    known = held["waku_messages"].found(_HASH, among(once, _HASH))
    again = are_among(once, known, _HASH)
    copied = _with_copies(known, once.filter(pa.array(again)))
    unseen = once.filter(pa.array(~again))
    waku = TableChange.of("waku_messages", known, pa.concat_tables([copied, unseen]))

    refused, decoded = _decoded(unseen, decoder)
    claims = claims_in(decoded)
    decoded, elsewhere = _on_topics(decoded, topics)
    if elsewhere.num_rows:
        refused = pa.concat_tables([refused, _with_stores(elsewhere, unseen)])
    held_copies = held["sds_messages"].found(_KEY, among(decoded, _KEY))
    errors = pa.table({"error": forged_error(decoded["message_id"].combine_chunks().unique())})
    disputed = held["quarantine"].found(("error",), among(errors, ("error",)))
    after = held["waku_messages"].changed(waku)
    in_question = after.found(_HASH, among(disputed, _HASH)) if disputed.num_rows else once.slice(0, 0)
    _, forged_before = _decoded(in_question, decoder)
    # What is forged under the same id in another channel is no matter of these.
    forged_before = forged_before.filter(pa.array(are_among(forged_before, decoded, _KEY)))
    met = pa.concat_tables([held_copies.select(_DECODED.names), forged_before])
    honest, left_out = _sighted(pa.concat_tables([decoded, met]))
    sds = TableChange.of("sds_messages", held_copies, honest)
    if left_out.num_rows:
        left_out = _with_stores(
            left_out, after.found(_HASH, among(left_out, _HASH), ("message_hash", "sources", "damaged"))
        )

    # In quarantine is also what only has another store now.
    copied_there = held["quarantine"].found(_HASH, among(copied, _HASH))
    disputed = disputed.filter(pa.array(are_among(disputed, met, _HASH) & ~are_among(disputed, copied_there, _HASH)))
    moved = copied_there.filter(pa.array(are_among(copied_there, met, _HASH)))
    stay = copied_there.filter(pa.array(~are_among(copied_there, moved, _HASH)))
    added = pa.concat_tables([refused, left_out, _with_stores(stay, copied)])
    quarantine = TableChange.of("quarantine", pa.concat_tables([copied_there, disputed]), added)
    gone, come = _first_copies(held_copies), _first_copies(honest)
    return MessageChanges(
        tables={"waku_messages": waku, "sds_messages": sds, "quarantine": quarantine},
        gone=gone.filter(pa.array(~are_among(gone, come, _HASH))),
        come=come.filter(pa.array(~are_among(come, gone, _HASH))),
        claims=claims,
    )


def _with_copies(known: pa.Table, again: pa.Table) -> pa.Table:
    """Return messages that are known, with the stores and copies of the same ones that came again."""
    schema = exact_schema_of("waku_messages")
    both = pa.concat_tables([known.select(schema.names), again.select(schema.names)])
    if not both.num_rows:
        return both
    content, hashes = codes_of(*(both[name] for name in _CONTENT)), codes_of(both["message_hash"])
    if len(np.unique(content)) > len(np.unique(hashes)):
        # Which of them stays depends on stores of which nobody remembers what they had.
        raise WholeRunNeeded("a message came again with other content under the same hash")
    source = pa.nulls(both.num_rows, pa.string())
    return merged_copies(both.append_column("source", source)).select(schema.names).cast(schema)


def _decoded(messages: pa.Table, decoder: BatchDecoder) -> tuple[pa.Table, pa.Table]:
    """Return what of messages, each once, cannot be decoded (as rows of ``quarantine``), and what is decoded."""
    if not messages.num_rows:
        return _QUARANTINE.empty_table(), _DECODED.empty_table()
    table = pa.Table.from_batches([decoder.batch(batch) for batch in decoding_batches(messages)])
    is_ok = pc.equal(table["status"], Status.OK.value)
    refused = table.filter(pc.invert(is_ok)).select(_QUARANTINE.names).cast(_QUARANTINE)
    return refused, table.filter(is_ok).select(_DECODED.names).cast(_DECODED)


def _on_topics(decoded: pa.Table, topics: ChannelTopics) -> tuple[pa.Table, pa.Table]:
    """Return the messages on the topics of their channels, and others as rows of ``quarantine``, without stores."""
    if not topics:
        return decoded, _QUARANTINE.empty_table()
    errors = [
        topic_refusal(topics, channel, topic)
        for channel, topic in zip(decoded["channel_id"].to_pylist(), decoded["content_topic"].to_pylist(), strict=True)
    ]
    told = pa.array(errors, pa.string())
    rest = decoded.filter(told.is_valid())
    columns = {name: rest[name] for name in _QUARANTINE.names if name in rest.column_names}
    columns["status"] = pa.repeat(Status.WRONG_TOPIC.value, rest.num_rows)
    columns["error"] = told.drop_null()
    columns["sources"] = pa.nulls(rest.num_rows, _QUARANTINE.field("sources").type)
    return decoded.filter(told.is_null()), pa.table(columns).select(_QUARANTINE.names).cast(_QUARANTINE)


def _sighted(decoded: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows of ``sds_messages`` of decoded messages, and of ``quarantine`` of forged ones, without stores."""
    if not decoded.num_rows:
        return _SDS.empty_table(), _QUARANTINE.empty_table()
    seen = sightings_of(decoded)
    honest = pa.concat_tables(part.select(_SDS.names).cast(_SDS) for part in honest_messages(decoded, seen))
    left_out = forged(decoded.filter(pa.array(~seen.honest)))
    stores = pa.nulls(left_out.num_rows, _QUARANTINE.field("sources").type)
    return honest, left_out.append_column("sources", stores).select(_QUARANTINE.names).cast(_QUARANTINE)


def _with_stores(quarantined: pa.Table, messages: pa.Table) -> pa.Table:
    """Return rows of ``quarantine`` with the stores that their messages are in now."""
    place = pc.index_in(quarantined["message_hash"], value_set=messages["message_hash"].combine_chunks())
    column = quarantined.schema.get_field_index("sources")
    stores = quarantined.set_column(column, quarantined.schema.field(column), holders(messages).take(place))
    return stores.select(_QUARANTINE.names)


def _first_copies(sds_messages: pa.Table) -> pa.Table:
    return sds_messages.filter(pc.equal(sds_messages["sighting"], 1))
