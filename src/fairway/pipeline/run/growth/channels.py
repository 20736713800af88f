"""Changes by added and removed SDS messages to reassembled messages, missing messages and acknowledgements.

The functions of the stages run over all rows, old and new, about the affected sets of segments or messages. Their
results replace the old rows of the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.options import Profile, SdsConfig, SegmentationConfig
from fairway.pipeline.run.growth.held_rows import Chosen, HeldRows, Span, TableChange, among, are_among
from fairway.pipeline.run.growth.messages import MessageChanges, decoded_again
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.acknowledgements import SENT, acknowledgement_rows, latency_rows
from fairway.pipeline.stages.citations import CITED, CITING_COLUMNS, citations_in
from fairway.pipeline.stages.decoding import BatchDecoder
from fairway.pipeline.stages.delivered import are_whole, in_order, incomplete_sets, joined_messages, whole_messages
from fairway.pipeline.stages.keyed import KEY, keyed
from fairway.pipeline.stages.missing_messages import MESSAGE_KEYS, missing_rows, rebuilt_in
from fairway.pipeline.stages.reassembled import (
    COMPUTED_INPUT,
    REASSEMBLED,
    computed_segments_in,
    reassembled_rows,
    segments_in,
)
from fairway.pipeline.tables.files import exact_schema_of

_GROUP: Final = ("channel_id", "sender_id", "segment_hash")
_CITED_IDS: Final = "causal_history.list.element.message_id"
_CITING: Final = (*CITING_COLUMNS, "lamport")


def segment_changes(
    held: Mapping[str, HeldRows],
    messages: MessageChanges,
    decoder: BatchDecoder,
    profile: Profile | None,
    config: SegmentationConfig,
) -> dict[str, TableChange]:
    """Return the changes of ``incomplete``, ``computed_segments`` and ``delivered``."""
    change = messages.tables["sds_messages"]
    touched = pa.concat_tables(
        part.filter(pc.is_valid(part["segment_hash"])).select(list(_GROUP)) for part in (change.removed, change.added)
    )
    carried = _whole(change.removed).select(MESSAGE_KEYS.names)
    segments = messages.come.filter(pc.is_valid(messages.come["segment_hash"]))
    if touched.num_rows:
        span = Span.of("segment_hash", touched["segment_hash"])
        known = held["sds_messages"].found(_GROUP, among(touched, _GROUP), (*MESSAGE_KEYS.names, "message_hash"), span)
        carried = pa.concat_tables([carried, known.select(MESSAGE_KEYS.names)])
        stay = known.filter(pa.array(~are_among(known, change.removed, ("message_hash",))))
        waku_messages = held["waku_messages"].changed(messages.tables["waku_messages"])
        segments = pa.concat_tables([segments, decoded_again(waku_messages, stay, decoder)])
    sets = pa.concat_tables(
        [exact_schema(REASSEMBLED).empty_table(), *reassembled_rows(segments_in(segments), profile, config)]
    )
    delivered = pa.concat_tables([whole_messages(_whole(messages.come)), joined_messages(sets)])
    computed = computed_segments_in(sets.select(list(COMPUTED_INPUT)))
    return {
        "incomplete": _of_sets(held, "incomplete", touched, incomplete_sets(sets)),
        "computed_segments": _of_sets(held, "computed_segments", touched, computed),
        "delivered": TableChange.of("delivered", _delivered(held["delivered"], carried), _sorted(delivered)),
    }


def heard_changes(
    held: Mapping[str, HeldRows], sds_messages: TableChange, computed: TableChange
) -> tuple[dict[str, TableChange], pa.Table]:
    """Return the changes of ``missing_messages``, ``acknowledgements`` and ``ack_latency``, and the citing messages.

    ``computed`` is the change of ``computed_segments``. The citing messages are the content messages that cite an
    affected message; the table has the cited key and the ``lamport`` of the citing message.
    """
    moved = [sds_messages.removed, sds_messages.added]
    touched = pa.concat_tables(
        [
            *(
                part.filter(pc.equal(part["kind"], "content")).select(MESSAGE_KEYS.names).cast(MESSAGE_KEYS)
                for part in moved
            ),
            *(citations_in(part).select(MESSAGE_KEYS.names).cast(MESSAGE_KEYS) for part in moved),
            *(part.select(MESSAGE_KEYS.names).cast(MESSAGE_KEYS) for part in (computed.removed, computed.added)),
        ]
    )
    sds = held["sds_messages"].changed(sds_messages)
    are_touched = among(touched, KEY)
    near = sds.found((*KEY, _CITED_IDS), _near(touched), _CITING)
    is_sent = are_touched(near) & pc.equal(near["kind"], "content").to_numpy()
    sent = near.filter(pa.array(is_sent)).select(SENT.names)
    cited = citations_in(near, ("lamport", "kind"))
    cited = cited.filter(pa.array(are_touched(cited)))
    known = held["computed_segments"].changed(computed).found(KEY, are_touched)
    sent_keyed, cited_keyed, rebuilt = keyed(sent, cited.select(CITED.names), rebuilt_in(known))
    missing = missing_rows(sent_keyed, cited_keyed, rebuilt)
    threshold = SdsConfig().possible_acks_threshold
    acknowledged = acknowledgement_rows(sent_keyed, cited_keyed, possible_acks_threshold=threshold)
    made = {
        "missing_messages": missing,
        "acknowledgements": acknowledged.table,
        "ack_latency": latency_rows(sent_keyed, acknowledged),
    }
    # Old rows may have the time of a message that is removed.
    gone = sds_messages.removed["timestamp_ns"]
    spans = {
        "missing_messages": Span.of("last_cited_ns", cited["cited_at_ns"], gone),
        "acknowledgements": Span.of("acknowledged_at_ns", cited["cited_at_ns"], gone),
        "ack_latency": Span.of("sent_at_ns", sent["timestamp_ns"], gone),
    }
    changes = {
        name: TableChange.of(name, held[name].found(KEY, are_touched, span=spans[name]), table)
        for name, table in made.items()
    }
    return changes, cited.filter(pc.equal(cited["kind"], "content")).select([*KEY, "lamport"])


def _near(touched: pa.Table) -> Chosen:
    """Return a filter that chooses these messages, and messages that may cite them."""
    are_touched = among(touched, KEY)
    ids = touched["message_id"].unique()

    def chosen(rows: pa.Table) -> NDArray[np.bool_]:
        masks = [np.zeros(0, np.bool_)]
        for histories in rows.column("causal_history").chunks:
            cited = pc.list_flatten(histories).field("message_id")
            mask = np.zeros(len(histories), np.bool_)
            mask[pc.list_parent_indices(histories).filter(pc.is_in(cited, value_set=ids)).to_numpy()] = True
            masks.append(mask)
        are_citing: NDArray[np.bool_] = np.concatenate(masks)
        return are_citing | are_touched(rows)

    return chosen


def _of_sets(held: Mapping[str, HeldRows], name: str, touched: pa.Table, added: pa.Table) -> TableChange:
    """Return the change of a table of sets of segments."""
    gone = held[name].found(_GROUP, among(touched, _GROUP)) if touched.num_rows else None
    return TableChange.of(name, gone, added)


def _whole(messages: pa.Table) -> pa.Table:
    return messages.filter(are_whole(messages))


def _delivered(delivered: HeldRows, carriers: pa.Table) -> pa.Table | None:
    """Return the rows of ``delivered`` whose first SDS message is among ``carriers`` (`MESSAGE_KEYS`)."""
    if not carriers.num_rows:
        return None
    chosen = among(carriers, KEY)

    def has_one(rows: pa.Table) -> NDArray[np.bool_]:
        firsts = pc.list_element(rows.column("sds_ids"), 0)
        return chosen(pa.table([rows.column("channel_id"), firsts], schema=MESSAGE_KEYS))

    span = Span.of("channel_id", carriers["channel_id"])
    return delivered.found(("channel_id", "sds_ids.list.element"), has_one, span=span)


def _sorted(delivered: pa.Table) -> pa.Table:
    return pa.concat_tables([exact_schema_of("delivered").empty_table(), *in_order(delivered)])
