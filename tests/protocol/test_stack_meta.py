"""``meta`` of a WakuMessage reaches the application with what it carried."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairway.events import MessageReceived
from fairway.options import ReliableChannelOptions, SegmentationConfig
from fairway.protocol.effects import Emit, Persist, Publish
from fairway.protocol.stack import Stack

NOW_MS = 1_760_000_000_000
OPTIONS = ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=1_024, parity_rate=0.0))


def stack(name):
    seed = name.encode().ljust(16, b".")
    return Stack("harbour", name, "/fairway/1/harbour/proto", OPTIONS, now_ms=NOW_MS, seed=seed)


def sent(alice, payload):
    return [effect.message for effect in alice.send(payload, NOW_MS).effects if isinstance(effect, Publish)]


def received(effects):
    return [
        effect.event for effect in effects if isinstance(effect, Emit) and isinstance(effect.event, MessageReceived)
    ]


@pytest.mark.parametrize("meta", [None, b"", b"for the application"])
def test_a_message_comes_with_the_meta_of_what_carried_it(meta):
    alice, bob = stack("alice"), stack("bob")
    [carrier] = sent(alice, b"hello")
    [message] = received(bob.receive(replace(carrier, meta=meta), NOW_MS))
    assert message.meta == meta


def test_an_ephemeral_message_has_its_meta_too():
    alice, bob = stack("alice"), stack("bob")
    [carrier] = [each.message for each in alice.send_ephemeral(b"x", NOW_MS).effects if isinstance(each, Publish)]
    [message] = received(bob.receive(replace(carrier, meta=b"m"), NOW_MS))
    assert message.meta == b"m"


def test_the_meta_of_a_message_that_waits_outlives_a_restart():
    alice, bob = stack("alice"), stack("bob")
    [first] = sent(alice, b"first")
    segments = sent(alice, bytes(range(250)) * 12)
    assert len(segments) > 1
    kept = {(change.table, change.key): change for change in bob.snapshot()}
    for number, carrier in enumerate(segments):
        for effect in bob.receive(replace(carrier, meta=b"meta %d" % number), NOW_MS):
            if isinstance(effect, Persist):
                kept |= {(change.table, change.key): change for change in effect.changes}
            assert not received([effect])
    bob = stack("bob")
    bob.restore([change for change in kept.values() if change.row is not None], NOW_MS)
    one, two = received(bob.receive(first, NOW_MS))
    assert (one.payload, one.meta) == (b"first", None)
    assert two.meta in {b"meta %d" % number for number in range(len(segments))}
