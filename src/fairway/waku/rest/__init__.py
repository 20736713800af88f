"""A Waku node behind the REST API of nwaku: today its store, ``GET /store/v3/messages``."""

from fairway.waku.rest.store_client import StoreClient
from fairway.waku.rest.store_messages import StoreAnswer, StoreEntry

__all__ = ["StoreAnswer", "StoreClient", "StoreEntry"]
