"""``/metrics``: the statistics of the node in the text format of Prometheus, by our names and by those of nwaku.

Each request reads the statistics of the node's parts, in a registry of its own: two nodes in one process stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from fairway.errors import FairwayError
from fairway.service.archives import ArchiveStatistics
from fairway.service.distribution import ShardTotals
from fairway.service.proof_gate import GateStatistics
from fairway.service.rest.context import Endpoints, RestContext
from fairway.service.rest.nwaku_metrics import counter, gauge, nwaku_metrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_COUNTERS: Final = {
    "host": {"refused_connections", "failed_handshakes", "received_bytes", "sent_bytes", "dials", "failed_dials"},
    "relay": {"received", "duplicates", "invalid", "published", "recovered", "served"},
    "messages": {"messages", "message_bytes", "duplicates", "lost_on_purpose"},
    "filter_push": {"pushed", "dropped"},
    "archive": {"dropped", "queries"},
    "store_sync": {"sessions", "failed", "refused", "received", "sent"},
    "discovery": {"dials", "failures", "list_reads", "list_failures", "exchanges"},
}
"""The statistics of each part that never decrease, which Prometheus calls counters; all others are gauges."""


class MetricsEndpoints(Endpoints):
    """The handlers of one server."""

    async def text(self, _: Request) -> Response:
        """Return all statistics as text."""
        context = self._context
        archive: ArchiveStatistics | None = None
        if context.parts.archive is not None:
            try:
                archive = await context.parts.archive.statistics()
            except FairwayError:
                archive = None  # an archive that cannot be read has no statistics
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Numbers(context, archive))
        ProcessCollector(registry=registry)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE)


class _Numbers(Collector):
    """The statistics for one request."""

    def __init__(self, context: RestContext, archive: ArchiveStatistics | None) -> None:
        self._context: Final = context
        self._archive: Final = archive

    def collect(self) -> Iterable[Metric]:
        """Yield every metric."""
        context, parts = self._context, self._context.parts
        statistics: dict[str, Any] = {
            "host": parts.host.statistics(),
            "relay": parts.relay.statistics(),
            "messages": parts.distribution.statistics(),
            "filter_push": parts.pusher.statistics(),
        }
        if self._archive is not None:
            statistics["archive"] = self._archive
        if parts.store_sync is not None:
            statistics["store_sync"] = parts.store_sync.statistics()
        if parts.finder is not None:
            statistics["discovery"] = parts.finder.statistics()
        for part, numbers in statistics.items():
            yield from _family(part, asdict(numbers))
        yield gauge(
            "fairway_healthy",
            "1 while the node is connected as its options ask and its archive can be written",
            context.node.is_healthy,
        )
        yield from _services(context)
        yield from _shards(context)
        if parts.gate is not None:
            yield from _proofs(parts.gate.statistics())
        yield from _rest(context)
        yield from nwaku_metrics(context, self._archive)


def _services(context: RestContext) -> Iterator[Metric]:
    parts = context.parts
    ends_s = [known.expires_s for known in (parts.certificate, context.certificate) if known is not None]
    if ends_s:
        yield gauge(
            "fairway_tls_certificate_end_timestamp_seconds",
            "When the certificate ends, in Unix time; of two the first to end",
            min(ends_s),
        )
    yield gauge("fairway_filter_subscribers", "Peers with a filter subscription", len(parts.filters))
    refused = {
        (service, reason.name.lower()): count
        for service, counts in (("relay", parts.relay.refused), ("lightpush", parts.lightpush.refused))
        for reason, count in counts.items()
    }
    text = "Messages that break a rule, and refused pushes"
    yield counter("fairway_refused_messages", text, refused, "service", "reason")
    yield gauge("fairway_discovery_records", "Records of other nodes, for peer exchange", len(parts.records))
    if parts.finder is not None:
        faults = {(fault,): count for fault, count in parts.finder.faults.items()}
        yield counter("fairway_discovery_refused", "Refused records and answers of other nodes", faults, "reason")
    limited = {(name,): limiter.refused for name, limiter in parts.limiters.items()}
    yield counter("fairway_refused_requests", "Requests beyond the rate that each peer is allowed", limited, "service")


def _shards(context: RestContext) -> Iterator[Metric]:
    relay, totals = context.parts.relay, context.parts.distribution.shards
    topics = list(context.node.pubsub_topics)
    label = "pubsub_topic"
    peers = {(topic,): len(relay.peers_of(topic)) for topic in topics}
    yield gauge("fairway_relay_shard_peers", "Relay peers of a shard", peers, label)
    by_topic = {(topic,): totals.get(topic, ShardTotals()) for topic in topics}
    messages = {topic: total.messages for topic, total in by_topic.items()}
    yield counter("fairway_shard_messages", "Messages of a shard without duplicates", messages, label)
    sizes = {topic: total.message_bytes for topic, total in by_topic.items()}
    yield counter("fairway_shard_message_bytes", "Size of these messages", sizes, label)


def _rest(context: RestContext) -> Iterator[Metric]:
    answered = {(operation, str(status)): count for (operation, status), count in context.requests.items()}
    yield counter("fairway_rest_requests", "Answered requests", answered, "operation", "status")
    yield gauge("fairway_rest_requests_under_way", "Requests that are not answered yet", context.under_way)
    yield gauge("fairway_rest_event_streams", "Readers of /events", context.event_streams)
    overflowed = {("relay",): context.relayed.overflowed, ("filter",): context.filtered.overflowed}
    text = "Messages that were replaced before a client fetched them"
    yield counter("fairway_rest_cache_overflowed", text, overflowed, "cache")
    evicted = {("received",): context.received.dropped, ("send",): context.send_events.dropped}
    text = "Records evicted before a client fetched them"
    yield counter("fairway_rest_messaging_dropped", text, evicted, "events")
    unconfirmed = context.sends.unconfirmed
    yield counter("fairway_rest_messaging_unconfirmed", "Sends that no archive held in time", unconfirmed)


def _family(part: str, numbers: dict[str, int]) -> Iterator[Metric]:
    for name, number in numbers.items():
        whole = f"fairway_{part}" if name == part else f"fairway_{part}_{name}"
        kind = counter if name in _COUNTERS.get(part, ()) else gauge
        yield kind(whole, f"{part.replace('_', ' ')}: {name.replace('_', ' ')}", number)


def _proofs(statistics: GateStatistics) -> Iterator[Metric]:
    verdicts = {("admitted",): statistics.admitted, ("repeated",): statistics.repeated}
    verdicts |= {(fault.value,): count for fault, count in statistics.refused.items()}
    yield counter("fairway_rln_messages", "Messages by the verdict on their RLN proof", verdicts, "verdict")
    yield gauge("fairway_rln_waiting", "Messages that wait for the verification of their proof", statistics.waiting)
    yield gauge("fairway_rln_nullifiers", "Messages of the present epochs", statistics.nullifiers)
    failed = statistics.refreshes_failed
    yield counter("fairway_rln_group_refreshes_failed", "Failed refreshes of the group", failed)
