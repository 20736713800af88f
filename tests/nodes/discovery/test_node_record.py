import json
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.errors import DecodeError
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.discovery.node_record import MAX_RECORD_BYTES, Capability, NodeRecord, NodeRecordError
from fairway.wire.hashing import keccak256
from fairway.wire.relay_shards import RelayShards
from fairway.wire.rlp import decode_rlp, encode_rlp

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "discovery" / "node_records.json").read_text())
EXAMPLE = VECTORS["eip_778"]
KEY = IdentityKey.from_secret(bytes.fromhex(EXAMPLE["private_key"]), KeyType.SECP256K1)
SHARDS = RelayShards(cluster_id=1, shards=frozenset(range(8)))


def signed(fields, *, sequence=b"\1", key=KEY, sort=True):
    """Return a record with a true signature over whatever it is given."""
    content = [sequence]
    for name, value in sorted(fields) if sort else fields:
        content += [name, value]
    return encode_rlp([key.sign_digest(keccak256(encode_rlp(content))), *content])


def pairs(**changes):
    fields = {"id": b"v4", "secp256k1": KEY.public_key.data} | changes
    return [(name.encode(), value) for name, value in fields.items() if value is not None]


def test_the_example_of_the_specification_is_read():
    record = NodeRecord.parse(EXAMPLE["text"])
    assert str(record) == EXAMPLE["text"]
    assert record.sequence == EXAMPLE["sequence"]
    assert {name.decode(): value.hex() for name, value in record.fields.items()} == EXAMPLE["fields"]
    assert record.peer_id == PeerId.from_public_key(KEY.public_key)


def test_the_example_of_the_specification_is_written_with_the_same_signature():
    fields = {b"ip": bytes.fromhex("7f000001"), b"udp": bytes.fromhex("765f")}
    assert str(NodeRecord.sign(KEY, sequence=1, extra=fields)) == EXAMPLE["text"]


@pytest.mark.parametrize("vector", VECTORS["waku_network"], ids=lambda vector: vector["host"])
def test_the_records_of_the_waku_network_are_read(vector):
    record = NodeRecord.parse(vector["text"])
    peer = record.peer_id
    assert record.relay_shards == SHARDS
    assert record.capabilities == Capability.RELAY | Capability.STORE | Capability.FILTER | Capability.LIGHT_PUSH
    assert [str(address) for address in record.addresses] == [
        f"/dns4/{vector['host']}/tcp/30303/p2p/{peer}",
        f"/dns4/{vector['host']}/tcp/8000/wss/p2p/{peer}",
        f"/ip4/{vector['ip']}/tcp/30303/p2p/{peer}",
    ]


hosts = st.one_of(
    st.ip_addresses(v=4).map(lambda ip: f"/ip4/{ip}"),
    st.ip_addresses(v=6).filter(lambda ip: ip.scope_id is None).map(lambda ip: f"/ip6/{ip}"),
    st.sampled_from(["/dns4/a.example.org", "/dns6/b.example.org", "/dns/c.example"]),
)
addresses = st.builds("{}/tcp/{}{}".format, hosts, st.integers(1, 65535), st.sampled_from(["", "/ws", "/wss"]))
shards = st.builds(
    RelayShards, cluster_id=st.integers(0, 65535), shards=st.frozensets(st.integers(0, 1023), max_size=70)
)


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1), st.lists(addresses, max_size=3), st.none() | shards, st.none() | st.integers(0, 255))
def test_any_record_survives_both_forms(sequence, texts, relay_shards, bits):
    given_addresses = [Multiaddr.parse(text) for text in texts]
    record = NodeRecord.sign(
        KEY,
        sequence=sequence,
        addresses=given_addresses,
        relay_shards=relay_shards,
        capabilities=None if bits is None else Capability(bits),
    )
    assert len(record.encoded) <= MAX_RECORD_BYTES
    for again in (NodeRecord.decode(record.encoded), NodeRecord.parse(str(record))):
        assert again == record
        assert again.sequence == sequence
        assert again.relay_shards == relay_shards
        assert again.capabilities == bits
        assert set(again.addresses) <= {address.with_peer_id(record.peer_id) for address in given_addresses}


def test_a_record_keeps_the_first_addresses_that_fit():
    given_addresses = [Multiaddr.parse(f"/dns4/{number}.{'x' * 40}.example/tcp/60000") for number in range(9)]
    record = NodeRecord.sign(KEY, sequence=1, addresses=given_addresses, relay_shards=SHARDS)
    kept = [address.without_peer_id() for address in record.addresses]
    assert kept
    assert kept == given_addresses[: len(kept)]


@settings(deadline=None)
@given(st.binary(max_size=320))
def test_any_bytes_are_refused_with_a_typed_error(data):
    with pytest.raises(NodeRecordError):
        NodeRecord.decode(data)


@given(st.text(max_size=100))
def test_any_text_is_refused_with_a_typed_error(text):
    for form in (text, f"enr:{text}"):
        with pytest.raises(DecodeError):
            NodeRecord.parse(form)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_no_byte_of_a_record_can_be_changed(data):
    good = NodeRecord.parse(VECTORS["waku_network"][0]["text"]).encoded
    at = data.draw(st.integers(0, len(good) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != good[at]))
    with pytest.raises(NodeRecordError):
        NodeRecord.decode(good[:at] + bytes([other]) + good[at + 1 :])


