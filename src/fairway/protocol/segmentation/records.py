"""The reassembler's state as rows: keys and tuples of plain values.

A set has one row, and each segment whose payload is held has one. Once the set has ended, its row has the SDS ids of
its segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairway.errors import SnapshotError
from fairway.protocol.segmentation.segment_set import SegmentIndex, SegmentSet, SetKey, SetState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fairway.protocol.journal import Row

_SET: Final = "set"
_CLASSES: Final = {"data": False, "parity": True}


def set_row_key(kept: SegmentSet) -> str:
    """Return the key of a set's own row."""
    return f"{_SET}/{kept.name}"


def segment_row_key(kept: SegmentSet, index: SegmentIndex) -> str:
    """Return the key of the row of one segment."""
    return f"{'parity' if index.is_parity else 'data'}/{index.number}/{kept.name}"


def rows_of(kept: SegmentSet) -> Iterator[tuple[str, Row]]:
    """Yield all rows of a set."""
    yield set_row_key(kept), _set_row(kept)
    for index, payload in kept.payloads.items():
        yield segment_row_key(kept, index), (kept.name, *index, kept.ids[index], payload)


def row_at(key: str, find: Callable[[str], SegmentSet | None]) -> Row | None:
    """Return the row of a key, or None; ``find`` returns the set of a name."""
    kind, _, rest = key.partition("/")
    if kind == _SET:
        kept = find(rest)
        return None if kept is None else _set_row(kept)
    number, _, name = rest.partition("/")
    index = SegmentIndex(_CLASSES[kind], int(number))
    kept = find(name)
    if kept is None or index not in kept.payloads:
        return None
    return (kept.name, *index, kept.ids[index], kept.payloads[index])


def restored(rows: Iterable[tuple[str, Row]]) -> list[SegmentSet]:
    """Return the sets in rows, the least recently changed first; raise `SnapshotError` for unreadable rows."""
    sets: dict[str, SegmentSet] = {}
    segment_rows: list[Row] = []
    try:
        for key, row in rows:
            if key.startswith(f"{_SET}/"):
                kept = _set_of(row)
                sets[kept.name] = kept
            else:
                segment_rows.append(row)
        for name, is_parity, number, sds_id, payload in segment_rows:
            index = SegmentIndex(is_parity, number)
            sets[name].ids[index], sets[name].payloads[index] = sds_id, payload
    except (ValueError, TypeError, LookupError) as error:
        raise SnapshotError(f"a stored segment, or its set, cannot be read: {error}") from error
    return sorted(sets.values(), key=lambda kept: kept.turn)


def _set_row(kept: SegmentSet) -> Row:
    # The rows of the segments have the ids of an open set, so this row stays small while the set grows.
    ids = () if kept.is_open else tuple((*index, sds_id) for index, sds_id in sorted(kept.ids.items()))
    counts = (kept.data_count, kept.parity_count, kept.first_base, kept.last_base)
    return (*kept.key, *counts, kept.grown_ms, kept.turn, kept.state.value, ids)


def _set_of(row: Row) -> SegmentSet:
    *key, data_count, parity_count, first_base, last_base, grown_ms, turn, state, ids = row
    return SegmentSet(
        key=SetKey(*key),
        data_count=data_count,
        parity_count=parity_count,
        first_base=first_base,
        last_base=last_base,
        grown_ms=grown_ms,
        turn=turn,
        state=SetState(state),
        ids={SegmentIndex(is_parity, number): sds_id for is_parity, number, sds_id in ids},
    )
