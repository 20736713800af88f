"""What a channel does with the classics of bad input, each sent to `Stack.receive` on both wires.

docs/fuzzing.md has the table: input, what happens, and the test here or beside the layer that decides.
"""

from dataclasses import replace

import pytest

from fairway.events import IrretrievableMessage, LossReason, MemberArrived, MessageReceived, MessagesUndecryptable
from fairway.options import Advanced, Profile, ReliableChannelOptions, SegmentationConfig
from fairway.protocol.effects import Emit, Publish
from fairway.protocol.sds.dependencies import MAX_CITATIONS_READ
from fairway.protocol.sds.repair import MAX_REQUESTS_PER_MESSAGE
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.protocol.stack import Stack
from fairway.wire.sds import MAX_ENTRIES, MAX_NAME_LENGTH, NIM_SDS, WAKU_SDS, HistoryEntry, Kind, SdsMessage
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, Segment
from fairway.wire.waku_message import WakuMessage

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
TOPIC = "/bad-input/1/team/proto"
SEGMENTATION = SegmentationConfig(segment_size_bytes=192, parity_rate=0.5)
MEBIBYTE = 1 << 20


class Channel:
    """A stack under test, and what a stranger needs to talk to it."""

    def __init__(self, profile, segmentation=SEGMENTATION, **options):
        self.profile = profile
        self.is_logos = profile is Profile.LOGOS
        self.codec = NIM_SDS if self.is_logos else WAKU_SDS
        self.segment_format = LIP_243 if self.is_logos else WAKU_SEGMENTS
        self.unit_ms = 1_000 if self.is_logos else 1
        self.options = ReliableChannelOptions(profile=profile, segmentation=segmentation, **options)
        self.stack = Stack("team", "alice", TOPIC, self.options, now_ms=NOW_MS, seed=bytes(16))
        self._count = 0

    def wrapped(self, payload):
        """Return a whole message as the content of an SDS message."""
        return Segmenter(self.options.segmentation, self.segment_format).split(payload).segments[0].content

    def message(self, content=b"", **fields):
        self._count += 1
        usual = {
            "message_id": f"m{self._count}",
            "sender_id": "mallory",
            "channel_id": "team",
            "lamport_timestamp": NOW_MS // self.unit_ms,
            "content": content,
        }
        return SdsMessage(**usual | fields)

    def receives(self, message):
        """Receive an SDS message, or bytes in its place; return the events that concern messages."""
        payload = self.codec.encode(message) if isinstance(message, SdsMessage) else message
        meta = Profile.LOGOS.marker if self.is_logos else None
        waku = WakuMessage(payload=payload, content_topic=TOPIC, timestamp_ns=NOW_MS * 1_000_000, meta=meta)
        effects = self.stack.receive(waku, NOW_MS)
        events = [effect.event for effect in effects if isinstance(effect, Emit)]
        return [event for event in events if not isinstance(event, MemberArrived | MessagesUndecryptable)]

    def receives_segments(self, *segments):
        """Receive segments, each in an SDS message of its own; return the events of all."""
        return [
            event for segment in segments for event in self.receives(self.message(self.segment_format.encode(segment)))
        ]

    def sends(self, payload=b"mine", now_ms=NOW_MS):
        """Send a message; return the first SDS message that went out."""
        effects = self.stack.send(payload, now_ms).effects
        publish = next(effect for effect in effects if isinstance(effect, Publish))
        return self.codec.decode(publish.message.payload)

    def segments(self, payload):
        """Return the segments of a payload, cut as an honest sender does."""
        parts = Segmenter(self.options.segmentation, self.segment_format).split(payload).segments
        return [self.segment_format.decode(part.content) for part in parts]

    @property
    def counts(self):
        return self.stack.statistics()

    def waits(self, for_ms):
        """Let time pass; return the events of all."""
        now_ms, events = NOW_MS, []
        while (at_ms := self.stack.next_deadline()) is not None and at_ms <= NOW_MS + for_ms:
            now_ms = max(now_ms, at_ms)
            events += [effect.event for effect in self.stack.tick(now_ms) if isinstance(effect, Emit)]
        return events

    def still_works(self):
        """Return whether the next message of an honest participant is delivered."""
        return payloads(self.receives(self.message(self.wrapped(b"honest"), sender_id="bob"))) == [b"honest"]


@pytest.fixture(params=[Profile.WAKU, Profile.LOGOS], ids=["waku", "logos"])
def profile(request):
    return request.param


@pytest.fixture
def channel(profile):
    return Channel(profile)


def payloads(events):
    return [event.payload for event in events if isinstance(event, MessageReceived)]


