"""`PeerKeeper`: stays connected to known peers, and dials them again with growing pauses.

Each address has at most one attempt at a time. Random pauses spread the attempts of many nodes that lost the same peer.
A watcher gets each change of state once; attempts that fail alike are no change.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from fairway.libp2p.errors import Libp2pError, UntrustedCertificateError
from fairway.libp2p.host import Host
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.owned_tasks import OwnedTasks
from fairway.subscription import Subscription

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
_STABLE_S: Final = 30.0
"""After a connection that lasted longer, the pauses begin with the shortest again."""
_LOG: Final = logging.getLogger(__name__)


class KeptState(Enum):
    """The state of a kept peer."""

    CONNECTED = "connected"
    LOST = "the connection has ended"
    UNREACHABLE = "cannot be reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPeer:
    """An address and its state."""

    address: Multiaddr
    state: KeptState
    detail: str = ""
    """The error of the last attempt, if it failed."""
    untrusted: bool = False
    """Whether the last attempt failed because the peer's certificate is not trusted."""


class PeerKeeper:
    """Keeps a host connected to addresses, from `start` to `close`."""

    def __init__(
        self,
        host: Host,
        addresses: Sequence[Multiaddr],
        *,
        rng: random.Random,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        self._host: Final = host
        self._addresses: Final = tuple(dict.fromkeys(addresses))
        self._rng: Final = rng
        self._longest_pause_s: Final = longest_pause_s
        self._tasks: Final = OwnedTasks()
        self._peer_ids: dict[Multiaddr, PeerId] = {}
        self._known: dict[Multiaddr, KeptPeer] = {}
        self._watchers: list[Subscription[KeptPeer]] = []

    def start(self) -> None:
        """Begin to dial."""
        for address in self._addresses:
            self._tasks.spawn(self._keep(address))

    async def close(self) -> None:
        """Stop dialling; connections stay open. Can be called twice."""
        await self._tasks.close()
        for watcher in tuple(self._watchers):
            watcher.close()

    def connected(self) -> tuple[PeerId, ...]:
        """Return the kept peers that are connected now."""
        here = {connection.peer_id for connection in self._host.connections()}
        return tuple(peer_id for peer_id in dict.fromkeys(self._peer_ids.values()) if peer_id in here)

    def failures(self) -> tuple[str, ...]:
        """Return a text for each tried address that is not connected: the reason."""
        return tuple(
            kept.detail or f"the connection with {kept.address} has ended"
            for kept in self._known.values()
            if kept.state is not KeptState.CONNECTED
        )

    @property
    def all_untrusted(self) -> bool:
        """Whether each address was tried, and the certificate of each is not trusted: waiting does not help."""
        known = self._known
        return bool(known) and len(known) == len(self._addresses) and all(kept.untrusted for kept in known.values())

    def watch(self) -> Subscription[KeptPeer]:
        """Return a subscription to the state of each tried address, and to every change."""
        watcher: Subscription[KeptPeer] = Subscription(on_close=lambda: self._watchers.remove(watcher))
        self._watchers.append(watcher)
        for kept in self._known.values():
            watcher.put(kept)
        return watcher

    async def _keep(self, address: Multiaddr) -> None:
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                connection = await self._host.connect(address)
            except (Libp2pError, TimeoutError, OSError) as error:
                untrusted = isinstance(error.__cause__, UntrustedCertificateError)
                self._note(address, KeptState.UNREACHABLE, str(error) or type(error).__name__, untrusted=untrusted)
                _LOG.debug("%s cannot be reached: %s", address, error)
            else:
                began_s = loop.time()
                self._peer_ids[address] = connection.peer_id
                self._note(address, KeptState.CONNECTED)
                await connection.wait_closed()
                self._note(address, KeptState.LOST)
                if loop.time() - began_s > _STABLE_S:
                    pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, self._longest_pause_s)

    def _note(self, address: Multiaddr, state: KeptState, detail: str = "", *, untrusted: bool = False) -> None:
        before = self._known.get(address)
        kept = self._known[address] = KeptPeer(address=address, state=state, detail=detail, untrusted=untrusted)
        if before is None or before.state is not state:
            for watcher in self._watchers:
                watcher.put(kept)
