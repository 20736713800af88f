"""What bloom filters tell, without a JVM: the witness of a channel is a function over its messages."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from hypothesis import example, given
from hypothesis import strategies as st

from fairway.options import Profile, SdsConfig
from fairway.pipeline.stages.bloom_evidence import ChannelWitness, Heard, evidence_mapper, filter_mapper
from fairway.pipeline.stages.filter_sizes import FilterSizes
from fairway.protocol.sds.vouching import BELIEVED_MS
from fairway.wire.bloom import BloomFilter, BloomParameters
from fairway.wire.sds import HistoryEntry, SdsMessage

CONFIG = SdsConfig(bloom_capacity=100)
PARAMETERS = BloomParameters.of(CONFIG.bloom_capacity, CONFIG.bloom_error_rate)


def bloom_of(*message_ids: str, profile: str = "waku", parameters: BloomParameters = PARAMETERS) -> bytes:
    codec = Profile(profile).codec
    words = BloomFilter(parameters, codec.bloom)
    for message_id in message_ids:
        words.insert(message_id)
    return codec.write_bloom(bytes(words), parameters)


def heard(
    message_id: str, sender_id: str, cited: tuple[str, ...] = (), bloom: bytes | None = None, profile: str = "waku"
) -> Heard:
    return Heard(message_id, sender_id, profile, True, cited, bloom)


@pytest.mark.parametrize("profile", ["waku", "logos"])
def test_a_filter_with_a_cited_descendant_is_evidence_and_a_filter_alone_is_possible(profile):
    witness = ChannelWitness("team", CONFIG)
    assert witness.hear(heard("a1", "alice", profile=profile)) == []
    assert witness.hear(heard("b1", "bob", ("a1",), profile=profile)) == []
    holds_both = bloom_of("a1", "b1", profile=profile)
    assert witness.hear(heard("c1", "carol", ("b1",), holds_both, profile)) == [("a1", "carol", "descendant")]
    assert witness.hear(heard("d1", "dave", (), bloom_of("a1", profile=profile), profile)) == [("a1", "dave", "bloom")]


def test_possible_becomes_certain_once_and_nothing_is_told_twice():
    witness = ChannelWitness("team", CONFIG)
    witness.hear(heard("a1", "alice"))
    witness.hear(heard("b1", "bob", ("a1",)))
    holds = bloom_of("a1")
    assert witness.hear(heard("c1", "carol", (), holds)) == [("a1", "carol", "bloom")]
    assert witness.hear(heard("c2", "carol", (), holds)) == []
    assert witness.hear(heard("c3", "carol", ("b1",), holds)) == [("a1", "carol", "descendant")]
    assert witness.hear(heard("c4", "carol", ("b1",), holds)) == []


def test_who_vouches_acknowledges_what_the_cited_message_descends_from():
    witness = ChannelWitness("team", CONFIG)
    witness.hear(heard("a1", "alice"))
    witness.hear(heard("a2", "alice", ("a1",)))
    told = witness.hear(heard("b1", "bob", ("a2",))._replace(vouches=True))
    assert told == [("a1", "bob", "descendant")], "what it cites is told by the citation"
    assert witness.hear(heard("c1", "carol", ("b1",))) == [], "it has no filter, and does not say that it has the rest"
    vouching = heard("c2", "carol", ("b1",))._replace(vouches=True)
    assert witness.hear(vouching) == [("a1", "carol", "descendant"), ("a2", "carol", "descendant")]
    assert witness.hear(vouching._replace(message_id="c3")) == []


def test_nobody_vouches_for_what_is_old_or_has_left_the_window():
    witness = ChannelWitness("team", CONFIG)
    second_ns = 1_000_000_000
    witness.hear(heard("a1", "alice"))
    witness.hear(heard("a2", "alice", ("a1",))._replace(timestamp_ns=second_ns))
    witness.hear(heard("b1", "bob", ("a2",))._replace(timestamp_ns=2 * second_ns))
    late = heard("c1", "carol", ("b1",))._replace(vouches=True, timestamp_ns=BELIEVED_MS * 1_000_000 + second_ns)
    assert witness.hear(late) == [("a2", "carol", "descendant")]
    before = "b1"
    for number in range(3_000):
        witness.hear(heard(f"b{number}-", "bob", (before,))._replace(timestamp_ns=late.timestamp_ns))
        before = f"b{number}-"
    told = witness.hear(heard("d1", "dave", (before,))._replace(vouches=True, timestamp_ns=late.timestamp_ns))
    window = 1_024
    assert [message_id for message_id, _, _ in told] == [f"b{number}-" for number in range(3_000 - window, 2_999)]


def test_own_messages_and_cited_ones_are_not_told():
    witness = ChannelWitness("team", CONFIG)
    witness.hear(heard("a1", "alice"))
    assert witness.hear(heard("a2", "alice", (), bloom_of("a1"))) == []
    assert witness.hear(heard("b1", "bob", ("a1",), bloom_of("a1"))) == []


def test_filters_that_cannot_be_read_or_would_hold_anything_tell_nothing():
    witness = ChannelWitness("team", CONFIG)
    witness.hear(heard("a1", "alice"))
    assert witness.hear(heard("b1", "bob", (), b"short")) == []
    assert witness.hear(heard("c1", "carol", (), b"\xff" * PARAMETERS.byte_length)) == []
    witness.hear(heard("b2", "bob", ("a1",)))
    assert witness.hear(heard("c2", "carol", ("b2",), b"\xff" * PARAMETERS.byte_length)) == []


@given(
    capacity=st.integers(100, 20_000),
    error_rate=st.sampled_from([0.01, 0.001, 0.000_1]),
    others=st.integers(0, 100),
)
@example(capacity=273, error_rate=0.000_1, others=48)
def test_the_size_of_filters_that_is_not_on_the_wire_follows_from_what_their_messages_cite(
    capacity, error_rate, others
):
    right = BloomParameters.of(capacity, error_rate)
    sizes = FilterSizes(BloomParameters.of(20_001, 0.000_01))
    words = BloomFilter(right)
    for number in range(min(others, capacity // 2)):
        words.insert(f"other-{number}")
    for number in range(20):
        words.insert(f"m{number}")
        found = sizes.of("bob", bytes(words), [f"m{number}"])
    assert found is not None
    assert (found.bit_count, found.hash_count) == (right.bit_count, right.hash_count)


def test_channels_with_small_filters_are_acknowledged_as_their_senders_saw_it():
    small = BloomParameters.of(500, 0.001)
    witness = ChannelWitness("team", SdsConfig())
    told = []
    for number in range(20):  # alice sends five at a time, bob cites the newest of them
        burst = [f"a{number}-{part}" for part in range(5)]
        before = (f"b{number - 1}",) if number else ()
        for part, message_id in enumerate(burst):
            witness.hear(heard(message_id, "alice", before if part == 0 else (burst[part - 1],)))
        have = [f"a{earlier}-{part}" for earlier in range(number + 1) for part in range(5)]
        told += witness.hear(heard(f"b{number}", "bob", (burst[-1],), bloom_of(*have, parameters=small)))
    certain = {message_id for message_id, participant, how in told if (participant, how) == ("bob", "descendant")}
    assert certain >= {f"a{number}-{part}" for number in range(20) for part in range(4)}


def test_a_forger_does_not_choose_the_size_of_the_filters_of_others():
    sizes = FilterSizes(PARAMETERS)
    small, other = BloomParameters.of(500, 0.001), BloomParameters.of(502, 0.001)
    assert small.byte_length == other.byte_length
    for number in range(4):
        ids = [f"m{earlier}" for earlier in range(number + 1)]
        forged = sizes.of("mallory", bloom_of(*ids, parameters=other), ids[-2:])
        right = sizes.of("bob", bloom_of(*ids, parameters=small), ids[-2:])
    assert (forged.bit_count, right.bit_count) == (other.bit_count, small.bit_count)


def test_a_sender_chooses_among_few_sizes_of_filters():
    witness = ChannelWitness("team", CONFIG)
    witness.hear(heard("a1", "alice", profile="logos"))
    told = [
        bool(
            witness.hear(
                heard(
                    f"m{size}",
                    f"sender-{size}",
                    (),
                    bloom_of("a1", profile="logos", parameters=BloomParameters.of(size, 0.001)),
                    "logos",
                )
            )
        )
        for size in range(50, 60)
    ]
    assert told == [True] * 4 + [False] * 6


def test_the_window_moves_on_and_what_left_it_is_no_longer_told():
    witness = ChannelWitness("team", CONFIG)
    previous: tuple[str, ...] = ()
    for number in range(5_000):
        witness.hear(heard(f"a{number}", "alice", previous))
        previous = (f"a{number}",)
    told = witness.hear(heard("b1", "bob", ("a4999",), bloom_of("a10", "a3000", "a4100", "a4998")))
    # False hits are possible, a message out of the window is not.
    assert {("a4100", "bob", "descendant"), ("a4998", "bob", "descendant")} <= set(told)
    assert not {"a10", "a3000"} & {message_id for message_id, _, _ in told}


def test_the_mappers_take_a_channel_after_the_other():
    codec = Profile.WAKU.codec

    def payload(channel_id: str, message_id: str, sender_id: str, lamport: int, **more) -> bytes:
        return codec.encode(
            SdsMessage(
                message_id=message_id,
                sender_id=sender_id,
                channel_id=channel_id,
                lamport_timestamp=lamport,
                content=b"x",
                **more,
            )
        )

    payloads = [
        payload("one", "a1", "alice", 1),
        payload("one", "b1", "bob", 2, causal_history=(HistoryEntry("a1"),)),
        payload("one", "c1", "carol", 3, causal_history=(HistoryEntry("b1"),), bloom_filter=bloom_of("a1")),
        payload("two", "c2", "carol", 1, bloom_filter=bloom_of("a1")),
        b"\xff\xff",
    ]
    batch = pa.RecordBatch.from_pydict(
        {
            "message_hash": pa.array([b"%d" % number for number in range(len(payloads))], pa.binary()),
            "timestamp_ns": pa.array(range(len(payloads)), pa.int64()),
            "content_topic": pa.array(["/a/1/b/proto"] * len(payloads), pa.string()),
            "payload": pa.array(payloads, pa.binary()),
            "meta": pa.array([None] * len(payloads), pa.binary()),
        }
    )
    filters = filter_mapper(Profile.WAKU)(iter([batch]))
    (evidence,) = evidence_mapper(CONFIG)(filters)
    assert evidence.to_pylist() == [
        {
            "channel_id": "one",
            "message_id": "a1",
            "acknowledged_by": "carol",
            "how": "descendant",
            "acknowledged_at_ns": 2,
        }
    ]


def test_the_evidence_of_a_large_batch_comes_in_several_and_is_that_of_small_ones():
    ids = [f"m{number}" for number in range(600)]
    rows = [
        {
            "channel_id": "team",
            "lamport": number,
            "message_id": message_id,
            "timestamp_ns": number,
            "sender_id": f"sender {number % 60}",
            "profile": "waku",
            "is_content": True,
            "cited": ids[max(0, number - 1) : number],
            "bloom": bloom_of(*ids[max(0, number - 60) : number]),
            "vouches": False,
        }
        for number, message_id in enumerate(ids)
    ]
    one, several = (
        list(evidence_mapper(CONFIG)(pa.RecordBatch.from_pylist(rows[at : at + size]) for at in range(0, 600, size)))
        for size in (600, 7)
    )
    assert 1 < len(one) < len(several)
    assert pa.Table.from_batches(one) == pa.Table.from_batches(several).combine_chunks()
    assert sum(batch.num_rows for batch in one) > 10_000
