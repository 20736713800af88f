"""Whatever a peer sends, the decoders of libp2p's primitives raise nothing outside their own error tree."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.errors import Libp2pError
from fairway.libp2p.keys import IdentityKey, KeyType, PublicKey
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.noise.handshake import read_payload
from fairway.libp2p.peer_id import PeerId
from fairway.wire.varint import length_prefixed

DECODERS: dict[str, Callable[[bytes], object]] = {
    "varint": decode_uvarint,
    "peer id": PeerId,
    "public key": PublicKey.from_bytes,
    "private key": IdentityKey.from_bytes,
    "pem": IdentityKey.from_pem,
    "noise payload": lambda data: read_payload(data, bytes(32)),
}

raw = st.binary(max_size=80)
keys = st.builds(lambda kind, data: bytes([8, kind]) + b"\x12" + length_prefixed(data), st.integers(0, 5), raw)
fields = st.lists(
    st.builds(lambda number, data: bytes([number << 3 | 2]) + length_prefixed(data), st.integers(1, 6), raw)
)
anything = st.one_of(raw, keys, fields.map(b"".join))


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
