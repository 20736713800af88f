"""One router, and peers that do as the test wants: what it passes on, and what a bad peer can do."""

import hashlib
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.errors import FrameError
from fairway.libp2p.gossipsub.codec import (
    Graft,
    IHave,
    IWant,
    Message,
    Prune,
    SubscriptionChange,
    control_frame,
    decode_message,
    decode_rpc,
    encode_message,
    publish_frame,
    subscription_frame,
)
from fairway.libp2p.gossipsub.options import GossipsubOptions
from fairway.libp2p.gossipsub.router import Deliver, Judge, Router, Send, ValidationResult
from fairway.libp2p.gossipsub.score import GRAYLIST_THRESHOLD
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.proto import gossipsub_pb2

TOPIC = "/waku/2/rs/16/0"


def peer(number):
    return PeerId(b"\x12\x20" + hashlib.sha256(str(number).encode()).digest())


def body(frame):
    size, start = decode_uvarint(frame) or (0, 0)
    assert size == len(frame) - start
    return frame[start:]


def rpcs_to(effects, target=None):
    return [
        decode_rpc(body(effect.frame))
        for effect in effects
        if isinstance(effect, Send) and (target is None or target in effect.peers)
    ]


def controls(effects, kind):
    return [control for rpc in rpcs_to(effects) for control in rpc.control if isinstance(control, kind)]


def router_with(*peers, options=None, verdict=ValidationResult.ACCEPT, dialled=False):
    router = Router(lambda message: verdict, options, rng=random.Random(1))
    router.subscribe(TOPIC)
    for other in peers:
        router.add_peer(other, dialled=dialled)
        hello = subscription_frame((SubscriptionChange(topic=TOPIC, subscribed=True),))
        router.receive(other, body(hello), 0)
    return router


def message_frame(data=b"data", topic=TOPIC):
    return body(publish_frame(encode_message(Message(topic=topic, data=data))))


def test_a_message_is_passed_on_to_the_mesh_but_not_to_where_it_came_from():
    router = router_with(peer(1), peer(2), peer(3))
    router.heartbeat(1)
    effects = router.receive(peer(1), message_frame(), 2)
    (onward,) = [effect for effect in effects if isinstance(effect, Send)]
    assert set(onward.peers) == {peer(2), peer(3)}
    assert router.receive(peer(2), message_frame(), 3) == []
    assert router.statistics().duplicates == 1


@pytest.mark.parametrize("verdict", [ValidationResult.IGNORE, ValidationResult.REJECT])
def test_an_invalid_message_goes_no_further_and_only_a_rejected_one_costs_score(verdict):
    router = router_with(peer(1), peer(2), verdict=verdict)
    assert router.receive(peer(1), message_frame(), 1) == []
    assert (router.score_of(peer(1)) < 0) is (verdict is ValidationResult.REJECT)


def judgements(effects):
    return [(effect.ticket, effect.peer) for effect in effects if isinstance(effect, Judge)]


def test_a_message_that_waits_for_its_verdict_is_delivered_and_passed_on_with_it():
    router = router_with(peer(1), peer(2), verdict=ValidationResult.LATER)
    router.heartbeat(1)
    [(ticket, sender)] = judgements(router.receive(peer(1), message_frame(), 2))
    assert sender == peer(1)
    assert router.receive(peer(2), message_frame(), 3) == []
    assert router.statistics().undecided == 1
    delivered, onward = router.judged(ticket, ValidationResult.ACCEPT)
    assert isinstance(delivered, Deliver)
    assert onward.peers == (peer(2),)
    assert router.receive(peer(2), message_frame(), 4) == []
    assert router.statistics().undecided == 0


def test_who_is_first_with_a_message_and_too_busy_to_be_judged_does_not_suppress_it():
    router = router_with(peer(1), peer(2), peer(3), verdict=ValidationResult.LATER)
    [(ticket, _)] = judgements(router.receive(peer(1), message_frame(), 1))
    for other in (peer(2), peer(1), peer(3), peer(2)):
        assert router.receive(other, message_frame(), 1) == []
    router.remove_peer(peer(2))
    # Its copy of another peer is judged, and if that one is too busy, the next that comes.
    [(ticket, sender)] = judgements(router.judged(ticket, ValidationResult.UNJUDGED))
    assert sender == peer(3)
    assert router.judged(ticket, ValidationResult.UNJUDGED) == []
    assert router.score_of(peer(1)) == router.score_of(peer(3)) == 0
    [(ticket, sender)] = judgements(router.receive(peer(3), message_frame(), 2))
    assert sender == peer(3)
    assert any(isinstance(effect, Deliver) for effect in router.judged(ticket, ValidationResult.ACCEPT))
    assert router.receive(peer(1), message_frame(), 3) == []


