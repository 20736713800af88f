"""`AcknowledgementBasis`: the evidence behind the figures about acknowledgement. These figures are lower bounds.

A sender knows more than an archive: it receives sync messages that no store keeps, and it requests repairs. A message
without an acknowledgement in the tables may still have been reported as delivered to its sender.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from fairway.pipeline.run.reading import RunTables
from fairway.protocol.sds.acknowledgements import Evidence

_MEANINGS = {
    Evidence.CITED.value: "its causal history cites the message",
    Evidence.DESCENDANT.value: "it cites a later message, and its bloom filter has this one, or it vouches for it",
    Evidence.BLOOM.value: "the bloom filters of at least two participants have it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementBasis:
    """The evidence behind the figures about acknowledgement."""

    content: int
    """Messages in the archive that a participant can acknowledge: those with content."""
    acknowledged: int
    """Content messages that another participant has, according to the evidence that was read."""
    filters_read: bool
    """Whether the run read bloom filters (``--blooms``)."""
    evidence: dict[str, int]
    """Pairs of a message and a participant, by the kind of evidence that counted."""

    @property
    def caution(self) -> str:
        """Return the limits of the figures, in words."""
        if not self.filters_read:
            return (
                "A lower bound: bloom filters were not read, so that only a citation counts. Each message cites few "
                "others; run with --blooms to count those that filters hold as well."
            )
        return (
            "A lower bound: bloom filters were read, but senders also hear what no store keeps. A message that is not "
            "acknowledged here may have been reported as delivered to its sender."
        )


def meaning_of(evidence: str) -> str:
    """Return the meaning of a kind of evidence, in words."""
    return _MEANINGS.get(evidence, evidence)


def acknowledgement_basis(tables: RunTables, content: int, acknowledged: int) -> AcknowledgementBasis:
    """Return the evidence behind the figures about acknowledgement."""
    evidence: Counter[str] = Counter()
    for batch in tables.batches("acknowledgements", ["how"]):
        grouped = pa.Table.from_batches([batch]).group_by("how", use_threads=False).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            evidence[row["how"]] += row["count_all"]
    return AcknowledgementBasis(
        content=content,
        acknowledged=acknowledged,
        filters_read=bool(tables.manifest["options"].get("blooms")),
        evidence=dict(sorted(evidence.items())),
    )
