"""`NodeParts`: the parts of a `ServiceNode`, made and connected by `NodeParts.assemble`.

Only this package uses them: `fairway.service.node` runs them, and `fairway.service.rest` serves them over HTTP.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, KeysView, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self

from fairway.environment import monotonic_s, time_ns
from fairway.errors import ConfigurationError
from fairway.libp2p.host import Host
from fairway.libp2p.keeper import PeerKeeper
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.transports.certificate import ServerCertificate
from fairway.nodes.discovery.node_record import NodeRecord
from fairway.nodes.discovery.node_records import NodeRecords
from fairway.nodes.discovery.peer_finder import PeerFinder
from fairway.nodes.discovery.peer_memory import PeerMemory
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.exchange import PendingResponses
from fairway.nodes.protocols.filter_service import FilterService
from fairway.nodes.protocols.lightpush import LightPushService
from fairway.nodes.protocols.metadata import MetadataExchange
from fairway.nodes.protocols.peer_exchange import PeerExchangeService
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.nodes.protocols.relay import Relay
from fairway.nodes.protocols.request_limiter import RequestLimiter
from fairway.nodes.protocols.rules import MessageRules
from fairway.nodes.protocols.store_service import StoreService
from fairway.service.archives import NodeArchive
from fairway.service.distribution import Distribution
from fairway.service.filter_pusher import FilterPusher
from fairway.service.options import PEERS_TO_FIND, ServiceOptions
from fairway.service.proof_gate import ProofGate
from fairway.service.store_sync import StoreSync
from fairway.wire.metadata import WakuMetadata
from fairway.wire.topics import StaticShard
from fairway.wire.waku_message import WakuMessage

_LIMITED: Final = ("lightpush", "filter", "store", "peer_exchange")
"""Services with a rate limiter."""
_METADATA_TIMEOUT_S: Final = 10.0
MAX_PUBSUB_TOPICS: Final = 1_024
"""Most pubsub topics of one node; other nodes keep as many for a peer."""


class ServedTopics:
    """The pubsub topics of one node."""

    def __init__(self, cluster_id: int, configured: Iterable[str]) -> None:
        self._cluster_id: Final = cluster_id
        self._joined = dict.fromkeys(configured, 1)
        self.now: Final[KeysView[str]] = self._joined.keys()
        """The topics that are served at present; it changes with `join` and `leave`."""
        self.begun = len(self._joined)
        """Topics that began to be served since the start."""
        self.ended = 0
        """Topics that are no longer served."""

    def join(self, pubsub_topics: AbstractSet[str]) -> list[str]:
        """Serve topics until `leave`; return those that are new.

        Raises `ConfigurationError` and changes nothing if a topic is no shard, or beyond `MAX_PUBSUB_TOPICS`.
        """
        new = [topic for topic in pubsub_topics if topic not in self._joined]
        for topic in new:
            StaticShard.parse(topic)
        if len(self._joined) + len(new) > MAX_PUBSUB_TOPICS:
            raise ConfigurationError(
                f"a node serves at most {MAX_PUBSUB_TOPICS} pubsub topics; unsubscribe from others first"
            )
        for topic in pubsub_topics:
            self._joined[topic] = self._joined.get(topic, 0) + 1
        self.begun += len(new)
        return new

    def leave(self, pubsub_topics: AbstractSet[str]) -> list[str]:
        """Undo a `join`; return the topics that are no longer served."""
        for topic in pubsub_topics:
            self._joined[topic] -= 1
        gone = [topic for topic in pubsub_topics if not self._joined[topic]]
        for topic in gone:
            del self._joined[topic]
        self.ended += len(gone)
        return gone

    def shards(self) -> tuple[int, ...]:
        """Return the shards that are served of the node's own cluster, in order."""
        known = map(StaticShard.parse, self._joined)
        return tuple(sorted(shard.shard for shard in known if shard.cluster_id == self._cluster_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """The parts of one node."""

    host: Host
    certificate: ServerCertificate | None
    """The certificate of the WebSocket port; None without TLS."""
    topics: ServedTopics
    rules: MessageRules
    """The rules for messages that the node accepts."""
    gate: ProofGate | None
    """Verifies RLN proofs; None if the network has none."""
    archive: NodeArchive | None
    filters: FilterService
    pusher: FilterPusher
    distribution: Distribution
    relay: Relay
    lightpush: LightPushService
    store: StoreService | None
    """None without an archive."""
    store_sync: StoreSync | None
    """Synchronizes the archive with others; None if that is not wanted."""
    peer_exchange: PeerExchangeService
    limiters: Mapping[str, RequestLimiter]
    """The rate limiter of each service."""
    pending_responses: PendingResponses
    """Responses that peers have not read yet."""
    requests: PeerRequests
    """Sends the requests of REST clients to other service nodes."""
    introductions: MetadataExchange
    records: NodeRecords
    """Records of other nodes of the network, for peer exchange."""
    keeper: PeerKeeper
    """Keeps the connections to the configured peers."""
    finder: PeerFinder | None
    """Finds nodes of the network; None if the node connects to the configured peers only."""

    @classmethod
    def assemble(
        cls,
        options: ServiceOptions,
        host: Host,
        *,
        archive: NodeArchive | None,
        gate: ProofGate | None,
        certificate: ServerCertificate | None,
        rng: random.Random,
        own_record: Callable[[], NodeRecord | None],
        on_admitted: Callable[[], None],
    ) -> Self:
        """Make the parts of a node. ``on_admitted`` is called when a peer is found to be of the same network."""
        topics = ServedTopics(options.cluster_id, options.pubsub_topics)
        rules = replace(
            MessageRules.of_network(options.cluster_id, options.pubsub_topics),
            pubsub_topics=topics.now,
            max_message_bytes=options.max_message_bytes,
        )
        limiters = {name: RequestLimiter(options.request_rate) for name in _LIMITED}
        pending = PendingResponses()
        filters = FilterService(pubsub_topics=topics.now, limiter=limiters["filter"])
        pusher = FilterPusher(host, on_gone=filters.forget)
        judge_proof = None if gate is None else gate.judge
        distribution = Distribution(archive=archive, filters=filters, pusher=pusher, loss=options.loss, rng=rng)
        relay = Relay(host, rules, rng=rng, judge_proof=judge_proof)
        records = NodeRecords(cluster_id=options.cluster_id, shards=options.shards)
        introductions = MetadataExchange(
            host,
            WakuMetadata(cluster_id=options.cluster_id, shards=options.shards),
            timeout_s=_METADATA_TIMEOUT_S,
            admitted=on_admitted,
            pending=pending,
        )
        keeper = PeerKeeper(host, [Multiaddr.parse(peer) for peer in options.peers], rng=rng)
        store_sync = None
        if archive is not None and options.store_sync is not None:
            trusts = introductions.admits if gate is None else lambda peer: peer in keeper.connected()
            store_sync = StoreSync(host, archive, rules, options.store_sync, trusts=trusts, rng=rng)
        return cls(
            host=host,
            certificate=certificate,
            topics=topics,
            rules=rules,
            gate=gate,
            archive=archive,
            filters=filters,
            pusher=pusher,
            distribution=distribution,
            relay=relay,
            lightpush=LightPushService(
                rules=rules,
                limiter=limiters["lightpush"],
                publish=partial(publish, distribution, relay),
                sharding=options.pubsub_topic_of,
                needs_relay_peers=options.needs_peers,
                judge_proof=judge_proof,
            ),
            store=None if archive is None else StoreService(archive.page, limiters["store"]),
            store_sync=store_sync,
            peer_exchange=PeerExchangeService(
                records=lambda: _with_own(own_record(), records), limiter=limiters["peer_exchange"], rng=rng
            ),
            limiters=limiters,
            pending_responses=pending,
            requests=PeerRequests(host),
            introductions=introductions,
            records=records,
            keeper=keeper,
            finder=_finder_of(host, options, introductions.admits, records, rng),
        )


async def publish(
    distribution: Distribution, relay: Relay, pubsub_topic: str, encoded: bytes, message: WakuMessage
) -> int:
    """Distribute and relay a message that `MessageRules.judge` has accepted; return to how many peers."""
    routed = RoutedMessage.of(pubsub_topic, message, encoded)
    new = distribution.hand_out(routed, now_s=monotonic_s(), now_ns=time_ns())
    known = len(relay.peers_of(pubsub_topic))
    # A client that uses two nodes sends each message to both. So a message that was relayed before is a success, and
    # one that reached no peer before is relayed now.
    relayed = not new and relay.passed_on(pubsub_topic, encoded)
    if relayed or (known and distribution.loses()):
        return known
    return await relay.publish(pubsub_topic, encoded)


def _with_own(own: NodeRecord | None, records: NodeRecords) -> tuple[NodeRecord, ...]:
    return records.records() if own is None else (own, *records.records())


def _finder_of(
    host: Host, options: ServiceOptions, admits: Callable[[PeerId], bool], records: NodeRecords, rng: random.Random
) -> PeerFinder | None:
    if options.network is None:
        return None
    memory = None
    if options.peer_memory is not None:
        memory = PeerMemory(options.peer_memory, cluster_id=options.cluster_id)
    return PeerFinder(
        host, options.network, wanted=PEERS_TO_FIND, admits=admits, records=records, rng=rng, memory=memory
    )
