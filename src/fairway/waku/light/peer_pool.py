"""`PeerPool`: the connected peers by service, the best first.

For `FORGIVEN_AFTER_S` after a failure at a service, a peer comes after all peers that did not fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairway.waku.libp2p.host import Host
from fairway.waku.libp2p.peer_id import PeerId

FORGIVEN_AFTER_S: Final = 120.0


class PeerPool:
    """A view of a host's peers by service."""

    def __init__(self, host: Host, *, clock: Callable[[], float], admits: Callable[[PeerId], bool]) -> None:
        """``admits`` returns whether a peer may be used."""
        self._host: Final = host
        self._clock: Final = clock
        self._admits: Final = admits
        self._failed: dict[tuple[PeerId, str], float] = {}

    def serving(self, *protocols: str) -> tuple[PeerId, ...]:
        """Return the peers that serve one of the protocols: those without a recent failure first."""
        self._forgive()
        peers = dict.fromkeys(connection.peer_id for connection in self._host.connections())
        fit = [peer for peer in peers if self._admits(peer) and not self._host.protocols_of(peer).isdisjoint(protocols)]
        return tuple(sorted(fit, key=lambda peer: max(self._failed.get((peer, one), 0.0) for one in protocols)))

    def unfailing(self, protocol: str) -> tuple[PeerId, ...]:
        """Return the peers that serve a protocol, without those that failed at it recently."""
        return tuple(peer for peer in self.serving(protocol) if (peer, protocol) not in self._failed)

    def failed(self, peer: PeerId, protocol: str) -> None:
        """Note that a peer failed at a service."""
        self._failed[peer, protocol] = self._clock()

    def served(self, peer: PeerId, protocol: str) -> None:
        """Note that a peer answered a request of a service."""
        self._failed.pop((peer, protocol), None)

    def _forgive(self) -> None:
        before_s = self._clock() - FORGIVEN_AFTER_S
        for key in [key for key, failed_s in self._failed.items() if failed_s < before_s]:
            del self._failed[key]
