"""Make the payload of a set (SEGMENTATION, "Receiving"; LIP-243, "Reconstruction").

Invariant: the Keccak-256 of a payload that is returned is the one that every segment of the set names.

Segments of SEGMENTATION do not name the length of the payload, and parity is computed over data padded with zeros. When
Reed-Solomon gives the last data segment, its zeros at the end may be padding or payload: each number of zeros is tried
until the Keccak-256 is right.

Senders are not authenticated, so some of the segments may be forged. If there are several contents for one index, each
is tried; if Reed-Solomon has more segments than it needs, it is tried without each of them, and without as many at once
as it can do without. If that makes too many choices, those are tried as well in which each segment was stamped later
than the one before it, as a sender does: what was forged in answer to a segment mostly does not fit in between its
neighbours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import chain, combinations, islice, product
from math import comb, inf, prod
from typing import TYPE_CHECKING, Final, NamedTuple

from fairway.protocol.segmentation import leopard
from fairway.protocol.segmentation.digest import trailing_zeros_for
from fairway.wire.hashing import keccak256

if TYPE_CHECKING:
    from fairway.protocol.segmentation.outcomes import SetKey
    from fairway.protocol.segmentation.segment_set import SegmentIndex, SegmentSet, SetAside

MAX_TRAILING_ZEROS: Final = 131_072
"""How many zeros at the end of a recovered last segment are tried as part of the payload (about 300 ms of work)."""

_FEWER_TRAILING_ZEROS: Final = 1_024
"""The same where a segment seems to be forged, because a forger can have that tried as often as he likes."""

MAX_TRIES: Final = 32
"""Choices among contradicting segments that are tried when one more segment comes; and as many of those in order."""

_MAX_REBUILT: Final = 256
"""Segments that are rebuilt for all of these choices together: a forger can have that done with each segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A verified payload."""

    payload: bytes
    recovered: bool
    """Whether Reed-Solomon filled in lost data segments."""
    used: Mapping[SegmentIndex, bytes]
    """The genuine segments among those that were tried, by index; another content for one of these is forged."""


class Unassembled(Enum):
    """Why there is no payload."""

    INCOMPLETE = "more segments are needed"
    MISMATCH = "the hash of what the segments give is not the one that they name"


class _Content(NamedTuple):
    """What may be at an index."""

    payload: bytes
    order_key: int | None
    """None if it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """One content for each index."""

    key: SetKey
    data_count: int
    parity_count: int
    contents: Mapping[SegmentIndex, bytes]
    data: Mapping[int, bytes]
    parity: Mapping[int, bytes]
    max_trailing_zeros: int


def assemble(
    segments: SegmentSet,
    latest: SetAside,
    counts: tuple[int, int],
    order_of: Callable[[str], int | None] = lambda _: None,
) -> Assembled | Unassembled:
    """Return the payload of a set, or why there is none.

    It is tried with ``latest``, a segment that has just come, and with the segments that are set aside. ``counts`` are
    the numbers of data and parity segments, 0 if unknown. ``order_of`` returns the order key of a segment of the set by
    its SDS id, None if it is unknown.
    """
    # SEGMENTATION, "Receiving": MUST attempt reconstruction when the number of available (data + parity) segments
    # equals or exceeds the data segment count. With parity segments only, that count is unknown.
    outcome = Unassembled.INCOMPLETE
    contents = _contents(segments, latest, order_of)
    data_count, _ = counts
    if not data_count or len(contents) < data_count:
        return outcome
    rebuilt = 0
    tried = islice(_choices(segments.key, latest, counts, contents), MAX_TRIES)
    for choice in chain(tried, _further(segments.key, counts, contents)):
        lacking = data_count - len(choice.data)
        if rebuilt and rebuilt + lacking > _MAX_REBUILT:
            continue
        rebuilt += lacking
        found = _assemble(choice)
        if isinstance(found, Assembled):
            return found
        if found is Unassembled.MISMATCH:
            outcome = found
    return outcome


def _contents(
    segments: SegmentSet, latest: SetAside, order_of: Callable[[str], int | None]
) -> dict[SegmentIndex, list[_Content]]:
    """Return the contents for each index: what was taken in, then what was set aside, the oldest first."""
    contents = {latest.segment_index: [_Content(latest.payload, latest.order_key)]}
    for index, sds_id in segments.ids.items():
        payload = segments.payload_of(index)
        if payload is not None:
            contents.setdefault(index, [_Content(payload, order_of(sds_id))])
    for aside in segments.aside:
        known = contents.setdefault(aside.segment_index, [])
        if aside.segment_index != latest.segment_index and all(aside.payload != each.payload for each in known):
            known.append(_Content(aside.payload, aside.order_key))
    return contents


