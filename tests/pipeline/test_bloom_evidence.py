"""What bloom filters tell, without a JVM: the witness of a channel is a function over its messages."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from fairway.options import Profile, SdsConfig
from fairway.pipeline.stages.bloom_evidence import ChannelWitness, Heard, evidence_mapper, filter_mapper
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
            "timestamp": pa.array(range(len(payloads)), pa.int64()),
            "content_topic": pa.array(["/a/1/b/proto"] * len(payloads), pa.string()),
            "payload": pa.array(payloads, pa.binary()),
            "meta": pa.array([None] * len(payloads), pa.binary()),
        }
    )
    filters = filter_mapper(Profile.WAKU)(iter([batch]))
    (evidence,) = evidence_mapper(CONFIG)(filters)
    assert evidence.to_pylist() == [
        {"channel_id": "one", "message_id": "a1", "acknowledged_by": "carol", "how": "descendant", "at": 2}
    ]
