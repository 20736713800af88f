"""`WorkQueue`: the rules by which the workers of a group share its requests, without a server.

Every worker sees the same requests and the same claims, in different orders and some of them late. Each decides from
these messages alone:

* A claim names the only request that its sender works on, or none. The latest claim of a worker, by its place in the
  channel, replaces the earlier ones. So the state is one claim for each worker, whatever the order of arrival.
* A hash of the worker and the request orders the workers differently for each request. The first worker claims a new
  request at once. Each free worker after it waits `TURN_MS` longer; a worker that is known to be busy does not count.
  So the workers do not claim all at once, and a request does not wait for a worker that is gone.
* A worker begins when its claim is sent, if it is the first of all known workers. Any other one waits `SETTLE_MS`.
  Of the workers that hold claims on one request by then, the first one begins, and the others withdraw.
* A claim holds for `LEASE_MS` after its arrival, unless it is repeated. Then its request is free again.

Under loss two workers may begin the same request, because neither has the other's claim. The rules make that rare, and
the reply of either ends the request for all.

Time is an argument. Nothing of this is persisted: the history of the channel has the claims.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

from fairway.bounded import BoundedDict
from fairway.events import OrderKey

TURN_MS: Final = 15_000
"""Wait for a worker that comes first and seems free; a lost claim is usually repaired within it."""
SETTLE_MS: Final = 1_000
"""Wait for the claims of others before a request is begun out of turn."""
LEASE_MS: Final = 300_000
"""How long a claim holds."""
RENEW_MS: Final = 100_000
"""Time between two claims on a request that takes long: two of three may be lost."""
_MAX_WORKERS: Final = 1_000
_WINDOW: Final = 100
"""Free requests among which a worker chooses, the oldest ones."""


class RequestKey(NamedTuple):
    """The key of a request of a group."""

    requester: str
    correlation_id: str


class _Claim(NamedTuple):
    """The latest claim of another worker."""

    request: RequestKey | None
    place: OrderKey
    heard_ms: int


class Choice(NamedTuple):
    """The request that a worker claims next, and when."""

    request: RequestKey
    at_ms: int


class WorkQueue:
    """The requests and the claims of a group, as one of its workers knows them."""

    def __init__(self, worker: str) -> None:
        self.open: dict[RequestKey, int] = {}
        """The requests that are not over, and since when each may be claimed."""
        self._worker = worker
        self._claims: BoundedDict[str, _Claim] = BoundedDict(_MAX_WORKERS)
        """By worker, without the own one."""
        self._slow: set[str] = set()
        """Workers that let a turn pass; nobody waits for them until they claim again."""

    def add(self, request: RequestKey, now_ms: int) -> None:
        """Note a request."""
        self.open.setdefault(request, now_ms)

    def remove(self, request: RequestKey) -> None:
        """Forget a request that is answered, cancelled or expired."""
        self.open.pop(request, None)

    def claimed(self, worker: str, request: RequestKey | None, place: OrderKey, now_ms: int) -> None:
        """Note a claim of another worker, unless a later one of it is known."""
        known = self._claims.get(worker)
        if known is None or place > known.place:
            self._slow.discard(worker)
            evicted = self._claims.put(worker, _Claim(request, place, now_ms))
            if evicted is not None:
                self._slow.discard(evicted)

    def left(self, worker: str, now_ms: int) -> None:
        """Forget a worker that is gone; its request is free."""
        claim = self._claims.pop(worker, None)
        self._slow.discard(worker)
        if claim is not None and claim.request in self.open:
            self.open[claim.request] = now_ms

    def holders(self, request: RequestKey, now_ms: int) -> list[str]:
        """Return the other workers whose claims on a request hold."""
        return [
            name
            for name, claim in self._claims.items()
            if claim.request == request and now_ms < claim.heard_ms + LEASE_MS
        ]

    def next(self, now_ms: int) -> Choice | None:
        """Return the request to claim next, which may be later than now; None if there is none."""
        lapses_ms: dict[RequestKey | None, int] = {}
        for claim in self._claims.values():
            lapses_ms[claim.request] = max(lapses_ms.get(claim.request, 0), claim.heard_ms + LEASE_MS)
        best: tuple[int, int, Choice] | None = None
        free = 0
        for request, open_ms in self.open.items():
            since_ms = max(open_ms, lapses_ms.get(request, 0))
            first = self._first(request)
            at_ms = max(now_ms, since_ms + TURN_MS * len(self._waited_for(first, now_ms)))
            # A worker prefers the requests for which it comes first, but not for ever.
            rated = (at_ms, since_ms + TURN_MS * len(first), Choice(request, at_ms))
            if best is None or rated[:2] < best[:2]:
                best = rated
            free += since_ms <= now_ms
            if free == _WINDOW:
                break
        return None if best is None else best[2]

    def take(self, request: RequestKey, now_ms: int) -> bool:
        """Note that this worker claims a request; return whether it comes first of all known workers."""
        first = self._first(request)
        self._slow.update(self._waited_for(first, now_ms))
        return not first

    def may_begin(self, request: RequestKey, now_ms: int, *, is_resumed: bool) -> bool:
        """Return whether this worker begins the request that it has claimed, or withdraws.

        After a restart any other claim counts: another worker took the request over.
        """
        holders = self.holders(request, now_ms)
        return not (holders if is_resumed else set(holders).intersection(self._first(request)))

    def _first(self, request: RequestKey) -> list[str]:
        """Return the workers that come before this one for a request."""
        own = _rank(request, self._worker)
        return [name for name in self._claims if _rank(request, name) < own]

    def _waited_for(self, first: list[str], now_ms: int) -> list[str]:
        """Return those of the workers that seem free, and take requests."""
        return [name for name in first if name not in self._slow and not self._is_busy(self._claims[name], now_ms)]

    def _is_busy(self, claim: _Claim, now_ms: int) -> bool:
        return claim.request in self.open and now_ms < claim.heard_ms + LEASE_MS


def _rank(request: RequestKey, worker: str) -> tuple[bytes, str]:
    """Return the place of a worker in the order of a request: the hash of both, then the name."""
    named = f"{request.correlation_id}\0{request.requester}\0{worker}".encode(errors="surrogatepass")
    return blake2b(named, digest_size=8).digest(), worker
