"""What SDS messages that come and go do to what is put together and looked up: everything but the logs of channels.

The functions of the stages run over all rows about the sets of segments, or about the messages, that are touched: those
of the tables and the new ones. What the tables had about these goes, what the functions give comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.options import Profile, SdsConfig, SegmentationConfig
from fairway.pipeline.run.growth.held_rows import Chosen, HeldRows, Span, TableChange, among
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.acknowledgements import SENT, acknowledgement_rows, latency_rows
from fairway.pipeline.stages.citations import CITED, CITING_COLUMNS, citations_in
from fairway.pipeline.stages.delivered import are_whole, in_order, incomplete_sets, joined_messages, whole_messages
from fairway.pipeline.stages.keyed import KEY, keyed
from fairway.pipeline.stages.missing_messages import MESSAGE_KEYS, missing_rows, rebuilt_in
from fairway.pipeline.stages.reassembled import (
    COMPUTED_INPUT,
    REASSEMBLED,
    SEGMENTS,
    computed_segments_in,
    reassembled_rows,
    segments_in,
)
from fairway.pipeline.tables.files import exact_schema_of

_GROUP: Final = ("channel_id", "sender_id", "segment_hash")
_CITED_IDS: Final = "causal_history.list.element.message_id"
_FIRST_ID: Final = pa.schema([("channel_id", pa.string()), ("message_id", pa.string())])
_CITING: Final = (*CITING_COLUMNS, "lamport")


def segment_changes(
    held: Mapping[str, HeldRows], sds_messages: TableChange, profile: Profile | None, config: SegmentationConfig
) -> dict[str, TableChange]:
    """Return how ``incomplete``, ``computed_segments`` and ``delivered`` change."""
    touched = pa.concat_tables(
        part.filter(pc.is_valid(part["segment_hash"])).select(list(_GROUP))
        for part in (sds_messages.removed, sds_messages.added)
    )
    before = after = exact_schema(REASSEMBLED).empty_table()
    if touched.num_rows:
        chosen, span = among(touched, _GROUP), Span.of("segment_hash", touched["segment_hash"])
        before, after = (
            _put_together(sds.found(_GROUP, chosen, SEGMENTS.names, span), profile, config)
            for sds in (held["sds_messages"], held["sds_messages"].changed(sds_messages))
        )
    delivered = pa.concat_tables([whole_messages(_whole(sds_messages.added)), joined_messages(after)])
    gone = _whole(sds_messages.removed).select(_FIRST_ID.names)
    carried = before.filter(pc.equal(before["outcome"], "complete"))
    gone = pa.concat_tables(
        [
            gone.cast(_FIRST_ID),
            pa.table([carried["channel_id"], pc.list_element(carried["sds_ids"], 0)], schema=_FIRST_ID),
        ]
    )
    return {
        "incomplete": _of_sets(held, "incomplete", touched, incomplete_sets(after)),
        "computed_segments": _of_sets(
            held, "computed_segments", touched, computed_segments_in(after.select(list(COMPUTED_INPUT)))
        ),
        "delivered": TableChange.of("delivered", _delivered(held["delivered"], gone), _sorted(delivered)),
    }


def heard_changes(
    held: Mapping[str, HeldRows], sds_messages: TableChange, computed: TableChange
) -> tuple[dict[str, TableChange], pa.Table]:
    """Return how ``missing_messages``, ``acknowledgements`` and ``ack_latency`` change, and who cites what is touched.

    ``computed`` is the change of ``computed_segments``. Who cites has the cited key, and the ``lamport`` of the content
    messages that cite.
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
    # What the tables have now is dated by messages that are there still, or were.
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
    """Return what chooses these messages, and those that may cite some of them."""
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


def _put_together(segments: pa.Table, profile: Profile | None, config: SegmentationConfig) -> pa.Table:
    schema = exact_schema(REASSEMBLED)
    return pa.concat_tables([schema.empty_table(), *reassembled_rows(segments_in(segments), profile, config)])


def _of_sets(held: Mapping[str, HeldRows], name: str, touched: pa.Table, added: pa.Table) -> TableChange:
    """Return the change of a table of sets of segments."""
    gone = held[name].found(_GROUP, among(touched, _GROUP)) if touched.num_rows else None
    return TableChange.of(name, gone, added)


def _whole(messages: pa.Table) -> pa.Table:
    return messages.filter(are_whole(messages))


def _delivered(delivered: HeldRows, first_ids: pa.Table) -> pa.Table | None:
    """Return the rows of ``delivered`` of messages of which the first SDS message is known."""
    if not first_ids.num_rows:
        return None
    chosen = among(first_ids, KEY)

    def has_one(rows: pa.Table) -> NDArray[np.bool_]:
        firsts = pc.list_element(rows.column("sds_ids"), 0)
        return chosen(pa.table([rows.column("channel_id"), firsts], schema=_FIRST_ID))

    span = Span.of("channel_id", first_ids["channel_id"])
    return delivered.found(("channel_id", "sds_ids.list.element"), has_one, span=span)


def _sorted(delivered: pa.Table) -> pa.Table:
    return pa.concat_tables([exact_schema_of("delivered").empty_table(), *in_order(delivered)])
