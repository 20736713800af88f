"""Asking more of a send: further participants, or a greater number of them, also after it was delivered.

One acknowledgement is not delivery to all, and a sender may decide late who must have the message. A send that is open
ends later. A send that was delivered is opened again, if its content is still retained to answer repair requests. Then
all that was known of it is known again. Participants that have it cite it again when they hear a copy
(`fairway.protocol.sds.owed`), so its first copy leaves one retry interval from now.

Only the newest sends that ended are remembered, in memory: after a restart no more can be asked of what had ended.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final, NamedTuple

from fairway.errors import ConfigurationError
from fairway.events import MessageDelivered
from fairway.protocol.outgoing.request import SendRequest, SentSegment
from fairway.protocol.outgoing.requests import Requests
from fairway.protocol.sds.acknowledgements import Acknowledged
from fairway.protocol.sds.channel import MessageChannel

MAX_ENDED: Final = 1_000


class EndedRequest(NamedTuple):
    """A send that ended delivered."""

    request: SendRequest
    segments: tuple[SentSegment, ...]
    acknowledged: dict[str, Acknowledged]
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


class WantMore:
    """Asks more of the sends of one channel."""

    def __init__(self, sds: MessageChannel, requests: Requests, ended: EndedRequests) -> None:
        self._sds = sds
        self._requests = requests
        self._ended = ended

    def want(
        self, request_id: str, required_count: int, names: frozenset[str], now_ms: int
    ) -> MessageDelivered | tuple[SentSegment, ...]:
        """Let a send end only when this is met, too.

        Returns `MessageDelivered` if that is known already, and otherwise the segments of a send that was opened again:
        each needs a new plan. Raises `ConfigurationError` if it cannot be had any more.
        """
        request = self._requests.open.get(request_id)
        if request is not None:
            self._requests.want_more(request, required_count, names)
            return ()
        ended = self._ended.get(request_id)
        if ended is None:
            why = "ended undelivered" if self._ended.has_failed(request_id) else "is not known (any more)"
            raise ConfigurationError(
                f"request {request_id!r} {why}: no more can be asked of it; send the message again"
            )
        wish = replace(ended.request)
        wish.want_more(required_count, names)
        if wish.is_delivered(ended.segments):
            self._ended.delivered(ended._replace(request=wish))
            return wish.delivered_event(ended.segments, now_ms)
        self._check_content(ended)
        self._ended.forget(request_id)
        self._requests.reopen(wish, ended.segments)
        self._sds.watch_again(ended.acknowledged)
        return ended.segments

    def _check_content(self, ended: EndedRequest) -> None:
        """Raise `ConfigurationError` if the segments of a send that ended cannot be sent again."""
        request_id = ended.request.request_id
        for segment in ended.segments:
            # Only where ids follow from the payload alone may two sends share them.
            other = self._requests.segments.get(segment.sds_id)
            if other is not None:
                raise ConfigurationError(
                    f"the message of request {request_id!r} is being sent again as request {other.request_id!r}; "
                    "ask more of that one"
                )
            # Parity is not repeated, so that it is not needed.
            is_kept = segment.sds_id in self._sds.retained and segment.sds_id in ended.acknowledged
            if not segment.is_parity and not is_kept:
                raise ConfigurationError(
                    f"the content of request {request_id!r} is not retained any more (RepairConfig.retained_messages, "
                    "retained_bytes); send the message again"
                )
