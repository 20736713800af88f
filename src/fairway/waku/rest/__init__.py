"""A Waku node behind the REST API of nwaku: `RestNode` for a channel, `RestStoreClient` for the pipeline."""

from fairway.waku.rest.node import RestNode
from fairway.waku.rest.options import ReceiveWay, RestNodeOptions, SendWay
from fairway.waku.rest.store_client import RestStoreClient
from fairway.waku.rest.store_messages import StoreAnswer, StoreEntry

__all__ = [
    "ReceiveWay",
    "RestNode",
    "RestNodeOptions",
    "RestStoreClient",
    "SendWay",
    "StoreAnswer",
    "StoreEntry",
]
