"""`WholeRunNeeded`: the reason why a run cannot process only new rows."""

from __future__ import annotations


class WholeRunNeeded(Exception):  # noqa: N818 - it says what to do next, and never leaves the run
    """Only a run over all rows gives the right tables, or is cheaper; the text has the reason."""
