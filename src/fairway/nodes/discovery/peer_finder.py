"""`PeerFinder`: keeps a host connected to enough nodes of a network, and finds them.

Invariant: while fewer than ``wanted`` peers of the network are connected, there is a next attempt within bounded time.
The pause of a failing peer doubles, and other peers are tried first. Peers come from the network's description, from
earlier runs, by peer exchange from connected peers, and, if these do not suffice, from lists in DNS.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fairway.environment import monotonic_s
from fairway.errors import DecodeError, NetworkError
from fairway.libp2p.errors import Libp2pError
from fairway.libp2p.host import Host
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.discovery.network import Network
from fairway.nodes.discovery.node_list import NodeListReader, NodeListUrl
from fairway.nodes.discovery.node_record import NodeRecord
from fairway.nodes.discovery.node_records import NodeRecords
from fairway.nodes.discovery.peer_memory import PeerMemory
from fairway.nodes.protocols.peer_exchange import ask_for_records
from fairway.owned_tasks import OwnedTasks
from fairway.wire.peer_exchange import PEER_EXCHANGE_PROTOCOL

_LOG: Final = logging.getLogger(__name__)

_TICK_S: Final = 0.25
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0
_STABLE_S: Final = 30.0
"""Time below which a connection counts as failed."""
_LIST_PAUSE_S: Final = 30.0
"""Shortest time between two reads of the lists."""
_EXCHANGE_PAUSE_S: Final = 60.0
"""Shortest time between two requests to a peer."""
_EXCHANGE_TIMEOUT_S: Final = 10.0
_ASKED_RECORDS: Final = 20
_RESERVES: Final = 20
"""Candidates at which the reading of lists ends."""
_FORGOTTEN_AFTER: Final = 8
"""Failures in a row after which a peer from a list or another peer is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinderStatistics:
    """Counts of a finder."""

    known: int
    """Nodes that may be dialled."""
    failing: int
    """Of these, nodes whose last attempts failed and that wait for the next one."""
    connected: int
    """Connected nodes of use."""
    dials: int
    """Attempts to connect."""
    failures: int
    """Attempts and connections that failed."""
    list_reads: int
    """Lists in DNS that were read, whole or in part."""
    list_failures: int
    """Lists that could not be read."""
    exchanges: int
    """Answers of other nodes with records."""


@dataclass(slots=True)
class _Candidate:
    addresses: tuple[Multiaddr, ...]
    from_others: bool
    """Whether a list or another peer named it, not the network's description or an earlier run."""
    remembered: bool = False
    """Whether it served in an earlier run."""
    failures: int = 0
    due_s: float = 0.0
    connected_s: float | None = None
    served: bool = False
    """Whether it was ever connected for long enough to be of use."""
    dialling: bool = False
    problem: str = ""


