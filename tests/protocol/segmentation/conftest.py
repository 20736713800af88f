"""What the tests of segmentation share: messages on their way, and a receiver."""

from dataclasses import dataclass, replace

import pytest

from fairway.options import SegmentationConfig
from fairway.protocol.segmentation.open_sets import Quotas
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One SDS message that carries a segment."""

    sender_id: str
    sds_id: str
    order_key: int
    content: bytes


def send(payload, *, segment_format=WAKU_SEGMENTS, sender_id="alice", base=1_000, config=None, **options):
    """Segment a payload as its sender does: SDS ids are unique, order keys are a run from base."""
    config = config or SegmentationConfig(**{"segment_size_bytes": 320, "parity_rate": 0.25, **options})
    return [
        Sent(
            sender_id=sender_id,
            sds_id=f"{sender_id}-{base}-{part.order}",
            order_key=base + part.order,
            content=part.content,
        )
        for part in Segmenter(config, segment_format).split(payload).segments
    ]


class Receiver:
    """A reassembler with a clock, that keeps what it delivered."""

    def __init__(self, segment_format=WAKU_SEGMENTS, on_change=None, quotas=None, **options):
        self.config = SegmentationConfig(**{"segment_size_bytes": 320, "parity_rate": 0.25, **options})
        self.segment_format = segment_format
        callbacks = {} if on_change is None else {"on_change": on_change}
        quotas = Quotas(**{"bytes_per_sender": 1 << 25, "all_bytes": 1 << 28, **(quotas or {})})
        self.reassembler = Reassembler(self.config, segment_format, quotas=quotas, **callbacks)
        self.now_ms = 0
        self.delivered = []

    def receive(self, *messages):
        """Take messages in, in this order, and return the last outcome."""
        outcome = None
        for message in messages:
            outcome = self.reassembler.accept(
                message.sender_id, message.sds_id, message.order_key, message.content, self.now_ms
            )
            if hasattr(outcome, "payload"):
                self.delivered.append((message.sender_id, outcome.payload))
        return outcome

    @property
    def statistics(self):
        return self.reassembler.statistics()


@pytest.fixture(name="send", scope="session")
def _send():
    return send


@pytest.fixture(name="receiver", scope="session")
def _receiver():
    return Receiver


@pytest.fixture(params=[WAKU_SEGMENTS, LIP_243], ids=lambda known: known.name)
def segment_format(request):
    return request.param


@pytest.fixture
def relabel():
    """Return a function that changes a message on its way."""
    return replace
