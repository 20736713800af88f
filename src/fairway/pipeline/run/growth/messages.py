"""Changes of ``waku_messages``, ``sds_messages``, ``repeats`` and ``quarantine`` by new rows of the sources.

The rules are those of a run (`fairway.pipeline.stages`), applied to the new rows and the old rows with the same key.
The key of a WakuMessage is its hash, that of an SDS message its channel and id.
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
from fairway.pipeline.run.growth import WholeRunNeeded
from fairway.pipeline.run.growth.held_rows import HeldRows, TableChange, among, are_among
from fairway.pipeline.run.topics import claims_in
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.decoding import BatchDecoder, Status, decoding_batches
from fairway.pipeline.stages.deduplicated import each_once, holders, merged_copies, with_channels
from fairway.pipeline.stages.quarantine import forged, forged_error
from fairway.pipeline.stages.sds_messages import MESSAGE_KEY, WITH_CONTENT, copies_of, further_copies
from fairway.pipeline.tables.files import exact_schema_of

_HASH: Final = ("message_hash",)
_OF_A_MESSAGE: Final = ("sds_messages", "repeats")
"""The tables with the copies of SDS messages."""
_DECODED: Final = exact_schema(WITH_CONTENT)
_QUARANTINE: Final = exact_schema_of("quarantine")
_REPEATS: Final = exact_schema_of("repeats")
_WAKU: Final = exact_schema_of("waku_messages")
_ONCE: Final = pa.schema([field for field in _WAKU if field.name != "channel_id"])
_CONTENT: Final = tuple(name for name in _ONCE.names if name not in {"sources", "damaged", "copies"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChanges:
    """Changes of the tables of messages."""

    tables: Mapping[str, TableChange]
    come: pa.Table
    """The rows added to ``sds_messages``, with their contents."""
    claims: pa.Table
    """The claims of new messages (`CLAIMS`): channels and content topics."""


def message_changes(
    held: Mapping[str, HeldRows], fresh: pa.Table, decoder: BatchDecoder, topics: ChannelTopics
) -> MessageChanges:
    """Return the changes by new rows of the sources; ``topics`` are those of decided channels.

    Raises `WholeRunNeeded` for content that differs from the known content under the same hash.
    """
    once = pa.concat_tables([_ONCE.empty_table(), *(part.cast(_ONCE) for part in each_once(fresh))])
    known = held["waku_messages"].found(_HASH, among(once, _HASH))
    again = are_among(once, known, _HASH)
    copied = _with_copies(known, once.filter(pa.array(again)))
    unseen = once.filter(pa.array(~again))
    refused, decoded = _decoded(unseen, decoder)
    waku = TableChange.of("waku_messages", _HASH, known, pa.concat_tables([copied, with_channels(unseen, decoded)]))
    claims = claims_in(decoded)
    decoded, elsewhere = _on_topics(decoded, topics)
    if elsewhere.num_rows:
        refused = pa.concat_tables([refused, _with_stores(elsewhere, unseen)])
    held_firsts, held_repeats = (held[name].found(MESSAGE_KEY, among(decoded, MESSAGE_KEY)) for name in _OF_A_MESSAGE)
    errors = pa.table({"error": forged_error(decoded["message_id"].combine_chunks().unique())})
    disputed = held["quarantine"].found(("error",), among(errors, ("error",)))
    after = held["waku_messages"].changed(waku)
    known_hashes = pa.concat_tables(part.select(_HASH) for part in (held_firsts, held_repeats, disputed))
    met = decoded_again(after, known_hashes, decoder)
    # Forged messages with the same id in another channel are unrelated.
    met = met.filter(pa.array(are_among(met, decoded, MESSAGE_KEY)))
    firsts, repeats, left_out = _told_apart(pa.concat_tables([decoded, met]))
    come = firsts.filter(pa.array(~are_among(firsts, held_firsts, _HASH)))
    gone = held_firsts.filter(pa.array(~are_among(held_firsts, firsts, _HASH)))
    sds = TableChange.of("sds_messages", _HASH, gone, come)
    if left_out.num_rows:
        left_out = _with_stores(
            left_out, after.found(_HASH, among(left_out, _HASH), ("message_hash", "sources", "damaged"))
        )

    # The quarantine also has messages whose stores change.
    copied_there = held["quarantine"].found(_HASH, among(copied, _HASH))
    disputed = disputed.filter(pa.array(are_among(disputed, met, _HASH) & ~are_among(disputed, copied_there, _HASH)))
    moved = copied_there.filter(pa.array(are_among(copied_there, met, _HASH)))
    stay = copied_there.filter(pa.array(~are_among(copied_there, moved, _HASH)))
    added = pa.concat_tables([refused, left_out, _with_stores(stay, copied)])
    return MessageChanges(
        tables={
            "waku_messages": waku,
            "sds_messages": sds,
            "repeats": TableChange.of("repeats", _HASH, held_repeats, repeats),
            "quarantine": TableChange.of("quarantine", _HASH, pa.concat_tables([copied_there, disputed]), added),
        },
        come=come,
        claims=claims,
    )


def decoded_again(waku_messages: HeldRows, hashes: pa.Table, decoder: BatchDecoder) -> pa.Table:
    """Return the messages of some hashes (``message_hash``), decoded again, with their contents."""
    if not hashes.num_rows:
        return _DECODED.empty_table()
    _, decoded = _decoded(waku_messages.found(_HASH, among(hashes, _HASH)), decoder)
    return decoded


def _with_copies(known: pa.Table, again: pa.Table) -> pa.Table:
    """Return known messages, with the stores and copies of their new rows added."""
    if not known.num_rows:
        return _WAKU.empty_table()
    both = pa.concat_tables([known.select(_ONCE.names), again])
    content, hashes = codes_of(*(both[name] for name in _CONTENT)), codes_of(both["message_hash"])
    if len(np.unique(content)) > len(np.unique(hashes)):
        # The choice depends on the contents of each store, which the tables do not record.
        raise WholeRunNeeded("a message came again with other content under the same hash")
    source = pa.nulls(both.num_rows, pa.string())
    merged = merged_copies(both.append_column("source", source)).select(_ONCE.names).cast(_ONCE)
    return with_channels(merged, known)


def _decoded(messages: pa.Table, decoder: BatchDecoder) -> tuple[pa.Table, pa.Table]:
    """Return the undecodable messages (as rows of ``quarantine``), and the decoded ones; ``messages`` has each once."""
    if not messages.num_rows:
        return _QUARANTINE.empty_table(), _DECODED.empty_table()
    table = pa.Table.from_batches([decoder.batch(batch) for batch in decoding_batches(messages)])
    is_ok = pc.equal(table["status"], Status.OK.value)
    refused = table.filter(pc.invert(is_ok)).select(_QUARANTINE.names).cast(_QUARANTINE)
    return refused, table.filter(is_ok).select(_DECODED.names).cast(_DECODED)


def _on_topics(decoded: pa.Table, topics: ChannelTopics) -> tuple[pa.Table, pa.Table]:
    """Return the messages on the topics of their channels, and the others as rows of ``quarantine`` without stores."""
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


def _told_apart(decoded: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return the rows of ``sds_messages``, ``repeats`` and, without stores, ``quarantine`` of decoded messages."""
    if not decoded.num_rows:
        return _DECODED.empty_table(), _REPEATS.empty_table(), _QUARANTINE.empty_table()
    copies = copies_of(decoded)
    left_out = forged(decoded.filter(pa.array(~copies.is_honest)))
    stores = pa.nulls(left_out.num_rows, _QUARANTINE.field("sources").type)
    left_out = left_out.append_column("sources", stores).select(_QUARANTINE.names).cast(_QUARANTINE)
    return decoded.filter(pa.array(copies.is_first)), further_copies(decoded, copies), left_out


def _with_stores(quarantined: pa.Table, messages: pa.Table) -> pa.Table:
    """Return rows of ``quarantine`` with the present stores of their messages."""
    place = pc.index_in(quarantined["message_hash"], value_set=messages["message_hash"].combine_chunks())
    column = quarantined.schema.get_field_index("sources")
    stores = quarantined.set_column(column, quarantined.schema.field(column), holders(messages).take(place))
    return stores.select(_QUARANTINE.names)
