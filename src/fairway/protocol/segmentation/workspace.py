"""Memory for coding shards, kept from one message to the next.

The rows and results of one message are some hundred kilobytes to a few megabytes. A C library returns that much to the
system when it is freed, and gets it anew page by page for the next message, which takes as long as the coding
itself. So each thread keeps what it used last; it fits the next message if that has the same shape, which the
messages of one program often have.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from fairway.protocol.segmentation.cauchy import field_for, next_power_of_two
from fairway.protocol.segmentation.stripes import stripes_of
from fairway.protocol.segmentation.transform import ParityTransform


class Workspace:
    """Memory to code shards of ``word_count`` words. No result of one use matters to the next."""

    def __init__(self, data_count: int, parity_count: int, word_count: int) -> None:
        self.shape = data_count, parity_count, word_count
        self.field_bits = field_for(data_count, parity_count).bits
        self.size = next_power_of_two(parity_count)
        self.stripes = stripes_of(word_count, 2 * self.size)
        self.stripe_words = self.stripes[0].stop - self.stripes[0].start
        self.transform = ParityTransform(self.field_bits, data_count, self.size, self.stripe_words)
        self.results: npt.NDArray[np.uint64] = np.empty((parity_count, word_count), np.uint64)
        """Room for as many shards as can be computed at once: all parity, or all that it can recover."""


class _Kept(threading.local):
    workspace: Workspace | None = None


_kept = _Kept()


def workspace_for(data_count: int, parity_count: int, word_count: int) -> Workspace:
    """Return a workspace for this shape, which is good until this thread asks for one again."""
    kept = _kept.workspace
    if kept is None or kept.shape != (data_count, parity_count, word_count):
        kept = _kept.workspace = Workspace(data_count, parity_count, word_count)
    return kept
