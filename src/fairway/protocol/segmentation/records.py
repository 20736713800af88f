"""The reassembler's state as rows of plain values, for a store that keeps keys and tuples.

One row for each set, and one for each segment whose payload is held. A set's row tells the SDS ids of its
slots once it has ended; before that, the rows of its segments do.

Invariant: `restored` makes of rows the sets that they were made of, whatever order the rows come in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from fairway.errors import SnapshotError
from fairway.protocol.segmentation.outcomes import SetKey
from fairway.protocol.segmentation.segment_set import SegmentSet, SetState, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

RowValue: TypeAlias = "int | str | bytes | bool | tuple[RowValue, ...] | None"
Row: TypeAlias = tuple[RowValue, ...]

_SET: Final = "set"
_CLASSES: Final = {"data": False, "parity": True}


def set_row_key(kept: SegmentSet) -> str:
    """Return the key of a set's own row."""
    return f"{_SET}/{kept.name}"


def segment_row_key(kept: SegmentSet, slot: Slot) -> str:
    """Return the key of the row of one segment."""
    return f"{'parity' if slot.is_parity else 'data'}/{slot.number}/{kept.name}"


def rows_of(kept: SegmentSet) -> Iterator[tuple[str, Row]]:
    """Yield all rows of a set."""
    yield set_row_key(kept), _set_row(kept)
    for slot in kept.ids if kept.is_open else ():
        yield segment_row_key(kept, slot), _segment_row(kept, slot)


def row_at(key: str, find: Callable[[str], SegmentSet | None]) -> Row | None:
    """Return the row at a key, or None if there is none; ``find`` looks a set up by its name."""
    kind, _, rest = key.partition("/")
    if kind == _SET:
        kept = find(rest)
        return None if kept is None else _set_row(kept)
    index, _, name = rest.partition("/")
    kept = find(name)
    slot = Slot(_CLASSES[kind], int(index))
    return None if kept is None or not kept.is_open or slot not in kept.ids else _segment_row(kept, slot)


def restored(rows: Iterable[tuple[str, Row]]) -> list[SegmentSet]:
    """Return the sets in rows, the least recently changed first. Raises `SnapshotError` for rows of another kind."""
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
            case (str(name), bool(is_parity), int(index), str(sds_id), bytes(payload)) if name in sets:
                sets[name].ids[Slot(is_parity, index)] = sds_id
                (sets[name].parity if is_parity else sets[name].data)[index] = payload
            case _:
                raise SnapshotError("a stored segment cannot be read, or its set is missing")
    return sorted(sets.values(), key=lambda kept: kept.turn)


def _set_row(kept: SegmentSet) -> Row:
    ids = () if kept.is_open else tuple(_id_row(kept, slot) for slot in sorted(kept.ids))
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
                ids={slot: sds_id for slot, sds_id, _ in filled},
                late={slot for slot, _, is_late in filled if is_late},
            )
        case _:
            raise SnapshotError("a stored segment set cannot be read")


def _id_row(kept: SegmentSet, slot: Slot) -> Row:
    row = (slot.is_parity, slot.number, kept.ids[slot])
    return (*row, True) if slot in kept.late else row


def _filled(entry: RowValue) -> tuple[Slot, str, bool]:
    match entry:
        case (bool(is_parity), int(index), str(sds_id)):
            return Slot(is_parity, index), sds_id, False
        case (bool(is_parity), int(index), str(sds_id), True):
            return Slot(is_parity, index), sds_id, True
        case _:
            raise SnapshotError("the ids of a stored segment set cannot be read")


def _segment_row(kept: SegmentSet, slot: Slot) -> Row:
    payload = (kept.parity if slot.is_parity else kept.data)[slot.number]
    return (kept.name, slot.is_parity, slot.number, kept.ids[slot], payload)
