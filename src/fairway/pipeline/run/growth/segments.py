"""Changes of the tables of reassembled messages, by added and removed SDS messages.

The affected sets of segments are put together again from all their segments, old and new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.run.growth.held_rows import HeldRows, TableChange, among, are_among
from fairway.pipeline.run.growth.messages import MessageChanges, decoded_again
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.decoding import BatchDecoder
from fairway.pipeline.stages.delivered import are_whole, in_order, incomplete_sets, joined_messages, whole_messages
from fairway.pipeline.stages.keyed import KEY
from fairway.pipeline.stages.missing_messages import MESSAGE_KEYS
from fairway.pipeline.stages.reassembled import (
    COMPUTED_INPUT,
    REASSEMBLED,
    computed_segments_in,
    reassembled_rows,
    segments_in,
)
from fairway.pipeline.tables.files import exact_schema_of

_GROUP: Final = ("channel_id", "sender_id", "segment_hash")


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
        known = held["sds_messages"].found(_GROUP, among(touched, _GROUP), (*MESSAGE_KEYS.names, "message_hash"))
        carried = pa.concat_tables([carried, known.select(MESSAGE_KEYS.names)])
        stay = known.filter(pa.array(~are_among(known, change.removed, ("message_hash",))))
        waku_messages = held["waku_messages"].changed(messages.tables["waku_messages"])
        segments = pa.concat_tables([segments, decoded_again(waku_messages, stay, decoder)])
    sets = pa.concat_tables(
        [exact_schema(REASSEMBLED).empty_table(), *reassembled_rows(segments_in(segments), profile, config)]
    )
    delivered = pa.concat_tables([whole_messages(_whole(messages.come)), joined_messages(sets)])
    made = {"incomplete": incomplete_sets(sets), "computed_segments": computed_segments_in(sets.select(COMPUTED_INPUT))}
    return {
        **{
            name: TableChange.of(name, _GROUP, held[name].found(_GROUP, among(touched, _GROUP)), added)
            for name, added in made.items()
        },
        "delivered": _delivered(held["delivered"], carried, delivered),
    }


def _whole(messages: pa.Table) -> pa.Table:
    return messages.filter(are_whole(messages))


def _delivered(held: HeldRows, carriers: pa.Table, delivered: pa.Table) -> TableChange:
    """Return the change of ``delivered``: rows whose first SDS message is among ``carriers`` are removed."""
    by = ("channel_id", "sds_ids.list.element")
    chosen = among(carriers, KEY)

    def is_removed(rows: pa.Table) -> NDArray[np.bool_]:
        firsts = pc.list_element(rows.column("sds_ids"), 0)
        return chosen(pa.table([rows.column("channel_id"), firsts], schema=MESSAGE_KEYS))

    empty = exact_schema_of("delivered").empty_table()
    return TableChange(
        added=pa.concat_tables([empty, *(part.cast(empty.schema) for part in in_order(delivered))]),
        removed=held.found(by, is_removed, ("sds_ids",)) if carriers.num_rows else empty,
        by=by,
        is_removed=is_removed if carriers.num_rows else None,
    )
