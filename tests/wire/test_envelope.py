"""Envelopes: what is written is read, and whatever else a payload holds is content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.wire.envelope import ENVELOPE_PREFIX, Envelope, EnvelopeKind

texts = st.text(st.characters(codec="utf-8"), max_size=40)


@given(
    st.builds(
        Envelope,
        st.binary(max_size=200),
        content_type=texts,
        headers=st.dictionaries(texts, texts, max_size=4),
        kind=st.sampled_from(EnvelopeKind),
        to=texts,
        correlation_id=texts,
        expires_after_ms=st.integers(0, 2**64 - 1),
    )
)
def test_an_envelope_survives_the_wire(envelope):
    assert Envelope.of(envelope.encode()) == Envelope.decode(envelope.encode()) == envelope


@given(st.binary(max_size=200).filter(lambda payload: not payload.startswith(ENVELOPE_PREFIX)))
def test_a_payload_without_the_prefix_is_the_content(payload):
    assert Envelope.decode(payload) is None
    assert Envelope.of(payload) == Envelope(payload)


@given(st.binary(max_size=100))
def test_any_bytes_after_the_prefix_are_read_or_taken_as_content(rest):
    payload = ENVELOPE_PREFIX + rest
    assert Envelope.of(payload) == (Envelope.decode(payload) or Envelope(payload))


def test_an_envelope_of_a_later_kind_is_content():
    payload = ENVELOPE_PREFIX + b"\x18\x63"  # kind 99
    assert Envelope.of(payload) == Envelope(payload)


def test_equal_envelopes_have_equal_payloads_so_that_a_repeated_send_is_the_same_send():
    one, other = {"b": "2", "a": "1"}, {"a": "1", "b": "2"}
    assert Envelope(b"x", headers=one).encode() == Envelope(b"x", headers=other).encode()


@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": {"count": 1}},
        {"headers": {1: "count", "a": "b"}},
        {"headers": {"a": "\ud800"}},
        {"to": 5},
        {"expires_after_ms": -1},
    ],
)
def test_an_envelope_with_a_field_of_a_wrong_type_is_rejected(wrong):
    with pytest.raises(ConfigurationError):
        Envelope(b"x", **wrong).encode()
