"""Content without segments, as logos-delivery's channel writes it, and messages that were recorded from one."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from fairway.errors import EmptyPayloadError, MessageTooLargeError
from fairway.events import MessageReceived
from fairway.options import Delivery, ReliableChannelOptions, SegmentationConfig
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.wire.sds import NIM_SDS, Kind
from fairway.wire.segment import BARE, LIP_243
from fairway.wire.waku_message import WakuMessage, message_hash

LOGOS = ReliableChannelOptions.logos()
BARE_LOGOS = replace(LOGOS, segmentation=replace(LOGOS.segmentation, bare_content=True))
RECORDED = json.loads((Path(__file__).parents[1] / "vectors/nwaku/logos_channel.json").read_bytes())["messages"]
OF_LOGOS_DELIVERY = [recorded for recorded in RECORDED if recorded["sender"] == "nimside"]


def waku_message(recorded):
    return WakuMessage(
        payload=zlib.decompress(base64.b64decode(recorded["payload"])),
        content_topic=recorded["topic"],
        version=0,
        timestamp_ns=recorded["timestamp"],
        meta=bytes.fromhex(recorded["meta"]),
    )


def payload_of(recorded):
    """Return what nimside's application sent, or what was in the LIP-243 segment that it sent."""
    content = bytes.fromhex(recorded["content"])
    return LIP_243.decode(content).payload if recorded["channel"] == "slightclientofnwak" else content


def listener(peer, recorded, options, **changed):
    return peer(
        "listener",
        replace(options, **changed),
        channel_id=recorded["channel"],
        topic=recorded["topic"],
        now_ms=recorded["timestamp"] // 1_000_000,
    )


@pytest.mark.parametrize("recorded", RECORDED)
def test_a_message_of_logos_delivery_is_read_and_written_byte_for_byte(recorded):
    message = waku_message(recorded)
    assert message_hash(recorded["pubsub"], message).hex() == recorded["hash"]
    decoded = NIM_SDS.decode(message.payload)
    assert NIM_SDS.encode(decoded) == message.payload
    assert (decoded.sender_id, decoded.channel_id) == (recorded["sender"], recorded["channel"])
    assert (decoded.content or b"") == bytes.fromhex(recorded["content"])
    assert decoded.kind is (Kind.CONTENT if recorded["content"] else Kind.SYNC)


@pytest.mark.parametrize("recorded", OF_LOGOS_DELIVERY)
def test_messages_of_logos_delivery_are_delivered_bare_and_wrapped(peer, recorded):
    alice = listener(peer, recorded, BARE_LOGOS, delivery=Delivery.ARRIVAL)
    alice.receive(waku_message(recorded))
    assert alice.payloads() == [payload_of(recorded)]
    assert alice.events(MessageReceived)[0].sender_id == "nimside"


def test_without_the_option_only_wrapped_content_is_delivered(peer):
    for recorded in OF_LOGOS_DELIVERY:
        alice = listener(peer, recorded, LOGOS, delivery=Delivery.ARRIVAL)
        alice.receive(waku_message(recorded))
        wrapped = recorded["channel"] == "slightclientofnwak"
        assert alice.payloads() == ([payload_of(recorded)] if wrapped else [])


def test_bare_participants_exchange_payloads_as_content_also_after_a_restart_and_ephemeral_ones(peer):
    alice, bob = peer("alice", BARE_LOGOS), peer("bob", BARE_LOGOS)
    alice.send(b"one")
    alice.send(b"one")
    alice.send(b"x" * 102_400)
    alice.send_ephemeral(b"typing")
    alice.answer()
    contents = [alice.sds(publication).content for publication in alice.published()]
    assert sorted(contents, key=len) == [b"one", b"one", b"typing", b"x" * 102_400]
    first, *rest = alice.published()
    bob.receive(first)
    bob = bob.restart()
    bob.receive(*rest)
    assert sorted(bob.payloads(), key=len)[-3:] == [b"one", b"typing", b"x" * 102_400]
    bob.send(b"heard")
    alice.receive(bob.content()[-1])
    assert alice.payloads() == [b"heard"]


def test_segments_of_another_participant_are_put_together_by_a_bare_one(peer):
    parted = replace(LOGOS, segmentation=SegmentationConfig(segment_size_bytes=1_152, parity_rate=0.5))
    alice, bob = peer("alice", parted), peer("bob", BARE_LOGOS)
    payload = bytes(range(256)) * 20
    alice.send(payload)
    alice.answer()
    segments = alice.content()
    assert len(segments) > 6
    bob.receive(*segments[2:])
    bob.pass_time(2 * LOGOS.sds.lost_timeout_ms)
    assert bob.payloads() == [payload]


def segments_of(payload, **options):
    return [part.content for part in Segmenter(SegmentationConfig(**options), LIP_243).split(payload).segments]


SEGMENTS = [
    *segments_of(b"a payload"),
    *segments_of(b"x"),
    *segments_of(bytes(5_000), segment_size_bytes=1_152, parity_rate=0.5),
    *segments_of(bytes(4_096), segment_size_bytes=1_152, parity_rate=0.5),
]


@pytest.mark.parametrize("segment", SEGMENTS)
def test_what_is_a_segment_in_every_respect_is_read_as_one_and_anything_changed_is_a_payload(segment):
    assert BARE.decode(segment) == LIP_243.decode(segment)
    assert BARE.is_segment(segment)
    assert BARE.is_later_segment(segment) == LIP_243.is_later_segment(segment)
    for changed in (segment + b"\x78\x01", segment + b"\x00", segment[:-1], b"\x78\x01" + segment):
        assert not BARE.is_segment(changed)
        assert not BARE.is_later_segment(changed)


def test_a_payload_that_names_another_hash_or_length_than_its_own_is_no_segment():
    segment = LIP_243.decode(SEGMENTS[0])
    for wrong in (
        replace(segment, payload=b"another"),
        replace(segment, payload_length=8),
        replace(segment, data_count=3),
        replace(segment, data_count=3, index=2),
        replace(segment, parity_count=1, is_parity=True, payload_length=10),
    ):
        assert not BARE.is_segment(LIP_243.encode(wrong))


def test_a_payload_that_is_a_segment_itself_is_wrapped_so_that_it_arrives_as_it_is(peer):
    alice, bob = peer("alice", BARE_LOGOS), peer("bob", BARE_LOGOS)
    for payload in SEGMENTS[:4]:
        alice.send(payload)
    alice.answer()
    bob.receive(*alice.content())
    assert bob.payloads() == SEGMENTS[:4]


def test_a_bare_payload_is_neither_empty_nor_longer_than_a_segment(peer):
    alice = peer("alice", BARE_LOGOS)
    with pytest.raises(EmptyPayloadError):
        alice.send(b"")
    with pytest.raises(MessageTooLargeError, match="bare_content") as refused:
        alice.send(b"x" * 102_401)
    assert refused.value.limit_bytes == 102_400
