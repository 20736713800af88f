"""From ``decoded`` to ``sds_messages`` and ``repeats``: each SDS message once, and its further WakuMessages.

An SDS message may be in an archive several times: every retransmission is a new WakuMessage, any participant may repeat
a message, and a sender may publish on several shards. The WakuMessage with the lowest (timestamp, message hash)
represents the SDS message, in any order of the input. The others are repeats. A repeat with the timestamp and the size
of an earlier one, on another shard, is the same sending; all others are retransmissions.

A participant may also send other content under the id of a message. As in the live core, a message is honest if its id
is a digest of its content. If no id can be checked, the first message is honest. Others under the same id are `forged`,
and go to the quarantine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from fairway.pipeline.codes import Codes, codes_of, codes_of_pairs, starts_of_runs
from fairway.pipeline.exchange import PIECE_BYTES, Bucket, Cut, bucketed, pieces
from fairway.pipeline.schema import columns_of, exact_ddl, exact_schema
from fairway.pipeline.stages.decoded import CARRIER, CONTENT, READ
from fairway.protocol.sds.message_id import fingerprint, follows_a_rule
from fairway.wire.sds import Kind, SdsMessage

SDS_MESSAGES: Final = f"{CARRIER}, {READ}"
"""The table of SDS messages, each once. The columns of the carrier are those of the first WakuMessage with it."""
WITH_CONTENT: Final = f"{SDS_MESSAGES}, {CONTENT}"
"""The columns of `sds_messages` (the function): the table, and the contents. A run keeps contents only in
``delivered``."""
REPEATS: Final = (
    f"{CARRIER}, payload_bytes int, kind string, sender_id string, message_id string, channel_id string, reason string"
)
"""The table of further WakuMessages with an SDS message; ``reason`` is `RETRANSMISSION` or `OTHER_SHARD`."""
RETRANSMISSION: Final = "retransmission"
OTHER_SHARD: Final = "other-shard"

DECODED_INPUT: Final = columns_of(exact_ddl(WITH_CONTENT))
"""The columns of ``decoded`` that are read, beside ``status``."""
MESSAGE_KEY: Final = ("channel_id", "message_id")
"""The key of an SDS message."""
_REPEATS: Final = exact_schema(REPEATS)
_SAID: Final = ("sender_id", "message_id", "lamport", "content")
_SENDING: Final = ("timestamp_ns", "payload_bytes")
"""Columns that two WakuMessages of one sending share, beside the SDS message."""


class Copies(NamedTuple):
    """The result of `copies_of`, for each row."""

    is_honest: NDArray[np.bool_]
    """Whether it is an honest copy of its message, not forged."""
    is_first: NDArray[np.bool_]
    """Whether it represents its message: the first of the honest copies."""
    is_elsewhere: NDArray[np.bool_]
    """Whether it is the sending of an earlier copy on another shard."""


def sds_messages(decoded: DataFrame) -> DataFrame:
    """Return ``sds_messages`` (`WITH_CONTENT`): the decodable messages that are not forged, each once."""

    def work(bucket: Bucket) -> Iterator[pa.Table]:
        rows = bucket.tables["rows"]
        yield from first_copies(rows, copies_of(rows).is_first)

    return bucketed([_by_message(decoded)], work, WITH_CONTENT)


def repeats(decoded: DataFrame) -> DataFrame:
    """Return ``repeats`` (`REPEATS`): one row for each further WakuMessage with a message of `sds_messages`."""

    def work(bucket: Bucket) -> list[pa.Table]:
        rows = bucket.tables["rows"]
        return [further_copies(rows, copies_of(rows))]

    return bucketed([_by_message(decoded)], work, REPEATS)


def _by_message(decoded: DataFrame) -> Cut:
    rows = decoded.where("status = 'ok'").select(*DECODED_INPUT)
    return Cut(frame=rows, by=MESSAGE_KEY, prepare=lambda table: {"rows": table})


def copies_of(decoded: pa.Table, *, piece_bytes: int = PIECE_BYTES) -> Copies:
    """Return which rows of decodable messages are honest, first, and elsewhere.

    ``decoded`` must have all rows of each (channel_id, message_id). Nearly all ids have one row, whose content is not
    read. The content of other rows is read in pieces of ``piece_bytes``.
    """
    messages, count = codes_of_pairs(*(decoded[name] for name in MESSAGE_KEY))
    several = np.flatnonzero(np.bincount(messages, minlength=count)[messages] > 1)
    is_honest = np.ones(len(messages), np.bool_)
    is_first = np.ones(len(messages), np.bool_)
    is_elsewhere = np.zeros(len(messages), np.bool_)
    if len(several):
        in_time = several[_in_time(decoded, messages, several)]
        is_honest[in_time] = _are_honest(decoded, messages[in_time], in_time, piece_bytes)
        shown = in_time[is_honest[in_time]]
        is_first[several] = False
        is_first[shown[starts_of_runs(messages[shown])]] = True
        is_elsewhere[shown] = _are_elsewhere(decoded, messages[shown], shown)
    return Copies(is_honest, is_first, is_elsewhere)


def first_copies(
    decoded: pa.Table, is_first: NDArray[np.bool_], *, piece_bytes: int = PIECE_BYTES
) -> Iterator[pa.Table]:
    """Yield the rows of ``sds_messages``, in tables of at most ``piece_bytes``."""
    done = 0
    for piece in pieces(decoded, piece_bytes):
        chosen = is_first[done : done + piece.num_rows]
        done += piece.num_rows
        yield piece if chosen.all() else piece.filter(pa.array(chosen))


def further_copies(decoded: pa.Table, copies: Copies) -> pa.Table:
    """Return the rows of ``repeats``, without instants."""
    is_repeat = copies.is_honest & ~copies.is_first
    found = decoded.select(_REPEATS.names[:-1]).filter(pa.array(is_repeat))
    reasons = np.where(copies.is_elsewhere[is_repeat], OTHER_SHARD, RETRANSMISSION)
    return found.append_column("reason", pa.array(reasons, pa.string())).cast(_REPEATS)


def retransmissions(repeats: pa.Table) -> pa.Table:
    """Return the rows of ``repeats`` that were sent again."""
    return repeats.filter(pc.equal(repeats["reason"], RETRANSMISSION))


def _are_elsewhere(decoded: pa.Table, messages: Codes, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return which rows, sorted by message and time, have another shard than the first row of their sending."""
    few = decoded.select([*_SENDING, "pubsub_topic"]).take(pa.array(rows))
    sendings = codes_of(pa.chunked_array([pa.array(messages)]), *(few[name] for name in _SENDING))
    topics = codes_of(few["pubsub_topic"])
    _, firsts, places = np.unique(sendings, return_index=True, return_inverse=True)
    elsewhere: NDArray[np.bool_] = topics != topics[firsts[places]]
    return elsewhere


def _in_time(decoded: pa.Table, messages: Codes, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return the sort key of some rows: by message, then by time."""
    keys = decoded.select(["timestamp_ns", "message_hash"]).take(pa.array(rows))
    keys = keys.append_column("message", pa.array(messages[rows]))
    by = [(name, "ascending", "at_start") for name in ("message", "timestamp_ns", "message_hash")]
    order: NDArray[np.uint64] = pc.sort_indices(keys, by).to_numpy()
    return order


def _are_honest(decoded: pa.Table, messages: Codes, rows: NDArray[np.intp], piece_bytes: int) -> NDArray[np.bool_]:
    """Return which rows, sorted by message and time, are honest copies of their message."""
    said = np.zeros(decoded.num_rows, np.int64)
    distinct: dict[bytes, int] = {}
    for row, message in _messages(decoded, rows, piece_bytes):
        said[row] = distinct.setdefault(fingerprint(message), len(distinct))
    starts = starts_of_runs(messages)
    sizes = np.diff(starts, append=len(rows))
    differs = said[rows] != np.repeat(said[rows[starts]], sizes)
    # The ids are checked only for messages with differing copies.
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
    """Yield some rows as SDS messages with only sender, ids, Lamport timestamp and content."""
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
