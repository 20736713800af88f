"""`outages`: the stretches of time in which a store missed nearly all messages of the other stores.

A store that misses a tenth of all messages has no outage. A store that misses forty messages in a row has one, whether
ten or ten thousand messages are sent in a minute. So the share counts. Each interval adds a log-likelihood ratio to a
score: an outage (nearly all messages are missing) against the store's ordinary share. A stretch is an outage if its
score rises by more than chance explains over all intervals. It ends where the score falls again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from fairway.units import NS_PER_S

_Ints = npt.NDArray[np.int64]

_OUT: Final = 0.9
"""Least share that a store misses during an outage. It is below 1 because some messages are resent later."""
_LEAST_USUAL: Final = 0.02
"""Smallest ordinary share that a store misses outside of its outages."""
_CHANCE: Final = 0.01
"""Largest probability that a store without outages shows one."""
_FALL: Final = 10.0
"""Largest fall of the score within an outage."""
_FEWEST: Final = 5
"""Fewest missing messages of an outage."""
_ROUNDS: Final = 3
"""Estimates of the ordinary share at most; each leaves out the outages found before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A stretch of time in which a store missed nearly all messages."""

    source: str
    begin_ns: int
    end_ns: int
    lacked: int
    of: int
    """Messages of this time that other stores had."""

    @property
    def last_ns(self) -> int:
        """Return the end, rounded up to a whole second."""
        return -(-self.end_ns // NS_PER_S) * NS_PER_S

    @property
    def is_total(self) -> bool:
        """Return whether the store had none of the messages."""
        return self.lacked == self.of


def outages(source: str, lacked: _Ints, of: _Ints, begin_ns: int, width_ns: int) -> tuple[Outage, ...]:
    """Return the outages of a store, in the order of time.

    ``lacked`` and ``of`` have a count for each interval of ``width_ns`` from ``begin_ns`` on. ``of`` counts the
    messages that any other store had, ``lacked`` those of them that this store missed.
    """
    found: list[tuple[int, int]] = []
    for _ in range(_ROUNDS):
        outside = np.ones(len(of), dtype=np.bool_)
        for first, last in found:
            outside[first : last + 1] = False
        again = _stretches(lacked, of, _share(lacked[outside].sum(), of[outside].sum()))
        if again == found:
            break
        found = again
    return tuple(
        Outage(
            source=source,
            begin_ns=begin_ns + first * width_ns,
            end_ns=begin_ns + (last + 1) * width_ns,
            lacked=int(lacked[first : last + 1].sum()),
            of=int(of[first : last + 1].sum()),
        )
        for first, last in found
    )


def _share(lacked: int, of: int) -> float:
    return min(max(lacked / of if of else 0.0, _LEAST_USUAL), 1 - _LEAST_USUAL)


def _stretches(lacked: _Ints, of: _Ints, usual: float) -> list[tuple[int, int]]:
    """Return the first and the last interval of each stretch that misses more than the usual share explains."""
    if usual >= _OUT:
        return []  # the store misses this share at all times
    out = max(_OUT, (1 + usual) / 2)
    filled = np.flatnonzero(of)
    here, gone = of[filled] - lacked[filled], lacked[filled]
    gains = gone * math.log(out / usual) + here * math.log((1 - out) / (1 - usual))
    enough = math.log(max(len(filled), 1) / _CHANCE)
    found: list[tuple[int, int]] = []
    score = best = 0.0
    first = last = -1

    def close() -> None:
        if first >= 0 and best >= enough and gone[first : last + 1].sum() >= _FEWEST:
            found.append((int(filled[first]), int(filled[last])))

    for place, gain in enumerate(gains.tolist()):
        if score <= 0 or score < best - _FALL:
            close()
            score = best = 0.0
            first = -1
        if first < 0 and gain <= 0:
            continue
        if first < 0:
            first = place
        score += gain
        if score > best:
            best, last = score, place
    close()
    return found