def _choices(
    key: SetKey, latest: SetAside, counts: tuple[int, int], contents: Mapping[SegmentIndex, list[_Content]]
) -> Iterator[_Choice]:
    """Yield choices of one content for each index: first the likeliest, then others, then ones that leave some out."""
    likeliest = True
    for chosen in product(*contents.values()):
        yield _choice(key, counts, _payloads(contents, chosen), likeliest=likeliest)
        likeliest = False
    data_count, _ = counts
    suspects = sorted(contents.keys() - {latest.segment_index})
    for size in range(1, len(contents) - data_count + 1):
        for left_out in combinations(suspects, size):
            others = {index: known[0].payload for index, known in contents.items() if index not in left_out}
            yield _choice(key, counts, others, likeliest=False)


def _are_all_tried(data_count: int, contents: Mapping[SegmentIndex, list[_Content]]) -> bool:
    """Return whether `_choices` yields all that there are, and no more than are tried."""
    spare = len(contents) - data_count
    whole = prod(map(len, contents.values()))
    if whole > 1 and spare:
        return False
    return whole + sum(comb(len(contents) - 1, size) for size in range(1, spare + 1)) <= MAX_TRIES


def _further(
    key: SetKey, counts: tuple[int, int], contents: Mapping[SegmentIndex, list[_Content]]
) -> Iterator[_Choice]:
    """Yield the first choices in which each segment is later than the one before, if there are more than were tried."""
    data_count, _ = counts
    if _are_all_tried(data_count, contents):
        return
    indexes = sorted(contents)
    for chosen in islice(_in_order([contents[index] for index in indexes], data_count), MAX_TRIES):
        yield _choice(key, counts, {indexes[place]: each.payload for place, each in chosen.items()}, likeliest=False)


def _in_order(places: list[list[_Content]], least: int) -> Iterator[dict[int, _Content]]:
    """Yield choices of contents by place, each later than the one before it: first those that leave the fewest out."""
    latest_starts = _latest_starts(places)
    for count in range(len(places), least - 1, -1):
        rest = [iter(_next_in_order(places, latest_starts, 0, -inf, count))]
        chosen: list[tuple[int, _Content, float]] = []
        while rest:
            following = next(rest[-1], None)
            if following is None:
                rest.pop()
                if chosen:
                    chosen.pop()
                continue
            chosen.append(following)
            if len(chosen) == count:
                yield {place: content for place, content, _ in chosen}
                chosen.pop()
            else:
                place, _, order_key = following
                rest.append(iter(_next_in_order(places, latest_starts, place + 1, order_key, count - len(chosen))))


def _next_in_order(
    places: list[list[_Content]], latest_starts: list[list[float]], first: int, after: float, count: int
) -> Iterator[tuple[int, _Content, float]]:
    """Yield what may come next, from a place on and later than ``after``, if ``count`` are wanted, with its order key.

    Only what can be followed by enough others, so that no choice comes to a dead end.
    """
    for place in range(first, len(places) - count + 1):
        for content in places[place]:
            # One whose order key is unknown may stand anywhere.
            order_key = after if content.order_key is None else content.order_key
            is_later = content.order_key is None or order_key > after
            if is_later and _longest(latest_starts[place + 1], order_key) >= count - 1:
                yield place, content, order_key


def _latest_starts(places: list[list[_Content]]) -> list[list[float]]:
    """Return, for each place and for the end, what the order keys of contents in order may begin with from there on.

    It is the negative of the last order key that 1, 2, 3, ... contents in order can begin with.
    """
    starts: list[float] = []
    found = [starts]
    for place in reversed(places):
        # A content whose order key is unknown may come before any others, and one of a place is chosen.
        before = list(starts)
        starts = [-inf, *before] if any(content.order_key is None for content in place) else list(before)
        for content in place:
            if content.order_key is not None:
                length = _longest(before, content.order_key)
                if length == len(starts):
                    starts.append(-content.order_key)
                else:
                    starts[length] = min(starts[length], -content.order_key)
        found.append(starts)
    found.reverse()
    return found


def _longest(starts: list[float], order_key: float) -> int:
    """Return how many contents in order may follow an order key."""
    return bisect_left(starts, -order_key)


def _payloads(indexes: Iterable[SegmentIndex], chosen: Iterable[_Content]) -> dict[SegmentIndex, bytes]:
    return {index: content.payload for index, content in zip(indexes, chosen, strict=True)}


def _choice(
    key: SetKey, counts: tuple[int, int], contents: Mapping[SegmentIndex, bytes], *, likeliest: bool
) -> _Choice:
    data_count, parity_count = counts
    # A parity segment that was set aside may have a higher index than the set has parity.
    contents = {
        index: payload for index, payload in contents.items() if not index.is_parity or index.number < parity_count
    }
    return _Choice(
        key=key,
        data_count=data_count,
        parity_count=parity_count,
        contents=contents,
        data={index: payload for (is_parity, index), payload in contents.items() if not is_parity},
        parity={index: payload for (is_parity, index), payload in contents.items() if is_parity},
        max_trailing_zeros=MAX_TRAILING_ZEROS if likeliest else _FEWER_TRAILING_ZEROS,
    )


