"""Which connected peers serve what, the best first.

Invariant: a peer that failed at a service stands behind all that did not for `FORGIVEN_AFTER_S`, so that it is used
again only when there is no other, or when it has had time to recover.
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
        """``admits`` says whether a peer may be used at all."""
        self._host: Final = host
        self._clock: Final = clock
        self._admits: Final = admits
        self._failed: dict[tuple[PeerId, str], float] = {}

    def serving(self, *protocols: str) -> tuple[PeerId, ...]:
        """Return the peers that serve one of these: first those that did not fail lately, the latest failure last."""
        self._forgive()
        peers = dict.fromkeys(connection.peer_id for connection in self._host.connections())
        fit = [peer for peer in peers if self._admits(peer) and not self._host.protocols_of(peer).isdisjoint(protocols)]
        return tuple(sorted(fit, key=lambda peer: max(self._failed.get((peer, one), 0.0) for one in protocols)))

    def unfailing(self, protocol: str) -> tuple[PeerId, ...]:
        """Return those of the peers that serve a protocol that did not fail at it lately."""
        return tuple(peer for peer in self.serving(protocol) if (peer, protocol) not in self._failed)

    def failed(self, peer: PeerId, protocol: str) -> None:
        """Note that a peer failed at a service."""
        self._failed[peer, protocol] = self._clock()

    def served(self, peer: PeerId, protocol: str) -> None:
        """Note that a peer did what it was asked for."""
        self._failed.pop((peer, protocol), None)

    def _forgive(self) -> None:
        before_s = self._clock() - FORGIVEN_AFTER_S
        for key in [key for key, failed_s in self._failed.items() if failed_s < before_s]:
            del self._failed[key]
