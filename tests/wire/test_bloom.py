from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.wire.bloom import (
    NIM_BLOOM,
    WAKU_BLOOM,
    BloomFilter,
    BloomParameters,
    chance_of_false_hit,
)

DEFAULT = BloomParameters.of(10_000, 0.001)
message_ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


def ids(prefix, count):
    return [sha256(f"{prefix}-{i}".encode()).hexdigest() for i in range(count)]


@pytest.mark.parametrize("wire", [WAKU_BLOOM, NIM_BLOOM], ids=["waku", "nim"])
@given(texts=st.lists(message_ids, max_size=20), count=st.integers(0, 80))
def test_ids_put_in_together_give_the_filter_of_those_put_in_one_by_one(wire, texts, count):
    together, single = BloomFilter(DEFAULT, wire), BloomFilter(DEFAULT, wire)
    texts = [*texts, *ids("m", count)]
    positions = together.insert_all(texts)
    assert positions.tolist() == [position for text in texts for position in single.insert(text)]
    assert bytes(together) == bytes(single)


def test_the_default_filter_has_10_hash_functions_and_15_bits_an_element():
    assert (DEFAULT.hash_count, DEFAULT.bit_count, DEFAULT.byte_length) == (10, 150_000, 18_752)


@pytest.mark.parametrize(
    ("hash_count", "error_rate", "bits"),
    [(2, 0.1, 6), (7, 0.01, 10), (7, 0.001, 16), (2, 0.01, 19), (3, 0.05, 7), (1, 0.5, 2), (12, 1e-5, 25)],
)
def test_a_chosen_number_of_hash_functions_takes_its_bits_from_nims_table(hash_count, error_rate, bits):
    assert BloomParameters.of(100, error_rate, hash_count).bit_count == 100 * bits


@pytest.mark.parametrize(
    ("capacity", "error_rate", "hash_count"),
    [(100, 0.001, 13), (100, 0.001, 0), (100, 1e-5, 2), (0, 0.001, None), (100, 0.0, None), (100, 1.0, None)],
)
def test_parameters_that_no_filter_can_have_are_refused(capacity, error_rate, hash_count):
    with pytest.raises(ConfigurationError):
        BloomParameters.of(capacity, error_rate, hash_count)


@given(st.integers(1, 2_000), st.floats(0.0001, 0.9), st.sampled_from([WAKU_BLOOM, NIM_BLOOM]), st.sets(message_ids))
def test_inserted_ids_are_found_also_after_the_wire(capacity, error_rate, wire, inserted):
    parameters = BloomParameters.of(capacity, error_rate)
    bloom = BloomFilter(parameters, wire)
    expected = {position for message_id in inserted for position in bloom.insert(message_id)}
    received = BloomFilter(parameters, wire, bytes(bloom))
    assert received.set_positions() == sorted(expected)
    assert all(message_id in received for message_id in inserted)


def test_a_filter_is_not_made_of_too_few_bytes_and_ignores_further_ones():
    with pytest.raises(ConfigurationError, match="18752"):
        BloomFilter(DEFAULT, bits=bytes(18_751))
    assert bytes(BloomFilter(DEFAULT, bits=bytes(18_752) + b"more")) == bytes(18_752)


def test_the_probability_of_a_false_hit_is_the_configured_one_at_capacity():
    parameters = BloomParameters.of(1_000, 0.001)
    bloom = BloomFilter(parameters)
    assert chance_of_false_hit(bytes(bloom), parameters) == 0
    for message_id in ids("fill", 1_000):
        bloom.insert(message_id)
    assert 0.0004 < chance_of_false_hit(bytes(bloom), parameters) < 0.0015
    assert chance_of_false_hit(b"\xff" * 10**6, parameters) >= 1
