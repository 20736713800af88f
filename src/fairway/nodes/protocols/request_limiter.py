"""`RequestLimiter`: a token bucket per peer (WAKU-LIGHTPUSH, "Security Considerations").

Pure; time is an argument. A peer can make ``burst`` requests at once and ``per_second`` requests a second in the long
run. At most ``max_peers`` buckets are kept; the least recently used is evicted first, because it is most likely full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.bounded import BoundedDict
from fairway.errors import ConfigurationError
from fairway.type_checks import check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRate:
    """The limit of requests per peer."""

    per_second: float
    """Requests a second in the long run."""
    burst: int
    """Requests at once."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.per_second <= 0 or self.burst < 1:
            raise ConfigurationError(
                f"a request rate needs per_second above 0 and a burst of at least 1, not {self.per_second} and "
                f"{self.burst}; give no rate at all for no limit"
            )


class RequestLimiter:
    """The buckets of all peers of one service; with no rate everything passes."""

    def __init__(self, rate: RequestRate | None, *, max_peers: int = 10_000) -> None:
        self._rate: Final = rate
        self._buckets: BoundedDict[str, tuple[float, float]] = BoundedDict(max_peers)
        """Remaining tokens, and the time of that count."""
        self.admitted = 0
        """Requests that were allowed."""
        self.refused = 0
        """Requests that were refused."""

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._buckets)

    def admit(self, peer: str, now_s: float) -> bool:
        """Return whether a request of a peer is allowed now, and count it if it is."""
        if self._rate is None:
            self.admitted += 1
            return True
        tokens, then_s = self._buckets.pop(peer, (float(self._rate.burst), now_s))
        tokens = min(float(self._rate.burst), tokens + max(0.0, now_s - then_s) * self._rate.per_second)
        passes = tokens >= 1
        self._buckets[peer] = (tokens - passes, now_s)
        self.admitted += passes
        self.refused += not passes
        return passes
