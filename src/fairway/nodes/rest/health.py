"""Turns the answer of ``GET /health`` into a `NodeStatus`.

Pure. nwaku, ``waku/node/health_monitor``: a state of the node and one of each protocol. Older versions answer with a
sentence, and go-waku that it has none to give. Invariant: whatever the answer is, it is a status.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fairway.errors import DecodeError
from fairway.json_reading import read_json
from fairway.nodes.node import NodeHealth, NodeStatus

_SENDING: Final = ("Relay", "Lightpush", "Lightpush Client")
_STORING: Final = ("Store", "Store Client")
_READY: Final = "ready"


class _Report(msgspec.Struct, rename="camel"):
    node_health: str
    protocols_health: list[dict[str, Any]] = []


def status_of(status: int, body: bytes) -> NodeStatus:
    """Return the status of a node that answered."""
    try:
        report = read_json(body, _Report)
    except DecodeError:
        # No report: the status code of the answer is all that is known.
        known = 200 <= status < 300
        missing = status in {400, 404, 405, 501}
        health = NodeHealth.MINIMALLY_HEALTHY if known or missing else NodeHealth.UNHEALTHY
        return NodeStatus(health=health, store=True)
    states = {name: str(state).lower() for protocol in report.protocols_health for name, state in protocol.items()}
    store = not states or any(states.get(name) == _READY for name in _STORING)
    if states and not any(states.get(name) == _READY for name in _SENDING):
        return NodeStatus(health=NodeHealth.UNHEALTHY, store=store)
    ready = report.node_health.lower() == _READY
    health = NodeHealth.SUFFICIENTLY_HEALTHY if ready else NodeHealth.MINIMALLY_HEALTHY
    return NodeStatus(health=health, store=store)
