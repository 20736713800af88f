"""`AcknowledgementBasis`: what the figures about acknowledgement rest on, and that they are lower bounds.

A sender knows more than an archive. It hears sync messages that no store keeps, and it asks for repairs. So a message
that no row acknowledges may well have been reported as delivered to its sender.
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
    """What acknowledgement rests on."""

    content: int
    """Messages that a participant can acknowledge: those with content that are there."""
    acknowledged: int
    """Those of them that another participant has, by the evidence that was read."""
    filters_read: bool
    """Whether the run read bloom filters (``--blooms``)."""
    evidence: dict[str, int]
    """How often each kind of evidence was the one that counted, for a message and a participant."""

    @property
    def caution(self) -> str:
        """Return, in words, how far the figures can be trusted."""
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
    """Return what a kind of evidence means, in words."""
    return _MEANINGS.get(evidence, evidence)


def acknowledgement_basis(tables: RunTables, content: int, acknowledged: int) -> AcknowledgementBasis:
    """Return what acknowledgement rests on."""
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
