"""Batches: the payloads come out as they went in, and whatever else a payload holds is one message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.wire.batch import MAX_BATCH, batch_bytes, decode_batch, encode_batch, id_in_batch
from fairway.wire.envelope import ENVELOPE_PREFIX, Envelope
from fairway.wire.proto import envelope_pb2 as pb

payloads = st.lists(st.binary(min_size=1, max_size=100), min_size=2, max_size=20)


@given(payloads)
def test_the_payloads_of_a_batch_survive_the_wire(given_payloads):
    encoded = encode_batch(given_payloads)
    assert decode_batch(encoded) == tuple(given_payloads)
    assert len(encoded) <= batch_bytes(len(given_payloads), sum(map(len, given_payloads)))


@given(st.binary(max_size=100))
def test_any_bytes_after_the_prefix_are_a_batch_of_messages_with_content_or_no_batch(rest):
    decoded = decode_batch(ENVELOPE_PREFIX + rest)
    assert decoded is None or (2 <= len(decoded) <= MAX_BATCH and all(decoded))


@given(payloads, st.integers(0, 200))
def test_the_beginning_of_a_batch_has_no_further_payloads(given_payloads, length):
    encoded = encode_batch(given_payloads)[:length]
    decoded = decode_batch(encoded)
    assert decoded is None or len(decoded) <= len(given_payloads)


@pytest.mark.parametrize(
    "refused",
    [
        encode_batch([]),
        encode_batch([b"alone"]),
        encode_batch([b"one", b"", b"three"]),
        encode_batch([b"x"] * (MAX_BATCH + 1)),
        ENVELOPE_PREFIX + pb.Envelope(kind=pb.Envelope.BATCH, content=b"\xff").SerializeToString(),
        Envelope(pb.Batch(payloads=[b"one", b"two"]).SerializeToString()).encode(),
        pb.Batch(payloads=[b"one", b"two"]).SerializeToString(),
    ],
    ids=["no payload", "one payload", "an empty payload", "too many", "broken", "another kind", "no envelope"],
)
def test_what_is_no_batch_is_one_message(refused):
    assert decode_batch(refused) is None


def test_a_batch_within_a_batch_is_a_payload():
    inner = encode_batch([b"one", b"two"])
    assert decode_batch(encode_batch([inner, b"three"])) == (inner, b"three")


def test_the_largest_batch_is_decoded_and_the_ids_of_its_messages_sort_in_their_order():
    assert decode_batch(encode_batch([b"x"] * MAX_BATCH)) == (b"x",) * MAX_BATCH
    ids = [id_in_batch("ab12", index) for index in range(MAX_BATCH)]
    assert ids == sorted(set(ids))
    assert ids[0] == "ab12"
    assert ids[-1] < "ab13"
