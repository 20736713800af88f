"""`NetworkTimes`: what a channel learns of the delays of its network, for timers whose options are not set.

A `SmoothedTime` follows samples of one duration, as RFC 6298 does for round trips: a smoothed mean, a smoothed
deviation, and an upper estimate of both.
"""

from __future__ import annotations

from typing import Final

from fairway.options import ReliableChannelOptions

_GAIN: Final = 8
"""Samples that the mean reaches back; the deviation reaches half as far (RFC 6298, "The Basic Algorithm")."""
_DEVIATIONS: Final = 4
"""Deviations above the mean that cover nearly all samples (RFC 6298)."""
_LEAST_REORDERING_MS: Final = 300
_LONGEST_REORDERING_MS: Final = 10_000
_LEAST_ANSWER_MS: Final = 300
_FIRST_ANSWER_MS: Final = 1_000
"""Assumed time of a store's answer before the first one (RFC 6298: one second)."""
_LONGEST_ANSWER_MS: Final = 10_000
_SYNC_MS: Final = 2_000
_LIMITED_SYNC_MS: Final = 30_000
"""Interval of sync messages under a rate limit, as in RELIABLE-CHANNEL-API."""
_LEAST_RETRY_MS: Final = 2_000
_LONGEST_RETRY_MS: Final = 30_000
_STORE_FIRST_MS: Final = 10_000
"""Time in which a participant gets a message from a store."""
_REPAIR_MS: Final = 30_000
"""T_min with a store or under a rate limit, as js-waku has it."""
_LEAST_REPAIR_MS: Final = 1_000
_LATENESSES: Final = 2
"""Times of the usual lateness in T_min."""


class SmoothedTime:
    """An upper estimate of a duration, from samples."""

    def __init__(self) -> None:
        self._mean_ms = 0.0
        self._deviation_ms = 0.0
        self._is_known = False

    def note(self, sample_ms: int) -> None:
        """Take a sample."""
        if not self._is_known:
            self._is_known, self._mean_ms, self._deviation_ms = True, float(sample_ms), sample_ms / 2
            return
        self._deviation_ms += (abs(sample_ms - self._mean_ms) - self._deviation_ms) * 2 / _GAIN
        self._mean_ms += (sample_ms - self._mean_ms) / _GAIN

    def within(self, least_ms: int, longest_ms: int, default_ms: int) -> int:
        """Return the upper estimate within bounds; ``default_ms`` before the first sample."""
        if not self._is_known:
            return default_ms
        return max(least_ms, min(int(self._mean_ms + _DEVIATIONS * self._deviation_ms), longest_ms))


class NetworkTimes:
    """The learned times of one channel, in this run."""

    def __init__(self, options: ReliableChannelOptions) -> None:
        self.is_limited = options.rate_limit.enabled
        """Whether a rate limit or the pace of the node limits transmissions; then nothing is transmitted sooner."""
        self.has_store = True
        """Whether a store is connected."""
        self._options = options
        self.lateness = SmoothedTime()
        """From the first citation of a message to its arrival without a request."""
        self.answers = SmoothedTime()
        """From a store query by hash to its answer."""
        self.acknowledgements = SmoothedTime()
        """From a message that was sent once to its first acknowledgement."""

    def note_lateness(self, late_ms: int) -> None:
        """Note that a missing message arrived without a request."""
        if 0 <= late_ms <= _LONGEST_REORDERING_MS:
            self.lateness.note(late_ms)

    @property
    def sync_interval_ms(self) -> int:
        """Interval of sync messages after news; 0 without sync messages."""
        fixed_ms = self._options.sync_min_interval_ms
        if fixed_ms is not None:
            return fixed_ms
        return _LIMITED_SYNC_MS if self.is_limited else _SYNC_MS

    @property
    def retry_ms(self) -> int:
        """Time after which a participant that misses a message gets it again; with a store it asks that first."""
        usual_ms = self.acknowledgements.within(_LEAST_RETRY_MS, _LONGEST_RETRY_MS, _LEAST_RETRY_MS)
        return max(usual_ms, _STORE_FIRST_MS) if self.has_store else usual_ms

    @property
    def repair_ms(self) -> int:
        """T_min of SDS-R: the store has a message sooner, if there is one."""
        if self.has_store or self.is_limited:
            return _REPAIR_MS
        return max(_LEAST_REPAIR_MS, _LATENESSES * self.reordering_ms)

    @property
    def reordering_ms(self) -> int:
        """Time in which a message arrives that is only late."""
        return self.lateness.within(_LEAST_REORDERING_MS, _LONGEST_REORDERING_MS, _LEAST_REORDERING_MS)

    @property
    def answer_ms(self) -> int:
        """Time in which a store answers."""
        return self.answers.within(_LEAST_ANSWER_MS, _LONGEST_ANSWER_MS, _FIRST_ANSWER_MS)
