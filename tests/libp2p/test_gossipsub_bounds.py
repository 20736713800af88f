"""What a router keeps to however its peers behave: who stays in a full mesh, and how much is remembered."""

import hashlib
import random

import pytest

from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.gossipsub.codec import (
    Graft,
    IHave,
    IWant,
    Message,
    SubscriptionChange,
    control_frame,
    decode_rpc,
    encode_message,
    publish_frame,
    subscription_frame,
)
from fairway.libp2p.gossipsub.mesh import Mesh
from fairway.libp2p.gossipsub.options import GossipsubOptions
from fairway.libp2p.gossipsub.router import Deliver, Router, Send, ValidationResult
from fairway.libp2p.gossipsub.score import PeerScores
from fairway.libp2p.peer_id import PeerId

TOPIC = "/waku/2/rs/16/0"


def peer(number):
    return PeerId(b"\x12\x20" + hashlib.sha256(str(number).encode()).digest())


def body(frame):
    _, start = decode_uvarint(frame) or (0, 0)
    return frame[start:]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("dialled", "accepted"), [(3, 12), (2, 12), (12, 0), (7, 7)])
def test_a_mesh_that_is_too_large_keeps_enough_peers_that_this_node_dialled(dialled, accepted, seed):
    options = GossipsubOptions()
    mesh = Mesh(options, PeerScores(), random.Random(seed))
    mesh.join(TOPIC)
    for number in reversed(range(dialled + accepted)):
        mesh.add_peer(peer(number), dialled=number < dialled)
        mesh.grafted_by(peer(number), TOPIC, 0)
    assert len(mesh.members(TOPIC)) > options.d_high
    mesh.maintain(TOPIC, 1)
    members = mesh.members(TOPIC)
    assert len(members) == options.d
    assert sum(peer(number) in members for number in range(dialled)) >= min(dialled, options.d_out), f"seed {seed}"


def router_with(*peers, options=None):
    router = Router(lambda message: ValidationResult.ACCEPT, options, rng=random.Random(1))
    router.subscribe(TOPIC)
    for other in peers:
        router.add_peer(other, dialled=False)
        router.receive(other, body(subscription_frame((SubscriptionChange(topic=TOPIC, subscribed=True),))), 0)
    return router


def test_backoffs_are_bounded_however_many_identities_ask(monkeypatch):
    monkeypatch.setattr("fairway.libp2p.gossipsub.mesh.MAX_BACKOFFS", 50)
    router = router_with(options=GossipsubOptions(d=0, d_low=0, d_high=0, d_out=0))
    for number in range(500):
        router.add_peer(peer(number), dialled=False)
        (refusal,) = router.receive(peer(number), body(control_frame((Graft(topic=TOPIC),))), 1)
        assert decode_rpc(body(refusal.frame)).control[0].topic == TOPIC
        router.remove_peer(peer(number))
    assert router.statistics().backoffs == 50


def test_a_member_of_the_mesh_that_was_too_slow_is_told_of_what_it_missed():
    router = router_with(peer(1))
    router.heartbeat(1)
    assert router.mesh_of(TOPIC) == {peer(1)}
    router.publish(Message(topic=TOPIC, data=b"data"), 1)
    assert router.heartbeat(2) == []
    (told,) = router.heartbeat(3, [peer(1), peer(9)])
    assert told.peers == (peer(1),)
    assert decode_rpc(body(told.frame)).control == (
        IHave(topic=TOPIC, message_ids=(hashlib.sha256(b"data").digest(),)),
    )


@pytest.mark.parametrize("grafts", ["the peer grafts", "this node grafts"])
def test_a_peer_that_joins_the_mesh_is_told_once_of_what_was_said_before(grafts):
    router = router_with(peer(1))
    router.publish(Message(topic=TOPIC, data=b"data"), 0.5)
    if grafts == "the peer grafts":
        router.receive(peer(1), body(control_frame((Graft(topic=TOPIC),))), 0.7)
    have = IHave(topic=TOPIC, message_ids=(hashlib.sha256(b"data").digest(),))
    told = router.heartbeat(1)
    assert decode_rpc(body(told[-1].frame)).control == (have,)
    assert router.mesh_of(TOPIC) == {peer(1)}
    assert router.heartbeat(2) == []


