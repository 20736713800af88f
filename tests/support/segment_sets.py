"""Sets of segments, as the stage `reassembled` puts them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION, reassembled_rows, segments_in
from fairway.pipeline.stages.sds_messages import WITH_CONTENT

SCHEMA = exact_schema(WITH_CONTENT)


def as_sds(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows of ``sds_messages`` with their contents, of which some columns are given."""
    return pa.Table.from_pylist([dict.fromkeys(SCHEMA.names) | dict(row) for row in rows], SCHEMA)


def reassembled(
    rows: Iterable[Mapping[str, Any]],
    profile: Profile | None = None,
    config: SegmentationConfig = ARCHIVE_SEGMENTATION,
) -> list[dict[str, Any]]:
    """Return the rows that segments give."""
    parts = reassembled_rows(segments_in(as_sds(rows)), profile, config)
    return [row for part in parts for row in part.to_pylist()]
