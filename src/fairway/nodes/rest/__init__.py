"""A Waku node behind the REST API of nwaku: `RestNode` for a channel, `RestStoreClient` for the pipeline."""

from fairway.nodes.rest.node import RestNode
from fairway.nodes.rest.options import ReceiveWay, RestNodeOptions
from fairway.nodes.rest.store_client import RestStoreClient
from fairway.nodes.rest.store_messages import StoreAnswer, StoreEntry

__all__ = [
    "ReceiveWay",
    "RestNode",
    "RestNodeOptions",
    "RestStoreClient",
    "StoreAnswer",
    "StoreEntry",
]
