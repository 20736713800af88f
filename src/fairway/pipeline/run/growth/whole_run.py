"""`WholeRunNeeded`: why a run cannot take only what is new."""

from __future__ import annotations


class WholeRunNeeded(Exception):  # noqa: N818 - it says what to do next, and never leaves the run
    """Only a run over everything gives the right tables, or it would cost less; the text says why."""
