"""Ranges of (channel, Lamport timestamp, message id) of about equal size, from a sample of the messages.

The sorted tables of a run are spread over files by such ranges. The keys of a row determine its file, and the rows are
sorted across the files. A poor sample only makes files of different sizes. The message id is part of the key because a
sender can give a million messages one timestamp.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Place = tuple[str, int, str]
"""A channel, a Lamport timestamp in it, and an id among the messages of that timestamp; long ids are cut off."""

FIRST_CLOCK: Final = -(2**63)
"""Before all messages of a channel."""
NO_CLOCK: Final = -1
"""The timestamp for ephemeral messages, which have no Lamport timestamp: before the others."""
RANGE_BYTES: Final = 67_108_864
_MAX_RANGES: Final = 2_048
_SAMPLED: Final = 64
"""Messages in the sample of a task. Each represents the same number of bytes, so that large messages are sampled more
often."""
_ROW_BYTES: Final = 160
"""Size of a message without its content."""
_ID_CHARACTERS: Final = 1_024
"""Longest message id in a place: senders choose the length of ids, and the driver holds all places."""
_NAME_CHARACTERS: Final = 256
"""Longest channel id in a place. A channel with a longer id is whole in one range."""
SAMPLE_INPUT: Final = ("channel_id", "lamport", "message_id", "kind", "content_bytes")
"""The columns of ``sds_messages`` for a sample."""


def sample_of(sds_messages: pa.Table) -> dict[str, Any]:
    """Return the sample of some messages for `bounds_of`; its size does not grow with their number."""
    messages = sds_messages.filter(pc.not_equal(sds_messages["kind"], "sync"))
    ends = np.cumsum(pc.fill_null(messages["content_bytes"], 0).to_numpy().astype(np.int64) + _ROW_BYTES)
    if not len(ends):
        return {"places": [], "stands_for": 0}
    stands_for = -(-int(ends[-1]) // _SAMPLED)
    rows = np.searchsorted(ends, np.arange(stands_for // 2, int(ends[-1]), stands_for), side="right")
    named = messages.select(["channel_id", "lamport", "message_id"]).take(pa.array(np.minimum(rows, len(ends) - 1)))
    return {"places": places_of(named), "stands_for": stands_for}


def places_of(messages: pa.Table) -> list[list[Any]]:
    """Return the channel, the Lamport timestamp and the id of each message, as values for JSON."""
    keys = (
        pc.utf8_slice_codeunits(messages["channel_id"], 0, _NAME_CHARACTERS),
        pc.fill_null(messages["lamport"], NO_CLOCK),
        pc.utf8_slice_codeunits(messages["message_id"], 0, _ID_CHARACTERS),
    )
    return [list(place) for place in zip(*(key.to_pylist() for key in keys), strict=True)]


def bounds_of(samples: Iterable[Mapping[str, Any]], least_ranges: int) -> list[Place]:
    """Return the ends of ranges: the first range is before the first bound, each other range begins with a bound.

    There are about ``least_ranges`` of them, or more if they would be larger than `RANGE_BYTES`. Only a channel that is
    larger than a range is cut inside, so that most channels are whole in one.
    """
    places = sorted((*place, sample["stands_for"]) for sample in samples for place in sample["places"])
    total = sum(size for *_, size in places)
    most = max(min(RANGE_BYTES, total // max(1, least_ranges) + 1), total // _MAX_RANGES)
    bounds: list[Place] = []
    held = 0
    for channel, own in groupby(places, itemgetter(0)):
        inside = list(own)
        size = sum(size for *_, size in inside)
        if held and held + size > most:
            bounds.append((channel, FIRST_CLOCK, ""))
            held = 0
        if size <= most:
            held += size
            continue
        for *place, each in inside:
            bound = (channel, *place[1:])
            if held + each > most and bounds[-1:] != [bound]:
                bounds.append(bound)
                held = 0
            held += each
    return bounds


def split_channels(bounds: Sequence[Place]) -> list[str]:
    """Return the channels that a bound splits."""
    return sorted({channel for channel, clock, _ in bounds if clock != FIRST_CLOCK})


def range_of(
    bounds: Sequence[Place], channel_id: pa.ChunkedArray, lamport: pa.ChunkedArray, message_id: pa.ChunkedArray
) -> NDArray[np.uint16]:
    """Return the number of the range of each row, from 0."""
    encoded = channel_id.combine_chunks().dictionary_encode()
    names = [name for name, *_ in bounds]
    channels: list[str] = encoded.dictionary.to_pylist()
    before = np.array([bisect_left(names, channel) for channel in channels], np.uint16)
    indices = encoded.indices.to_numpy()
    found: NDArray[np.uint16] = before[indices]
    clocks = pc.fill_null(lamport, NO_CLOCK).to_numpy()
    for channel in set(names).intersection(channels):
        code = channels.index(channel)
        rows = np.flatnonzero(indices == code)
        inside = [(clock, least) for name, clock, least in bounds if name == channel]
        ends = np.array([clock for clock, _ in inside])
        first, last = (np.searchsorted(ends, clocks[rows], side=side) for side in ("left", "right"))
        # Ids decide only if a bound has the same timestamp as a row.
        equal = np.flatnonzero(first != last)
        ids = message_id.take(pa.array(rows[equal])).to_pylist()
        last[equal] = [
            bisect_right(inside, (clock, own)) for clock, own in zip(clocks[rows[equal]].tolist(), ids, strict=True)
        ]
        found[rows] += last.astype(np.uint16)
    return found
