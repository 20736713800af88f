import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.libp2p.errors import IdentityError
from fairway.libp2p.keys import KeyType, PublicKey
from fairway.libp2p.peer_id import PeerId

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "libp2p" / "keys_and_peer_ids.json").read_text())
TEXTS = [text for texts in VECTORS["ids"] for text in texts]

peer_ids = st.one_of(
    st.binary(min_size=32, max_size=32).map(lambda digest: PeerId(b"\x12\x20" + digest)),
    st.binary(min_size=1, max_size=42).map(lambda key: PeerId(bytes([0, len(key)]) + key)),
)


@pytest.mark.parametrize("texts", VECTORS["ids"], ids=lambda texts: texts[0])
def test_all_texts_of_a_peer_are_read_as_the_same_peer(texts):
    assert {PeerId.parse(text) for text in texts} == {PeerId.parse(texts[0])}
    assert str(PeerId.parse(texts[-1])) == texts[0]


@given(peer_ids)
def test_every_peer_id_is_read_back_from_its_text_and_its_cid(peer_id):
    cid = base64.b32encode(b"\x01\x72" + peer_id.multihash).decode().rstrip("=").lower()
    assert PeerId.parse(str(peer_id)) == PeerId.parse(f"b{cid}") == PeerId(peer_id.multihash) == peer_id


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda vector: vector["type"])
def test_a_short_key_is_its_own_hash_and_a_long_one_is_hashed(vector):
    key = PublicKey.from_bytes(bytes.fromhex(vector["public"]))
    peer_id = PeerId.from_public_key(key)
    if key.type in {KeyType.ED25519, KeyType.SECP256K1}:
        assert str(peer_id).startswith({KeyType.ED25519: "12D3KooW", KeyType.SECP256K1: "16Uiu2HA"}[key.type])
    else:
        assert str(peer_id).startswith("Qm")


def test_an_id_of_the_specification_holds_an_ed25519_key():
    peer_id = PeerId.parse("12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA")
    key = PublicKey.from_bytes(peer_id.multihash[2:])
    assert key.type is KeyType.ED25519
    assert PeerId.from_public_key(key) == peer_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "Qm",
        "QmxoHT6iViN5xAjoz1VZ553cL31U9F94ht3QvWR1FrEbZY",  # a digest of more than 32 bytes
        TEXTS[0][:-1],
        TEXTS[0].replace("Q", "0", 1),
        TEXTS[0][:20] + "0" + TEXTS[0][21:],  # 0 is no digit of base58
        "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",  # a CID of another codec
        "b0fzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe",
        TEXTS[1] + "a",
        "k!",
        "1" * 5_000,
        "b" + "a" * 5_000,
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(IdentityError):
        PeerId.parse(text)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x12", b"\x12\x20" + bytes(31), b"\x13\x20" + bytes(32), b"\0\x2b" + bytes(43), b"\0\0", b"\0\x05abc"],
)
def test_other_multihashes_are_refused(data):
    with pytest.raises(IdentityError, match="no peer id"):
        PeerId(data)
