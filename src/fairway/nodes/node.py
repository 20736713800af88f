"""`WakuNode`: the interface between a channel and the Waku network.

A node sends, subscribes, queries stores and has a status. Messages may be lost, late, doubled or out of order; the
protocol above handles that. A node keeps no state of a channel.

Health has the three levels of the WAKU-API. An unhealthy node can neither send nor receive, and a channel keeps its
messages until that changes.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from fairway.errors import ConfigurationError
from fairway.events import NodeHealth as NodeHealth  # noqa: PLC0414 - part of this interface, too
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.subscription import Subscription
from fairway.wire.lightpush import ClientAction
from fairway.wire.waku_message import WakuMessage, encode_waku_message, message_hash

SEND_TIMEOUT_S: Final = 18.0
"""Longest time in which `WakuNode.send` answers. A single request to a node takes less, a channel waits for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedMessage:
    """A WakuMessage with its pubsub topic, its encoding, and its message hash."""

    pubsub_topic: str
    message: WakuMessage
    encoded: bytes
    message_hash: bytes
    """14/WAKU2-MESSAGE, "Deterministic message hashing": 32 bytes."""
    _is_genuine: bool | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def is_genuine(self) -> bool:
        """Whether the message hash is right; computed once."""
        if self._is_genuine is None:
            object.__setattr__(self, "_is_genuine", self._has_its_hash())
        return bool(self._is_genuine)

    def _has_its_hash(self) -> bool:
        try:
            return message_hash(self.pubsub_topic, self.message) == self.message_hash
        except ConfigurationError:
            return False  # no WakuMessage can have such fields

    @classmethod
    def of(cls, pubsub_topic: str, message: WakuMessage, encoded: bytes | None = None) -> Self:
        """Return a message with its hash and its encoding, which may be given.

        Raises `ConfigurationError` for a message that cannot be encoded or hashed.
        """
        return cls(
            pubsub_topic=pubsub_topic,
            message=message,
            encoded=encode_waku_message(message) if encoded is None else encoded,
            message_hash=message_hash(pubsub_topic, message),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """The outcome of a transmission, as far as the node knows."""

    accepted: bool
    """Whether at least one other node accepted the message."""
    permanent: bool = False
    """Whether the message itself is at fault, so that a retry is useless."""
    too_large: bool = False
    """Whether it is larger than the network relays; ``permanent`` as well, and ``detail`` names the limit."""
    too_many: bool = False
    """Whether a node refused the message because of its rate (429); a later retry can succeed."""
    unserved: bool = False
    """Whether each asked node answered that it does not serve the message's pubsub topic (421)."""
    detail: str = ""
    """Reason of a refusal or failure, as text for people."""
    stored: asyncio.Future[bool | None] | None = field(default=None, compare=False)
    """Whether stores have an accepted message some seconds later: True, False, or None if the answer stays unknown. The
    field is None if the node does not query stores."""

    @classmethod
    def refused(cls, action: ClientAction, detail: str, *, unserved: bool = False) -> Self:
        """Return the result for a message that was not accepted (`fairway.wire.lightpush.client_action`)."""
        return cls(
            accepted=False,
            permanent=action.is_final,
            too_large=action is ClientAction.TOO_LARGE,
            too_many=action is ClientAction.RETRY_LATER,
            unserved=unserved,
            detail=detail,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """The status of a node."""

    health: NodeHealth
    store: bool = False
    """Whether a store node can be queried."""
    detail: str = ""
    """Reason why the node is unhealthy, as text for people."""

    @property
    def connected(self) -> bool:
        """Whether the node can send and receive."""
        return self.health is not NodeHealth.UNHEALTHY


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuota:
    """The rate limit of a node (RLN)."""

    limit: int
    """Messages per epoch."""
    epoch_ms: int
    """Length of an epoch."""
    remaining: int | None = None
    """Messages left in the current epoch, if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRules:
    """The rules of a node's network for all its messages."""

    cluster_id: int
    shard_count: int
    """Network shards of the cluster, for autosharding."""
    max_message_bytes: int
    """Longest encoded WakuMessage that is relayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreQuery:
    """A query to a store node (13/WAKU2-STORE): by message hash, or by content topic and time."""

    message_hashes: tuple[bytes, ...] = ()
    """Messages with any of these hashes; excludes all other fields except ``page_size``."""
    pubsub_topic: str = ""
    content_topics: tuple[str, ...] = ()
    start_ns: int | None = None
    """Timestamps from this on, in Unix nanoseconds, inclusive."""
    end_ns: int | None = None
    """Timestamps before this, in Unix nanoseconds, exclusive."""
    newest_first: bool = False
    """Whether the first page is the newest one; within a page messages are oldest first."""
    page_size: int = 100
    """Most messages in a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePage:
    """One page of the answer to a store query."""

    messages: tuple[RoutedMessage, ...]
    """Messages, oldest first."""
    cursor: bytes | None = None
    """Cursor of the next page; None if this is the last one."""


class WakuNode(ABC):
    """A node of the Waku network. An async context manager that closes itself."""

    @property
    @abstractmethod
    def status(self) -> NodeStatus:
        """The present status."""

    @abstractmethod
    def status_changes(self) -> AsyncIterator[NodeStatus]:
        """Yield the present status, then every change, in order."""

    @property
    @abstractmethod
    def quota(self) -> NodeQuota | None:
        """The rate limit of this node, or None if it has none or does not know it."""

    @property
    def rln(self) -> RlnProofProvider | None:
        """The RLN membership of this node, which proves the messages of its channels; None if it has none."""
        return None

    @property
    def network(self) -> NetworkRules | None:
        """The rules of the network, or None if the node does not know its network."""
        return None

    @abstractmethod
    async def send(self, message: RoutedMessage) -> SendResult:
        """Send a message to the network, within `SEND_TIMEOUT_S`.

        Failures of the network are results, not exceptions.
        """

    @abstractmethod
    async def subscribe(self, pubsub_topic: str, content_topics: Collection[str]) -> Subscription[RoutedMessage]:
        """Return the messages of others on content topics, from now on, until the subscription is closed.

        Raises `NodeUnavailableError` if the node is closed.
        """

    @abstractmethod
    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the messages that store nodes keep.

        Raises `StoreQueryError` if no store node answers.
        """

    @abstractmethod
    async def close(self) -> None:
        """Leave the network; subscriptions end. Can be called twice."""

    async def __aenter__(self) -> Self:
        """Return the node itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the node."""
        await self.close()
