"""Staying connected to known peers: dialling each again, with growing pauses, whenever it is gone.

Invariant: each address has at most one attempt at a time, and pauses between them grow to `LONGEST_PAUSE_S`; chance
spreads the attempts of many nodes that lost the same peer.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final

from fairway.waku.libp2p.errors import Libp2pError
from fairway.waku.libp2p.host import Host
from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.peer_id import PeerId

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
_STABLE_S: Final = 30.0
"""A connection that lasted so long was a good one: the pauses begin anew."""
_LOG: Final = logging.getLogger(__name__)


class PeerKeeper:
    """Keeps a host connected to addresses, from `start` to `close`."""

    def __init__(self, host: Host, addresses: Sequence[Multiaddr], *, rng: random.Random) -> None:
        self._host: Final = host
        self._addresses: Final = tuple(addresses)
        self._rng: Final = rng
        self._tasks: list[asyncio.Task[None]] = []
        self._peer_ids: dict[Multiaddr, PeerId] = {}
        self._failures: dict[Multiaddr, str] = {}

    def start(self) -> None:
        """Begin to dial."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep(address)) for address in self._addresses]

    async def close(self) -> None:
        """Stop to dial; connections stay. May be called twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def connected(self) -> tuple[PeerId, ...]:
        """Return the kept peers that are connected now."""
        here = {connection.peer_id for connection in self._host.connections()}
        return tuple(peer_id for peer_id in dict.fromkeys(self._peer_ids.values()) if peer_id in here)

    def failures(self) -> tuple[str, ...]:
        """Return why the latest attempt failed, for each address of which it did."""
        return tuple(self._failures.values())

    async def _keep(self, address: Multiaddr) -> None:
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                connection = await self._host.connect(address)
            except (Libp2pError, TimeoutError, OSError) as error:
                self._failures[address] = str(error) or type(error).__name__
                _LOG.debug("%s cannot be reached: %s", address, error)
            else:
                self._failures.pop(address, None)
                began_s = loop.time()
                self._peer_ids[address] = connection.peer_id
                await connection.wait_closed()
                if loop.time() - began_s > _STABLE_S:
                    pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
