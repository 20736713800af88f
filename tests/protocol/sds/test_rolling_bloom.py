import random
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.protocol.sds.rolling_bloom import RollingBloom
from fairway.wire.bloom import NIM_BLOOM, WAKU_BLOOM, BloomFilter, BloomParameters


def ids(prefix, count):
    return [sha256(f"{prefix}-{n}".encode()).hexdigest() for n in range(count)]


@pytest.mark.parametrize("wire", [WAKU_BLOOM, NIM_BLOOM], ids=["waku", "nim"])
def test_until_it_is_full_it_is_a_plain_filter(wire):
    parameters = BloomParameters.of(500, 0.001)
    rolling, plain = RollingBloom(parameters, wire), BloomFilter(parameters, wire)
    for message_id in ids("m", 500):
        rolling.insert(message_id)
        plain.insert(message_id)
    assert rolling.words() == bytes(plain)
    assert len(rolling) == 500


@given(st.integers(1, 40), st.integers(0, 150), st.sampled_from([WAKU_BLOOM, NIM_BLOOM]))
def test_it_never_holds_more_than_its_capacity_and_always_the_newest(capacity, count, wire):
    parameters = BloomParameters.of(capacity, 0.01)
    rolling = RollingBloom(parameters, wire)
    inserted = ids("m", count)
    for number, message_id in enumerate(inserted, start=1):
        rolling.insert(message_id)
        assert min(number, int(capacity * 0.8)) <= len(rolling) <= capacity
    expected = BloomFilter(parameters, wire)
    for newest in inserted[count - len(rolling) :]:
        expected.insert(newest)
    assert rolling.words() == bytes(expected)


def test_false_positives_stay_at_what_was_asked_for_however_many_messages_pass():
    rng = random.Random(7)
    rolling = RollingBloom(BloomParameters.of(2_000, 0.01), WAKU_BLOOM)
    for _ in range(11_999):
        rolling.insert(rng.randbytes(16).hex())
    assert len(rolling) > 1_900, "the worst moment: just before it is rolled over"
    hits = sum(rng.randbytes(16).hex() in rolling for _ in range(20_000))
    # Nominal 1 %, that is 200; six standard deviations are 85. Bits per element are rounded up, so it is less.
    assert 40 < hits < 285
