"""`RunSummary`: the result of a run: its tables, and the `Balance` of all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fairway.pipeline.location import Location
from fairway.pipeline.run.folder import TableResult
from fairway.pipeline.sources.waku_messages import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Counts the rows of the input in disjoint classes that cover all rows.

    In short, see `formula`: rows in = delivered + parked + quarantined + duplicates.
    """

    rows_in: int
    """Rows of the sources."""
    duplicates: int
    """Rows with the hash of another row, of the same store or of another."""
    quarantined: int
    """WakuMessages that are not SDS messages."""
    retransmissions: int
    """WakuMessages that repeat an SDS message, content or not: retries, repairs, replays."""
    other_shards: int
    """WakuMessages that are a copy of one sending on a further shard."""
    sync: int
    """Sync messages."""
    delivered: int
    """Content and ephemeral SDS messages that carried messages of ``delivered``, parity included."""
    incomplete: int
    """Segments of messages that cannot be reassembled: the sum of ``held`` in ``incomplete``."""

    @property
    def accounted_for(self) -> int:
        """Return the sum of the classes."""
        return sum(map(int, asdict(self).values())) - self.rows_in

    @property
    def adds_up(self) -> bool:
        """Return whether every row is in exactly one class."""
        return self.rows_in == self.accounted_for

    @property
    def formula(self) -> dict[str, int]:
        """Return the input rows as ``in``, and the four terms that add up to them.

        ``delivered`` includes sync messages, and ``duplicates`` includes retransmissions and other shards; ``parked``
        are the segments of incomplete messages.
        """
        return {
            "in": self.rows_in,
            "delivered": self.delivered + self.sync,
            "parked": self.incomplete,
            "quarantined": self.quarantined,
            "duplicates": self.duplicates + self.retransmissions + self.other_shards,
        }

    def __str__(self) -> str:
        sign = "=" if self.adds_up else "is not"
        classes = _sum_text(asdict(self), "rows_in")
        return f"{self.rows_in:,} rows in {sign} {classes}; in short {sign} {_sum_text(self.formula, 'in')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The result of a finished run."""

    folder: Location
    tables: tuple[TableResult, ...]
    balance: Balance
    seconds: float
    """Time of this attempt, from the first table to the last, without the start of Spark."""
    resumed: int
    """Tables that an earlier attempt wrote."""
    mode: str = "whole"
    """``whole``: made from all rows of the sources; ``grown``: changed by their new rows; ``unchanged``."""
    because: str | None = None
    """The reason why existing tables were rebuilt instead of grown."""
    new_rows: int = 0
    """Rows of the sources that a growing run added."""

    selection: Selection = field(default_factory=Selection)
    """The wanted messages of the sources."""

    @property
    def selects_nothing(self) -> bool:
        """Return whether messages were selected, and the sources have none of them."""
        return self.selection != Selection() and not self.balance.rows_in

    def as_json(self) -> dict[str, Any]:
        """Return the summary as values for JSON."""
        return {
            "folder": str(self.folder),
            "selection": self.selection.as_json(),
            "selects_nothing": self.selects_nothing,
            "seconds": self.seconds,
            "resumed": self.resumed,
            "mode": self.mode,
            "because": self.because,
            "new_rows": self.new_rows,
            "balance": balance_json(self.balance),
            "tables": {
                table.name: {"rows": table.rows, "files": table.files, "bytes": table.bytes, "seconds": table.seconds}
                for table in self.tables
            },
        }


def balance_json(balance: Balance) -> dict[str, Any]:
    """Return a balance as values for JSON."""
    return asdict(balance) | {"formula": balance.formula, "adds_up": balance.adds_up}


def balance_of(terms: Mapping[str, int], rows: Mapping[str, int]) -> Balance:
    """Return the balance from the terms of the last job and the number of rows of each table."""
    return Balance(
        rows_in=terms["rows_in"],
        duplicates=terms["rows_in"] - rows["waku_messages"],
        quarantined=rows["quarantine"],
        retransmissions=rows["repeats"] - terms["other_shards"],
        other_shards=terms["other_shards"],
        sync=terms["sync"],
        delivered=terms["carriers"],
        incomplete=terms["held"],
    )


def balance_from(told: Mapping[str, Any]) -> Balance:
    """Return the balance in ``run.json``, from its classes alone."""
    return Balance(**{field.name: told[field.name] for field in fields(Balance)})


def _sum_text(terms: Mapping[str, int], total: str) -> str:
    return " + ".join(f"{count:,} {name}" for name, count in terms.items() if name != total)
