import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.relay_shards import (
    RelayShards,
    decode_bit_vector,
    decode_relay_shards,
    encode_bit_vector,
    encode_index_list,
    relay_shards_entry,
)

BIT_ORDERS = ["node", "js-waku", "specification"]

clusters = st.integers(0, 65_535)
shards = st.integers(0, 1_023)
short_lists = st.builds(RelayShards, cluster_id=clusters, shards=st.frozensets(shards, max_size=70))


EXAMPLE = RelayShards(cluster_id=16, shards=frozenset({13, 14, 45}))


@pytest.mark.parametrize(
    ("bit_order", "vector"),
    [
        # The example of RELAY-SHARDING, "Bit Vector": shard 0 is the right-most bit.
        ("specification", "0010" + "00" * 122 + "200000006000"),
        # Shard 13 is bit 5 of byte 1, counted from the lowest bit, and from the highest.
        ("node", "0010" + "006000000020" + "00" * 122),
        ("js-waku", "0010" + "000600000004" + "00" * 122),
    ],
)
def test_the_bits_of_a_vector_stand_where_each_implementation_puts_them(bit_order, vector):
    assert encode_bit_vector(EXAMPLE, bit_order).hex() == vector
    assert decode_bit_vector(bytes.fromhex(vector), bit_order) == EXAMPLE
    assert decode_relay_shards(bytes.fromhex(vector), bit_order) == EXAMPLE


@given(short_lists)
def test_any_index_list_decodes_back(relay_shards):
    assert decode_relay_shards(encode_index_list(relay_shards)) == relay_shards


@given(short_lists, st.sampled_from(BIT_ORDERS))
def test_any_bit_vector_decodes_back(relay_shards, bit_order):
    encoded = encode_bit_vector(relay_shards, bit_order)
    assert len(encoded) == 130
    assert decode_relay_shards(encoded, bit_order) == relay_shards


@pytest.mark.parametrize(("count", "key", "size"), [(0, "rs", 3), (63, "rs", 129), (64, "rsv", 130)])
def test_a_record_has_the_index_list_below_64_shards_and_else_the_bit_vector(count, key, size):
    relay_shards = RelayShards(cluster_id=1, shards=frozenset(range(count)))
    found_key, value = relay_shards_entry(relay_shards)
    assert (found_key, len(value)) == (key, size)
    assert decode_relay_shards(value) == relay_shards


@pytest.mark.parametrize(
    ("encoded", "problem"),
    [
        ("", "at least 3 bytes, not 0"),
        ("0001", "at least 3 bytes, not 2"),
        ("000101", "1 shards has 5 bytes, not 3"),
        ("00010100", "1 shards has 5 bytes, not 4"),
        ("0001000000", "0 shards has 3 bytes, not 5"),
        ("0001010400", "must lie in 0..1023, not 1024"),
    ],
)
def test_a_malformed_index_list_is_a_decode_error(encoded, problem):
    with pytest.raises(DecodeError, match=problem):
        decode_relay_shards(bytes.fromhex(encoded))


@pytest.mark.parametrize("size", [0, 129, 131])
def test_a_bit_vector_of_another_length_is_a_decode_error(size):
    with pytest.raises(DecodeError, match=f"130 bytes, not {size}"):
        decode_bit_vector(bytes(size))


@pytest.mark.parametrize(("cluster_id", "listed"), [(-1, set()), (65_536, set()), (0, {-1}), (0, {1, 1_024})])
def test_a_cluster_or_shard_that_does_not_exist_is_refused(cluster_id, listed):
    with pytest.raises(ConfigurationError, match="must lie in 0"):
        RelayShards(cluster_id=cluster_id, shards=frozenset(listed))
