"""The interface between a channel and the Waku network (`WakuNode`), and its implementations."""

from fairway.waku.connect import connect
from fairway.waku.node import (
    NodeHealth,
    NodeQuota,
    NodeStatus,
    RoutedMessage,
    SendResult,
    StorePage,
    StoreQuery,
    WakuNode,
)
from fairway.waku.subscription import Subscription

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
