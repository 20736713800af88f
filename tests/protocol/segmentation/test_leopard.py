import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import ErasureCodeError
from fairway.protocol.segmentation import leopard

BLOCK = leopard.SHARD_ALIGNMENT


def shards_of(k, size=BLOCK, seed=""):
    return [hashlib.shake_128(f"{seed}{i}".encode()).digest(size) for i in range(k)]


def xor(shards):
    return reduce(np.bitwise_xor, (np.frombuffer(shard, np.uint8) for shard in shards)).tobytes()


def without(shards, lost):
    return [None if index in lost else shard for index, shard in enumerate(shards)]


@pytest.mark.parametrize(
    ("k", "m", "digest"),
    [
        (9, 2, "89b1111824621f2f7e7c96d084f6b5c5a40f44cda2862c524cc4b762edbdbf1e"),
        (64, 32, "af2bdc40f42096d99913d80d07d0bd9681cb693c14863d18e9d34f19b51c4da2"),
        (128, 128, "fef677e7fc689765664fbd2145e8fcb1beaa5803a8ed7f07086562a8af3ab708"),
        (227, 29, "7ef7eab53ba76ad8b9aa34a98ca6ca51d8d6dc27745c99231462cd2c4178989b"),
    ],
)
def test_parity_of_a_counting_pattern_is_leopards(k, m, digest):
    data = [bytes(((i * 64 + j) * 37 + 11 + i * i) & 0xFF for j in range(64)) for i in range(k)]
    assert hashlib.sha256(b"".join(leopard.encode(data, m))).hexdigest() == digest


@pytest.mark.parametrize(("k", "m"), [(5, 2), (28, 4), (100, 13), (225, 28), (226, 29), (227, 29), (228, 28)])
def test_parity_for_fewer_shards_is_a_prefix_of_parity_for_the_next_power_of_two(k, m):
    data = shards_of(k)
    power = 1 << (m - 1).bit_length()
    assert leopard.encode(data, m) == leopard.encode(data, power)[:m]


@pytest.mark.parametrize(("k", "m"), [(4, 2), (12, 4), (100, 16), (225, 32), (228, 32)])
def test_the_xor_of_all_data_and_a_power_of_two_of_parity_is_zero(k, m):
    data = shards_of(k)
    assert xor([*data, *leopard.encode(data, m)]) == bytes(BLOCK)


@pytest.mark.parametrize(("k", "m", "zeros"), [(3, 2, 5), (11, 2, 1), (60, 9, 40), (225, 28, 3)])
def test_appended_shards_of_zeros_change_nothing(k, m, zeros):
    data = shards_of(k)
    assert leopard.encode([*data, *[bytes(BLOCK)] * zeros], m) == leopard.encode(data, m)


@pytest.mark.parametrize(("k", "m"), [(3, 2), (6, 3)])
def test_every_loss_that_leaves_as_many_shards_as_there_was_data_is_recovered(k, m):
    data = shards_of(k)
    shards = [*data, *leopard.encode(data, m)]
    for lost in (lost for count in range(m + 1) for lost in combinations(range(k + m), count)):
        left = without(shards, lost)
        assert leopard.recover(left[:k], left[k:]) == {index: data[index] for index in lost if index < k}


@st.composite
def losses(draw):
    k = draw(st.one_of(st.integers(1, 40), st.integers(200, 240)))
    m = draw(st.integers(1, min(k, 32)))
    lost = draw(st.sets(st.integers(0, k + m - 1), max_size=m))
    return k, m, draw(st.integers(1, 3)) * BLOCK, lost


@examples(0.6)
@given(losses())
def test_any_loss_within_the_parity_is_recovered(loss):
    k, m, size, lost = loss
    data = shards_of(k, size)
    left = without([*data, *leopard.encode(data, m)], lost)
    assert leopard.recover(left[:k], left[k:]) == {index: data[index] for index in lost if index < k}


@pytest.mark.parametrize(("k", "m"), [(11, 2), (28, 4), (40, 13), (226, 29)])
@pytest.mark.parametrize("size", [17 * BLOCK, 1_100 * BLOCK + BLOCK])
def test_shards_that_take_several_stripes_are_recovered_whatever_their_number(k, m, size):
    data = shards_of(k, size)
    parity = leopard.encode(data, m)
    for count in {1, 2, min(3, m), m}:
        lost = range(0, k, k // count)[:count]
        recovered = leopard.recover(without(data, lost), parity)
        assert recovered == {index: data[index] for index in lost}


def test_nothing_lost_needs_no_parity():
    assert leopard.recover(shards_of(3), [None]) == {}


def test_messages_of_many_shapes_are_coded_at_once_in_several_threads():
    shapes = [(11, 2), (28, 4), (11, 2), (40, 5)] * 6
    expected = {shape: leopard.encode(shards_of(shape[0], 4_096), shape[1]) for shape in shapes}
    with ThreadPoolExecutor(4) as pool:
        parities = list(pool.map(lambda shape: leopard.encode(shards_of(shape[0], 4_096), shape[1]), shapes))
    assert parities == [expected[shape] for shape in shapes]


@pytest.mark.parametrize(
    ("data", "parity_count", "told"),
    [
        ([], 1, "0 data and 1 parity"),
        ([], 0, "0 data and 0 parity"),
        (shards_of(3), 0, "at least 1 parity"),
        (shards_of(3), -1, "3 data and -1 parity"),
        (shards_of(3), 4, "at most as many as data shards"),
        ([bytes(BLOCK)] * 65_536, 1, "65536 in all"),
        ([b"", b""], 1, r"shards of \[0\] bytes"),
        ([bytes(63)] * 2, 1, "multiple of 64"),
        ([bytes(64), bytes(128)], 1, "one length"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_leopard_cannot_code_is_refused(data, parity_count, told):
    with pytest.raises(ErasureCodeError, match=told):
        leopard.encode(data, parity_count)


def test_shards_left_of_different_lengths_are_refused():
    with pytest.raises(ErasureCodeError, match="one length"):
        leopard.recover([None, bytes(64)], [bytes(128), None])
    with pytest.raises(ErasureCodeError, match="1 data and 2 parity"):
        leopard.recover([None], [bytes(64), None])
