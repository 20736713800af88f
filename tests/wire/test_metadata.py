import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.metadata import METADATA_PROTOCOL, WakuMetadata, decode_metadata, encode_metadata

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "waku.json").read_text())["metadata"]

uint32 = st.integers(0, 2**32 - 1)
metadata_values = st.builds(WakuMetadata, cluster_id=uint32, shards=st.lists(uint32).map(tuple))


def test_the_protocol_id_is_that_of_js_waku():
    assert VECTORS["protocol_id"] == METADATA_PROTOCOL


@pytest.mark.parametrize("name", ["request_as_js_sends", "response_with_shards"])
def test_metadata_encodes_and_decodes_as_in_js_waku(name):
    vector = VECTORS[name]
    metadata = WakuMetadata(cluster_id=vector["clusterId"], shards=tuple(vector["shards"]))
    assert encode_metadata(metadata, also_packed=False).hex() == vector["encoded_hex"]
    assert decode_metadata(bytes.fromhex(vector["encoded_hex"])) == metadata


def test_shards_are_written_unpacked_in_field_2_and_packed_in_field_3_as_nodes_do():
    metadata = WakuMetadata(cluster_id=1, shards=(0, 1, 300))
    assert encode_metadata(metadata).hex() == "0801" + "1000" + "1001" + "10ac02" + "1a040001ac02"


FORMS = {
    "2 unpacked": "1000" + "1001" + "10ac02",
    "2 packed": "1204" + "0001ac02",
    "2 partly packed": "1000" + "1203" + "01ac02",
    "3 packed": "1a04" + "0001ac02",
    "3 unpacked": "1800" + "1801" + "18ac02",
    "3 beside another 2": "1007" + "1a04" + "0001ac02",
}


@pytest.mark.parametrize("shards", FORMS.values(), ids=FORMS)
def test_every_form_of_the_shards_is_read(shards):
    assert decode_metadata(bytes.fromhex("0801" + shards)) == WakuMetadata(cluster_id=1, shards=(0, 1, 300))


@given(metadata_values, st.booleans())
def test_any_metadata_survives_the_wire(metadata, also_packed):
    unknown_field_1000 = bytes.fromhex("c23e03616263")
    encoded = encode_metadata(metadata, also_packed=also_packed) + unknown_field_1000
    assert decode_metadata(encoded) == metadata


def test_an_absent_cluster_and_cluster_0_are_told_apart():
    assert decode_metadata(b"") == WakuMetadata()
    assert decode_metadata(b"\x08\x00") == WakuMetadata(cluster_id=0)
    assert encode_metadata(WakuMetadata(cluster_id=0)) == b"\x08\x00"


def test_a_node_must_tell_its_cluster():
    with pytest.raises(ConfigurationError, match="cluster_id"):
        encode_metadata(WakuMetadata(shards=(1,)))


@pytest.mark.parametrize(
    "metadata", [WakuMetadata(cluster_id=2**32), WakuMetadata(cluster_id=1, shards=(-1,))], ids=repr
)
def test_a_value_that_a_field_cannot_hold_is_the_callers_error(metadata):
    with pytest.raises(ConfigurationError, match="cannot be encoded"):
        encode_metadata(metadata)


@pytest.mark.parametrize("encoded", ["0a0101", "1501000000", "190100000000000000"])
def test_a_known_field_of_another_wire_type_counts_as_unknown(encoded):
    assert decode_metadata(bytes.fromhex(encoded)) == WakuMetadata()


@pytest.mark.parametrize("encoded", ["08", "1205", "120180", "1280"])
def test_what_is_cut_short_is_a_decode_error(encoded):
    with pytest.raises(DecodeError, match="not valid protobuf"):
        decode_metadata(bytes.fromhex(encoded))


def test_what_is_too_long_is_a_decode_error():
    with pytest.raises(DecodeError, match="at most 65536"):
        decode_metadata(bytes(65_537))