def high_s(record):
    """Return the same record with the other s, which is as valid an ECDSA signature."""
    order = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
    signature, *rest = decode_rlp(record)
    assert isinstance(signature, bytes)
    return encode_rlp([signature[:32] + (order - int.from_bytes(signature[32:])).to_bytes(32), *rest])


OTHER = IdentityKey.generate(KeyType.SECP256K1)
FORGED = {
    "signed with another key": (signed(pairs(), key=OTHER), "signature"),
    "with the second signature that anybody can make": (high_s(signed(pairs())), "signature"),
    "with an empty signature": (encode_rlp([b"", *decode_rlp(signed(pairs()))[1:]]), "signature"),
    "with a list as its signature": (encode_rlp([(), *decode_rlp(signed(pairs()))[1:]]), "signature"),
    "with a signature of zeros": (encode_rlp([bytes(64), *decode_rlp(signed(pairs()))[1:]]), "signature"),
    "without a scheme": (signed(pairs(id=None)), "scheme"),
    "of another scheme": (signed(pairs(id=b"v5")), "scheme"),
    "without a key": (signed(pairs(secp256k1=None)), "key"),
    "whose key is a list": (signed(pairs(secp256k1=())), "key"),
    "whose key is no point": (signed(pairs(secp256k1=b"\2" + b"\xff" * 32)), "key"),
    "whose key is not compressed": (signed(pairs(secp256k1=b"\4" + bytes(64))), "key"),
    "with its keys in another order": (signed(pairs(ip=bytes(4)), sort=False), "order"),
    "with a key twice": (signed([*pairs(), (b"id", b"v4")]), "order"),
    "with a key that is a list": (signed([((), b""), *pairs()], sort=False), "encoding"),
    "with a sequence number of 65 bits": (signed(pairs(), sequence=b"\1" + bytes(8)), "encoding"),
    "with a sequence number that begins with 0": (signed(pairs(), sequence=b"\0\1"), "encoding"),
    "with a key without a value": (encode_rlp([bytes(64), b"\1", b"id"]), "encoding"),
    "that is no list": (encode_rlp(b"record"), "encoding"),
    "that is longer than 300 bytes": (signed(pairs(zz=bytes(300))), "too long"),
}


@pytest.mark.parametrize(("data", "fault"), FORGED.values(), ids=FORGED)
def test_a_record_is_refused(data, fault):
    with pytest.raises(NodeRecordError) as caught:
        NodeRecord.decode(data)
    assert caught.value.fault == fault


TEXTS = {
    "another prefix": ("enode" + EXAMPLE["text"], "text"),
    "padding": (f"enr:{urlsafe_b64encode(signed(pairs())[:-1]).decode()}==", "text"),
    "the other base64 alphabet": (EXAMPLE["text"].replace("_", "/"), "text"),
    "a line break": (EXAMPLE["text"] + "\n", "text"),
    "a million characters": ("enr:" + "A" * 1_000_000, "too long"),
}


@pytest.mark.parametrize(("text", "fault"), TEXTS.values(), ids=TEXTS)
def test_a_text_is_refused_that_has(text, fault):
    with pytest.raises(NodeRecordError) as caught:
        NodeRecord.parse(text)
    assert caught.value.fault == fault


UNREADABLE = {
    "addresses": {"multiaddrs": b"\xff\xff\1\2"},
    "an address of an unknown protocol": {"multiaddrs": b"\0\2\xff\x01"},
    "an address that is a list": {"multiaddrs": (b"a",)},
    "an IP address of five bytes": {"ip": bytes(5), "tcp": b"\1"},
    "a port of three bytes": {"ip": bytes(4), "tcp": b"\1\1\1"},
    "an address that cannot be dialled": {
        "multiaddrs": b"\0\x0a" + Multiaddr.parse("/ip4/1.2.3.4/udp/9/quic-v1").to_bytes()
    },
}


@pytest.mark.parametrize("fields", UNREADABLE.values(), ids=UNREADABLE)
def test_a_field_that_cannot_be_read_is_as_good_as_absent(fields):
    assert NodeRecord.decode(signed(pairs(**fields))).addresses == ()


def test_shards_in_two_forms_or_in_none_are_unknown():
    index_list = b"\0\1\1\0\0"
    assert NodeRecord.decode(signed(pairs(rs=index_list))).relay_shards is not None
    assert NodeRecord.decode(signed(pairs(rs=index_list, rsv=index_list))).relay_shards is None
    assert NodeRecord.decode(signed(pairs(rs=b"\0"))).relay_shards is None
    assert NodeRecord.decode(signed(pairs())).relay_shards is None


def test_an_address_that_names_another_peer_is_left_out():
    address = Multiaddr.parse(f"/ip4/1.2.3.4/tcp/9/p2p/{PeerId.from_public_key(OTHER.public_key)}").to_bytes()
    record = NodeRecord.decode(signed(pairs(multiaddrs=len(address).to_bytes(2) + address)))
    assert record.addresses == ()