def test_penalties_are_kept_for_a_bounded_number_of_peers_and_fade(monkeypatch):
    monkeypatch.setattr("fairway.libp2p.gossipsub.score.MAX_PENALISED", 3)
    scores = PeerScores()
    for number in range(5):
        scores.misbehaved(peer(number), 10)
    assert [scores.score(peer(number)) < 0 for number in range(5)] == [False, False, True, True, True]
    for beat in range(1_000):
        scores.decay(beat * 12.0)
    assert all(scores.score(peer(number)) == 0 for number in range(5))


def test_what_a_peer_asks_for_between_heartbeats_is_looked_up_so_often_and_no_more():
    router = router_with(peer(1))
    router.publish(Message(topic=TOPIC, data=b"data"), 1)
    unknown = tuple(hashlib.sha256(b"%d" % number).digest() for number in range(5_000))
    here = hashlib.sha256(b"data").digest()
    assert router.receive(peer(1), body(control_frame((IWant(message_ids=unknown),))), 1) == []
    assert router.receive(peer(1), body(control_frame((IWant(message_ids=(here,)),))), 1) == []
    router.heartbeat(2)
    assert len(router.receive(peer(1), body(control_frame((IWant(message_ids=(here,)),))), 2)) == 1


def test_the_data_of_a_message_on_another_topic_keeps_nobody_from_getting_it_on_its_own():
    router = router_with(peer(1), peer(2))
    router.subscribe("another")
    for number, topic in ((1, "another"), (2, TOPIC)):
        frame = publish_frame(encode_message(Message(topic=topic, data=b"data")))
        (delivered, *_) = router.receive(peer(number), body(frame), 1)
        assert delivered.message == Message(topic=topic, data=b"data")
    assert router.statistics().duplicates == 0


NWAKU_READS_BYTES = 153_600
"""nwaku resets the stream of a longer RPC."""


def sent(effects):
    return [effect.frame for effect in effects if isinstance(effect, Send)]


def test_gossip_about_any_number_of_messages_comes_in_rpcs_that_nwaku_reads():
    options = GossipsubOptions(max_data_bytes=NWAKU_READS_BYTES, d=0, d_low=0, d_high=0, d_out=0)
    router = router_with(peer(1), peer(2), options=options)
    for number in range(6_000):
        router.publish(Message(topic=TOPIC, data=b"%d" % number), 1)
    frames = sent(router.heartbeat(2))
    ids = tuple(hashlib.sha256(b"unknown %d" % number).digest() for number in range(5_000))
    frames += sent(router.receive(peer(1), body(control_frame((IHave(topic=TOPIC, message_ids=ids),))), 2))
    assert len(frames) == 3
    assert all(100_000 < len(body(frame)) <= NWAKU_READS_BYTES for frame in frames)


@pytest.mark.parametrize("size", [NWAKU_READS_BYTES - 40, NWAKU_READS_BYTES])
def test_a_message_whose_rpc_is_longer_than_nwaku_reads_is_delivered_and_sent_to_nobody(size):
    options = GossipsubOptions(max_data_bytes=NWAKU_READS_BYTES)
    router = router_with(peer(1), peer(2), options=options)
    router.heartbeat(1)
    data = bytes(size)
    received = body(publish_frame(encode_message(Message(topic=TOPIC, data=data))))
    effects = router.receive(peer(1), received, 2)
    own = router.publish(Message(topic=TOPIC, data=b"x" + data[1:]), 2)
    assert any(isinstance(effect, Deliver) for effect in effects)
    assert len(sent(effects)) == len(sent(own)) == (size < NWAKU_READS_BYTES)
    asked = [hashlib.sha256(one).digest() for one in (data, b"x" + data[1:])]
    answers = router.receive(peer(2), body(control_frame((IWant(message_ids=tuple(asked)),))), 3)
    assert len(answers) == (2 if size < NWAKU_READS_BYTES else 0)
