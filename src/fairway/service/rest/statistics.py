"""`StatisticsEvents`: the figures of the operator's page, as an event ``statistics`` every `EVERY_S`.

Invariants: each event is complete, so that a reader can start with any. No events wait for a slow reader, which gets
the newest one when it is ready. All readers share an event. The list of agents is bounded, and names of peers are cut
and made visible.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from itertools import islice
from typing import Any, Final

from starlette.types import Send

from fairway.environment import monotonic_s
from fairway.errors import FairwayError
from fairway.nodes.rest.shapes import json_of
from fairway.service.distribution import ShardTotals
from fairway.service.rest.context import RestContext
from fairway.service.rest.health import health_of
from fairway.service.rest.server_sent_events import ServerSentEvents, begin, chunk
from fairway.visible import visible

EVERY_S: Final = 2.0
"""Time between two events."""
MAX_AGENTS: Final = 20
"""Agents that an event names."""
MAX_SHARDS: Final = 64
"""Shards that an event lists."""
_ARCHIVE_TIMEOUT_S: Final = 1.0
_MAX_NAME: Final = 100
_ERRORS_FROM: Final = 400


class Statistics:
    """The newest event of a server, which all its streams share."""

    def __init__(self, context: RestContext) -> None:
        self._context: Final = context
        self._started_s: Final = monotonic_s()
        self._making: Final = asyncio.Lock()
        self._event = b""
        self._made_s = 0.0

    async def event(self) -> bytes:
        """Return an event that is at most as old as half the time between two."""
        async with self._making:
            now_s = monotonic_s()
            if not self._event or now_s - self._made_s >= EVERY_S / 2:
                shape = await statistics_of(self._context, now_s=now_s, started_s=self._started_s)
                self._event = b"event: statistics\ndata: %s\n\n" % json_of(shape)
                self._made_s = now_s
            return self._event


class StatisticsEvents(ServerSentEvents):
    """The statistics of the node, again and again."""

    def __init__(self, context: RestContext, statistics: Statistics) -> None:
        super().__init__(context)
        self._statistics: Final = statistics

    async def _write(self, send: Send) -> None:
        await begin(send)
        while True:
            await chunk(send, await self._statistics.event())
            await asyncio.sleep(EVERY_S)


async def statistics_of(context: RestContext, *, now_s: float, started_s: float) -> dict[str, Any]:
    """Return the figures of the page; both times are of a steady clock."""
    node, parts = context.node, context.parts
    host, pushed = parts.host.statistics(), parts.pusher.statistics()
    return {
        "version": metadata.version("fairway"),
        "peerId": str(node.peer_id),
        "addresses": [str(address) for address in node.addresses],
        "uptimeS": round(now_s - started_s),
        "cluster": node.options.cluster_id,
        "health": health_of(context),
        "peers": {"connected": host.peers, "connections": host.connections, "agents": agents_of(context)},
        "shards": _shards(context),
        "traffic": _traffic(context),
        "loss": {"share": node.options.advanced.loss, "messages": parts.distribution.statistics().lost_on_purpose},
        "archive": await _archive(context),
        "filter": {"subscribers": len(parts.filters), "pushed": pushed.pushed, "waitingBytes": pushed.held_bytes},
        "refusals": _refusals(context),
        "proofs": _proofs(context),
        "rest": {"eventStreams": context.event_streams, "underWay": context.under_way},
    }


def agents_of(context: RestContext) -> list[dict[str, Any]]:
    """Return the agents of the connected peers, the most frequent first; null stands for all others."""
    host = context.parts.host
    peers = {connection.peer_id for connection in host.connections()}
    counts: Counter[str] = Counter()
    for peer in peers:
        info = host.info_of(peer)
        counts[_named(info.agent) if info else ""] += 1
    ordered = counts.most_common()
    named = [{"agent": agent, "peers": count} for agent, count in ordered[:MAX_AGENTS]]
    rest = sum(count for _, count in ordered[MAX_AGENTS:])
    return [*named, *([{"agent": None, "peers": rest}] if rest else [])]


def _shards(context: RestContext) -> list[dict[str, Any]]:
    relay, totals = context.parts.relay, context.parts.distribution.shards
    return [
        {
            "pubsubTopic": topic,
            "relayPeers": relay.peer_count(topic),
            "meshPeers": relay.mesh_size(topic),
            "messages": totals.get(topic, ShardTotals()).messages,
            "messageBytes": totals.get(topic, ShardTotals()).message_bytes,
        }
        for topic in islice(context.node.pubsub_topics, MAX_SHARDS)
    ]


def _traffic(context: RestContext) -> dict[str, int]:
    counts = context.parts.distribution.statistics()
    return {
        "messages": counts.messages,
        "messageBytes": counts.message_bytes,
        "duplicates": counts.duplicates,
    }


async def _archive(context: RestContext) -> dict[str, Any] | None:
    """Return the counts of the archive, or why there are none; None if the node keeps no archive."""
    archive = context.parts.archive
    if archive is None:
        return None
    try:
        async with asyncio.timeout(_ARCHIVE_TIMEOUT_S):
            counts = await archive.statistics()
    except (FairwayError, TimeoutError) as error:
        return {"problem": visible(str(error)) or "the archive does not answer"}
    return {
        "messages": counts.messages,
        "sizeBytes": counts.size_bytes,
        "waiting": counts.waiting,
        "dropped": counts.dropped,
        "queries": counts.queries,
        "notWritten": None if archive.problem is None else visible(archive.problem),
    }


def _refusals(context: RestContext) -> list[dict[str, Any]]:
    """Return the refusals since the start by service and reason, without those that never happened."""
    parts, host = context.parts, context.parts.host.statistics()
    answered: Counter[int] = Counter()
    for (_, status), count in context.requests.items():
        answered[status] += count
    counts: Iterable[tuple[str, str, int]] = (
        *(("relay", status.name.lower(), count) for status, count in parts.relay.refused.items()),
        *(("lightpush", status.name.lower(), count) for status, count in parts.lightpush.refused.items()),
        # Light push counts these under its status codes.
        *((name, "too_many_requests", each.refused) for name, each in parts.limiters.items() if name != "lightpush"),
        ("connections", "limit_reached", host.refused_connections),
        ("connections", "failed_handshake", host.failed_handshakes),
        ("filter", "push_dropped", parts.pusher.statistics().dropped),
        *(("rest", f"status_{status}", count) for status, count in answered.items() if status >= _ERRORS_FROM),
    )
    return [{"service": service, "reason": reason, "count": count} for service, reason, count in counts if count]


def _proofs(context: RestContext) -> dict[str, Any] | None:
    """Return the verdicts on RLN proofs; None in a network without RLN."""
    gate = context.parts.gate
    if gate is None:
        return None
    counts = gate.statistics()
    verdicts = {"admitted": counts.admitted, "repeated": counts.repeated}
    verdicts |= {fault.value: count for fault, count in counts.refused.items() if count}
    return {"verdicts": verdicts, "waiting": counts.waiting, "failedLooksAtGroup": counts.refreshes_failed}


def _named(name: str) -> str:
    return visible(name[:_MAX_NAME])
