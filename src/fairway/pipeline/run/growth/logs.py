"""Changes of ``sds_ordered``, the logs of channels, by added and removed SDS messages.

Each affected channel has a Lamport timestamp, the cut, before which nothing changes. Before the cut no message is added
or removed, and no message cites one whose absence changes. If the rows before the cut are the first rows of the log,
they stay. `channel_logs` orders the rest, together with a stand-in for each earlier message that the rest cites,
directly or by a computed segment. A stand-in cites only the missing message that the real message waits for. Otherwise
the whole log is rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.pipeline.codes import NOTHING, ranked
from fairway.pipeline.run.growth.held_rows import HeldRows, Span, TableChange, among, are_among
from fairway.pipeline.stages.channel_log import LOGGED, DependencyStatus, channel_logs
from fairway.pipeline.stages.keyed import KEY
from fairway.pipeline.stages.sds_ordered import LOGGED_COLUMNS, absent_of, computed_in, logged_in

_BEGINNING: Final = -(2**63)
_NEVER: Final = 2**63 - 1
_PLACE: Final = pa.schema([("channel_id", pa.string()), ("lamport", pa.int64())])
_OUTLINE: Final = ("channel_id", "lamport", "position", "status")
_STANDING_IN: Final = ("channel_id", "message_id", "lamport", "waits_for")
_ABSENCE: Final = ("channel_id", "message_id", "first_cited_ns", "told_by")
_CAUSELESS: Final = (DependencyStatus.CIRCULAR.value, DependencyStatus.NOT_COMPUTED.value)


def log_changes(
    held: Mapping[str, HeldRows],
    changes: Mapping[str, TableChange],
    citing: pa.Table,
    max_channel_bytes: int,
) -> TableChange:
    """Return the change of ``sds_ordered``.

    ``changes`` are those of ``sds_messages``, ``missing_messages`` and ``computed_segments``. ``citing`` has the
    content messages that cite an affected message: the cited key and the ``lamport`` of the citing message. All
    channels must be smaller than ``max_channel_bytes``.
    """
    moved = [_content(part) for part in (changes["sds_messages"].removed, changes["sds_messages"].added)]
    absences = [_absences(changes, "removed"), _absences(changes, "added")]
    changed = pa.concat_tables(
        [
            absences[0].filter(pa.array(~are_among(absences[0], absences[1], _ABSENCE))),
            absences[1].filter(pa.array(~are_among(absences[1], absences[0], _ABSENCE))),
        ]
    )
    unsettled = citing.filter(pa.array(are_among(citing, changed, KEY)))
    places = pa.concat_tables(part.select(_PLACE.names).cast(_PLACE) for part in (*moved, unsettled))
    if not places.num_rows:
        return TableChange.of("sds_ordered")
    log = held["sds_ordered"]
    cuts = _Cuts.of(places)
    cuts = cuts.held_by(log.found(_OUTLINE, cuts.are_touched, _OUTLINE, cuts.channels))
    sds = held["sds_messages"].changed(changes["sds_messages"])
    deciding = ("channel_id", "lamport", "kind")
    rest = sds.found(deciding, cuts.chosen, LOGGED_COLUMNS, cuts.span)
    logged = logged_in(rest.select(LOGGED_COLUMNS))

    cited = _cited(logged)
    missing = held["missing_messages"].changed(changes["missing_messages"])
    computed = held["computed_segments"].changed(changes["computed_segments"])
    told = computed_in(computed.found(KEY, among(cited, KEY)))
    tellers = pa.table([told["channel_id"], told["told_by"]], names=list(KEY))
    leads_there = among(pa.concat_tables([cited, tellers]), KEY)

    def are_before(rows: pa.Table) -> NDArray[np.bool_]:
        return leads_there(rows) & ~cuts.behind(rows)

    stand_ins = log.found((*KEY, "lamport"), are_before, _STANDING_IN, cuts.channels)
    waiting = stand_ins.filter(pc.is_valid(stand_ins["waits_for"]))
    awaited = pa.table([waiting["channel_id"], waiting["waits_for"]], names=list(KEY))
    lost = absent_of(missing.found(KEY, among(pa.concat_tables([cited, awaited]), KEY)))
    ordered = channel_logs(
        pa.concat_tables([logged, _standing_in(stand_ins)]),
        pa.concat_tables([lost, told]),
        max_channel_bytes=max_channel_bytes,
    )
    ordered = ordered.filter(pa.array(~are_among(ordered, stand_ins, KEY)))
    removed = log.found(("channel_id", "lamport"), cuts.behind, span=cuts.channels)
    return TableChange.of("sds_ordered", removed, cuts.placed(ordered, stand_ins))


class _Cuts:
    """The cuts of the logs of affected channels: by channel, the Lamport timestamp where the rest begins."""

    def __init__(self, channels: pa.Array, clocks: NDArray[np.int64], before: NDArray[np.int64]) -> None:
        self._channels = channels
        self._clocks = clocks
        self._before = before
        """Number of messages that stay, by channel."""

    @classmethod
    def of(cls, places: pa.Table) -> _Cuts:
        (codes,), names = ranked(places["channel_id"])
        clocks = np.full(len(names), _NEVER)
        np.minimum.at(clocks, codes, _clocks(places))
        return cls(names, clocks, np.zeros(len(names), np.int64))

    @property
    def span(self) -> Span:
        """Return the span of Lamport timestamps of the rest."""
        return Span("lamport", [int(self._clocks.min())], [_NEVER])

    @property
    def channels(self) -> Span:
        """Return the span of the affected channels."""
        return Span.of("channel_id", pa.chunked_array([self._channels]))

    def are_touched(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Return which rows are of an affected channel."""
        touched: NDArray[np.bool_] = self._of(rows) != NOTHING
        return touched

    def behind(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Return which rows are of the rest of a channel."""
        of = self._of(rows)
        behind: NDArray[np.bool_] = (of != NOTHING) & (_clocks(rows) >= self._clocks[of])
        return behind

    def chosen(self, sds_messages: pa.Table) -> NDArray[np.bool_]:
        """Return which of some rows of ``sds_messages`` are of the rest of a log."""
        is_content = pc.equal(sds_messages.column("kind"), "content").to_numpy()
        chosen: NDArray[np.bool_] = self.behind(sds_messages) & is_content
        return chosen

    def held_by(self, log: pa.Table) -> _Cuts:
        """Return the cuts whose earlier rows are the first rows of a log, from the logs (`_OUTLINE`)."""
        of, count = self._of(log), len(self._channels)
        is_before = ~self.behind(log)
        before = np.bincount(of[is_before], minlength=count)
        last = np.zeros(count, np.int64)
        np.maximum.at(last, of[is_before], log["position"].to_numpy()[is_before])
        whole = last != before
        whole[of[pc.is_in(log["status"], value_set=pa.array(_CAUSELESS)).to_numpy()]] = True
        clocks = np.where(whole, _BEGINNING, self._clocks)
        return _Cuts(self._channels, clocks, np.where(whole, 0, before))

    def placed(self, ordered: pa.Table, stand_ins: pa.Table) -> pa.Table:
        """Return logs without their stand-ins, with positions that follow the rows that stay."""
        shift = self._before - np.bincount(self._of(stand_ins), minlength=len(self._channels))
        positions = ordered["position"].to_numpy() + shift[self._of(ordered)]
        column = ordered.schema.get_field_index("position")
        return ordered.set_column(column, ordered.schema.field(column), pa.array(positions, pa.int32()))

    def _of(self, rows: pa.Table) -> NDArray[np.int64]:
        found = pc.fill_null(pc.index_in(rows.column("channel_id"), value_set=self._channels), NOTHING)
        numbers: NDArray[np.int64] = found.to_numpy().astype(np.int64)
        return numbers


def _clocks(rows: pa.Table) -> NDArray[np.int64]:
    clocks: NDArray[np.int64] = pc.fill_null(rows.column("lamport"), 0).to_numpy()
    return clocks


def _content(messages: pa.Table) -> pa.Table:
    return messages.filter(pc.equal(messages["kind"], "content"))


def _absences(changes: Mapping[str, TableChange], side: str) -> pa.Table:
    """Return the absent messages (`ABSENT`) before or after the change, by ``side``."""
    missing, computed = (getattr(changes[name], side) for name in ("missing_messages", "computed_segments"))
    return pa.concat_tables([absent_of(missing), computed_in(computed)])


def _cited(logged: pa.Table) -> pa.Table:
    """Return the keys that messages cite."""
    parents = logged["parents"].combine_chunks()
    channels = logged["channel_id"].take(pc.list_parent_indices(parents))
    return pa.table([channels, pc.list_flatten(parents)], names=list(KEY))


def _standing_in(log: pa.Table) -> pa.Table:
    """Return rows of a log as messages (`LOGGED`) that cite only the message they wait for."""
    waits = log["waits_for"].combine_chunks()
    ends = np.cumsum(np.append(0, pc.is_valid(waits).to_numpy(zero_copy_only=False)))
    columns = {name: pa.nulls(log.num_rows, LOGGED.field(name).type) for name in LOGGED.names}
    columns |= {name: log[name] for name in ("channel_id", "message_id", "lamport")}
    columns["parents"] = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), waits.drop_null())
    return pa.table(columns, schema=LOGGED)