def _assemble(choice: _Choice) -> Assembled | Unassembled:
    count = choice.data_count
    if len(choice.data) + len(choice.parity) < count:
        return Unassembled.INCOMPLETE
    if len(choice.data) == count:
        # "Concatenating data segments if all are present": whatever their lengths.
        # RELIABLE-CHANNEL-API, "Message Segmentation": segment order MUST be preserved during reassembly.
        payload = b"".join(choice.data[index] for index in range(count))
        verified = choice.key.payload_length in {None, len(payload)} and _is_promised(choice.key, payload)
        return _assembled(choice, payload, recovered=False) if verified else Unassembled.MISMATCH
    shard_bytes = _shard_bytes(choice)
    if shard_bytes is None:
        return Unassembled.INCOMPLETE
    recovered = _recover(choice, shard_bytes)
    return Unassembled.MISMATCH if recovered is None else _assembled(choice, recovered, recovered=True)


def _assembled(choice: _Choice, payload: bytes, *, recovered: bool) -> Assembled:
    return Assembled(payload=payload, recovered=recovered, used=_genuine(choice, payload))


def _genuine(choice: _Choice, payload: bytes) -> Mapping[SegmentIndex, bytes]:
    """Return the segments of a choice that are those of the payload that it gave.

    Parity that was not needed to rebuild the payload may still be forged, and so may parity that differs from the true
    one only in the padding of the last segment. So the parity of the payload is computed, and compared.
    """
    count = choice.data_count
    if not choice.parity or not 0 < choice.parity_count <= count:
        return choice.contents
    true: dict[int, list[bytes]] = {}
    for size in set(map(len, choice.parity.values())):
        if size and not size % leopard.SHARD_ALIGNMENT and (count - 1) * size < len(payload) <= count * size:
            shards = [payload[at : at + size].ljust(size, b"\0") for at in range(0, len(payload), size)]
            true[size] = leopard.encode(shards, choice.parity_count)
    return {
        index: content
        for index, content in choice.contents.items()
        if not index.is_parity or (len(content) in true and true[len(content)][index.number] == content)
    }


def _shard_bytes(choice: _Choice) -> int | None:
    """Return the length of the shards, or None if Reed-Solomon cannot use the segments.

    Such a set may still be completed: neither format forbids segments of odd lengths, and a set with all its data
    segments needs no parity.
    """
    count, last = choice.data_count, choice.data_count - 1
    lengths = set(map(len, choice.parity.values()))
    shard_bytes = lengths.pop()
    if lengths or not shard_bytes or shard_bytes % leopard.SHARD_ALIGNMENT or choice.parity_count > count:
        return None
    # "Implementations that apply parity SHALL use fixed-size shards", but the last data segment is sent unpadded.
    if any(
        len(piece) > shard_bytes if index == last else len(piece) != shard_bytes for index, piece in choice.data.items()
    ):
        return None
    length = choice.key.payload_length
    fits = length is None or ((last * shard_bytes < length or count == 1) and length <= count * shard_bytes)
    return shard_bytes if fits else None


def _recover(choice: _Choice, shard_bytes: int) -> bytes | None:
    """Return the payload, its lost data segments computed from parity; None if its hash is wrong."""
    last = choice.data_count - 1
    shards = [choice.data.get(index) for index in range(choice.data_count)]
    final = shards[last]
    if final is not None:
        shards[last] = final.ljust(shard_bytes, b"\0")
    found = leopard.recover(shards, [choice.parity.get(index) for index in range(choice.parity_count)])
    pieces: list[bytes | memoryview] = [
        found[index] if index in found else choice.data[index] for index in range(choice.data_count)
    ]
    if last in found and choice.key.payload_length is None:
        return _with_end_found(pieces[:last], found[last], choice)
    if last in found and choice.key.payload_length is not None:
        pieces[last] = memoryview(found[last])[: choice.key.payload_length - last * shard_bytes]
    payload = b"".join(pieces)
    return payload if _is_promised(choice.key, payload) else None


def _with_end_found(pieces: list[bytes | memoryview], padded: bytes, choice: _Choice) -> bytes | None:
    """Return the payload whose last segment is ``padded`` less some zeros at its end; None if no number is right."""
    pieces = [*pieces, padded.rstrip(b"\0")]
    zeros = len(padded) - len(pieces[-1])
    # No data segment is empty: if all its bytes are zeros, at least one of them belongs to the payload.
    least = 0 if pieces[-1] else 1
    counts = range(least, min(zeros, choice.max_trailing_zeros) + 1)
    count = trailing_zeros_for(choice.key.payload_hash, pieces, counts)
    return None if count is None else b"".join([*pieces, bytes(count)])


def _is_promised(key: SetKey, payload: bytes) -> bool:
    # SEGMENTATION, "Receiving" and "Integrity": MUST verify that Keccak256(reconstructed_payload) matches
    # entire_message_hash.
    return keccak256(payload) == key.payload_hash
