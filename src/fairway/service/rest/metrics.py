"""``/metrics``: the statistics of the node in the text format of Prometheus, by our names and by those of nwaku.

Each request reads the statistics of the node's parts, in a registry of its own: two nodes in one process stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from fairway.errors import FairwayError
from fairway.service.archives import ArchiveStatistics
from fairway.service.proof_gate import GateStatistics
from fairway.service.rest.context import RestContext
from fairway.service.rest.nwaku_metrics import nwaku_metrics
from fairway.service.topic_traffic import ShardTotals

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_COUNTERS: Final = {
    "host": {"refused_connections", "failed_handshakes", "received_bytes", "sent_bytes", "dials", "failed_dials"},
    "relay": {"received", "duplicates", "invalid", "published", "recovered", "served"},
    "messages": {"messages", "message_bytes", "duplicates", "lost_on_purpose"},
    "filter_push": {"pushed", "dropped"},
    "archive": {"dropped", "queries"},
    "discovery": {"dials", "failures", "list_reads", "list_failures", "exchanges"},
}
"""The statistics of each part that never decrease, which Prometheus calls counters; all others are gauges."""


async def metrics(context: RestContext, _: Request) -> Response:
    """Return all statistics as text."""
    archive: ArchiveStatistics | None = None
    if context.node.archive is not None:
        try:
            archive = await context.node.archive.statistics()
        except FairwayError:
            archive = None  # the statistics of an archive that cannot be read are left out
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
        context, node = self._context, self._context.node
        parts: dict[str, Any] = {
            "host": node.host.statistics(),
            "relay": node.relay.statistics(),
            "messages": node.distribution.statistics(),
            "filter_push": node.pusher.statistics(),
        }
        if self._archive is not None:
            parts["archive"] = self._archive
        if node.finder is not None:
            parts["discovery"] = node.finder.statistics()
        for part, statistics in parts.items():
            yield from _family(part, asdict(statistics))
        yield _gauge(
            "healthy",
            "1 while the node is connected as its options ask and its archive can be written",
            node.is_healthy,
        )
        ends_s = [known.expires_s for known in (node.certificate, self._context.certificate) if known is not None]
        if ends_s:
            yield _gauge(
                "tls_certificate_end_timestamp_seconds",
                "When the certificate ends, in Unix time; of two the first to end",
                min(ends_s),
            )
        yield _gauge("filter_subscribers", "Peers with a filter subscription", len(node.filters))
        shards = GaugeMetricFamily("fairway_relay_shard_peers", "Relay peers of a shard", labels=["pubsub_topic"])
        for topic in node.pubsub_topics:
            shards.add_metric([topic], node.relay.peer_count(topic))
        yield shards
        totals = node.distribution.traffic.shards()
        messages = CounterMetricFamily(
            "fairway_shard_messages", "Messages of a shard without duplicates", labels=["pubsub_topic"]
        )
        sizes = CounterMetricFamily("fairway_shard_message_bytes", "Size of these messages", labels=["pubsub_topic"])
        for topic in node.pubsub_topics:
            total = totals.get(topic, ShardTotals())
            messages.add_metric([topic], total.messages)
            sizes.add_metric([topic], total.message_bytes)
        yield from (messages, sizes)
        refused_messages = CounterMetricFamily(
            "fairway_refused_messages", "Messages that break a rule, and pushes refused", labels=["service", "reason"]
        )
        for service, counts in (("relay", node.relay.refused), ("lightpush", node.lightpush.refused)):
            for reason, count in counts.items():
                refused_messages.add_metric([service, reason.name.lower()], count)
        yield refused_messages
        yield _gauge("discovery_records", "Records of other nodes, for peer exchange", len(node.records))
        if node.finder is not None:
            faults = CounterMetricFamily(
                "fairway_discovery_refused", "Records and answers of others that were not believed", labels=["reason"]
            )
            for fault, count in node.finder.faults.items():
                faults.add_metric([fault], count)
            yield faults
        refused = CounterMetricFamily(
            "fairway_refused_requests", "Requests beyond the rate that each peer is allowed", labels=["service"]
        )
        for name, limiter in node.limiters.items():
            refused.add_metric([name], limiter.refused)
        yield refused
        if node.gate is not None:
            yield from _proofs(node.gate.statistics())
        answered = CounterMetricFamily("fairway_rest_requests", "Answered", labels=["operation", "status"])
        for (operation, status), count in context.requests.items():
            answered.add_metric([operation, str(status)], count)
        yield answered
        yield _gauge("rest_requests_under_way", "Requests that are not answered yet", context.under_way)
        yield _gauge("rest_event_streams", "Readers of /events", context.event_streams)
        overflowed = CounterMetricFamily(
            "fairway_rest_cache_overflowed",
            "Messages that were replaced before a client fetched them",
            labels=["cache"],
        )
        for name, fed in (("relay", context.relayed), ("filter", context.filtered)):
            overflowed.add_metric([name], fed.cache.overflowed)
        yield overflowed
        evicted = CounterMetricFamily(
            "fairway_rest_messaging_dropped", "Records evicted before a client fetched them", labels=["events"]
        )
        evicted.add_metric(["received"], context.received.cache.dropped)
        evicted.add_metric(["send"], context.send_events.dropped)
        yield evicted
        yield CounterMetricFamily(
            "fairway_rest_messaging_unconfirmed", "Sends that no archive held in time", value=context.sends.unconfirmed
        )
        yield from nwaku_metrics(context, self._archive)


def _family(part: str, numbers: dict[str, int]) -> Iterator[Metric]:
    for name, number in numbers.items():
        whole = f"fairway_{part}" if name == part else f"fairway_{part}_{name}"
        described = f"{part.replace('_', ' ')}: {name.replace('_', ' ')}"
        if name in _COUNTERS.get(part, ()):
            yield CounterMetricFamily(whole, described, value=number)
        else:
            yield GaugeMetricFamily(whole, described, value=number)


def _proofs(statistics: GateStatistics) -> Iterator[Metric]:
    judged = CounterMetricFamily(
        "fairway_rln_messages", "Messages by what became of them for their RLN proof", labels=["verdict"]
    )
    judged.add_metric(["admitted"], statistics.admitted)
    judged.add_metric(["repeated"], statistics.repeated)
    for fault, count in statistics.refused.items():
        judged.add_metric([fault.value], count)
    yield judged
    yield _gauge("rln_waiting", "Messages that wait for the verification of their proof", statistics.waiting)
    yield _gauge("rln_nullifiers", "Messages of the present epochs", statistics.nullifiers)
    yield CounterMetricFamily(
        "fairway_rln_group_refreshes_failed", "Looks at the group that failed", value=statistics.refreshes_failed
    )


def _gauge(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(f"fairway_{name}", description, value=value)