def varint(value):
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def field(number, value):
    """Return a protobuf field: a number as a varint, bytes behind their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def test_a_lamport_timestamp_of_2_to_the_63_is_delivered_and_does_not_advance_the_clock(channel):
    events = channel.receives(channel.message(channel.wrapped(b"late"), lamport_timestamp=1 << 63))
    assert payloads(events) == [b"late"]
    assert channel.sends().lamport_timestamp <= (NOW_MS + HOUR_MS) // channel.unit_ms + 1
    assert channel.still_works()


def test_a_causal_history_of_a_million_entries_is_not_looked_at(channel):
    number = 3 if channel.is_logos else 11
    payload = channel.codec.encode(channel.message(channel.wrapped(b"x"))) + field(number, field(1, b"a")) * 1_000_000
    assert channel.receives(payload) == []
    assert (channel.counts.oversized, channel.counts.received, channel.counts.missing) == (1, 0, 0)
    assert channel.still_works()


def test_a_causal_history_of_a_million_entries_is_refused_also_where_larger_messages_are_looked_at(profile):
    channel = Channel(profile, advanced=Advanced(max_received_bytes=64 * MEBIBYTE))
    number = 3 if channel.is_logos else 11
    payload = channel.codec.encode(channel.message(channel.wrapped(b"x"))) + field(number, field(1, b"a")) * 1_000_000
    assert channel.receives(payload) == []
    assert (channel.counts.undecodable, channel.counts.missing) == (1, 0)


def test_of_a_causal_history_that_is_just_allowed_the_newest_entries_are_waited_for(channel):
    history = tuple(HistoryEntry(f"never sent {index}") for index in range(MAX_ENTRIES))
    assert payloads(channel.receives(channel.message(channel.wrapped(b"x"), causal_history=history))) == []
    assert (channel.counts.parked, channel.counts.missing) == (1, MAX_CITATIONS_READ)
    assert channel.still_works()


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 11, 13, 20])
def test_a_field_that_announces_a_gigabyte_is_no_sds_message(channel, number):
    head = channel.codec.encode(channel.message(channel.wrapped(b"x")))
    assert channel.receives(head + varint(number << 3 | 2) + varint(1 << 30) + b"short") == []
    assert channel.counts.undecodable == 1
    assert channel.still_works()


def test_content_that_announces_a_gigabyte_is_no_segment(channel):
    content = field(1, bytes(32)) + varint(4 << 3 | 2) + varint(1 << 30) + b"short"
    events = channel.receives(channel.message(content))
    # SEGMENTATION: what is no segment is a message of its own. LIP-243: every message is in segments.
    assert payloads(events) == ([] if channel.is_logos else [content])
    discarded = channel.counts.reassembly.segments_discarded
    assert discarded == ({"undecodable": 1} if channel.is_logos else {})
    assert channel.counts.reassembly.buffered_bytes == 0


@pytest.mark.parametrize("length", [0, 1, 100_000])
def test_a_bloom_filter_of_any_length_acknowledges_nothing_and_hinders_nothing(channel, length):
    channel.sends()
    events = channel.receives(channel.message(channel.wrapped(b"x"), bloom_filter=b"\xff" * length))
    assert payloads(events) == [b"x"]
    assert [type(event) for event in events] == [MessageReceived]
    assert channel.counts.unacknowledged == 1


def test_a_bloom_filter_of_ten_million_bytes_makes_a_message_that_is_not_looked_at(channel):
    channel.sends()
    assert channel.receives(channel.message(channel.wrapped(b"x"), bloom_filter=bytes(10_000_000))) == []
    assert (channel.counts.oversized, channel.counts.received) == (1, 0)
    assert channel.still_works()


def test_a_repeated_field_of_another_type_does_not_change_the_first(channel):
    message = channel.codec.encode(channel.message(channel.wrapped(b"x")))
    lamport, content, history = (2, 5, 3) if channel.is_logos else (10, 20, 11)
    overlaps = field(lamport, b"bytes") + field(content, 7) + field(history, 7) + field(1, 1 << 63)
    assert payloads(channel.receives(message + overlaps)) == [b"x"]
    assert channel.counts.missing == 0


def test_fields_of_another_type_only_are_as_good_as_absent(channel):
    lamport, content = (2, 5) if channel.is_logos else (10, 20)
    assert channel.receives(field(1, b"m1") + field(lamport, b"bytes") + field(content, 7)) == []
    assert channel.counts.undecodable == 1


def test_the_other_wire_uses_the_same_numbers_for_other_types_and_is_not_read(channel):
    other = Channel(Profile.WAKU if channel.is_logos else Profile.LOGOS)
    history = (HistoryEntry("m0", bytes(32), "bob"),)
    foreign = other.message(other.wrapped(b"x"), causal_history=history, bloom_filter=b"\xff" * 8)
    assert channel.receives(other.codec.encode(foreign)) == []
    assert channel.counts.undecodable + channel.counts.foreign_channel == 1


def test_a_message_without_an_id_is_never_cited(channel):
    """On the Logos wire whoever reads a citation without an id refuses the whole message that cites."""
    assert payloads(channel.receives(channel.message(channel.wrapped(b"x"), message_id=""))) == [b"x"]
    assert channel.sends().kind is Kind.CONTENT
    again = Channel(channel.profile)
    again.stack.restore(channel.stack.snapshot(), NOW_MS)
    assert again.counts.unacknowledged == 1


def test_the_longest_ids_of_others_leave_room_for_a_full_segment_of_ours(profile):
    """Own messages repeat the ids of what they cite and ask for."""
    channel = Channel(profile, SegmentationConfig())
    room = channel.options.segmentation.segment_size_bytes

    def longest(number):
        return f"{number:0{MAX_NAME_LENGTH}}"

    never_sent = tuple(HistoryEntry(longest(i), bytes(MAX_NAME_LENGTH), longest(0)) for i in range(100, 110))
    for number in range(1, 30):
        message = channel.message(channel.wrapped(b"x"), message_id=longest(number), sender_id=longest(0))
        assert payloads(channel.receives(message)) == [b"x"]
    channel.receives(channel.message(channel.wrapped(b"x"), causal_history=never_sent))

    sent = channel.sends(bytes(2 * room), NOW_MS + HOUR_MS)
    assert len(sent.causal_history) >= channel.options.sds.causal_history_size
    assert len(sent.repair_request) == MAX_REQUESTS_PER_MESSAGE


@pytest.mark.parametrize("name", ["message_id", "sender_id"])
def test_the_length_of_ids_counts_in_bytes(channel, name):
    message = channel.message(channel.wrapped(b"x"), **{name: "\N{SLICE OF PIZZA}" * MAX_NAME_LENGTH})
    assert channel.receives(message) == []
    assert channel.counts.undecodable == 1


def test_a_segment_of_257_is_refused(channel):
    honest, *_ = channel.segments(bytes(1_000))
    parity_count = 57 if channel.is_logos else 0
    lie = replace(honest, data_count=257 - parity_count, parity_count=parity_count)
    assert channel.receives_segments(lie) == []
    assert channel.counts.reassembly.segments_discarded == {"invalid": 1}
    assert channel.counts.reassembly.open_sets == 0
    assert channel.still_works()


def test_257_segments_are_refused_also_if_data_and_parity_tell_one_half_each():
    channel = Channel(Profile.WAKU)
    data = Segment(
        payload_hash=bytes(32),
        index=0,
        data_count=200,
        parity_count=0,
        is_parity=False,
        payload=b"x",
        payload_length=None,
    )
    parity = replace(data, data_count=0, parity_count=57, is_parity=True)
    assert channel.receives_segments(data, parity) == []
    assert channel.counts.reassembly.segments_discarded == {"invalid": 1}
    assert channel.counts.reassembly.open_segments == 1


def test_a_segment_that_contradicts_the_counts_of_its_set_is_refused_and_the_message_completes(channel):
    payload = bytes(range(256)) * 2
    first, *others = channel.segments(payload)
    lie = replace(others[0], data_count=others[0].data_count + 1)
    events = channel.receives_segments(first, lie, *others)
    assert payloads(events) == [payload]
    assert channel.counts.reassembly.segments_discarded == {"contradicting": 1}


def test_a_message_with_a_wrong_hash_is_not_delivered_and_announced_as_lost(channel):
    segments = [s for s in channel.segments(bytes(range(256)) * 2) if not s.is_parity]
    lies = [replace(segment, payload_hash=b"\x11" * 32) for segment in segments]
    lost = [event for event in channel.receives_segments(*lies) if isinstance(event, IrretrievableMessage)]
    assert [(event.payload_hash, event.reason) for event in lost] == [(b"\x11" * 32, LossReason.HASH_MISMATCH)]
    assert channel.counts.reassembly.sets_rejected == 1
    assert channel.counts.reassembly.buffered_bytes == 0


def test_a_forged_segment_discards_the_message_but_not_its_next_send(channel):
    payload = bytes(range(256)) * 2
    first, *others = (s for s in channel.segments(payload) if not s.is_parity)
    events = channel.receives_segments(replace(first, payload=b"\xff" + first.payload[1:]), *others)
    assert [event.reason for event in events if isinstance(event, IrretrievableMessage)] == [LossReason.HASH_MISMATCH]
    assert payloads(events) == []
    assert payloads(channel.receives_segments(first, *others)) == [payload]


def test_a_hash_of_another_length_is_no_segment_and_no_message(channel):
    short = replace(channel.segments(bytes(1_000))[0], payload_hash=bytes(31))
    assert channel.receives_segments(short) == []
    assert channel.counts.reassembly.open_sets == 0
