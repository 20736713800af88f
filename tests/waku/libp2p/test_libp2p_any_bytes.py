"""Whatever a peer sends, the decoders of libp2p's primitives raise nothing outside their own error tree."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.waku.libp2p.envelope import open_envelope
from fairway.waku.libp2p.errors import Libp2pError
from fairway.waku.libp2p.keys import IdentityKey
from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.noise.identity import read_payload
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.libp2p.public_keys import KeyType, PublicKey
from fairway.waku.libp2p.varint import decode_uvarint
from fairway.wire.varint import length_prefixed

DECODERS: dict[str, Callable[[bytes], object]] = {
    "varint": decode_uvarint,
    "peer id": PeerId,
    "public key": PublicKey.from_bytes,
    "private key": IdentityKey.from_bytes,
    "pem": IdentityKey.from_pem,
    "multiaddr": Multiaddr.from_bytes,
    "envelope": lambda data: open_envelope(data, domain="d", payload_type=b""),
    "noise payload": lambda data: read_payload(data, bytes(32)),
}

raw = st.binary(max_size=80)
keys = st.builds(lambda kind, data: bytes([8, kind]) + b"\x12" + length_prefixed(data), st.integers(0, 5), raw)
fields = st.lists(
    st.builds(lambda number, data: bytes([number << 3 | 2]) + length_prefixed(data), st.integers(1, 6), raw)
)
addresses = st.lists(
    st.one_of(
        st.sampled_from([b"\x04\x7f\0\0\x01", b"\x06\0\x50", b"\xdd\x03", b"\xa2\x02"]),
        st.builds(
            lambda code, data: code + length_prefixed(data), st.sampled_from([b"\x35", b"\xa5\x03", b"\xc1\x03"]), raw
        ),
    )
).map(b"".join)
anything = st.one_of(raw, keys, fields.map(b"".join), addresses)


@pytest.mark.parametrize("name", DECODERS)
@given(data=anything)
def test_a_decoder_gives_a_value_or_raises_a_libp2p_error(name, data):
    try:
        DECODERS[name](data)
    except Libp2pError as error:
        assert str(error)  # noqa: PT017 - any error of the tree is right, and it says something


@given(st.sampled_from(KeyType), raw)
def test_key_data_give_a_key_or_a_libp2p_error(kind, data):
    try:
        key = PublicKey(kind, data)
    except Libp2pError:
        return
    assert PublicKey.from_bytes(key.to_bytes()) == key


@given(
    st.text(max_size=80) | st.lists(st.sampled_from(["/", "ip4", "p2p", "tcp", "1", "::", "%", "Qm", "b"])).map("".join)
)
def test_a_text_gives_a_value_or_a_libp2p_error(text):
    for parse in (Multiaddr.parse, PeerId.parse):
        try:
            value = parse(text)
        except Libp2pError:
            continue
        assert parse(str(value)) == value


@given(addresses)
def test_an_address_that_can_be_read_is_written_as_it_came(data):
    try:
        address = Multiaddr.from_bytes(data)
    except Libp2pError:
        return
    assert address.to_bytes() == data
    assert Multiaddr.parse(str(address)) == address
