"""Asking peers of which cluster they are, and parting with those of another one (66/WAKU2-METADATA).

Invariant: a peer is asked once at a time, however often it says what it serves; one that tells nothing is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from fairway.waku.libp2p.errors import Libp2pError
from fairway.waku.libp2p.host import Host, HostEvent, PeerDisconnected, PeerIdentified
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.owned_tasks import OwnedTasks
from fairway.waku.protocols.exchange import ask
from fairway.waku.protocols.metadata import mismatch
from fairway.wire.metadata import MAX_METADATA_BYTES, METADATA_PROTOCOL, WakuMetadata, encode_metadata

_LOG: Final = logging.getLogger(__name__)


class Introductions:
    """Gets to know the peers of one host."""

    def __init__(
        self,
        host: Host,
        ours: WakuMetadata,
        *,
        timeout_s: float,
        parting: int = logging.INFO,
        admitted: Callable[[], None] = lambda: None,
    ) -> None:
        """``admitted`` is called when another peer turned out to be of our cluster; ``parting`` is a level of logs."""
        self.parted: str | None = None
        """Why a peer was parted with at last."""
        self._host: Final = host
        self._ours: Final = ours
        self._timeout_s: Final = timeout_s
        self._parting: Final = parting
        self._admitted: Final = admitted
        self._tasks: Final = OwnedTasks()
        self._asking: set[PeerId] = set()
        self._known: set[PeerId] = set()

    def admits(self, peer: PeerId) -> bool:
        """Return whether a connected peer said that it is of our cluster."""
        return peer in self._known

    def take(self, event: HostEvent) -> None:
        """Take note of what a host tells those who watch it."""
        match event:
            case PeerIdentified(peer_id=peer, protocols=protocols) if METADATA_PROTOCOL in protocols:
                if peer not in self._asking:
                    self._asking.add(peer)
                    self._tasks.spawn(self._ask(peer))
            case PeerDisconnected(peer_id=peer):
                self._known.discard(peer)

    async def close(self) -> None:
        """Ask nobody any more. May be called twice."""
        await self._tasks.close()

    async def _ask(self, peer: PeerId) -> None:
        try:
            theirs = await ask(
                self._host,
                peer,
                METADATA_PROTOCOL,
                encode_metadata(self._ours),
                max_response_bytes=MAX_METADATA_BYTES,
                timeout_s=self._timeout_s,
            )
        except (Libp2pError, TimeoutError) as error:
            _LOG.debug("%s told no metadata: %s", peer, error)
            return
        finally:
            self._asking.discard(peer)
        problem = mismatch(self._ours, theirs)
        if problem is None:
            self._known.add(peer)
            self._admitted()
        else:
            self.parted = problem
            _LOG.log(self._parting, "parting with %s: %s", peer, problem)
            await self._host.disconnect(peer)
