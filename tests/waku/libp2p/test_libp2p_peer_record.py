import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.waku.libp2p.envelope import open_envelope, seal_envelope
from fairway.waku.libp2p.errors import IdentityError, Libp2pError
from fairway.waku.libp2p.keys import IdentityKey
from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.libp2p.peer_record import PEER_RECORD_DOMAIN, PEER_RECORD_TYPE, open_peer_record, sign_peer_record
from fairway.waku.libp2p.public_keys import KeyType

VECTOR = json.loads((Path(__file__).parents[2] / "vectors" / "libp2p" / "peer_record.json").read_text())
KEY = IdentityKey.from_secret(bytes(range(32)))
ADDRESSES = (Multiaddr.parse("/ip4/127.0.0.1/tcp/60000"), Multiaddr.parse("/dns4/n.example/tcp/443/wss"))


def test_a_record_of_go_libp2p_is_read_and_written_the_same():
    key = IdentityKey.from_bytes(bytes.fromhex(VECTOR["private_key"]))
    record = open_peer_record(bytes.fromhex(VECTOR["envelope"]))
    assert record.peer_id == PeerId.from_public_key(key.public_key)
    assert [str(address) for address in record.addresses] == VECTOR["addresses"]
    written = sign_peer_record(key, sequence_number=record.sequence_number, addresses=record.addresses)
    assert written.hex() == VECTOR["envelope"]


@pytest.mark.parametrize("kind", [KeyType.ED25519, KeyType.SECP256K1])
@pytest.mark.parametrize("number", [0, 2**64 - 1])
def test_a_record_survives_its_envelope(kind, number):
    key = IdentityKey.generate(kind)
    record = open_peer_record(sign_peer_record(key, sequence_number=number, addresses=ADDRESSES))
    assert record.peer_id == PeerId.from_public_key(key.public_key)
    assert (record.sequence_number, record.addresses) == (number, ADDRESSES)


@given(st.data())
def test_a_changed_record_is_refused(data):
    sealed = bytearray(sign_peer_record(KEY, sequence_number=7, addresses=ADDRESSES))
    position = data.draw(st.integers(0, len(sealed) - 1))
    sealed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(IdentityError):
        open_peer_record(bytes(sealed))


@given(st.binary(max_size=200))
def test_garbage_raises_nothing_but_a_libp2p_error(data):
    with pytest.raises(Libp2pError):
        open_peer_record(data)


def test_a_record_for_another_peer_is_refused():
    other = sign_peer_record(IdentityKey.generate(), sequence_number=1, addresses=())
    payload = open_envelope(other, domain=PEER_RECORD_DOMAIN, payload_type=PEER_RECORD_TYPE).payload
    resealed = seal_envelope(KEY, domain=PEER_RECORD_DOMAIN, payload_type=PEER_RECORD_TYPE, payload=payload)
    with pytest.raises(IdentityError, match="for another peer"):
        open_peer_record(resealed)


def test_an_envelope_is_good_for_one_domain_and_one_type_only():
    sealed = seal_envelope(KEY, domain="d", payload_type=b"t", payload=b"p")
    assert open_envelope(sealed, domain="d", payload_type=b"t").payload == b"p"
    assert open_envelope(sealed, domain="d", payload_type=b"t").signer == KEY.public_key
    with pytest.raises(IdentityError, match="not a signature"):
        open_envelope(sealed, domain="e", payload_type=b"t")
    with pytest.raises(IdentityError, match="of type '74'"):
        open_envelope(sealed, domain="d", payload_type=b"u")


def test_lengths_keep_domain_type_and_payload_apart():
    signature = KEY.sign(b"\x01d" + b"\x02te" + b"\x01p")
    sealed = seal_envelope(KEY, domain="d", payload_type=b"te", payload=b"p")
    assert sealed.endswith(signature)


def test_a_record_that_is_too_long_is_not_parsed():
    sealed = sign_peer_record(KEY, sequence_number=7, addresses=ADDRESSES)
    with pytest.raises(IdentityError, match="at most 100"):
        open_peer_record(sealed, max_bytes=100)


def test_an_address_that_cannot_be_read_costs_itself():
    key = IdentityKey.generate()
    good = sign_peer_record(key, sequence_number=1, addresses=ADDRESSES[:1])
    payload = open_envelope(good, domain=PEER_RECORD_DOMAIN, payload_type=PEER_RECORD_TYPE).payload
    payload += b"\x1a\x05\x0a\x03\x2a\x01\x78"  # one more address, of a protocol that is not known
    sealed = seal_envelope(key, domain=PEER_RECORD_DOMAIN, payload_type=PEER_RECORD_TYPE, payload=payload)
    assert open_peer_record(sealed).addresses == ADDRESSES[:1]


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_sequence_number_has_64_bits(number):
    with pytest.raises(ConfigurationError, match="64 bits"):
        sign_peer_record(KEY, sequence_number=number, addresses=())
