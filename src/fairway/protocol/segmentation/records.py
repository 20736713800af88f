"""The reassembler's state as rows of plain values, for a store that keeps keys and tuples.

There is one row for each set, and one for each segment whose payload is held. The SDS message ids of an open set stand
in the rows of its segments, those of a set that has ended in its own row.

Invariant: `restored` makes the same sets of the rows, whatever order they come in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from fairway.errors import SnapshotError
from fairway.protocol.segmentation.outcomes import SetKey
from fairway.protocol.segmentation.segment_set import SegmentIndex, SegmentSet, SetState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

RowValue: TypeAlias = "int | str | bytes | bool | tuple[RowValue, ...] | None"
Row: TypeAlias = tuple[RowValue, ...]

FORGOTTEN: Final = "forgotten"
"""Key of the row that tells up to which order key acknowledged segments may be forgotten."""
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
    for index in kept.ids if kept.is_open else ():
        yield segment_row_key(kept, index), _segment_row(kept, index)


def row_at(key: str, find: Callable[[str], SegmentSet | None]) -> Row | None:
    """Return the row at a key, or None if there is none; ``find`` looks a set up by its name."""
    kind, _, rest = key.partition("/")
    if kind == _SET:
        kept = find(rest)
        return None if kept is None else _set_row(kept)
    number, _, name = rest.partition("/")
    kept = find(name)
    index = SegmentIndex(_CLASSES[kind], int(number))
    return None if kept is None or not kept.is_open or index not in kept.ids else _segment_row(kept, index)


def restored(rows: Iterable[tuple[str, Row]]) -> tuple[int | None, list[SegmentSet]]:
    """Return the order key in the row `FORGOTTEN`, and the sets in rows, the least recently changed first.

    Raises `SnapshotError` for rows of another kind.
    """
    forgotten_until: int | None = None
    sets: dict[str, SegmentSet] = {}
    segment_rows: list[Row] = []
    for key, row in rows:
        if key.startswith(f"{_SET}/"):
            kept = _set_of(row)
            sets[kept.name] = kept
        elif key == FORGOTTEN:
            forgotten_until = _order_key_of(row)
        else:
            segment_rows.append(row)
    for row in segment_rows:
        match row:
            case (str(name), bool(is_parity), int(number), str(sds_id), bytes(payload)) if name in sets:
                sets[name].ids[SegmentIndex(is_parity, number)] = sds_id
                (sets[name].parity if is_parity else sets[name].data)[number] = payload
            case _:
                raise SnapshotError("a stored segment cannot be read, or its set is missing")
    return forgotten_until, sorted(sets.values(), key=lambda kept: kept.turn)


def _order_key_of(row: Row) -> int:
    match row:
        case (int(order_key),):
            return order_key
        case _:
            raise SnapshotError("a stored order key cannot be read")


def _set_row(kept: SegmentSet) -> Row:
    ids = () if kept.is_open else tuple(_id_row(kept, index, sds_id) for index, sds_id in kept.came())
    return (
        kept.key.sender_id,
        kept.key.payload_hash,
        kept.key.payload_length,
        kept.key.generation,
        kept.data_count,
        kept.parity_count,
        kept.first_base,
        kept.last_base,
        kept.grown_ms,
        kept.turn,
        kept.state.value,
        ids,
    )


def _set_of(row: Row) -> SegmentSet:
    match row:
        case (*told, bool(completed), bool(_), tuple(ids)):
            # As versions before 0.2 wrote it.
            return _set_of((*told, (SetState.COMPLETED if completed else SetState.OPEN).value, ids))
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
            filled = [_filled(entry) for entry in ids]
            return SegmentSet(
                key=SetKey(
                    sender_id=sender_id,
                    payload_hash=payload_hash,
                    payload_length=payload_length,
                    generation=generation,
                ),
                data_count=data_count,
                parity_count=parity_count,
                first_base=first_base,
                last_base=last_base,
                grown_ms=grown_ms,
                turn=turn,
                state=SetState(state),
                ids={index: sds_id for index, sds_id, is_late in filled if not is_late},
                late={sds_id: index for index, sds_id, is_late in filled if is_late},
            )
        case _:
            raise SnapshotError("a stored segment set cannot be read")


def _id_row(kept: SegmentSet, index: SegmentIndex, sds_id: str) -> Row:
    row = (index.is_parity, index.number, sds_id)
    return (*row, True) if kept.late.get(sds_id) == index else row


def _filled(entry: RowValue) -> tuple[SegmentIndex, str, bool]:
    match entry:
        case (bool(is_parity), int(number), str(sds_id)):
            return SegmentIndex(is_parity, number), sds_id, False
        case (bool(is_parity), int(number), str(sds_id), True):
            return SegmentIndex(is_parity, number), sds_id, True
        case _:
            raise SnapshotError("the ids of a stored segment set cannot be read")


def _segment_row(kept: SegmentSet, index: SegmentIndex) -> Row:
    payload = (kept.parity if index.is_parity else kept.data)[index.number]
    return (kept.name, index.is_parity, index.number, kept.ids[index], payload)
