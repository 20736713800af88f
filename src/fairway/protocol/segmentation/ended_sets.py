"""The sets that have ended, kept so that their late segments are recognised (SEGMENTATION: "Completion flags").

They are bounded by their number and by the number of their SDS message ids. A late segment of a completed set that was
forgotten opens a set, which expires; or, where there is as much parity as data, may be completed once more. So sets of
which all segments came are forgotten first: nothing of them can come late. Segments of a set that was given up were
acknowledged; when such a set is forgotten, its last order key stays known (`Reassembler`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairway.protocol.segmentation.segment_set import SegmentSet

IDS_PER_SET: Final = 16
"""SDS message ids kept for each ended set, on average; a message of 1 MiB has 12 segments by default."""


class EndedSets:
    """The completed and the given up sets, the least recently touched first."""

    def __init__(self, max_sets: int) -> None:
        self._max_sets = max_sets
        self._sets: dict[str, SegmentSet] = {}
        self._whole: dict[str, SegmentSet] = {}
        """Those of which all segments came, the least recently touched first."""
        self._id_count = 0

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[SegmentSet]:
        return iter(self._sets.values())

    def get(self, name: str) -> SegmentSet | None:
        """Return the set of this name, if it is here."""
        return self._sets.get(name)

    def touch(self, ended: SegmentSet, new_ids: int) -> None:
        """Remember a set as the most recently touched, with so many SDS ids more than before."""
        self._sets.pop(ended.name, None)
        self._sets[ended.name] = ended
        self._whole.pop(ended.name, None)
        if ended.is_whole:
            self._whole[ended.name] = ended
        self._id_count += new_ids

    def forget(self, ended: SegmentSet) -> None:
        """Take a set out."""
        del self._sets[ended.name]
        self._whole.pop(ended.name, None)
        self._id_count -= ended.id_count

    def excess(self) -> SegmentSet | None:
        """Return a set that must be forgotten because the memory is full."""
        if len(self._sets) > self._max_sets or self._id_count > self._max_sets * IDS_PER_SET:
            return next(iter((self._whole or self._sets).values()))
        return None
