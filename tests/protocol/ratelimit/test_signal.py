"""What a proof is about."""

from __future__ import annotations

from fairway.protocol.ratelimit import rln_signal


def test_the_signal_is_payload_topic_and_timestamp_little_endian():
    assert rln_signal(b"\x01\x02", "/a/1/é/p", 0x0102030405060708) == (
        b"\x01\x02" + b"/a/1/\xc3\xa9/p" + b"\x08\x07\x06\x05\x04\x03\x02\x01"
    )
    assert rln_signal(b"", "", -2) == b"\xfe" + b"\xff" * 7
