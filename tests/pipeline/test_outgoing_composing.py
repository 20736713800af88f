"""What a batch composes is what a live channel would have sent, and depends on nothing that changes."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import pytest
from msgspec import structs

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.dataset as ds
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import ConfigurationError, EmptyPayloadError, EncryptionError, MessageTooLargeError
from fairway.events import MessageReceived
from fairway.options import (
    Advanced,
    BloomPolicy,
    Profile,
    ReliableChannelOptions,
    SdsConfig,
    SegmentationConfig,
)
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.outgoing import channel_options, composing
from fairway.pipeline.outgoing.channel_state import ChannelState, state_of_store, states_of_run
from fairway.pipeline.outgoing.composing import Composed, Composer, Payload
from fairway.protocol.effects import Emit, NodeAnswer, Publish
from fairway.protocol.sds.channel import LAMPORT_TOLERANCE_MS
from fairway.protocol.sds.history import HistoryRecord
from fairway.protocol.stack import Stack
from fairway.storage.channel_store import Write
from fairway.storage.sqlite_store import SqliteStore
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage

START_MS = 1_760_000_000_000
TOPIC = "/fairway/1/team/proto"
SMALL = SegmentationConfig(segment_size_bytes=128, parity_rate=0.25)
WAKU = replace(ReliableChannelOptions(), segmentation=SMALL, bloom_filter_size=200)
FILTERED = replace(WAKU, sds=SdsConfig(bloom_policy=BloomPolicy.ALWAYS))
LOGOS = replace(
    ReliableChannelOptions.logos(),
    segmentation=replace(SMALL, segment_size_bytes=320),
    bloom_filter_size=200,
)
KEY = "a5" * 32


def compose(payloads, options=WAKU, **others) -> list[Composed]:
    composer = Composer("team", "alice", options, start_ms=START_MS, **others)
    return [message for seq, data in enumerate(payloads) for message in composer.compose(Payload(seq=seq, data=data))]


def without_hints(payload: bytes, codec) -> bytes:
    """Return an SDS message that cites the same without hashes, which only whoever stamps messages at once can know."""
    message = codec.decode(payload)
    cited = tuple(entry._replace(retrieval_hint=None) for entry in message.causal_history)
    return codec.encode(structs.replace(message, causal_history=cited))


def live(payloads, options) -> list[bytes]:
    """Return what a live channel sends of payloads that it was given while it was offline."""
    stack = Stack("team", "alice", TOPIC, options, now_ms=START_MS, seed=bytes(32))
    stack.set_connected(False, START_MS)
    for payload in payloads:
        stack.send(payload, START_MS)
    waiting, sent = list(stack.set_connected(True, START_MS)), []
    while waiting:
        effect = waiting.pop(0)
        if isinstance(effect, Publish):
            sent.append(without_hints(effect.message.payload, stack.sds.profile.codec))
            waiting += stack.published(effect.token, NodeAnswer(accepted=True), START_MS)
    return sent


def as_waku(message: Composed, number: int = 0) -> WakuMessage:
    return WakuMessage(
        payload=message.encrypted,
        content_topic=message.content_topic,
        timestamp_ns=message.release_ms * 1_000_000 + number,
        version=message.version,
        meta=message.meta,
    )


def received(stack: Stack, messages, now_ms=START_MS) -> list[bytes]:
    effects = [
        effect for number, each in enumerate(messages) for effect in stack.receive(as_waku(each, number), now_ms)
    ]
    return [e.event.payload for e in effects if isinstance(e, Emit) and isinstance(e.event, MessageReceived)]


payload_lists = st.lists(st.binary(min_size=1, max_size=1_500), min_size=1, max_size=6)


@pytest.mark.parametrize("policy", [None, *BloomPolicy])
@pytest.mark.parametrize("profile", Profile)
def test_the_messages_of_a_batch_have_a_filter_only_where_all_are_to_have_one(profile, policy):
    messages = compose([b"one", b"two"], channel_options(profile, None, policy))
    blooms = [profile.codec.decode(message.encrypted).bloom_filter for message in messages]
    assert [bool(bloom) for bloom in blooms] == [policy is BloomPolicy.ALWAYS] * 2


@pytest.mark.parametrize("options", [WAKU, LOGOS], ids=["waku", "logos"])
@examples(0.25)
@given(payloads=payload_lists)
def test_the_messages_are_those_of_the_live_core_byte_for_byte_but_for_hints(options, payloads):
    assert [message.encrypted for message in compose(payloads, options)] == live(payloads, options)


@examples(0.25)
@given(payloads=payload_lists, seed=st.integers(0, 2**32))
def test_a_live_channel_delivers_exactly_the_payloads_in_order_whatever_the_order_of_arrival(payloads, seed):
    messages = compose(payloads)
    random.Random(seed).shuffle(messages)
    bob = Stack("team", "bob", TOPIC, WAKU, now_ms=START_MS, seed=bytes(32))
    assert received(bob, messages) == payloads


@examples(0.2)
@given(payloads=st.lists(st.binary(min_size=1, max_size=700), min_size=1, max_size=12))
def test_forgetting_the_older_log_changes_no_byte(payloads):
    whole = compose(payloads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composing, "KEPT_RECORDS", 3)
        assert compose(payloads) == whole


@pytest.mark.full
def test_a_sender_of_many_messages_takes_no_more_memory_than_one_of_few(monkeypatch):
    monkeypatch.setattr(composing, "KEPT_RECORDS", 500)
    composer = Composer("team", "alice", WAKU, start_ms=START_MS)
    held = []
    tracemalloc.start()
    try:
        for seq in range(60_001):
            composer.compose(Payload(seq=seq, data=b"%d" % seq))
            if seq in {20_000, 60_000}:
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held[1] - held[0] < 5_000_000


@examples(0.15)
@given(payloads=payload_lists, place=st.integers(0, 5))
def test_a_payload_that_cannot_be_sent_leaves_no_trace(payloads, place):
    place = min(place, len(payloads))
    options = replace(
        FILTERED, segmentation=replace(SMALL, segment_size_bytes=2_496), advanced=Advanced(max_wire_message_bytes=3_000)
    )
    composer = Composer("team", "alice", options, start_ms=START_MS)
    found = []
    for seq, data in enumerate([*payloads[:place], bytes(9_000), *payloads[place:]]):
        if seq == place:
            with pytest.raises(MessageTooLargeError, match="network takes no larger"):
                composer.compose(Payload(seq=seq, data=data))
        else:
            found += composer.compose(Payload(seq=seq, data=data))
    assert found == compose(payloads, options)


@pytest.mark.parametrize("cipher", ["aes-256-gcm", "chacha20-poly1305", "payload-v1"])
def test_sealing_again_gives_the_same_bytes_that_the_key_opens_and_no_nonce_twice(cipher):
    keys = ChannelKeys.from_mapping({"team": {"cipher": cipher, "key": KEY}})
    payloads = [b"one", b"one", bytes(1_000)]
    first, again, clear = compose(payloads, keys=keys), compose(payloads, keys=keys), compose(payloads)
    assert first == again
    opened = [keys.open(TOPIC, message.encrypted) for message in first]
    assert [each.plaintext for each in opened] == [message.encrypted for message in clear]
    nonces = [message.encrypted[-12:] if cipher == "payload-v1" else message.encrypted[:12] for message in first]
    assert len(set(nonces)) == len(first)
    assert {message.version for message in first} == {1 if cipher == "payload-v1" else 0}


def test_the_nonce_depends_on_the_key_and_on_what_else_tells_ciphers_apart():
    def nonce(**entry) -> bytes:
        entry = {"cipher": "aes-256-gcm", "key": KEY, **entry}
        return compose([b"one"], keys=ChannelKeys.from_mapping({"team": entry}))[0].encrypted[:12]

    assert len({nonce(), nonce(key="a6" * 32), nonce(associated_data="x"), nonce(cipher="chacha20-poly1305")}) == 4


def test_a_channel_without_a_key_is_not_sent_in_clear_when_there_are_keys():
    keys = ChannelKeys.from_mapping({"other": {"cipher": "aes-256-gcm", "key": KEY}})
    with pytest.raises(EncryptionError, match="no key for the channel 'team'"):
        compose([b"one"], keys=keys)


@pytest.mark.parametrize("beside", [{}, {TOPIC: {"cipher": "aes-256-gcm", "key": KEY}}], ids=["alone", "its topic's"])
def test_the_newest_key_of_the_channel_encrypts_and_its_topics_does_not(beside):
    old, new = {"cipher": "aes-256-gcm", "key": KEY}, {"cipher": "aes-256-gcm", "key": "77" * 32}
    several = ChannelKeys.from_mapping({"team": [new, old], **beside})
    assert compose([b"one"], keys=several) == compose([b"one"], keys=ChannelKeys.from_mapping({"team": new}))


def test_ephemeral_messages_have_ids_of_their_own_and_are_never_segmented():
    composer = Composer("team", "alice", WAKU, start_ms=START_MS)
    pings = [composer.compose(Payload(seq=seq, data=b"ping", ephemeral=True)) for seq in range(2)]
    assert [len(each) for each in pings] == [1, 1]
    assert pings[0][0].message.message_id != pings[1][0].message.message_id
    assert pings[0][0].message.lamport_timestamp is None
    with pytest.raises(MessageTooLargeError, match="never segmented"):
        composer.compose(Payload(seq=2, data=bytes(129), ephemeral=True))
    assert composer.compose(Payload(seq=3, data=b"one"))[0].message.causal_history == ()


@pytest.mark.parametrize("options", [WAKU, ReliableChannelOptions.logos()], ids=["waku", "logos"])
def test_nothing_in_a_batch_cites_an_ephemeral_message_which_may_be_dropped(options):
    composer = Composer("team", "alice", options, start_ms=START_MS)
    given = [Payload(seq=number, data=b"%d" % number, ephemeral=number % 2 == 1) for number in range(6)]
    made = [composer.compose(payload)[0] for payload in given]
    ephemeral = {each.message.message_id for each in made if each.ephemeral}
    assert len(ephemeral) == 3
    assert not ephemeral & {entry.message_id for each in made for entry in each.message.causal_history}


def test_a_later_time_holds_back_what_follows_and_moves_the_clock():
    composer = Composer("team", "alice", WAKU, start_ms=START_MS)
    later = composer.compose(Payload(seq=0, data=b"one", not_before_ms=START_MS + 5_000))
    after = composer.compose(Payload(seq=1, data=b"two"))
    assert [later[0].release_ms, after[0].release_ms] == [START_MS + 5_000] * 2
    assert [later[0].message.lamport_timestamp, after[0].message.lamport_timestamp] == [
        START_MS + 5_000,
        START_MS + 5_001,
    ]
    with pytest.raises(ConfigurationError, match="more than a year"):
        composer.compose(Payload(seq=2, data=b"three", not_before_ms=START_MS * 1_000_000))


@pytest.mark.parametrize(
    ("payload", "error", "why"),
    [
        (Payload(seq=0, data=b""), EmptyPayloadError, "at least one byte"),
        (Payload(seq=0, data=bytes(2_000_000)), MessageTooLargeError, "2000000"),
        (Payload(seq=0, data=b"x", content_topic="somewhere"), ConfigurationError, "somewhere"),
    ],
)
def test_what_cannot_be_sent_is_told(payload, error, why):
    with pytest.raises(error, match=why):
        Composer("team", "alice", WAKU, start_ms=START_MS).compose(payload)


def test_what_can_never_work_is_refused_at_once():
    with pytest.raises(ConfigurationError, match="give the topic"):
        Composer("a/b", "alice", WAKU, start_ms=START_MS).compose(Payload(seq=0, data=b"x"))


def test_a_batch_goes_on_where_a_live_channels_store_stands(tmp_path):
    options = WAKU
    alice = Stack("team", "alice", TOPIC, options, now_ms=START_MS, seed=bytes(32))
    bob = Stack("team", "bob", TOPIC, options, now_ms=START_MS, seed=bytes([1]) * 32)
    for number in range(5):
        sender, receiver = (alice, bob) if number % 2 else (bob, alice)
        for effect in sender.send(b"%d" % number, START_MS + 60_000 + number).effects:
            if isinstance(effect, Publish):
                receiver.receive(effect.message, START_MS + 60_000 + number)
    store = SqliteStore(tmp_path / "alice.db")
    store.open("team", "alice", TOPIC)
    store.submit(Write(changes=alice.snapshot()), lambda error: None)
    store.close()

    state = state_of_store(tmp_path / "alice.db", "team", "alice", TOPIC, options)
    assert (state.lamport, len(state.records)) == (alice.sds.lamport, 5)
    (first, *others) = compose([b"six", bytes(500)], options, state=state)
    newest = [record.message_id for record in alice.sds.history][-2:]
    assert [entry.message_id for entry in first.message.causal_history] == newest
    assert first.message.lamport_timestamp == alice.sds.lamport + 1
    assert received(bob, [first, *others]) == [b"six", bytes(500)]
    assert bob.statistics().missing == 0


@pytest.mark.parametrize("options", [WAKU, LOGOS], ids=["waku", "logos"])
def test_a_batch_cites_what_its_sender_read_amid_the_last_file_whose_segments_parity_may_stand_in_for(
    options, tmp_path
):
    alice = Stack(
        "team",
        "alice",
        TOPIC,
        replace(options, advanced=Advanced(max_concurrent_publishes=1)),
        now_ms=START_MS,
        seed=bytes(32),
    )
    bob = Stack("team", "bob", TOPIC, options, now_ms=START_MS, seed=bytes([1]) * 32)
    waiting = list(alice.send(bytes(1_000), START_MS).effects)
    [text] = [effect for effect in bob.send(b"text", START_MS).effects if isinstance(effect, Publish)]
    alice.receive(text.message, START_MS)
    while waiting:
        effect = waiting.pop(0)
        if isinstance(effect, Publish):
            waiting += alice.published(effect.token, NodeAnswer(accepted=True), START_MS)
    store = SqliteStore(tmp_path / "alice.db")
    store.open("team", "alice", TOPIC)
    store.submit(Write(changes=alice.snapshot()), lambda error: None)
    store.close()

    made = compose(
        [b"next", b"last"], options, state=state_of_store(tmp_path / "alice.db", "team", "alice", TOPIC, options)
    )
    cited = [[entry.message_id for entry in one.message.causal_history] for one in made]
    assert [text.sds_id in ids for ids in cited] == [True, False]


def test_a_store_that_is_none_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="no such file"):
        state_of_store(tmp_path / "alice.db", "team", "alice", TOPIC, WAKU)
    new = SqliteStore(tmp_path / "new.db")
    new.open("team", "alice", TOPIC)
    new.close()
    with pytest.raises(ConfigurationError, match="keeps no channel yet"):
        state_of_store(tmp_path / "new.db", "team", "alice", TOPIC, WAKU)


def test_what_nobody_has_cited_yet_is_cited_by_the_first_message_of_a_batch():
    records = tuple(HistoryRecord(START_MS + number, f"id-{number}", b"hint", "bob") for number in range(5))
    state = ChannelState(lamport=START_MS + 4, records=records, uncited=("id-0", "id-4"))
    first, second = compose([b"one", b"two"], state=state)
    assert [entry.message_id for entry in first.message.causal_history] == ["id-0", "id-3", "id-4"]
    assert [entry.message_id for entry in second.message.causal_history] == ["id-4", first.message.message_id]


def test_a_payload_that_cannot_be_sent_takes_no_citation_from_the_next_one():
    records = tuple(HistoryRecord(START_MS + number, f"id-{number}", b"hint", "bob") for number in range(5))
    state = ChannelState(lamport=START_MS + 4, records=records, uncited=("id-0", "id-4"))
    options = replace(
        FILTERED, segmentation=replace(SMALL, segment_size_bytes=2_496), advanced=Advanced(max_wire_message_bytes=3_000)
    )
    composer = Composer("team", "alice", options, start_ms=START_MS, state=state)
    with pytest.raises(MessageTooLargeError):
        composer.compose(Payload(seq=0, data=bytes(9_000)))
    [message] = composer.compose(Payload(seq=1, data=b"one"))
    assert [entry.message_id for entry in message.message.causal_history] == ["id-0", "id-3", "id-4"]


class Tables:
    """The tables of a run, as far as a batch reads them."""

    def __init__(self, **tables: list[dict]) -> None:
        self.tables = {name: pa.Table.from_pylist(rows) for name, rows in tables.items()}

    def batches(self, name, columns, where):
        return ds.dataset(self.tables[name]).to_table(columns=list(columns), filter=where).to_batches()


def test_a_batch_goes_on_where_an_archive_ends():
    ordered = [
        {
            "channel_id": channel,
            "message_id": f"{channel}-{number}",
            "sender_id": "bob",
            "lamport": START_MS + 10 * number,
            "message_hash": b"hash-%d" % number,
        }
        for channel in ("team", "other")
        for number in range(4)
    ]
    citing = {"channel_id": "team", "sender_id": "carol", "segment_index": None, "is_parity": None}
    cited = [
        {**citing, "causal_history": [{"message_id": f"team-{number}"} for number in (1, 2)]},
        {**citing, "causal_history": [{"message_id": "team-0"}], "segment_index": 3, "is_parity": False},
        {**citing, "causal_history": [{"message_id": "team-0"}], "segment_index": 0, "is_parity": True},
        {**citing, "causal_history": None},
    ]
    tables = Tables(sds_ordered=ordered, sds_messages=cited)
    states = states_of_run(tables, {"team", "new"}, WAKU, START_MS)
    assert list(states) == ["team"]
    assert (states["team"].lamport, states["team"].uncited) == (START_MS + 30, ("team-0", "team-3"))
    (message,) = compose([b"one"], state=states["team"])
    assert message.message.lamport_timestamp == START_MS + 31
    history = [(entry.message_id, entry.retrieval_hint) for entry in message.message.causal_history]
    assert history == [("team-0", b"hash-0"), ("team-2", b"hash-2"), ("team-3", b"hash-3")]

    ahead = Tables(sds_ordered=[{**ordered[0], "lamport": START_MS * 9}], sds_messages=cited)
    limit_ms = START_MS + LAMPORT_TOLERANCE_MS
    assert states_of_run(ahead, {"team"}, WAKU, START_MS)["team"].lamport == limit_ms


def test_a_network_and_a_shard_may_be_chosen(tmp_path):
    (tmp_path / "ours.toml").write_text(
        'source = "here"\ncluster = 16\nshards = 4\npeers = ["/ip4/192.0.2.1/tcp/1/p2p/'
        '16Uiu2HAmPLe7Mzm8TsYUubgCAW1aJoeFScxrLj8ppHFivPo97bUZ"]\n'
    )
    options = channel_options(Profile.WAKU, None, network=str(tmp_path / "ours.toml"))
    (message,) = Composer("team", "alice", options, start_ms=START_MS).compose(Payload(seq=1, data=b"one"))
    assert message.pubsub_topic == autoshard("/fairway/1/team/proto", 16, 4)
    (message,) = Composer("team", "alice", options, start_ms=START_MS, shard=3).compose(Payload(seq=1, data=b"one"))
    assert message.pubsub_topic == "/waku/2/rs/16/3"
