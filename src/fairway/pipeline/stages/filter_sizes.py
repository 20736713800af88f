"""`FilterSizes`: infers the parameters of the bloom filters of a channel on the Waku wire.

On the Waku wire a filter travels as bare words: capacity and error rate are options of the participants
(``SdsConfig.bloom_capacity``), and an archive does not record them. With other parameters a filter seems empty. But a
participant adds each message that it has to its filter, and cites only messages that it has. So the right parameters
find the cited messages in the filter, and wrong ones find them only by chance.

A filter of the expected length is assumed to have the expected parameters. For another length all parameters that give
this length are tried, separately for each participant, so that a forger cannot spoil the filters of others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from fairway.bounded import BoundedDict
from fairway.wire.bloom import WAKU_BLOOM, BloomParameters, holds, spread

_BITS_PER_ELEMENT: Final = range(1, 33)
"""Error rates from 1/2 to about 1 in 5 million."""
_CERTAIN: Final = math.log(1e9)
"""Evidence for parameters to be accepted: wrong ones would pass with a chance of at most 1 in 1e9."""
_DISTINCT: Final = math.log(1e6)
"""Evidence beyond that of the next parameters with fewer hash functions: so seldom chance sets all further bits."""
_MAX_TRIALS: Final = 64
"""Messages of a participant that are tried; then its filters are ignored."""
_MAX_PARTICIPANTS: Final = 4_096
_LN2: Final = math.log(2)


@lru_cache(64)
def parameters_of_length(byte_length: int) -> tuple[BloomParameters, ...]:
    """Return all parameters that follow from a capacity and an error rate and give filters of this length."""
    if byte_length % 8 or not byte_length:
        return ()
    end = byte_length * 8
    first = end - 64
    return tuple(
        BloomParameters(
            capacity=capacity,
            error_rate=math.exp(-bits * _LN2**2),
            hash_count=math.floor(_LN2 * bits + 0.5),
            bit_count=capacity * bits,
        )
        for bits in _BITS_PER_ELEMENT
        for capacity in range(max(1, -(-first // bits)), -(-end // bits))
    )


class _Trial:
    """The parameters that found every message that a participant cited, with the weight of that evidence."""

    def __init__(self, byte_length: int, candidates: Iterable[BloomParameters]) -> None:
        self.byte_length = byte_length
        self.weights = dict.fromkeys(candidates, 0.0)
        self.trials = 0
        self.found: BloomParameters | None = None

    def test(self, words: bytes, base_hashes: Sequence[tuple[int, int]]) -> BloomParameters | None:
        """Drop parameters that miss a cited message; return the parameters that are certain, if any."""
        self.trials += 1
        used = int.from_bytes(words).bit_count()
        for parameters in list(self.weights):
            if not all(holds(words, spread(pair, parameters), WAKU_BLOOM.byte_flip) for pair in base_hashes):
                del self.weights[parameters]
            elif 0 < used < parameters.bit_count:
                chance_log = parameters.hash_count * math.log(used / parameters.bit_count)
                self.weights[parameters] -= chance_log * len(base_hashes)
        # Fewer hash functions over as many bits find every message that more of them find, so the strictest are right.
        best = max(self.weights, key=lambda parameters: self.weights[parameters], default=None)
        if best is not None and self.weights[best] >= _CERTAIN:
            fewer = [weight for each, weight in self.weights.items() if each.hash_count < best.hash_count]
            if self.weights[best] - max(fewer, default=0.0) >= _DISTINCT:
                self.found = best
        return self.found


class FilterSizes:
    """The parameters of the filters of one channel."""

    def __init__(self, expected: BloomParameters) -> None:
        self._expected = expected
        self._trials: BoundedDict[str, _Trial] = BoundedDict(_MAX_PARTICIPANTS)
        self._learned: dict[int, BloomParameters] = {}

    def of(self, sender_id: str, words: bytes, cited: Sequence[str]) -> BloomParameters | None:
        """Return the parameters of a filter, from its length and the citations of its message; None if unknown."""
        length = len(words)
        if length == self._expected.byte_length:
            return self._expected
        trial = self._trials.get(sender_id)
        if trial is None or trial.byte_length != length:
            trial = self._begin(length)
        self._trials[sender_id] = trial
        if trial.found is None and trial.weights and trial.trials < _MAX_TRIALS and cited:
            found = trial.test(words, [WAKU_BLOOM.base_hashes(message_id) for message_id in cited])
            if found is not None:
                self._learned.setdefault(length, found)
        # A participant without citations has the parameters of the others, as the specification demands.
        return trial.found or (self._learned.get(length) if not trial.trials else None)

    def _begin(self, length: int) -> _Trial:
        # Receivers ignore further bytes, as js-waku does: a longer filter may still be one of the expected size.
        longer = (self._expected,) if length > self._expected.byte_length else ()
        return _Trial(length, (*longer, *parameters_of_length(length)))