def test_an_own_message_is_sent_though_a_peer_was_first_with_it_and_waits_for_the_verdict():
    router = router_with(peer(1), peer(2), verdict=ValidationResult.LATER)
    router.heartbeat(1)
    [(ticket, _)] = judgements(router.receive(peer(1), message_frame(), 1))
    message = Message(topic=TOPIC, data=b"data")
    assert not router.passed_on(message)
    assert rpcs_to(router.publish(message, 2), peer(2))
    assert router.passed_on(message)
    assert router.judged(ticket, ValidationResult.UNJUDGED) == []
    assert router.receive(peer(2), message_frame(), 3) == []
    assert (router.statistics().published, router.statistics().undecided) == (1, 0)


def test_a_refused_message_is_judged_once_however_many_peers_send_it():
    router = router_with(peer(1), peer(2), verdict=ValidationResult.LATER)
    [(ticket, _)] = judgements(router.receive(peer(1), message_frame(), 1))
    router.receive(peer(2), message_frame(), 1)
    assert router.judged(ticket, ValidationResult.REJECT) == []
    assert router.receive(peer(2), message_frame(), 2) == []
    assert router.score_of(peer(1)) < 0 == router.score_of(peer(2))


@pytest.mark.parametrize("field", ["from_peer", "seqno", "signature", "key"])
def test_a_message_that_names_its_author_is_refused(field):
    message = gossipsub_pb2.PubsubMessage(data=b"data", topic=TOPIC, **{field: b"x"}).SerializeToString()
    with pytest.raises(FrameError, match="names an author"):
        decode_message(message, max_data_bytes=1_024)
    router = router_with(peer(1))
    assert router.receive(peer(1), body(publish_frame(message)), 1) == []
    assert router.statistics().invalid == 1


def test_a_graft_during_the_backoff_is_refused_and_remembered():
    router = router_with(peer(1))
    graft = body(control_frame((Graft(topic=TOPIC),)))
    router.receive(peer(1), body(control_frame((Prune(topic=TOPIC, backoff_s=30),))), 10)
    for _ in range(4):
        assert controls(router.receive(peer(1), graft, 11), Prune)
    assert peer(1) not in router.mesh_of(TOPIC)
    assert router.score_of(peer(1)) < 0
    assert controls(router_with(peer(2)).receive(peer(2), graft, 11), Prune) == []


@pytest.mark.parametrize("backoff_s", [None, 0])
def test_a_prune_without_a_backoff_or_with_one_of_0_keeps_the_peer_out_for_the_default_of_a_minute(backoff_s):
    """go-libp2p and js-libp2p read 0 so; taken literally the peer would be grafted at every heartbeat."""
    router = router_with(peer(1))
    grafted_at = []
    for now_s in range(1, 200):
        if controls(router.heartbeat(now_s), Graft):
            grafted_at.append(now_s)
            router.receive(peer(1), body(control_frame((Prune(topic=TOPIC, backoff_s=backoff_s),))), now_s)
    assert len(grafted_at) == 4
    assert all(later - earlier > 60 for earlier, later in itertools.pairwise(grafted_at))


def test_a_node_that_leaves_a_topic_asks_its_mesh_for_a_short_backoff():
    router = router_with(peer(1))
    router.heartbeat(1)
    assert [prune.backoff_s for prune in controls(router.unsubscribe(TOPIC, 2), Prune)] == [5]


def test_a_full_mesh_refuses_a_stranger_but_not_a_peer_that_this_node_dialled():
    peers = [peer(number) for number in range(8)]
    options = GossipsubOptions(d=8, d_low=6, d_high=8, d_out=2)
    router = router_with(*peers, options=options)
    router.heartbeat(1)
    assert len(router.mesh_of(TOPIC)) == 8
    graft = body(control_frame((Graft(topic=TOPIC),)))
    router.add_peer(peer(100), dialled=False)
    assert controls(router.receive(peer(100), graft, 2), Prune)
    router.add_peer(peer(101), dialled=True)
    assert not controls(router.receive(peer(101), graft, 2), Prune)


def test_a_peer_gets_a_message_only_so_often_and_asks_only_for_so_many():
    router = router_with(peer(1))
    router.publish(Message(topic=TOPIC, data=b"asked for"), 1)
    want = body(control_frame((IWant(message_ids=(hashlib.sha256(b"asked for").digest(),)),)))
    answers = [len(router.receive(peer(1), want, 1)) for _ in range(6)]
    assert answers == [1, 1, 1, 0, 0, 0]
    ids = [hashlib.sha256(b"%d" % number).digest() for number in range(6_000)]
    asked = []
    for half in (tuple(ids[:3_000]), tuple(ids[3_000:])):
        asked += controls(
            router.receive(peer(1), body(control_frame((IHave(topic=TOPIC, message_ids=half),))), 1), IWant
        )
    assert [len(want.message_ids) for want in asked] == [3_000, 2_000]


