"""`ordered_logs`: the logs of channels of any size, in bounded memory.

Channels that do not fit in memory are cut into parts by ranges of (Lamport timestamp, message id), in a temporary file.
`channel_logs` orders one part after another. If every message cites only messages with lower timestamps, its
dependencies are in its own part and earlier ones. So a part needs only the missing messages that it cites, and the
state of the messages of earlier parts that it cites.

With broken clocks a message may cite one of a later part. Then it is held, with all messages that depend on it, until
that part. Messages have the order of `channel_logs` if those held until one part fit in memory with it. If they do not
fit, they follow that part as parts of their own; the order is still causal, and the status of each message the same.

Memory holds one part, the messages held until it, 8 bytes for each message held until later, and 17 bytes for each
message that another part cites.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.pipeline.bucket_keys import BucketKeys, Hashes, found_in
from fairway.pipeline.codes import NOTHING
from fairway.pipeline.exchange import filtered, parted, taken
from fairway.pipeline.ranges import FIRST_CLOCK, bounds_of, places_of, range_of
from fairway.pipeline.stages.causal_order import Edges, Numbers, latest_ahead
from fairway.pipeline.stages.channel_log import INHERITED, DependencyStatus, channel_logs

MAX_CHANNEL_BYTES: Final = 536_870_912
"""Ids and citations that a worker orders at once: 512 MiB, some 1,200,000 messages that cite two others."""

_PARTS: Final = 8
"""Parts of the channels that just fit in memory."""
_SAMPLED: Final = 64
"""Messages in the sample of a part."""
_MOST_TURNS: Final = 16
"""Times that a message is looked at, on average, until its channel is given up."""
_PLACED: Final = -1
"""The turn of messages that are placed, or that the archive does not have."""
_HIGH: Final = np.uint64(0xFFFF_FFFF_0000_0000)


def ordered_logs(
    messages: pa.Table,
    absent: pa.Table,
    *,
    before: Mapping[str, int] = MappingProxyType({}),
    max_bytes: int = MAX_CHANNEL_BYTES,
) -> Iterator[pa.Table]:
    """Yield the rows of ``sds_ordered``, sorted by (channel_id, position), for the content messages of some channels.

    The arguments are those of `channel_logs`; tables of more than ``max_bytes`` are processed in parts.
    """
    if messages.nbytes <= max_bytes:
        yield channel_logs(messages, absent, before=before)
        return
    clocks = messages["lamport"].fill_null(0)
    keys = pa.table([messages["channel_id"], clocks, messages["message_id"]], ["channel_id", "lamport", "message_id"])
    number = -(-messages.nbytes * _PARTS // max_bytes)
    sampled = np.arange(0, messages.num_rows, -(-messages.num_rows // (number * _SAMPLED)))
    sample = {"places": places_of(taken(keys, sampled)), "stands_for": -(-messages.nbytes // len(sampled))}
    bounds = bounds_of([sample], number)
    parts = parted(messages, range_of(bounds, *keys.columns), len(bounds) + 1)
    split: set[str] = set()
    for number, part in enumerate(parts):
        continued = next((name for name, clock, _ in bounds[number : number + 1] if clock != FIRST_CLOCK), None)
        names = part["channel_id"].unique()
        names = names.filter(pc.invert(pc.is_in(names, value_set=pa.array([*split, continued], pa.string()))))
        if len(names):
            yield channel_logs(_of(part, names), _of(absent, names), before=before)
        if continued is None or continued in split:
            continue
        split.add(continued)
        name = pa.array([continued])
        last = number + sum(other == continued for other, *_ in bounds[number:])
        own = [each for each in (_of(each, name) for each in parts[number : last + 1]) if each.num_rows]
        if own:
            yield from carried_logs(own, _of(absent, name), max_bytes, before.get(continued, 0))


def _of(rows: pa.Table, channels: pa.Array) -> pa.Table:
    """Return the rows of some channels."""
    return filtered(rows, pc.is_in(rows["channel_id"], value_set=channels))


def carried_logs(parts: Sequence[pa.Table], absent: pa.Table, max_bytes: int, before: int = 0) -> Iterator[pa.Table]:
    """Yield the rows of ``sds_ordered`` of one channel, sorted by position; ``before`` messages are in other tables.

    ``parts`` (`LOGGED`) are ascending ranges of the channel's messages, ``absent`` (`ABSENT`) has the messages that
    they cite and the archive does not have.
    """
    return _Carried(parts, absent, max_bytes, before).logs()


class _Carried:
    """A channel whose parts take turns."""

    def __init__(self, parts: Sequence[pa.Table], absent: pa.Table, max_bytes: int, before: int) -> None:
        self._parts = parts
        self._bounds = np.cumsum([0, *(part.num_rows for part in parts)])
        self._most_rows = max_bytes * int(self._bounds[-1]) // max(1, sum(part.nbytes for part in parts))
        self._keys = BucketKeys.drawn(), BucketKeys.drawn()
        order = [("first_cited_ns", "ascending"), ("message_id", "ascending")]
        self._missing = absent.filter(pc.is_null(absent["told_by"])).sort_by(order).combine_chunks()
        self._absent, self._absent_hashes = absent, self._hashes(absent["message_id"])
        self._turns = len(parts)
        """The number of turns so far; the first ones are those of the parts."""
        self._further: dict[int, Numbers] = {}
        """The messages of the further turns."""
        self._order = list(range(len(parts)))
        """The turns to come."""
        self._held: defaultdict[int, list[Numbers]] = defaultdict(list)
        """The messages held until a turn."""
        self._done = before
        cited = [self._cited_elsewhere(part) for part in parts]
        self._known = np.unique(np.concatenate(cited))
        """The hashes of messages that are cited in another turn, ascending; the following have a value for each."""
        self._at = np.full(len(self._known), _PLACED, np.int32)
        """Its turn."""
        self._waits_for = np.full(len(self._known), NOTHING, np.int32)
        """The row in `_missing` of the message that it waits for."""
        self._is_held_up = np.zeros(len(self._known), np.bool_)
        """Whether it is placed, and not complete."""
        for turn, part in enumerate(parts):
            self._move(self._hashes(part["message_id"]), turn)

    def logs(self) -> Iterator[pa.Table]:
        left = _MOST_TURNS * int(self._bounds[-1])
        while self._order and left > 0:
            turn = self._order.pop(0)
            rows = self._of_turn(turn)
            held = np.sort(np.concatenate([rows[:0], *self._held.pop(turn, [])]))
            if len(held) + len(rows) <= self._most_rows:
                rows = np.sort(np.concatenate([held, rows]))
            else:
                self._give_turns(held)
            left -= len(rows)
            yield from self._placed(turn, self._rows(rows), rows)
        rows = np.sort(np.concatenate([np.empty(0, np.int64), *(own for held in self._held.values() for own in held)]))
        for own in [*self._in_turns(rows), *map(self._of_turn, self._order)]:
            yield self._log(self._rows(own), is_computed=False)

    def _in_turns(self, rows: Numbers) -> list[Numbers]:
        return [own for own in np.array_split(rows, -(-len(rows) * _PARTS // max(1, self._most_rows)) or 1) if len(own)]

    def _give_turns(self, held: Numbers) -> None:
        """Give messages that do not fit in memory the next turns."""
        further = dict(enumerate(self._in_turns(held), self._turns))
        self._turns += len(further)
        self._further |= further
        self._order[:0] = further
        for turn, rows in further.items():
            self._move(self._hashes(self._rows(rows)["message_id"]), turn)

    def _of_turn(self, turn: int) -> Numbers:
        """Return the messages of a turn, which comes only once."""
        further = self._further.pop(turn, None)
        return np.arange(self._bounds[turn], self._bounds[turn + 1]) if further is None else further

    def _rows(self, rows: Numbers) -> pa.Table:
        """Return some messages, by their ascending numbers in all parts."""
        own = pairwise(np.searchsorted(rows, self._bounds).tolist())
        return pa.concat_tables(
            part if end - begin == part.num_rows else taken(part, rows[begin:end] - start)
            for part, start, (begin, end) in zip(self._parts, self._bounds[:-1], own, strict=True)
            if end > begin
        )

    def _placed(self, turn: int, part: pa.Table, rows: Numbers) -> Iterator[pa.Table]:
        """Yield the log of the messages of a turn that can be placed, and hold the others."""
        until = self._held_until(part)
        is_held = until != NOTHING
        if is_held.any():
            self._learn(part, is_held, turn)
            ids = self._hashes(part["message_id"])
            for later in np.unique(until[is_held]).tolist():
                self._held[later].append(rows[until == later])
                self._move(ids[until == later], later)
            part = part.filter(pa.array(~is_held))
        if part.num_rows:
            yield self._log(part)

    def _held_until(self, part: pa.Table) -> Numbers:
        """Return for each message the turn until which it is held, `NOTHING` for none."""
        parents = part["parents"].combine_chunks()
        places = pc.index_in(pc.list_flatten(parents), value_set=part["message_id"].combine_chunks())
        is_elsewhere = places.is_null().to_numpy(zero_copy_only=False)
        child = pc.list_parent_indices(parents).to_numpy().astype(np.int64)
        cited = pc.list_flatten(parents).filter(pa.array(is_elsewhere))
        is_known, known = found_in(self._known, self._hashes(cited))
        turns = np.where(is_known, self._at[known] if len(self._known) else _PLACED, _PLACED)
        until = np.full(part.num_rows, NOTHING, np.int64)
        is_open = turns != _PLACED
        if not is_open.any():
            return until
        ranks = np.empty(self._turns, np.int64)
        ranks[self._order] = np.arange(len(self._order))
        np.maximum.at(until, child[is_elsewhere][is_open], ranks[turns[is_open]])
        here = Edges(child=child[~is_elsewhere], parent=places.drop_null().to_numpy().astype(np.int64))
        until = latest_ahead(part.num_rows, here, until)
        return np.where(until == NOTHING, NOTHING, np.array(self._order)[until])

    def _learn(self, part: pa.Table, is_held: NDArray[np.bool_], turn: int) -> None:
        """Add messages of a turn that are cited in another turn because some of the turn are held."""
        ids = self._hashes(part["message_id"])
        cited = self._cited_elsewhere(part.filter(pa.array(is_held)))
        hashes = np.unique(np.concatenate([ids[is_held], ids[np.isin(ids, cited)]]))
        hashes = hashes[~found_in(self._known, hashes)[0]]
        known = np.concatenate([self._known, hashes])
        order = np.argsort(known)
        self._known = known[order]
        self._at = np.append(self._at, np.full(len(hashes), turn, np.int32))[order]
        self._waits_for = np.append(self._waits_for, np.full(len(hashes), NOTHING, np.int32))[order]
        self._is_held_up = np.append(self._is_held_up, np.zeros(len(hashes), np.bool_))[order]

    def _move(self, hashes: Hashes, turn: int) -> None:
        is_known, known = found_in(self._known, hashes)
        self._at[known[is_known]] = turn

    def _log(self, part: pa.Table, *, is_computed: bool = True) -> pa.Table:
        """Return the log of messages whose ancestors are among them or placed."""
        absent, cited = self._absent_and_cited(part)
        is_known, known = found_in(self._known, self._hashes(cited))
        known = known[is_known]
        is_held_up = self._is_held_up[known]
        waits_for = self._waits_for[known[is_held_up]]
        missing = pa.array(waits_for, mask=waits_for == NOTHING)
        name = part["channel_id"][0].as_py()
        inherited = pa.table(
            [
                pa.array([name] * len(waits_for), pa.string()),
                cited.filter(pa.array(is_known)).filter(pa.array(is_held_up)),
                self._missing["message_id"].take(missing),
                self._missing["first_cited_ns"].take(missing),
            ],
            schema=INHERITED,
        )
        log = channel_logs(part, absent, before={name: self._done}, inherited=inherited, is_computed=is_computed)
        self._done += log.num_rows
        is_known, known = found_in(self._known, self._hashes(log["message_id"]))
        known = known[is_known]
        own = log.select(["status", "waits_for"]).filter(pa.array(is_known))
        places = pc.index_in(own["waits_for"], value_set=self._missing["message_id"].combine_chunks(), skip_nulls=True)
        self._at[known] = _PLACED
        self._waits_for[known] = pc.fill_null(places, NOTHING).to_numpy()
        self._is_held_up[known] = pc.not_equal(own["status"], DependencyStatus.COMPLETE.value).to_numpy()
        return log

    def _absent_and_cited(self, part: pa.Table) -> tuple[pa.Table, pa.ChunkedArray]:
        """Return the absent messages that a part cites, and the ids that it cites elsewhere, some through these."""
        cited = pc.list_flatten(part["parents"])
        cited = cited.filter(pc.invert(pc.is_in(cited, value_set=part["message_id"].combine_chunks()))).unique()
        absent = taken(self._absent, np.flatnonzero(np.isin(self._absent_hashes, self._hashes(cited))))
        tellers = absent["told_by"].drop_null()
        return absent, pa.chunked_array([cited, *tellers.chunks], pa.string()).unique()

    def _cited_elsewhere(self, part: pa.Table) -> Hashes:
        return self._hashes(self._absent_and_cited(part)[1])

    def _hashes(self, ids: pa.Array | pa.ChunkedArray) -> Hashes:
        """Return a hash of 64 bits of each id; the keys are random, so that a sender cannot make two ids equal."""
        if not len(ids):
            return np.empty(0, np.uint64)
        one, other = (keys.hashes([ids]) for keys in self._keys)
        hashes: Hashes = (one & _HIGH) | (other >> np.uint64(32))
        return hashes
