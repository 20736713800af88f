"""`LightNetwork`: service nodes on machines of their own, which light clients use over a `SimulatedInternet`.

The service nodes are those that ship, with relay, light push, filter and store; they relay among each other. What goes
wrong with connections the internet does; what goes wrong in answers, `fairway.simulation.light.troubles`. The archive
of a service node outlives it. Every other service node returns from its death under another peer id, and is known by
its address alone.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import copy_context
from functools import partial
from typing import Final

from fairway.errors import ConfigurationError
from fairway.options import ReliableChannelOptions
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.simulation.light.archive import TroubledArchive
from fairway.simulation.light.seat import LightSeat
from fairway.simulation.light.troubles import Troubles, Vice, trouble
from fairway.simulation.light.watch import Sight, Watch
from fairway.testing import Machine, Process, VirtualLoop
from fairway.units import MS_PER_S
from fairway.waku.libp2p.keys import IdentityKey
from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.light.options import LightOptions
from fairway.waku.local import NetworkFaults, NetworkStatistics
from fairway.waku.local.faults import AT_ONCE, FaultDice
from fairway.waku.node import RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.waku.protocols.request_limiter import RequestRate
from fairway.wire.filter import MessagePush, encode_message_push
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage

_PORT: Final = 60_000
_PESTERS_S: Final = 7.0
_AT_ONCE_NODES: Final = LightOptions().peers_to_use
_UPLINK_BYTES: Final = 8_000
"""What a message takes of a slow uplink, with all that goes on beside it."""


class _WatchedNode(ServiceNode):
    """A service node that tells what it publishes."""

    watch: Callable[[RoutedMessage], object]

    async def publish(self, pubsub_topic: str, encoded: bytes, message: WakuMessage) -> int:
        """Publish a message."""
        self.watch(RoutedMessage.of(pubsub_topic, message, encoded))
        return await super().publish(pubsub_topic, encoded, message)


class _Service:
    """One service node over all its lives."""

    def __init__(self, network: LightNetwork, number: int, machine: Machine, archive: TroubledArchive) -> None:
        self.number, self.machine, self.archive = number, machine, archive
        self.lives = 0
        self.node: _WatchedNode | None = None
        self.process = Process(self.name, machine)
        self._network = network

    @property
    def name(self) -> str:
        return f"service-{self.number}"

    @property
    def is_reborn(self) -> bool:
        """Whether it has another peer id in each life."""
        return bool(self.number % 2)

    @property
    def key(self) -> IdentityKey:
        life = self.lives if self.is_reborn else 0
        return IdentityKey.from_secret(f"{self.name} of life {life}".encode().rjust(32, b".")[:32])

    @property
    def multiaddr(self) -> Multiaddr:
        """Where clients find it, with its peer id unless that changes."""
        address = Multiaddr.of(self.machine.address, _PORT, transport="tcp")
        return address if self.is_reborn else address.with_peer_id(PeerId.from_public_key(self.key.public_key))

    def start(self) -> None:
        self.lives += 1
        self.machine.loop.internet.power_on(self.machine.address)
        self.process = Process(self.name, self.machine)
        self.process.spawn(self._serve())

    async def _serve(self) -> None:
        self.node = await _WatchedNode.start(self._network.service_options(self), key=self.key, archive=self.archive)
        self.node.watch = partial(self._network.published, self.number)
        self._network.attach(self)

    def end(self, *, silently: bool) -> None:
        internet, address = self.machine.loop.internet, self.machine.address
        if silently:
            internet.power_off(address)
        else:
            internet.kill(address)
        self.node = None
        self.process.kill()


class LightNetwork:
    """A network of service nodes and light clients, in the place of a `LocalNetwork`."""

    def __init__(
        self,
        loop: VirtualLoop,
        machine: Callable[[str], Machine],
        *,
        service_nodes: int,
        faults: NetworkFaults,
        garbled: float,
        bad: int,
        vice: Vice | None = None,
        options: ReliableChannelOptions,
        content_topic: str,
        seed: int,
    ) -> None:
        """Make a network whose service nodes `start` starts; ``machine`` makes a machine at an address."""
        if service_nodes < 1:
            raise ConfigurationError(f"light clients need at least one service node, not {service_nodes}")
        self.observers: list[Callable[[str, RoutedMessage], None]] = []
        self.loss_observers: list[Callable[[str, RoutedMessage], None]] = []
        self.hearing_observers: list[Callable[[str, RoutedMessage], None]] = []
        self.sending_observers: list[Callable[[str, RoutedMessage], None]] = []
        self.refusal_observers: list[Callable[[str, RoutedMessage, int], None]] = []
        self.query_observers: list[Callable[[str, StoreQuery, bytes | None], None]] = []
        self.cluster_id = options.cluster_id
        self._shards: Final = options.shard_count
        self._pubsub_topic: Final = autoshard(content_topic, options.cluster_id, options.shard_count)
        self._loop: Final = loop
        self._internet: Final = loop.internet
        self._dice: Final = FaultDice(faults, seed)
        self._troubles: Final = Troubles(
            self._dice,
            seed,
            garbled=garbled,
            bad=bad,
            vice=vice,
            clock=loop.time,
            refused=self._refuse,
            pushed=self._note_push,
            swallowed=self._tell_published,
            told=self._note_answer,
            claimed=self._note_claim,
            failed=self._note_failure,
            dropped=self._note_dropped,
        )
        self._slow: set[str] = set()
        self.watch: Final = Watch(loop, sights=self._sights, is_kept=self._is_kept)
        """What light clients must do for their programs."""
        self._context: Final = copy_context()
        self._services: Final = [
            _Service(self, number, machine(f"10.0.0.{number + 1}"), TroubledArchive(self._dice, self._later))
            for number in range(service_nodes)
        ]
        self._addresses: dict[str, str] = {}
        self._seats: dict[str, LightSeat] = {}
        self._senders: dict[bytes, str] = {}
        self._taken: set[bytes] = set()
        """What a service node said that it took."""
        self.pushes: Counter[bytes] = Counter()
        """How often service nodes were given each message to publish."""
        self._relayed: set[bytes] = set()
        """What a service node published."""
        self._ended: dict[str, _Service] = {}
        self._published = self._published_bytes = self._refused = self._delivered = 0
        self.faults = faults

    def __repr__(self) -> str:
        return f"<LightNetwork of {len(self._services)} service nodes and {len(self._seats)} light clients>"

    def start(self) -> None:
        """Start the service nodes."""
        for service in self._services:
            service.start()
        self.watch.start()

    # As a `LocalNetwork`.

    @property
    def faults(self) -> NetworkFaults:
        """The faults of the network; can be set at any time."""
        return self._dice.faults

    @faults.setter
    def faults(self, faults: NetworkFaults) -> None:
        self._dice.faults = faults
        self._internet.min_delay_ms, self._internet.max_delay_ms = faults.min_delay_ms, faults.max_delay_ms
        for service in self._services:
            self._lose(service)
        self._expect()

    @property
    def garbled(self) -> float:
        """Share of the answers of service nodes that are none."""
        return self._troubles.garbled

    @garbled.setter
    def garbled(self, garbled: float) -> None:
        self._troubles.garbled = garbled
        self._expect()

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests that light clients made of service nodes, by what they ask for, and connections that were made."""
        return self._troubles.requests | Counter(connect=self._internet.made)

    @property
    def bad(self) -> int:
        """Number of service nodes that are bad ones; can be set at any time."""
        return self._troubles.bad

    @bad.setter
    def bad(self, bad: int) -> None:
        self._troubles.bad = bad
        self._expect()
        self.watch.disturb(is_deaf=True)

    @property
    def nodes(self) -> tuple[LightSeat, ...]:
        """The light clients."""
        return tuple(self._seats.values())

    def address_of(self, name: str) -> str:
        """Return the address of a participant's machine."""
        number = len(self._addresses)
        return self._addresses.setdefault(name, f"10.{1 + number // 250}.0.{1 + number % 250}")

    def node(self, name: str) -> LightSeat:
        """Return a place for the next light client of a participant."""
        seat = self._seats[name] = LightSeat(self, name, self.address_of(name))
        return seat

    def partition(self, *sides: Collection[str]) -> None:
        """Split the network into sides, given by names; service nodes are dealt out among the sides of several."""
        apart = [{self.address_of(name) for name in side} for side in sides]
        several = [side for side, names in zip(apart, sides, strict=True) if len(names) > 1]
        others = self._addresses.keys() - {name for side in sides for name in side}
        places: list[set[str]] = [*several, *([set()] if others or not several else [])]
        for service in self._services:
            places[service.number % len(places)].add(service.machine.address)
        self._internet.part(*apart)
        self.watch.is_parted = bool(several)
        self.watch.disturb()

    def heal(self) -> None:
        """End a partition."""
        self._internet.heal()
        self.watch.is_parted = False
        self.watch.disturb()

    def limit_uplink(self, name: str, per_second: float | None) -> None:
        """Limit about how many messages per second a light client can send; None removes the limit."""
        self.watch.disturb(name)
        if per_second is not None:
            self._slow.add(name)
        else:
            self._slow.discard(name)
        self._internet.limit(self.address_of(name), None if per_second is None else per_second * _UPLINK_BYTES)

    def statistics(self) -> NetworkStatistics:
        """Return the counts so far."""
        archives = [service.archive for service in self._services]
        return NetworkStatistics(
            published=self._published,
            published_bytes=self._published_bytes,
            refused=self._refused,
            delivered=self._delivered,
            stored=sum(archive.stored for archive in archives),
            store_missed=sum(archive.missed for archive in archives),
            queries=sum(archive.queries for archive in archives),
            queries_belied=sum(archive.belied for archive in archives),
        )

    def stored(self) -> Iterator[RoutedMessage]:
        """Yield all messages that any service node keeps, oldest first."""
        kept = {message.message_hash: message for service in self._services for message in service.archive}
        yield from sorted(kept.values(), key=lambda message: (message.message.timestamp_ns or 0, message.message_hash))

    def close(self) -> None:
        """End all service nodes."""
        for service in self._services:
            service.process.kill()

    # What light clients do.

    def _note_push(self, message_hash: bytes, number: int) -> None:
        self.watch.pushed(self._senders.get(message_hash, ""), message_hash, number)

    def _note_dropped(self, number: int) -> None:
        self.watch.dropped(number)

    def _note_answer(self, peer_id: str) -> None:
        for seat in self._seats.values():
            if seat.peer_id == peer_id:
                self.watch.store_answered(seat)

    def _note_claim(self, message_hash: bytes) -> None:
        self.watch.claimed(message_hash)

    def _note_failure(self, peer_id: str, number: int, protocol: str) -> None:
        for seat in self._seats.values():
            if seat.peer_id == peer_id:
                self.watch.failed(seat, number, protocol)

    def multiaddrs(self) -> list[Multiaddr]:
        """Return where light clients find the service nodes."""
        return [service.multiaddr for service in self._services]

    def handed_over(self, seat: LightSeat, message: RoutedMessage) -> None:
        """Note a message that a program hands to its light client."""
        self._senders[message.message_hash] = seat.name
        for observer in self.sending_observers:
            observer(seat.name, message)

    def began(self, seat: LightSeat) -> None:
        """Note that a light client starts."""
        self.watch.began(seat)

    def sent(self, seat: LightSeat, message: RoutedMessage, result: SendResult, began_s: float) -> None:
        """Note what a light client says of a send."""
        self.watch.sent(seat, message, result, began_s)
        # What a service node took without an answer that arrived, others may have.
        is_refused = not (result.accepted or message.message_hash in self._taken)
        for observer in self.refusal_observers if is_refused else ():
            observer(seat.name, message, 0)

    def page_came(
        self, seat: LightSeat, query: StoreQuery, cursor: bytes | None, page: StorePage | None, began_s: float
    ) -> None:
        """Note a page that a light client brings, or that it says that no store answers."""
        self.watch.page_came(seat, query, cursor, page, began_s)

    def queried(self, seat: LightSeat, query: StoreQuery, cursor: bytes | None) -> None:
        """Note that a program asks for a page."""
        self.watch.queried(seat, query, cursor)
        for observer in self.query_observers:
            observer(seat.name, query, cursor)

    def heard(self, seat: LightSeat, message: RoutedMessage) -> None:
        """Note a message that a light client brings to its program."""
        self._delivered += 1
        self.watch.handed_on(seat, message)
        for observer in self.hearing_observers:
            observer(seat.name, message)

    def left(self, seat: LightSeat) -> None:
        """End all connections of a light client whose program is gone."""
        self._internet.kill(seat.address)
        self.watch.ended(seat)
        if self._seats.get(seat.name) is seat:
            del self._seats[seat.name]

    def is_linked(self, address: str) -> bool:
        """Return whether a machine reaches any service node."""
        return any(
            service.node is not None and self._internet.passes(address, service.machine.address)
            for service in self._services
        )

    # What happens to them.

    def hold(self, address: str) -> None:
        """Let all links of a machine be silent."""
        self._internet.hold(address)
        self.watch.disturb()

    def release(self, address: str) -> None:
        """End that."""
        self._internet.release(address)
        self.watch.disturb()

    def reset(self, name: str, number: int) -> None:
        """End the connections of a light client with one service node, or with all."""
        place = number % (len(self._services) + 1)
        other = self._services[place].machine.address if place < len(self._services) else None
        self._internet.reset(self.address_of(name), other)
        self.watch.disturb(name)

    def stall(self, name: str, number: int, for_ms: int) -> None:
        """Let the link of a light client to one service node, or all its links, be silent for a while."""
        place = number % (len(self._services) + 1)
        here = self.address_of(name)
        other = self._services[place].machine.address if place < len(self._services) else None
        self._internet.hold(here, other)
        self.watch.disturb(name)
        self._later(for_ms, partial(self._flow_again, name, here, other))

    def _flow_again(self, name: str, here: str, other: str | None) -> None:
        self._internet.release(here, other)
        self.watch.disturb(name)

    def end_a_service(self, name: str, *, silently: bool) -> None:
        """End a service node for a participant, if any runs."""
        running = [service for service in self._services if service not in self._ended.values()]
        if running and name not in self._ended:
            service = self._ended[name] = self._dice.random.choice(running)
            service.end(silently=silently)
            self.watch.disturb()

    def start_a_service(self, name: str) -> None:
        """Start the service node again that was ended for a participant."""
        service = self._ended.pop(name, None)
        if service is not None:
            service.start()
            self.watch.disturb()

    def forget_subscriptions(self, seat: LightSeat) -> None:
        """Let one service node forget what a light client subscribed to, or all of them."""
        place = self._dice.random.randrange(len(self._services) + 1)
        self.watch.disturb(seat.name, is_deaf=True)
        for service in self._services:
            if service.node is not None and seat.peer_id is not None and place in {service.number, len(self._services)}:
                service.node.filters.forget(seat.peer_id)

    def subscribed_at(self, name: str) -> list[int]:
        """Return the numbers of the service nodes that push to a light client."""
        peer_id = self._seats[name].peer_id
        return [
            service.number
            for service in self._services
            if service.node is not None and peer_id is not None and service.node.filters.criteria_of(peer_id)
        ]

    def miss_a_ping(self, number: int) -> None:
        """Let a service node leave the next request about subscriptions without an answer."""
        self._troubles.passed_over.add(number)

    @property
    def is_ping_awaited(self) -> bool:
        """Whether a request that is to be left without an answer has not come."""
        return bool(self._troubles.passed_over)

    def push_to(self, seat: LightSeat, message: RoutedMessage) -> bool:
        """Have a service node push a message to one client; return whether any is connected with it."""
        push = encode_message_push(MessagePush(message_bytes=message.encoded, pubsub_topic=message.pubsub_topic))
        for service in self._services:
            if service.node is not None and seat.peer_id in set(map(str, _peers_of(service.node))):
                peer = PeerId.parse(seat.peer_id or "")
                service.process.run(service.node.pusher.push, [peer], push)
                return True
        return False

    async def inject(self, name: str, message: RoutedMessage) -> SendResult:
        """Publish a message at a service node, for one that needs no light client."""
        self._senders[message.message_hash] = name
        for service in self._services:
            if service.node is not None:
                await service.process.spawn(
                    service.node.publish(message.pubsub_topic, message.encoded, message.message)
                )
                return SendResult(accepted=True)
        return SendResult(accepted=False, detail="no service node runs")

    # What service nodes do.

    def service_options(self, service: _Service) -> ServiceOptions:
        """Return the options of a service node."""
        rate = self.faults.messages_per_second
        return ServiceOptions(
            cluster_id=self.cluster_id,
            shards=(int(self._pubsub_topic.rpartition("/")[2]),),
            shard_count=self._shards,
            host=service.machine.address,
            tcp_port=_PORT,
            ws_port=None,
            peers=tuple(str(other.multiaddr) for other in self._services if other is not service),
            request_rate=None if rate is None else RequestRate(per_second=rate, burst=AT_ONCE),
            seed=service.number,
        )

    def attach(self, service: _Service) -> None:
        """Let things go wrong at a service node that has started."""
        if service.node is not None:
            trouble(service.node, service.number, self._troubles)
            self._lose(service)
            self.watch.disturb()
            service.process.spawn(self._pester(service.node, service.number))

    def published(self, number: int, message: RoutedMessage) -> None:
        """Note a message that a service node publishes; other service nodes, and later copies, add nothing."""
        self.pushes[message.message_hash] += 1
        self._note_push(message.message_hash, number)
        self.watch.claimed(message.message_hash)
        if message.message_hash not in self._relayed:
            self._relayed.add(message.message_hash)
            self.watch.published(self._senders.get(message.message_hash, ""), message)
        self._tell_published(message)

    def _tell_published(self, message: RoutedMessage) -> None:
        """Tell once what a service node says that it took, whether it relays that or not."""
        if message.message_hash in self._taken:
            return
        self._taken.add(message.message_hash)
        self._published += 1
        self._published_bytes += len(message.encoded)
        name = self._senders.get(message.message_hash, "")
        for observer in self.observers:
            observer(name, message)

    def _lose(self, service: _Service) -> None:
        if service.node is not None:
            service.node.distribution.loss = self._dice.faults.loss

    def _refuse(self, message_hash: bytes, code: int, number: int) -> None:
        self._refused += 1
        self.watch.answered(message_hash, code, is_sound=number >= self.bad)

    def _expect(self) -> None:
        """Say what can be expected of light clients."""
        faults, watch = self.faults, self.watch
        watch.is_loud = bool(self.garbled or faults.silence or faults.answer_loss or faults.messages_per_second)
        watch.loses_pushes = bool(faults.loss) or self.bad > 1
        watch.vice = self._troubles.given if self.bad else None
        watch.lies = bool(faults.store_lies or faults.store_cuts or faults.store_lag_ms)
        watch.loses_answers = bool(faults.loss or faults.query_loss)
        watch.has_few_bad = self.bad <= 1 and self.bad + _AT_ONCE_NODES <= len(self._services)
        if faults.store_loss or faults.store_lag_ms:
            watch.store_all_since_s = math.inf
        else:
            watch.store_all_since_s = min(watch.store_all_since_s, self._loop.time())

    def _sights(self, seat: LightSeat) -> list[Sight]:
        linked = (each for each in self._services if self._internet.passes(seat.address, each.machine.address))
        return [
            Sight(
                is_sound=service.number >= self.bad and seat.name not in self._slow and self._relays(service),
                archive=service.archive if self._answers_queries(service) else None,
                subscriptions=0 if seat.peer_id is None else len(service.node.filters.criteria_of(seat.peer_id)),
            )
            for service in linked
            if service.node is not None
        ]

    def _answers_queries(self, service: _Service) -> bool:
        return service.number >= self.bad or self._troubles.given in {Vice.MUTES, Vice.IDLES}

    def _relays(self, service: _Service) -> bool:
        """Return whether a service node reaches another one, without which it takes no message, or is the only one."""
        others = [other for other in self._services if other is not service]
        here = service.machine.address
        return not others or any(
            other.node is not None and self._internet.passes(here, other.machine.address) for other in others
        )

    def _is_kept(self, message_hash: bytes) -> bool:
        return any(service.archive.has(message_hash) for service in self._services)

    async def _pester(self, node: ServiceNode, number: int) -> None:
        """Let a bad service node push what nobody asked for, and forget who subscribed, if that is its vice."""
        while True:
            if self._troubles.vice(number, self._loop.time()) is Vice.MUTES:
                for peer in _peers_of(node):
                    node.filters.forget(str(peer))
            await asyncio.sleep(_PESTERS_S)
            if self._troubles.vice(number, self._loop.time()) is Vice.PESTERS:
                node.pusher.push(_peers_of(node), self._troubles.junk(self._pubsub_topic))

    def _later(self, delay_ms: int, action: Callable[[], object]) -> None:
        self._loop.call_later(delay_ms / MS_PER_S, action, context=self._context)


def _peers_of(node: ServiceNode) -> list[PeerId]:
    return [connection.peer_id for connection in node.host.connections()]
