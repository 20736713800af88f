"""A Waku node behind the REST API of nwaku: `RestNode` for a channel, `RestStoreClient` for the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.lazy_names import lazy_names

if TYPE_CHECKING:
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

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "fairway.nodes.rest.node": ("RestNode",),
            "fairway.nodes.rest.options": ("ReceiveWay", "RestNodeOptions"),
            "fairway.nodes.rest.store_client": ("RestStoreClient",),
            "fairway.nodes.rest.store_messages": ("StoreAnswer", "StoreEntry"),
        },
    )
