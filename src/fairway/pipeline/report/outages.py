"""`outages`: the stretches of time in which a store lacked nearly all that other stores had.

A store that lacks a tenth of everything has no outage, and one that lacks forty messages in a row has one, whether ten
or ten thousand messages are sent in a minute. So it is the share that counts: each interval adds to a score what it
says for an outage (nearly all is lacking) against the store's ordinary share (log-likelihood ratio). A stretch in which
the score rises by more than chance gives in so many intervals is an outage. It ends where the score falls again.
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
"""Share that a store lacks while it is out, at least: some messages are sent again later, with a new timestamp."""
_LEAST_USUAL: Final = 0.02
"""A store that lacked nothing else may still lack this share."""
_CHANCE: Final = 0.01
"""How likely it may be that an archive without outages shows one."""
_FALL: Final = 10.0
"""By how much the score may fall within an outage."""
_FEWEST: Final = 5
"""Fewer messages are no outage."""
_ROUNDS: Final = 3
"""How often the ordinary share is estimated: each time without the outages found before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A stretch of time in which a store lacked nearly all messages."""

    source: str
    begin_ns: int
    end_ns: int
    lacked: int
    of: int
    """Messages of that time that other stores had."""

    @property
    def last_ns(self) -> int:
        """Return its end as a whole second, which is not before it."""
        return -(-self.end_ns // NS_PER_S) * NS_PER_S

    @property
    def is_total(self) -> bool:
        """Return whether the store had none of them."""
        return self.lacked == self.of


def outages(source: str, lacked: _Ints, of: _Ints, begin_ns: int, width_ns: int) -> tuple[Outage, ...]:
    """Return the outages of a store, in the order of time.

    ``lacked`` and ``of`` count, for each interval of ``width_ns`` from ``begin_ns`` on, the messages that the store
    lacked and those that any other store had.
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
    """Return the first and the last interval of each stretch in which more is lacking than the usual share explains."""
    if usual >= _OUT:
        return []  # it never had more than this
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
