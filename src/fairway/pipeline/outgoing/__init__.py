"""Sends payloads in bulk: segmentation, SDS, encryption, a schedule over the epochs of the rate limit, dispatch.

::

    payloads -> composed -+-> outgoing_messages -> scheduled -> dispatch -> receipts
                          +-> refused

`send` carries out all stages, with tables in a folder (`fairway.pipeline.outgoing.tables`). The stages are functions
from DataFrame to DataFrame, as in `fairway.pipeline.stages`. The sink ``waku`` can send the result of `scheduled` too.
"""

from __future__ import annotations

from fairway.pipeline.outgoing.channel_state import ChannelState, state_of_store, states_of_run
from fairway.pipeline.outgoing.options import SendOptions, channel_options
from fairway.pipeline.outgoing.outgoing_messages import composed, outgoing_messages, refused
from fairway.pipeline.outgoing.scheduled import scheduled
from fairway.pipeline.outgoing.sending import send
from fairway.pipeline.outgoing.summary import SendSummary

__all__ = [
    "ChannelState",
    "SendOptions",
    "SendSummary",
    "channel_options",
    "composed",
    "outgoing_messages",
    "refused",
    "scheduled",
    "send",
    "state_of_store",
    "states_of_run",
]
