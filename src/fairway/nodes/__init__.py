"""The interface between a channel and the Waku network (`WakuNode`), and its implementations."""

from fairway.nodes.connect import connect
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
from fairway.subscription import Subscription

__all__ = [
    "NodeHealth",
    "NodeQuota",
    "NodeStatus",
    "RoutedMessage",
    "SendResult",
    "StorePage",
    "StoreQuery",
    "Subscription",
    "WakuNode",
    "connect",
]
