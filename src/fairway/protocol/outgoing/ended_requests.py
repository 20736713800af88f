"""Sends that ended, as far as more may still be asked of them.

Only the newest are remembered, in memory: after a restart nothing can be asked of what had ended before.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from fairway.protocol.outgoing.request import SendRequest, SentSegment
from fairway.protocol.sds.reopening import Waited

MAX_ENDED: Final = 1_000


class EndedRequest(NamedTuple):
    """A send that ended delivered."""

    request: SendRequest
    segments: tuple[SentSegment, ...]
    waited: dict[str, Waited]
    """What SDS knew of its segments, by SDS id."""


class EndedRequests:
    """The newest sends that ended, by request id."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, EndedRequest | None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ended)

    def delivered(self, ended: EndedRequest) -> None:
        """Remember a send that ended delivered."""
        self._put(ended.request.request_id, ended)

    def failed(self, request_id: str) -> None:
        """Remember that a send ended undelivered."""
        self._put(request_id, None)

    def forget(self, request_id: str) -> None:
        """Forget a send, since its id stands for another one now, or it is open again."""
        self._ended.pop(request_id, None)

    def get(self, request_id: str) -> EndedRequest | None:
        """Return a send that ended delivered."""
        return self._ended.get(request_id)

    def has_failed(self, request_id: str) -> bool:
        """Return whether a send is known to have ended undelivered."""
        return request_id in self._ended and self._ended[request_id] is None

    def _put(self, request_id: str, ended: EndedRequest | None) -> None:
        self._ended.pop(request_id, None)
        self._ended[request_id] = ended
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)
