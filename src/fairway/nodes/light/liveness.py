"""`Liveness`: notices connected peers that no longer answer.

When a peer process ends, its connection closes. When a peer freezes or loses its network, TCP waits for a quarter of an
hour. So a peer without traffic is pinged every second, and counts as silent after `SILENT_AFTER` seconds; any bytes
from it end that. After `GONE_AFTER` it is disconnected, so that it can be dialled again. The seconds are turns of this
program's own loop, so a program that was paused does not find its peers silent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fairway.libp2p.connection import Connection
from fairway.libp2p.errors import Libp2pError
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.ping import Pinger
from fairway.owned_tasks import OwnedTasks

BEAT_S: Final = 1.0
SILENT_AFTER: Final = 3
"""Beats without a byte after which a peer counts as silent: it had two seconds to answer."""
GONE_AFTER: Final = 15
"""Beats without a byte after which the connection is ended."""
_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Traffic:
    received_bytes: int
    silent_beats: int = 0


@dataclass(slots=True)
class _PingTask:
    pinger: Pinger
    task: asyncio.Task[None] | None = None

    async def ask(self) -> None:
        try:
            await self.pinger.ping(timeout_s=BEAT_S * GONE_AFTER)
        except Libp2pError as error:
            _LOG.debug("%s", error)  # a wrong answer counts as well: the received bytes decide


class Liveness:
    """Watches the connections of one host while `run` runs."""

    def __init__(self, host: Host, *, changed: Callable[[], None]) -> None:
        """Call ``changed`` when a peer fell silent, or sends again."""
        self._host: Final = host
        self._changed: Final = changed
        self._heard: dict[Connection, _Traffic] = {}
        self._pings: dict[Connection, _PingTask] = {}
        self._silent: frozenset[PeerId] = frozenset()
        self._tasks: Final = OwnedTasks()

    def is_alive(self, peer: PeerId) -> bool:
        """Return whether a peer is not known to be silent."""
        return peer not in self._silent

    @property
    def silent(self) -> frozenset[PeerId]:
        """The connected peers that do not answer."""
        return self._silent

    async def run(self) -> None:
        """Check all connections every second, until cancelled."""
        while True:
            await asyncio.sleep(BEAT_S)
            await self.look()

    async def look(self) -> None:
        """Check all connections now."""
        connections = self._host.connections()
        for gone in self._heard.keys() - set(connections):
            del self._heard[gone]
            self._pings.pop(gone, None)
        for connection in connections:
            received_bytes = connection.received_bytes
            heard = self._heard.get(connection)
            if heard is None or heard.received_bytes != received_bytes:
                self._heard[connection] = _Traffic(received_bytes)
                continue
            heard.silent_beats += 1
            asker = self._pings.setdefault(connection, _PingTask(Pinger(connection)))
            if asker.task is None or asker.task.done():
                asker.task = self._tasks.spawn(asker.ask())
        self._show()
        for connection, heard in list(self._heard.items()):
            if heard.silent_beats == GONE_AFTER:
                _LOG.debug("%s sent nothing for %d s: disconnected", connection.peer_id, GONE_AFTER)
                self._tasks.spawn(connection.close())

    async def close(self) -> None:
        """Cancel all pings. Can be called twice."""
        await self._tasks.close()

    def _show(self) -> None:
        alive = {one.peer_id for one, heard in self._heard.items() if heard.silent_beats < SILENT_AFTER}
        silent = frozenset(connection.peer_id for connection in self._heard) - alive
        if silent != self._silent:
            self._silent = silent
            self._changed()
