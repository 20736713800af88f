"""The reassembler's state as rows of plain values, for a store that keeps keys and tuples.

There is one row for each set, with the SDS ids of its segments, and one for each segment whose payload is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from fairway.errors import SnapshotError
from fairway.protocol.segmentation.segment_set import SegmentIndex, SegmentSet, SetKey, SetState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

RowValue: TypeAlias = "int | str | bytes | bool | tuple[RowValue, ...] | None"
Row: TypeAlias = tuple[RowValue, ...]

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
    """Return the row at a key, or None if there is none; ``find`` looks a set up by its name."""
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
    """Return the sets in rows, the least recently changed first; raises `SnapshotError` for rows of another kind."""
    sets: dict[str, SegmentSet] = {}
    segment_rows: list[Row] = []
    for key, row in rows:
        if key.startswith(f"{_SET}/"):
            kept = _set_of(row)
            sets[kept.name] = kept
        else:
            segment_rows.append(row)
    for row in segment_rows:
        match row:
            case (str(name), bool(is_parity), int(number), str(sds_id), bytes(payload)) if name in sets:
                index = SegmentIndex(is_parity, number)
                sets[name].ids[index], sets[name].payloads[index] = sds_id, payload
            case _:
                raise SnapshotError("a stored segment cannot be read, or its set is missing")
    return sorted(sets.values(), key=lambda kept: kept.turn)


def _set_row(kept: SegmentSet) -> Row:
    # The ids of an open set are in the rows of its segments, so that this row stays small while the set grows.
    ids = () if kept.is_open else tuple((*index, sds_id) for index, sds_id in sorted(kept.ids.items()))
    counts = (kept.data_count, kept.parity_count, kept.first_base, kept.last_base)
    return (*kept.key, *counts, kept.grown_ms, kept.turn, kept.state.value, ids)


def _set_of(row: Row) -> SegmentSet:
    match row:
        case (
            str(sender_id),
            bytes(payload_hash),
            int() | None as payload_length,
            int(generation),
            int(data_count),
            int(parity_count),
            int(first_base),
            int(last_base),
            int(grown_ms),
            int(turn),
            str(state),
            tuple(ids),
        ):
            return SegmentSet(
                key=SetKey(sender_id, payload_hash, payload_length, generation),
                data_count=data_count,
                parity_count=parity_count,
                first_base=first_base,
                last_base=last_base,
                grown_ms=grown_ms,
                turn=turn,
                state=SetState(state),
                ids=dict(map(_id_of, ids)),
            )
        case _:
            raise SnapshotError("a stored segment set cannot be read")


def _id_of(entry: RowValue) -> tuple[SegmentIndex, str]:
    match entry:
        case (bool(is_parity), int(number), str(sds_id)):
            return SegmentIndex(is_parity, number), sds_id
        case _:
            raise SnapshotError("the ids of a stored segment set cannot be read")
