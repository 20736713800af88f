"""`nwaku_metrics`: the numbers of a node by the names that dashboards for nwaku use.

nwaku's own names begin with ``waku_``, in newer versions with ``logos_delivery_``; dashboards ask for either, so each
number has both. Names of nim-libp2p begin with ``libp2p_``. Sources: ``metrics/*.json`` and the monitoring folder of
logos-delivery for the names in use; ``declarePublic...`` of its modules and of nim-libp2p for labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import metadata
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from fairway.nodes.protocols.filter_service import FilterStatus
from fairway.rln.validation import ProofFault
from fairway.service.archives import ArchiveStatistics
from fairway.service.distribution import SIZE_BOUNDS
from fairway.service.rest.admin import SERVICES
from fairway.service.rest.context import RestContext
from fairway.visible import visible
from fairway.wire.filter import FILTER_SUBSCRIBE_PROTOCOL
from fairway.wire.lightpush import LIGHTPUSH_PROTOCOL
from fairway.wire.peer_exchange import PEER_EXCHANGE_PROTOCOL
from fairway.wire.store import STORE_QUERY_PROTOCOL
from fairway.wire.topics import pubsub_topic

PREFIXES: Final = ("waku", "logos_delivery")
_SERVED: Final = {
    "lightpush": LIGHTPUSH_PROTOCOL,
    "filter": FILTER_SUBSCRIBE_PROTOCOL,
    "store": STORE_QUERY_PROTOCOL,
    "peer_exchange": PEER_EXCHANGE_PROTOCOL,
}
"""The protocol id for each limited service."""
_PEERS_BY: Final = {
    "lightpush_peers": LIGHTPUSH_PROTOCOL,
    "filter_peers": FILTER_SUBSCRIBE_PROTOCOL,
    "store_peers": STORE_QUERY_PROTOCOL,
    "px_peers": PEER_EXCHANGE_PROTOCOL,
}
_KILOBYTE: Final = 1_000
MAX_AGENTS: Final = 20
"""Most programs of peers with a count of their own; the others are counted together."""
_MAX_NAME: Final = 100
_Numbers = Mapping[Any, float] | float
"""Numbers by the values of their labels, which are tuples of text; or the only number."""


def nwaku_metrics(context: RestContext, archive: ArchiveStatistics | None) -> Iterator[Metric]:
    """Yield the numbers of a node; without ``archive`` none of it."""
    yield from _libp2p(context)
    for prefix in PREFIXES:
        yield from _peers(prefix, context)
        yield from _messages(prefix, context)
        yield from _services(prefix, context, archive)
        yield from _proofs(prefix, context)
    yield from _store_sync(context)


def _libp2p(context: RestContext) -> Iterator[Metric]:
    parts = context.parts
    host, relay = parts.host.statistics(), parts.relay.statistics()
    yield gauge("libp2p_peers", "Connected peers", host.peers)
    streams = {("in",): host.inbound_streams, ("out",): host.outbound_streams}
    yield gauge("libp2p_open_streams", "Open streams", streams, "dir")
    traffic = {("in",): host.received_bytes, ("out",): host.sent_bytes}
    yield counter("libp2p_network_bytes", "Bytes over the network", traffic, "direction")
    yield counter("libp2p_total_dial_attempts", "Dials", host.dials)
    yield counter("libp2p_successful_dials", "Dials that succeeded", host.dials - host.failed_dials)
    yield counter("libp2p_failed_dials", "Dials that failed", host.failed_dials)
    yield gauge("libp2p_pubsub_peers", "Relay peers", relay.peers)
    yield gauge("libp2p_pubsub_topics", "Topics of this node", relay.topics)
    yield counter("libp2p_pubsub_subscriptions", "Topics that this node joined", parts.topics.begun)
    yield counter("libp2p_pubsub_unsubscriptions", "Topics that this node left", parts.topics.ended)
    yield counter("libp2p_pubsub_validation_success", "Valid messages of peers", relay.received)
    yield counter("libp2p_pubsub_validation_failure", "Invalid messages of peers", relay.invalid)
    yield counter("libp2p_gossipsub_received", "Messages of peers, each once", relay.received)
    yield counter("libp2p_gossipsub_duplicate", "Messages that arrived again", relay.duplicates)
    meshes = {("other",): relay.mesh_peers}
    yield gauge("libp2p_gossipsub_peers_per_topic_mesh", "Members of all meshes", meshes, "topic")


def _peers(prefix: str, context: RestContext) -> Iterator[Metric]:
    node, parts = context.node, context.parts
    version = {(f"fairway {metadata.version('fairway')}",): 1}
    yield gauge(f"{prefix}_version", "Program", version, "version")
    served: Counter[str] = Counter()
    connected = Counter({(direction, name): 0 for name in SERVICES for direction in ("In", "Out")})
    for peer, dialled in {one.peer_id: one.dialled for one in parts.host.connections()}.items():
        protocols = parts.host.protocols_of(peer).intersection(SERVICES)
        served.update(protocols)
        connected.update(("Out" if dialled else "In", name) for name in protocols)
    yield gauge(f"{prefix}_connected_peers", "Connected peers by protocol", connected, "direction", "protocol")
    topics = {shard: pubsub_topic(node.options.cluster_id, shard) for shard in node.shards}
    by_shard = {(str(shard),): len(parts.relay.peers_of(topic)) for shard, topic in topics.items()}
    yield gauge(f"{prefix}_connected_peers_per_shard", "Relay peers by shard", by_shard, "shard")
    yield gauge(f"{prefix}_connected_peers_per_agent", "Peers by program", _agents(context), "agent")
    yield gauge(f"{prefix}_peer_store_size", "Connected peers, and known records", _known_peers(context))
    for name, protocol in _PEERS_BY.items():
        yield gauge(f"{prefix}_{name}", f"Peers that serve {protocol}", served[protocol])


def _messages(prefix: str, context: RestContext) -> Iterator[Metric]:
    distribution = context.parts.distribution
    counts = distribution.statistics()
    relayed = {("relay",): counts.messages}
    yield counter(f"{prefix}_node_messages", "Messages without duplicates", relayed, "type")
    bounds = (*(f"{bound / _KILOBYTE}" for bound in SIZE_BOUNDS), "+Inf")
    yield HistogramMetricFamily(
        f"{prefix}_histogram_message_size",
        "Sizes of payloads in kB",
        buckets=list(zip(bounds, accumulate(distribution.sizes), strict=True)),
        sum_value=distribution.payload_bytes / _KILOBYTE,
    )
    totals = distribution.shards
    traffic = {(topic, "net", "in"): total.message_bytes for topic, total in totals.items()}
    yield counter(f"{prefix}_relay_network_bytes", "Size of the messages", traffic, "topic", "type", "direction")
    received = {("live",): context.received.received}
    yield counter(f"{prefix}_recv_messages", "Messages for /messaging/v1", received, "source")
    yield counter(f"{prefix}_rest_received_dropped", "Evicted received messages", context.received.dropped)
    yield counter(f"{prefix}_rest_send_status_dropped", "Evicted events of sends", context.send_events.dropped)


def _services(prefix: str, context: RestContext, archive: ArchiveStatistics | None) -> Iterator[Metric]:
    parts = context.parts
    requests = {
        (_SERVED[name], state): count
        for name, limiter in parts.limiters.items()
        for state, count in (("served", limiter.admitted), ("rejected", limiter.refused))
    }
    yield counter(f"{prefix}_service_requests", "Requests of peers", requests, "service", "state")
    yield gauge(f"{prefix}_filter_subscriptions", "Filter subscribers", len(parts.filters))
    by_type: Counter[tuple[str, ...]] = Counter()
    by_fault: Counter[tuple[str, ...]] = Counter()
    for (kind, status), count in parts.filters.answered.items():
        by_type[kind.name,] += count
        if status is not FilterStatus.OK:
            by_fault[status.name.lower(),] += count
    yield counter(f"{prefix}_filter_requests", "Filter requests by type", by_type, "type")
    yield counter(f"{prefix}_filter_errors", "Refused filter requests", by_fault, "type")
    refused = {(reason.name.lower(),): count for reason, count in parts.lightpush.refused.items()}
    for name in ("lightpush_errors", "lightpush_v3_errors"):
        yield counter(f"{prefix}_{name}", "Refused light pushes, of both versions", refused, "type")
    if archive is not None:
        yield counter(f"{prefix}_store_queries", "Store queries", archive.queries)
        stored = {("stored",): archive.messages}
        yield gauge(f"{prefix}_archive_messages", "Messages in the archive", stored, "type")
        dropped = {("dropped",): archive.dropped}
        yield counter(f"{prefix}_archive_errors", "Messages that could not be kept", dropped, "type")


def _store_sync(context: RestContext) -> Iterator[Metric]:
    sync = context.parts.store_sync
    if sync is None:
        return
    counts = sync.statistics()
    exchanged = {("receive",): counts.received, ("sent",): counts.sent}
    for prefix in ("", "logos_delivery_"):  # older versions have no prefix
        yield counter(f"{prefix}total_transfer_messages_exchanged", "Transferred messages", exchanged, "direction")
        text = "Bytes of the synchronization of stores"
        yield counter(f"{prefix}total_bytes_exchanged", text, sync.transferred_bytes, "protocol", "direction")


def _proofs(prefix: str, context: RestContext) -> Iterator[Metric]:
    gate = context.parts.gate
    if gate is None:
        return
    counts = gate.statistics()
    spam = counts.refused.get(ProofFault.DOUBLE_SIGNAL, 0)
    invalid = {
        (fault.value,): count
        for fault, count in counts.refused.items()
        if fault not in {ProofFault.DOUBLE_SIGNAL, ProofFault.DUPLICATE}
    }
    seen = counts.admitted + counts.repeated + sum(counts.refused.values())
    # The names of these end in total before Prometheus adds it.
    yield counter(f"{prefix}_rln_messages_total_total", "Messages with a judged proof", seen)
    yield counter(f"{prefix}_rln_spam_messages_total_total", "Double signals", spam)
    yield counter(f"{prefix}_rln_invalid_messages_total_total", "Messages without a good proof", invalid, "type")


def _agents(context: RestContext) -> dict[tuple[str], int]:
    """Return the programs of the connected peers, cut and made visible, with the number of peers of each."""
    host = context.parts.host
    counts: Counter[str] = Counter()
    for peer in {connection.peer_id for connection in host.connections()}:
        info = host.info_of(peer)
        counts[visible(info.agent[:_MAX_NAME]) if info and info.agent else "unknown"] += 1
    agents = {(agent,): count for agent, count in counts.most_common(MAX_AGENTS)}
    rest = counts.total() - sum(agents.values())
    return agents | ({("other",): rest} if rest else {})


def _known_peers(context: RestContext) -> int:
    parts = context.parts
    connected = {connection.peer_id for connection in parts.host.connections()}
    return len(connected.union(record.peer_id for record in parts.records.records()))


def gauge(name: str, text: str, numbers: _Numbers, *labels: str) -> Metric:
    """Return a gauge, for each combination of labels."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), numbers)


def counter(name: str, text: str, numbers: _Numbers, *labels: str) -> Metric:
    """Return a counter, for each combination of labels."""
    return _filled(CounterMetricFamily(name, text, labels=labels), numbers)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, numbers: _Numbers) -> Metric:
    for values, number in (numbers if isinstance(numbers, Mapping) else {(): numbers}).items():
        family.add_metric(list(values), number)
    return family
