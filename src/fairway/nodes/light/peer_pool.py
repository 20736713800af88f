"""`PeerPool`: the connected peers by service, the best first.

For `FORGIVEN_AFTER_S` after a failure at a service, a peer follows all peers that did not fail. Peers that let a
request time out are last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId

FORGIVEN_AFTER_S: Final = 120.0


class _Failure(NamedTuple):
    """The last failure of a peer at a service. Peers are asked in ascending order of it."""

    was_silent: bool
    at_s: float


_NONE: Final = _Failure(was_silent=False, at_s=0.0)


class PeerPool:
    """A view of a host's peers by service."""

    def __init__(self, host: Host, *, clock: Callable[[], float], admits: Callable[[PeerId], bool]) -> None:
        """``admits`` returns whether a peer may be used."""
        self._host: Final = host
        self._clock: Final = clock
        self._admits: Final = admits
        self._failed: dict[tuple[PeerId, str], _Failure] = {}

    def serving(self, *protocols: str) -> tuple[PeerId, ...]:
        """Return the peers that serve one of the protocols: those without a recent failure first, silent ones last."""
        if self._failed:
            self._forgive()
        peers = dict.fromkeys(connection.peer_id for connection in self._host.connections())
        fit = [peer for peer in peers if self._admits(peer) and not self._host.protocols_of(peer).isdisjoint(protocols)]
        if self._failed:
            fit.sort(key=lambda peer: max(self._failed.get((peer, one), _NONE) for one in protocols))
        return tuple(fit)

    def unfailing(self, protocol: str) -> tuple[PeerId, ...]:
        """Return the peers that serve a protocol, without those that failed at it recently."""
        return tuple(peer for peer in self.serving(protocol) if (peer, protocol) not in self._failed)

    def failed(self, peer: PeerId, protocol: str, *, was_silent: bool = False) -> None:
        """Note that a peer failed at a service; with ``was_silent``, that it gave no answer in time."""
        self._failed[peer, protocol] = _Failure(was_silent, self._clock())

    def served(self, peer: PeerId, protocol: str) -> None:
        """Note that a peer answered a request of a service."""
        self._failed.pop((peer, protocol), None)

    def _forgive(self) -> None:
        before_s = self._clock() - FORGIVEN_AFTER_S
        for key in [key for key, failure in self._failed.items() if failure.at_s < before_s]:
            del self._failed[key]
