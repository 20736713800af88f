"""`Headline`: the counts of all known messages by their state, for the archive, each channel and each sender.

A message here is an SDS message with content or an ephemeral one; a message sent in segments counts as several. The
known messages are those in the archive and those that others cite. Each of them has one of four states:

* readable: it is in the archive, and its content can be read;
* incomplete: it is a segment of a message that cannot be reassembled;
* damaged: it is cited, a store has it with contents of another hash, and no store has it intact;
* lost: it is cited, is in no store that was read, and could not be computed from parity.

The held-up messages are in the archive, but a live participant would park them: they cite a lost message, directly or
through others. Most of them can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_Z: Final = 1.96
"""Of 95 % certainty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The counts of messages, of an archive or of a part of it. ``known`` = readable + lost + damaged + incomplete."""

    known: int
    readable: int
    lost: int
    damaged: int
    incomplete: int
    held_up: int
    """Known messages that wait for a lost one."""
    undetermined: int
    """Known messages in channels too large to compute whether they wait."""

    @classmethod
    def of(cls, counts: Mapping[str, Any]) -> Headline:
        """Return the counts of a row that has a column for each."""
        return cls(**{name: counts[name] for name in COUNTS})


COUNTS: Final = tuple(field.name for field in fields(Headline))


def least_share(part: npt.ArrayLike, whole: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the lower bound of shares (Wilson score interval, 95 %), so that 1 of 1 is not worse than 90 of 100."""
    parts, wholes = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    divisors = np.maximum(wholes, 1)
    share, slack = parts / divisors, _Z * _Z / divisors
    spread = _Z * np.sqrt(np.maximum(share * (1 - share) + slack / 4, 0) / divisors)
    return np.where(wholes > 0, np.maximum((share + slack / 2 - spread) / (1 + slack), 0), 0.0)
