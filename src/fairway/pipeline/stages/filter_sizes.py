"""`FilterSizes`: infers how large the bloom filters of a channel on the Waku wire are, which messages do not say.

On the Waku wire a filter travels as bare words: capacity and error rate are options of the participants
(``SdsConfig.bloom_capacity``), and an archive has none. Read with other parameters a filter seems empty. But a
participant puts each message that it has into its filter, and cites only messages that it has. So the right parameters
find the cited messages in the filter, and wrong ones do so by chance alone.

A filter of the expected length is taken to have the expected parameters. For another length all parameters that give
this length are tried, for each participant by itself, because a forger must not spoil the filters of others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from fairway.bounded import BoundedDict
from fairway.wire.bloom import WAKU_BLOOM, BloomParameters, holds, spread

_BITS_PER_ELEMENT: Final = range(1, 33)
"""Error rates from a half to some one in five million."""
_CERTAIN: Final = math.log(1e9)
"""Parameters are believed once wrong ones would have found all cited messages with a chance of at most 1 in 1e9."""
_MAX_TRIALS: Final = 64
"""Messages of a participant that are tried; after that its filters are not read."""
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
        """Drop parameters that miss a cited message; return those that are certain by now, if any are."""
        self.trials += 1
        used = int.from_bytes(words).bit_count()
        for parameters in list(self.weights):
            if not all(holds(words, spread(pair, parameters), WAKU_BLOOM.byte_flip) for pair in base_hashes):
                del self.weights[parameters]
            elif 0 < used < parameters.bit_count:
                chance_log = parameters.hash_count * math.log(used / parameters.bit_count)
                self.weights[parameters] -= chance_log * len(base_hashes)
        # Fewer hash functions over as many bits find all that more of them find: the strictest parameters are right.
        best = max(self.weights, key=lambda parameters: self.weights[parameters], default=None)
        if best is not None and self.weights[best] >= _CERTAIN:
            self.found = best
        return self.found


class FilterSizes:
    """The parameters of the filters of one channel."""

    def __init__(self, expected: BloomParameters) -> None:
        self._expected = expected
        self._trials: BoundedDict[str, _Trial] = BoundedDict(_MAX_PARTICIPANTS)
        self._learned: dict[int, BloomParameters] = {}

    def of(self, sender_id: str, words: bytes, cited: Sequence[str]) -> BloomParameters | None:
        """Return the parameters of a filter, from its length and from what its message cites; None if unknown."""
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
        # A participant that cites nothing has the parameters of the others, as the specification demands.
        return trial.found or (self._learned.get(length) if not trial.trials else None)

    def _begin(self, length: int) -> _Trial:
        # Receivers ignore further bytes, as js-waku does: a longer filter may still be one of the expected size.
        longer = (self._expected,) if length > self._expected.byte_length else ()
        return _Trial(length, (*longer, *parameters_of_length(length)))
