"""The ways to the network: `connect`, the interface `WakuNode`, its implementations and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.lazy_names import lazy_names

if TYPE_CHECKING:
    from fairway.nodes.connecting import connect
    from fairway.nodes.light.options import LightOptions
    from fairway.nodes.local.network import LocalNode
    from fairway.nodes.node import (
        NodeHealth,
        NodeQuota,
        NodeStatus,
        RoutedMessage,
        SendResult,
        StorePage,
        StoreQuery,
        WakuNode,
    )
    from fairway.nodes.rest.options import ReceiveWay, RestNodeOptions
    from fairway.subscription import Subscription

__all__ = [
    "LightOptions",
    "LocalNode",
    "NodeHealth",
    "NodeQuota",
    "NodeStatus",
    "ReceiveWay",
    "RestNodeOptions",
    "RoutedMessage",
    "SendResult",
    "StorePage",
    "StoreQuery",
    "Subscription",
    "WakuNode",
    "connect",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "fairway.nodes.connecting": ("connect",),
            "fairway.nodes.light.options": ("LightOptions",),
            "fairway.nodes.local.network": ("LocalNode",),
            "fairway.nodes.node": (
                "NodeHealth",
                "NodeQuota",
                "NodeStatus",
                "RoutedMessage",
                "SendResult",
                "StorePage",
                "StoreQuery",
                "WakuNode",
            ),
            "fairway.nodes.rest.options": ("ReceiveWay", "RestNodeOptions"),
            "fairway.subscription": ("Subscription",),
        },
    )