def test_a_peer_in_disgrace_is_not_heard_and_not_served_even_when_it_comes_back():
    router = router_with(peer(1), verdict=ValidationResult.REJECT)
    for number in range(20):
        router.receive(peer(1), message_frame(bytes([number])), 1)
    assert router.score_of(peer(1)) < GRAYLIST_THRESHOLD
    router.remove_peer(peer(1))
    router.add_peer(peer(1), dialled=False)
    assert router.receive(peer(1), message_frame(b"again"), 3) == []
    assert router.statistics().invalid == 11
    assert router.score_of(peer(1)) < GRAYLIST_THRESHOLD
    assert router.publish(Message(topic=TOPIC, data=b"own"), 3) == []


def test_an_own_message_that_went_to_nobody_is_sent_when_it_is_published_again():
    router = router_with()
    message = Message(topic=TOPIC, data=b"own")
    assert router.publish(message, 1) == []
    assert not router.passed_on(message)
    router.add_peer(peer(1), dialled=False)
    router.receive(peer(1), body(subscription_frame((SubscriptionChange(topic=TOPIC, subscribed=True),))), 1)
    assert [effect.peers for effect in router.publish(message, 2)] == [(peer(1),)]
    assert router.passed_on(message)
    assert router.publish(message, 3) == []
    assert router.statistics().published == 1


@examples(2)
@given(st.lists(st.binary(max_size=200), max_size=20))
def test_garbage_is_a_frame_error_and_never_anything_else(frames):
    router = router_with(peer(1))
    for frame in frames:
        try:
            router.receive(peer(1), frame, 1)
        except FrameError:
            continue


_TOPICS = st.sampled_from([TOPIC, "another", "x" * 300])
_IDS = st.lists(st.binary(min_size=1, max_size=40), max_size=8).map(tuple)
_CONTROLS = st.one_of(
    st.builds(lambda topic, ids: IHave(topic=topic, message_ids=ids), _TOPICS, _IDS),
    st.builds(lambda ids: IWant(message_ids=ids), _IDS),
    st.builds(lambda topic: Graft(topic=topic), _TOPICS),
    st.builds(lambda topic, wait: Prune(topic=topic, backoff_s=wait), _TOPICS, st.integers(0, 2**64 - 1)),
)
_STEPS = st.one_of(
    st.tuples(st.just("control"), st.lists(_CONTROLS, min_size=1, max_size=4).map(tuple)),
    st.tuples(st.just("message"), st.binary(max_size=5)),
    st.tuples(st.just("interest"), st.tuples(_TOPICS, st.booleans())),
    st.tuples(st.just("leave"), st.none()),
    st.tuples(st.just("beat"), st.none()),
    st.tuples(st.just("publish"), st.binary(max_size=5)),
)


@examples(1.5)
@given(st.lists(st.tuples(st.integers(0, 4), _STEPS), max_size=60))
def test_whatever_peers_say_the_router_keeps_its_invariants(steps):
    router = router_with()
    now_s, delivered, known = 0.0, [], set()
    for number, (kind, value) in steps:
        other = peer(number)
        now_s += 0.3
        if other not in known:
            known.add(other)
            router.add_peer(other, dialled=number % 2 == 0)
        effects = []
        match kind:
            case "control":
                effects = router.receive(other, body(control_frame(value)), now_s)
            case "message":
                effects = router.receive(other, message_frame(value), now_s)
            case "interest":
                change = SubscriptionChange(topic=value[0], subscribed=value[1])
                effects = router.receive(other, body(subscription_frame((change,))), now_s)
            case "leave":
                router.remove_peer(other)
                known.remove(other)
            case "beat":
                effects = router.heartbeat(now_s)
            case "publish":
                effects = router.publish(Message(topic=TOPIC, data=value), now_s)
        delivered += [effect.message.data for effect in effects if isinstance(effect, Deliver)]
        assert router.statistics().peers == len(known)
        assert router.mesh_of(TOPIC) <= router.peers_of(TOPIC) <= known
        assert all(set(effect.peers) <= known for effect in effects if isinstance(effect, Send))
        assert not router.peers_of("x" * 300)
    assert len(delivered) == len(set(delivered))
    for other in known:
        router.remove_peer(other)
    assert router.statistics().interests == 0
