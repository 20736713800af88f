"""`PassedOver`: segments that came and were set aside, for which whatever cites them need not wait.

Two segments that contradict each other are not taken in both, since one is forged, and what is taken in is
acknowledged. Others may have taken in the one that is set aside here, and cite it. If what they say waited for it, one
forged segment would hold up everything, and fill the incoming buffer until the rest of its own message finds no room.

Causal order asks that a message comes after what its sender knew. So it may pass over a segment that is not taken in,
if nothing more is needed of that segment for what its sender knew:

* All that the segment itself cites is here.
* Its content is held, and is tried together with whatever comes of its message. Who had the whole message cites enough
  other segments of it, and with the last of these the message becomes whole here, too. Or else no segment can make use
  of its content, for it is a message of one segment, with the wrong hash.
* It is the one that is cited. Its id proves that, or the retrieval hint of the citation, which is the hash of the
  WakuMessage that it came in. Where ids prove nothing (`IdRule.KECCAK_TIMESTAMP`) the first content under an id counts
  here, as it does where it is taken in.

Such a segment stays missing and is asked for: it is neither acknowledged nor cited, and another message under its id is
taken in when it comes. Nothing of this is stored. After a restart the content is not held, and has to come again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.wire.sds import HistoryEntry, SdsMessage

_MAX_NOTED: Final = 10_000
"""Segments remembered; of those that were forgotten, what cites them waits."""


class _Came(NamedTuple):
    """How a segment came that was set aside."""

    message_hash: bytes
    may_be_any: bool
    """Whether it counts for its id whatever the hint (`MessageChannel.may_vouch_for`)."""
    is_useless: bool
    """Whether no segment can make use of it; the reassembler does not hold it."""


class PassedOver:
    """Which of the segments that were set aside count as here for those that cite them."""

    def __init__(self, sds: MessageChannel, reassembler: Reassembler) -> None:
        self._sds = sds
        self._reassembler = reassembler
        self._came: OrderedDict[str, _Came] = OrderedDict()
        """By SDS id, how each came last."""
        sds.pass_over(self._may_be_passed_over)

    def note(self, message: SdsMessage, message_hash: bytes, *, is_useless: bool) -> None:
        """Note that a segment was set aside; ``message_hash`` is that of the WakuMessage that it came in."""
        if self._sds.waits_for(message):
            return
        came = _Came(message_hash, self._sds.may_vouch_for(message), is_useless)
        known = self._came.get(message.message_id)
        if known is None or came.may_be_any or not known.may_be_any:
            self._came[message.message_id] = came
        self._came.move_to_end(message.message_id)
        if len(self._came) > _MAX_NOTED:
            self._came.popitem(last=False)

    def _may_be_passed_over(self, entry: HistoryEntry) -> bool:
        came = self._came.get(entry.message_id)
        if came is None or not (came.may_be_any or came.message_hash == entry.retrieval_hint):
            return False
        return came.is_useless or self._reassembler.will_try(entry.message_id)