class PeerFinder:
    """Finds peers for one host, from `start` to `close`."""

    def __init__(
        self,
        host: Host,
        network: Network,
        *,
        wanted: int,
        admits: Callable[[PeerId], bool],
        records: NodeRecords,
        rng: random.Random,
        memory: PeerMemory | None = None,
    ) -> None:
        """``admits`` returns whether a connected peer is of use; ``records`` gets those that are found."""
        self.faults: Final[Counter[str]] = Counter()
        """Rejected records and lists, by reason."""
        self._host: Final = host
        self._network: Final = network
        self._wanted: Final = wanted
        self._admits: Final = admits
        self._records: Final = records
        self._rng: Final = rng
        self._memory: Final = memory
        self._tasks: Final = OwnedTasks()
        self._candidates: dict[PeerId, _Candidate] = {}
        self._asked_s: dict[PeerId, float] = {}
        self._sequences: dict[str, int] = {}
        self._list_due_s = 0.0
        self._reading = False
        self._list_problem = ""
        self._dials = self._failures = self._list_reads = self._list_failures = self._exchanges = 0

    def start(self) -> None:
        """Begin to look for peers."""
        for text in self._network.peers:
            self._suggest((Multiaddr.parse(text),), from_others=False)
        for text in self._network.records:
            self._add(NodeRecord.parse(text), from_others=False)
        if self._memory is not None:
            addresses, self._sequences = self._memory.read()
            for address in addresses:
                self._suggest((address,), from_others=False).remembered = True
        self._tasks.spawn(self._run())

    async def close(self) -> None:
        """Stop, and remember the peers; connections stay open. Can be called twice."""
        await self._tasks.close()
        self._note_changes({connection.peer_id for connection in self._host.connections()}, monotonic_s())
        await self._tasks.close()
        self._remember()

    def connected(self) -> tuple[PeerId, ...]:
        """Return the peers of use that are connected now."""
        peers = dict.fromkeys(connection.peer_id for connection in self._host.connections())
        return tuple(peer for peer in peers if self._admits(peer))

    def failures(self) -> tuple[str, ...]:
        """Return why there are no more peers: the last problem of each source and of each failed peer."""
        peers = [one.problem for one in self._candidates.values() if one.problem]
        none = [] if self._candidates else ["no node of the network is known"]
        return (*([self._list_problem] if self._list_problem else []), *none, *peers[:5])

    def statistics(self) -> FinderStatistics:
        """Return counts, those of events since the start."""
        return FinderStatistics(
            known=len(self._candidates),
            failing=sum(one.failures > 0 for one in self._candidates.values()),
            connected=len(self.connected()),
            dials=self._dials,
            failures=self._failures,
            list_reads=self._list_reads,
            list_failures=self._list_failures,
            exchanges=self._exchanges,
        )

    async def _run(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(_TICK_S)

    def _look(self) -> None:
        now_s = monotonic_s()
        here = {connection.peer_id for connection in self._host.connections()}
        self._note_changes(here, now_s)
        for peer in here:
            pause_over = now_s >= self._asked_s.get(peer, -_EXCHANGE_PAUSE_S) + _EXCHANGE_PAUSE_S
            if pause_over and self._admits(peer) and PEER_EXCHANGE_PROTOCOL in self._host.protocols_of(peer):
                self._asked_s[peer] = now_s
                self._tasks.spawn(self._ask(peer))
        missing = self._wanted - len(self.connected()) - sum(one.dialling for one in self._candidates.values())
        if missing <= 0:
            return
        due = [
            (one.failures, self._rng.random(), peer)
            for peer, one in self._candidates.items()
            if peer not in here and not one.dialling and one.due_s <= now_s and peer != self._host.peer_id
        ]
        for _, _, peer in sorted(due)[:missing]:
            self._candidates[peer].dialling = True
            self._tasks.spawn(self._dial(peer))
        untried = sum(not failures for failures, _, _ in due)
        if untried < missing and self._network.lists and not self._reading and now_s >= self._list_due_s:
            self._reading = True
            self._tasks.spawn(self._read_lists())

    def _note_changes(self, here: set[PeerId], now_s: float) -> None:
        """Note which peers connected and disconnected; a peer that disconnects early has failed."""
        changed = False
        for peer, one in list(self._candidates.items()):
            if peer not in here:
                if one.connected_s is None:
                    continue
                stable = one.served and now_s - one.connected_s >= _STABLE_S
                one.connected_s = None
                if stable:
                    one.failures, one.due_s = 0, now_s
                else:
                    self._failed(peer, f"the connection with {one.addresses[0]} has ended")
                continue
            if one.connected_s is None:
                one.connected_s = now_s
            if self._admits(peer):
                changed |= not one.served
                one.served, one.problem = True, ""
            elif now_s - one.connected_s > _STABLE_S:
                # The peer is silent, or does not name its network.
                self._tasks.spawn(self._host.disconnect(peer))
        if changed:
            self._remember()

    async def _dial(self, peer: PeerId) -> None:
        one = self._candidates[peer]
        self._dials += 1
        problem = ""
        try:
            for address in one.addresses:
                try:
                    await self._host.connect(address)
                except (Libp2pError, TimeoutError, OSError) as error:
                    problem = str(error) or type(error).__name__
                    _LOG.debug("%s cannot be reached: %s", address, error)
                else:
                    problem = ""
                    one.connected_s = monotonic_s()  # it may disconnect before the next look
                    # This address is tried and stored first from now on.
                    one.addresses = (address, *(other for other in one.addresses if other != address))
                    break
        finally:
            one.dialling = False
        if problem:
            self._failed(peer, problem)

    def _failed(self, peer: PeerId, problem: str) -> None:
        one = self._candidates.get(peer)
        if one is None:
            return
        self._failures += 1
        one.failures += 1
        one.problem = problem
        pause_s = min(_FIRST_PAUSE_S * 2 ** (one.failures - 1), _LONGEST_PAUSE_S)
        one.due_s = monotonic_s() + pause_s * self._rng.uniform(0.5, 1.5)
        if one.from_others and one.failures >= _FORGOTTEN_AFTER:
            del self._candidates[peer]
            self._asked_s.pop(peer, None)
            self._records.remove(peer)

    async def _ask(self, peer: PeerId) -> None:
        try:
            found = await ask_for_records(self._host, peer, _ASKED_RECORDS, timeout_s=_EXCHANGE_TIMEOUT_S)
        except (NetworkError, DecodeError, TimeoutError) as error:
            _LOG.debug("%s gave no records: %s", peer, error)
            self.faults["peer exchange"] += 1
            return
        self._exchanges += 1
        self.faults["forged record"] += found.wrong
        for record in found.records:
            self._add(record, from_others=True)

    async def _read_lists(self) -> None:
        # Only lists need dnspython, whose import takes long.
        from fairway.nodes.discovery.name_servers import NameServers  # noqa: PLC0415

        try:
            reader = NodeListReader(
                NameServers(self._network.name_servers).texts, rng=self._rng, sequences=self._sequences
            )
            for text in self._network.lists:
                await self._read_list(reader, NodeListUrl.parse(text))
            self.faults.update(reader.faults)
        except NetworkError as error:
            self._list_problem = str(error)
        finally:
            self._reading = False
            self._list_due_s = monotonic_s() + _LIST_PAUSE_S * self._rng.uniform(0.5, 1.5)

    async def _read_list(self, reader: NodeListReader, url: NodeListUrl) -> None:
        found = 0
        try:
            async for record in reader.read(url):
                found += self._add(record, from_others=True)
                if found >= _RESERVES:
                    break
        except (NetworkError, DecodeError) as error:
            _LOG.warning("the list of nodes at %s cannot be had: %s", url.domain, error)
            self._list_problem = str(error)
            self._list_failures += 1
        else:
            self._list_problem = ""
            self._list_reads += 1

    def _add(self, record: NodeRecord, *, from_others: bool) -> bool:
        """Keep a record, and dial its node when peers are needed; return whether it was kept."""
        if record.peer_id == self._host.peer_id:
            return False
        refusal = self._records.add(record)
        if refusal is not None:
            self.faults[refusal] += 1
            return False
        self._suggest(record.addresses, from_others=from_others)
        return True

    def _suggest(self, addresses: tuple[Multiaddr, ...], *, from_others: bool) -> _Candidate:
        peer = addresses[0].peer_id
        assert peer is not None
        known = self._candidates.get(peer)
        if known is None:
            known = self._candidates[peer] = _Candidate(addresses=addresses, from_others=from_others)
        else:
            known.addresses = tuple(dict.fromkeys((*addresses, *known.addresses)))[:16]
        return known

    def _remember(self) -> None:
        """Store the peers that served in this run, then those of earlier runs that are not known to be gone."""
        if self._memory is None:
            return
        served = [one for one in self._candidates.values() if one.served]
        # If no peer serves, this machine may be offline.
        earlier = [
            one
            for one in self._candidates.values()
            if one.remembered and not one.served and not (served and one.failures >= _FORGOTTEN_AFTER)
        ]
        self._memory.write([one.addresses[0] for one in (*served, *earlier)], self._sequences)
