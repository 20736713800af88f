import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.wire.hashing import keccak256, murmur3_of_rows, murmur3_x86_32


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"\0\0\0\0", 0, 0x2362F9DE),
        (b"aaaa", 0x9747B28C, 0x5A97808A),
        (b"aaa", 0x9747B28C, 0x283E0130),
        (b"aa", 0x9747B28C, 0x5D211726),
        (b"a", 0x9747B28C, 0x7FA09EA6),
        (b"Hello, world!", 0x9747B28C, 0x24884CBA),
        (b"The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
    ],
)
def test_murmur3_gives_the_published_values(data, seed, expected):
    assert murmur3_x86_32(data, seed) == expected


def test_keccak_256_is_the_original_and_not_sha3():
    assert keccak256(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert keccak256(b"abc").hex() == "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"


@given(st.integers(0, 70), st.data())
def test_murmur3_of_many_texts_of_one_length_is_that_of_each(length, data):
    texts = data.draw(st.lists(st.binary(min_size=length, max_size=length), min_size=1, max_size=40))
    rows = np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), length)
    assert murmur3_of_rows(rows).tolist() == [murmur3_x86_32(text) for text in texts]
