"""What a channel needs of a Waku node; every implementation is interchangeable behind it.

A node sends, subscribes, answers store queries and says how it is. It promises nothing else: messages may be lost,
late, doubled or out of order, for that is what the protocol above is for. It keeps no state of a channel.

Health has the three levels of the WAKU-API: a node that is unhealthy can neither send nor receive, and a channel holds
everything back until that changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from fairway.errors import ConfigurationError
from fairway.events import NodeHealth as NodeHealth  # noqa: PLC0414 - part of this interface, too
from fairway.waku.subscription import Subscription
from fairway.wire.lightpush import ClientAction, client_action
from fairway.wire.waku_message import WakuMessage, encode_waku_message, message_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedMessage:
    """A WakuMessage on its way: where to, its very bytes, and their deterministic hash (14/WAKU2-MESSAGE)."""

    pubsub_topic: str
    message: WakuMessage
    encoded: bytes
    message_hash: bytes
    """32 bytes."""
    _is_genuine: bool | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def is_genuine(self) -> bool:
        """Whether the hash is that of the message, which is worked out once."""
        if self._is_genuine is None:
            object.__setattr__(self, "_is_genuine", self._has_its_hash())
        return bool(self._is_genuine)

    def _has_its_hash(self) -> bool:
        try:
            return message_hash(self.pubsub_topic, self.message) == self.message_hash
        except ConfigurationError:
            return False  # no WakuMessage has such fields

    @classmethod
    def of(cls, pubsub_topic: str, message: WakuMessage, encoded: bytes | None = None) -> Self:
        """Hash a message, and encode it unless its bytes are there already.

        Raises `ConfigurationError` for a message that has no encoding or no hash.
        """
        return cls(
            pubsub_topic=pubsub_topic,
            message=message,
            encoded=encode_waku_message(message) if encoded is None else encoded,
            message_hash=message_hash(pubsub_topic, message),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """What became of a transmission, as far as the node can tell."""

    accepted: bool
    """Whether at least one other node took it."""
    permanent: bool = False
    """Whether trying again is in vain: the message itself is at fault."""
    too_many: bool = False
    """Whether a node refused it for coming too soon after others (429): the same one is taken later."""
    detail: str = ""
    """Why not, for people."""

    @classmethod
    def refused(cls, status_code: int, detail: str) -> Self:
        """Return what a result code of light push other than 200 means for the message that was pushed."""
        action = client_action(status_code)
        return cls(
            accepted=False,
            permanent=action is ClientAction.NEVER_RESEND_UNCHANGED,
            too_many=action is ClientAction.RETRY_LATER,
            detail=detail,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """How a node is."""

    health: NodeHealth
    store: bool = False
    """Whether a store node can be asked."""
    detail: str = ""
    """Why it is unhealthy, for people: who does not answer, or answers as somebody else."""

    @property
    def connected(self) -> bool:
        """Whether it makes sense to send."""
        return self.health is not NodeHealth.UNHEALTHY


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuota:
    """The rate limit that a node knows of (RLN)."""

    limit: int
    """Messages per epoch."""
    epoch_ms: int
    remaining: int | None = None
    """Left in the current epoch, if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreQuery:
    """A question to a store node (13/WAKU2-STORE): by hash, or by content topic and time."""

    message_hashes: tuple[bytes, ...] = ()
    """Messages with any of these hashes; excludes everything but ``page_size``."""
    pubsub_topic: str = ""
    content_topics: tuple[str, ...] = ()
    start_ns: int | None = None
    """Timestamps from here on, inclusive."""
    end_ns: int | None = None
    """Timestamps before this."""
    newest_first: bool = False
    """Whether the first page is the newest one; within a page messages are oldest first."""
    page_size: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePage:
    """One page of an answer."""

    messages: tuple[RoutedMessage, ...]
    """Oldest first."""
    cursor: bytes | None = None
    """What to give to get the next page; None if this was the last one."""


class WakuNode(ABC):
    """A node of the Waku network. An async context manager that closes itself."""

    @property
    @abstractmethod
    def status(self) -> NodeStatus:
        """How the node is now."""

    @abstractmethod
    def status_changes(self) -> AsyncIterator[NodeStatus]:
        """Yield every status from now on, in order; the first one is the status at the time of the call."""

    @property
    @abstractmethod
    def quota(self) -> NodeQuota | None:
        """The rate limit that holds for this node, if it knows one."""

    @abstractmethod
    async def send(self, message: RoutedMessage) -> SendResult:
        """Broadcast a message. Never raises for what the network does; see `SendResult`."""

    @abstractmethod
    async def subscribe(self, pubsub_topic: str, content_topics: Collection[str]) -> Subscription[RoutedMessage]:
        """Receive what others send on content topics, from now on, until the subscription is closed.

        Raises `NodeUnavailableError` if the node is closed.
        """

    @abstractmethod
    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of what a store node keeps.

        Raises `StoreQueryError` if that cannot be had now.
        """

    @abstractmethod
    async def close(self) -> None:
        """Leave the network; subscriptions end. May be called twice."""

    async def __aenter__(self) -> Self:
        """Return the node itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the node."""
        await self.close()
