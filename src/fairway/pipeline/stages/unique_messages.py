"""From ``sds_messages`` to ``unique_messages``: each SDS message once.

An SDS message may be in an archive several times, because every retransmission is a new WakuMessage, and because any
participant may repeat it. The row with the lowest (timestamp, message hash) is kept, whatever the order of the input.

A participant may also send other content under the id of a message. As in the live core, the message whose id is a
digest of its content is the true one; if no id can be checked, the first one is. Others under the same id are `forged`:
they are no copies of the message, and are in the quarantine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from fairway.pipeline.codes import Codes, codes_of_pairs, starts_of_runs
from fairway.pipeline.exchange import PIECE_BYTES, pieces
from fairway.protocol.sds.message_id import fingerprint, follows_a_rule
from fairway.wire.sds import Kind, SdsMessage

MESSAGE_KEY: Final = ("channel_id", "message_id")
"""The key of an SDS message."""
_SAID: Final = ("sender_id", "message_id", "lamport", "content")


class Sightings(NamedTuple):
    """What `sightings_of` tells of each row."""

    honest: NDArray[np.bool_]
    """Whether it is a copy of the message that its id stands for, and not forged."""
    number: NDArray[np.int32]
    """Which copy it is, from 1."""
    copies: NDArray[np.int64]
    """How many copies there are."""

    def only(self, rows: slice) -> Sightings:
        """Return what is told of some rows."""
        return Sightings(self.honest[rows], self.number[rows], self.copies[rows])


def unique_messages(sds_messages: DataFrame) -> DataFrame:
    """Return the rows of ``sds_messages`` with ``sighting = 1``: one for each (channel_id, message_id)."""
    return sds_messages.where("sighting = 1")


def sightings_of(decoded: pa.Table, *, piece_bytes: int = PIECE_BYTES) -> Sightings:
    """Return which rows of decodable messages are honest, and number the copies of each SDS message.

    Needed are all rows of each (channel_id, message_id) that is there. Of nearly all ids there is one row, of which
    nothing else has to be known; the content of other rows is read in pieces of ``piece_bytes``.
    """
    messages, count = codes_of_pairs(*(decoded[name] for name in MESSAGE_KEY))
    several = np.flatnonzero(np.bincount(messages, minlength=count)[messages] > 1)
    honest = np.ones(len(messages), np.bool_)
    number = np.ones(len(messages), np.int32)
    copies = np.ones(len(messages), np.int64)
    if len(several):
        in_time = several[_in_time(decoded, messages, several)]
        honest[in_time] = _are_honest(decoded, messages[in_time], in_time, piece_bytes)
        shown = in_time[honest[in_time]]
        starts = starts_of_runs(messages[shown])
        sizes = np.diff(starts, append=len(shown))
        number[shown] = np.arange(len(shown)) - np.repeat(starts, sizes) + 1
        copies[shown] = np.repeat(sizes, sizes)
    return Sightings(honest, number, copies)


def honest_messages(decoded: pa.Table, seen: Sightings, *, piece_bytes: int = PIECE_BYTES) -> Iterator[pa.Table]:
    """Yield the rows that are not forged, with ``sightings`` and ``sighting``, in tables of at most ``piece_bytes``."""
    done = 0
    for piece in pieces(decoded, piece_bytes):
        rows = slice(done, done + piece.num_rows)
        done += piece.num_rows
        numbered = piece.append_column("sightings", pa.array(seen.copies[rows])).append_column(
            "sighting", pa.array(seen.number[rows])
        )
        honest = seen.honest[rows]
        yield numbered if honest.all() else numbered.filter(pa.array(honest))


def once(decoded: pa.Table) -> pa.Table:
    """Return messages, of which each comes once, with ``sightings`` and ``sighting``."""
    ones = np.ones(decoded.num_rows, np.int64)
    return decoded.append_column("sightings", pa.array(ones)).append_column("sighting", pa.array(ones.astype(np.int32)))


def _in_time(decoded: pa.Table, messages: Codes, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return the order of some rows by message, and of those of one message by time."""
    keys = decoded.select(["timestamp_ns", "message_hash"]).take(pa.array(rows))
    keys = keys.append_column("message", pa.array(messages[rows]))
    by = [(name, "ascending", "at_start") for name in ("message", "timestamp_ns", "message_hash")]
    order: NDArray[np.uint64] = pc.sort_indices(keys, by).to_numpy()
    return order


def _are_honest(decoded: pa.Table, messages: Codes, rows: NDArray[np.intp], piece_bytes: int) -> NDArray[np.bool_]:
    """Return which rows are what the id of their message stands for; they are sorted by message and time."""
    said = np.zeros(decoded.num_rows, np.int64)
    distinct: dict[bytes, int] = {}
    for row, message in _messages(decoded, rows, piece_bytes):
        said[row] = distinct.setdefault(fingerprint(message), len(distinct))
    starts = starts_of_runs(messages)
    sizes = np.diff(starts, append=len(rows))
    differs = said[rows] != np.repeat(said[rows[starts]], sizes)
    # Which of several the id proves is asked only where there are several.
    disputed = rows[np.isin(messages, messages[differs])]
    is_content = np.ones(decoded.num_rows, np.bool_)
    proven = np.ones(decoded.num_rows, np.bool_)
    is_content[disputed] = pc.equal(decoded["kind"].take(pa.array(disputed)), Kind.CONTENT.value).to_numpy()
    for row, message in _messages(decoded, disputed, piece_bytes):
        proven[row] = is_content[row] and follows_a_rule(message)
    # Sorting is stable, and keeps the order of time.
    order = np.lexsort((~is_content[rows], ~proven[rows], messages))
    honest: NDArray[np.bool_] = said[rows] == np.repeat(said[rows[order[starts]]], sizes)
    return honest


def _messages(decoded: pa.Table, rows: NDArray[np.intp], piece_bytes: int) -> Iterator[tuple[int, SdsMessage]]:
    """Yield some rows, each as far as it tells what was said and by whom."""
    wanted = np.zeros(decoded.num_rows, np.bool_)
    wanted[rows] = True
    done = 0
    for piece in pieces(decoded.select(_SAID), piece_bytes):
        there = np.flatnonzero(wanted[done : done + piece.num_rows])
        columns = [column.to_pylist() for column in piece.take(pa.array(there)).columns]
        for row, sender_id, message_id, lamport, content in zip((there + done).tolist(), *columns, strict=True):
            yield (
                row,
                SdsMessage(
                    message_id=message_id,
                    sender_id=sender_id,
                    channel_id="",
                    lamport_timestamp=lamport,
                    content=content,
                ),
            )
        done += piece.num_rows
