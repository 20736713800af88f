"""`MetadataExchange`: exchanges cluster ids with peers, and disconnects peers of another cluster (66/WAKU2-METADATA).

Other nodes query each new peer within milliseconds, and close the connection without an answer: so a light client
answers as well. One query per peer is under way at a time. A peer that does not answer stays connected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from fairway.errors import DecodeError
from fairway.libp2p.errors import Libp2pError, NegotiationError
from fairway.libp2p.host import Host
from fairway.libp2p.peer_book import HostEvent, PeerDisconnected, PeerIdentified
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.protocols.exchange import PendingResponses, answering
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.owned_tasks import OwnedTasks
from fairway.wire.metadata import MAX_METADATA_BYTES, METADATA_PROTOCOL, WakuMetadata, decode_metadata, encode_metadata

_LOG: Final = logging.getLogger(__name__)


class MetadataExchange:
    """The metadata protocol of one host."""

    def __init__(
        self,
        host: Host,
        ours: WakuMetadata,
        *,
        timeout_s: float,
        log_level: int = logging.INFO,
        admitted: Callable[[], None] = lambda: None,
        pending: PendingResponses | None = None,
    ) -> None:
        """Answer metadata requests at ``host`` from now on.

        Without a cluster in ``ours`` all clusters are accepted: each peer gets its own as the answer, and none is
        queried. ``admitted`` is called when a peer is found to be of our cluster; ``log_level`` is the log level of
        disconnections.
        """
        self.last_mismatch: str | None = None
        """Reason of the last disconnection of a peer."""
        self._ours = ours
        """The metadata that peers get; its cluster must not change."""
        self._host: Final = host
        self._timeout_s: Final = timeout_s
        self._log_level: Final = log_level
        self._admitted: Final = admitted
        self._tasks: Final = OwnedTasks()
        self._asking: set[PeerId] = set()
        self._known: set[PeerId] = set()
        host.handle(METADATA_PROTOCOL, answering(self._respond, max_request_bytes=MAX_METADATA_BYTES, pending=pending))

    def announce(self, ours: WakuMetadata) -> None:
        """Answer peers with other metadata from now on."""
        self._ours = ours

    def admits(self, peer: PeerId) -> bool:
        """Return whether a connected peer is of our cluster, or all clusters are accepted."""
        return self._ours.cluster_id is None or peer in self._known

    def take(self, event: HostEvent) -> None:
        """Process an event of the host."""
        match event:
            case PeerIdentified(peer_id=peer, protocols=protocols) if METADATA_PROTOCOL in protocols:
                if self._ours.cluster_id is not None and peer not in self._asking:
                    self._asking.add(peer)
                    self._tasks.spawn(self._ask(peer))
            case PeerDisconnected(peer_id=peer):
                self._known.discard(peer)

    async def close(self) -> None:
        """Cancel all queries. Can be called twice."""
        await self._tasks.close()

    async def _respond(self, peer: str, request: bytes) -> bytes:
        if self._ours.cluster_id is not None:
            return encode_metadata(self._ours)
        theirs = decode_metadata(request)
        if theirs.cluster_id is None:
            raise NegotiationError(f"{peer} names no cluster, and this node has none of its own to name")
        return encode_metadata(WakuMetadata(cluster_id=theirs.cluster_id))

    async def _ask(self, peer: PeerId) -> None:
        try:
            theirs = await PeerRequests(self._host).ask(
                peer,
                METADATA_PROTOCOL,
                encode_metadata(self._ours),
                max_response_bytes=MAX_METADATA_BYTES,
                timeout_s=self._timeout_s,
                is_only=False,
            )
        except (Libp2pError, TimeoutError) as error:
            _LOG.debug("no metadata of %s: %s", peer, error)
            return
        finally:
            self._asking.discard(peer)
        problem = mismatch(self._ours, theirs)
        if problem is None:
            self._known.add(peer)
            self._admitted()
        else:
            self.last_mismatch = problem
            _LOG.log(self._log_level, "log_level with %s: %s", peer, problem)
            await self._host.disconnect(peer)


def mismatch(ours: WakuMetadata, data: bytes) -> str | None:
    """Return why the metadata in ``data`` does not match ours, or None if it does."""
    try:
        theirs = decode_metadata(data)
    except DecodeError as error:
        return str(error)
    if theirs.cluster_id != ours.cluster_id:
        return f"the peer is of cluster {theirs.cluster_id}, this node of cluster {ours.cluster_id}"
    return None
