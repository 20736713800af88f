"""`carried_logs`: the log of a channel of any size, part by part, with a carry of waiting messages.

Each part is a range of (Lamport timestamp, message id). If every message cites only messages with lower timestamps, its
dependencies are in its own part and earlier ones. So the status of a part needs only two inputs: the missing messages
and the waiting messages of earlier parts that the part cites. The carry has the waiting messages that a later part
cites. Memory holds one part, the carry, and 12 bytes for each citation of another part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.pipeline.bucket_keys import BucketKeys, Hashes, found_in
from fairway.pipeline.exchange import taken
from fairway.pipeline.stages.channel_log import INHERITED, ChannelPart, channel_logs


def carried_logs(parts: Sequence[pa.Table], absent: pa.Table, *, is_disordered: bool = False) -> Iterator[pa.Table]:
    """Yield the rows of ``sds_ordered`` for each part of one channel, sorted by position.

    ``parts`` (`LOGGED`) are ascending ranges of the channel's messages, ``absent`` (`ABSENT`) has the messages that
    they cite and the archive does not have. The rows equal those of `channel_logs` for all parts together. If a message
    cites another whose timestamp is not below its own (``is_disordered``), their status is
    `DependencyStatus.NOT_COMPUTED`.
    """
    keys = BucketKeys.drawn()
    absent_hashes = _hashes(keys, absent["message_id"])
    cited, last = _cited_from_later(keys, parts, absent, absent_hashes)
    carry, carried_to = INHERITED.empty_table(), np.empty(0, np.int64)
    done = 0
    for number, part in enumerate(parts):
        own = taken(absent, _among(absent_hashes, _hashes(keys, _foreign(part))))
        own_part = ChannelPart(before=done, is_disordered=is_disordered)
        log = channel_logs(part, own, parts={part["channel_id"][0].as_py(): own_part}, inherited=carry)
        yield log
        done += log.num_rows
        waiting, until = _cited_later(keys, log.filter(pc.is_valid(log["waits_for"])), cited, last)
        is_later, still = until > number, carried_to > number
        first_cited = _first_cited(pa.concat_tables([own.select(["message_id", "first_cited_ns"]), _marks(carry)]))
        added = _inherited(waiting.filter(pa.array(is_later)), first_cited)
        carry = pa.concat_tables([carry.filter(pa.array(still)), added]).combine_chunks()
        carried_to = np.concatenate([carried_to[still], until[is_later]])


def _cited_from_later(
    keys: BucketKeys, parts: Sequence[pa.Table], absent: pa.Table, absent_hashes: Hashes
) -> tuple[Hashes, NDArray[np.int64]]:
    """Return the hashes of messages that a part cites from other parts, ascending, and the last part that cites each.

    A computed segment is replaced by its ``told_by``.
    """
    found, numbers = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for number, part in enumerate(parts):
        cited = _hashes(keys, _foreign(part))
        tellers = taken(absent.select(["told_by"]), _among(absent_hashes, cited))["told_by"].drop_null()
        for hashes in (cited, _hashes(keys, tellers)):
            found.append(np.unique(hashes))
            numbers.append(np.full(len(found[-1]), number))
    hashes, parts_of = np.concatenate(found), np.concatenate(numbers)
    order = np.lexsort((-parts_of, hashes))
    distinct, first = np.unique(hashes[order], return_index=True)
    return distinct, parts_of[order][first]


def _cited_later(
    keys: BucketKeys, waiting: pa.Table, cited: Hashes, last: NDArray[np.int64]
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return the messages that another part cites, and the number of the last one."""
    is_cited, places = found_in(cited, _hashes(keys, waiting["message_id"]))
    return waiting.filter(pa.array(is_cited)), last[places[is_cited]]


def _foreign(part: pa.Table) -> pa.ChunkedArray:
    """Return the cited ids that are not in the part."""
    cited = pc.list_flatten(part["parents"])
    return cited.filter(pc.invert(pc.is_in(cited, value_set=part["message_id"].combine_chunks())))


def _among(known: Hashes, wanted: Hashes) -> NDArray[np.int64]:
    """Return the indices of the wanted hashes."""
    places: NDArray[np.int64] = np.flatnonzero(np.isin(known, wanted))
    return places


def _hashes(keys: BucketKeys, ids: pa.ChunkedArray) -> Hashes:
    return keys.hashes([ids]) if len(ids) else np.empty(0, np.uint64)


def _marks(carry: pa.Table) -> pa.Table:
    return carry.select(["waits_for", "first_cited_ns"]).rename_columns(["message_id", "first_cited_ns"])


def _first_cited(marks: pa.Table) -> pa.Table:
    return marks.filter(pc.is_valid(marks["first_cited_ns"]))


def _inherited(waiting: pa.Table, first_cited: pa.Table) -> pa.Table:
    """Return waiting messages as later parts need them (`INHERITED`)."""
    places = pc.index_in(waiting["waits_for"], value_set=first_cited["message_id"].combine_chunks())
    columns = [waiting["channel_id"], waiting["message_id"], waiting["waits_for"]]
    return pa.table([*columns, first_cited["first_cited_ns"].take(places)], schema=INHERITED)
