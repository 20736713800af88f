"""What a world costs: figures of all that left, was asked for, was written and was told, and of how long it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fairway.protocol.effects import Change, Purpose
from fairway.simulation.ledger import Ledger
from fairway.simulation.report import SimulationReport
from fairway.simulation.world import Observer
from fairway.waku.node import RoutedMessage, StoreQuery


class Costs(Observer):
    """Counts in one world what its ledger does not."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        """Rows written to the participants' own stores, by table."""

    def queried(self, _at_ms: int, _name: str, query: StoreQuery, _cursor: bytes | None) -> None:
        """Count a page that is asked of a store node."""
        kind = "hash" if query.message_hashes else "time, backwards" if query.newest_first else "time"
        self._counts[f"pages asked by {kind}"] += 1
        self._counts["hashes asked"] += len(query.message_hashes)

    def kept(self, _at_ms: int, _name: str, changes: Sequence[Change]) -> None:
        """Count a write to a participant's own store."""
        self._counts["writes"] += 1
        self._rows.update([change.table for change in changes])

    def refused(self, _at_ms: int, _name: str, _message: RoutedMessage, _answer_ms: int) -> None:
        """Count a message that no node took."""
        self._counts["refusals"] += 1

    def of(self, report: SimulationReport, ledger: Ledger, requests: Mapping[str, int]) -> dict[str, int]:
        """Return the figures of the world, scenes included; latencies are of its conversation.

        ``requests`` are those that light clients made of service nodes, by what they ask for.
        """
        figures = dict(self._counts) | {f"rows of {table}": number for table, number in self._rows.items()}
        figures |= {f"requests: {what}": number for what, number in requests.items()}
        for purpose in Purpose:
            figures[f"{purpose.value} messages"] = ledger.transmissions[purpose]
            figures |= {f"{purpose.value} {part} bytes": count for part, count in ledger.bytes[purpose].items()}
        figures |= {f"{event} events": number for event, number in ledger.events.items()}
        for what, durations in (
            ("delivery", report.delivery),
            ("delivery to all", report.reached_all),
            ("first acknowledgement", report.first_acknowledgement),
            ("full acknowledgement", report.full_acknowledgement),
            ("mending", report.mending),
        ):
            figures[f"{what}: median ms"] = durations.p50_ms or 0
            figures[f"{what}: 95 % ms"] = durations.p95_ms or 0
        figures["rest after ms"] = report.settled_ms
        figures["claims"] = len(ledger.claims)
        figures["idle bytes"] = report.idle_bytes
        peaks = report.peaks
        figures |= {
            "most parked": peaks.parked,
            "most missing": peaks.missing,
            "most open sets": peaks.open_sets,
            "most buffered bytes": peaks.buffered_bytes,
            "most queued": peaks.queued,
            "most open sends": peaks.open_requests,
        }
        return {name: figure for name, figure in sorted(figures.items()) if figure}
