"""Asking more of a send: further participants, or a greater number of them, also after it was delivered.

One acknowledgement is not delivery to all, and a sender may decide late who must have the message. A send that is open
ends later. One that was delivered a while ago, and whose content is still
retained to answer repair requests, is opened again with all that was known of it: whoever has it cites it again when
he hears a copy (`fairway.protocol.sds.owed`), so that its first copy leaves one retry interval from now.
"""

from __future__ import annotations

from dataclasses import replace

from fairway.errors import ConfigurationError
from fairway.protocol.effects import Effects
from fairway.protocol.outgoing.dispatching import Outbound
from fairway.protocol.outgoing.ended_requests import EndedRequest
from fairway.protocol.outgoing.requests import Requests
from fairway.protocol.outgoing.sending import Sending
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.reopening import wait_again


class WantMore:
    """Opens sends of one channel again."""

    def __init__(
        self, sds: MessageChannel, requests: Requests, outbound: Outbound, sending: Sending, effects: Effects
    ) -> None:
        self._sds = sds
        self._requests = requests
        self._outbound = outbound
        self._sending = sending
        self._effects = effects

    def want(self, request_id: str, required_count: int, names: frozenset[str], now_ms: int) -> None:
        """Let a send end only when this is met, too; raise `ConfigurationError` if that cannot be had any more."""
        request = self._requests.open.get(request_id)
        if request is not None:
            self._requests.want_more(request, required_count, names)
            return
        ended = self._sending.ended.get(request_id)
        if ended is None:
            why = "ended undelivered" if self._sending.ended.has_failed(request_id) else "is not known (any more)"
            raise ConfigurationError(
                f"request {request_id!r} {why}: no more can be asked of it; send the message again"
            )
        wish = replace(ended.request)
        wish.want_more(required_count, names)
        ended = ended._replace(request=wish)
        if wish.is_delivered(ended.segments):
            self._sending.ended.delivered(ended)
            self._effects.tell(wish.delivered_event(ended.segments, now_ms))
        else:
            self._check_content(ended)
            self._reopen(ended, now_ms)

    def _check_content(self, ended: EndedRequest) -> None:
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
            if not segment.is_parity and not (segment.sds_id in self._sds.retained and segment.sds_id in ended.waited):
                raise ConfigurationError(
                    f"the content of request {request_id!r} is not retained any more (RepairConfig.retained_messages, "
                    "retained_bytes); send the message again"
                )

    def _reopen(self, ended: EndedRequest, now_ms: int) -> None:
        self._sending.ended.forget(ended.request.request_id)
        self._requests.reopen(ended.request, ended.segments)
        wait_again(self._sds, ended.waited.items())
        for segment in ended.segments:
            if not self._outbound.waits(segment.sds_id):
                self._sending.begin_anew(segment, now_ms)
