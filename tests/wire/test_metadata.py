import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.wire.metadata import WakuMetadata, decode_metadata, encode_metadata

uint32 = st.integers(0, 2**32 - 1)
metadata_values = st.builds(WakuMetadata, cluster_id=uint32, shards=st.lists(uint32).map(tuple))


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


def test_an_absent_cluster_and_cluster_0_differ():
    assert decode_metadata(b"") == WakuMetadata()
    assert decode_metadata(b"\x08\x00") == WakuMetadata(cluster_id=0)
    assert encode_metadata(WakuMetadata(cluster_id=0)) == b"\x08\x00"


def test_metadata_without_a_cluster_is_refused():
    with pytest.raises(ConfigurationError, match="cluster_id"):
        encode_metadata(WakuMetadata(shards=(1,)))
