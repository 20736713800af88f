"""Archives of any size, made on Spark from a seed, and the facts that a pipeline must find in them.

::

    plan -> units -> block -> tables: waku_messages, and the facts for the comparison in check

`plan` describes an archive, `units` draws the messages and their losses, `block` encodes a range of units, `tables`
makes all blocks on Spark, `writing` writes them, `figures` computes tables of figures from the facts, and `check`
compares.
"""

from __future__ import annotations

from fairway.testing.archives.plan import GeneratorPlan
from fairway.testing.archives.tables import (
    FACTS,
    facts_mapper,
    generate,
    rows_mapper,
    truth,
)
from fairway.testing.archives.writing import check_new, write_generated, written_sources

__all__ = [
    "FACTS",
    "GeneratorPlan",
    "check_new",
    "facts_mapper",
    "generate",
    "rows_mapper",
    "truth",
    "write_generated",
    "written_sources",
]
