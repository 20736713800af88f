"""What a member of another make says in a world is what others of its make would say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError
from fairway.options import BloomPolicy, Profile
from fairway.protocol.encryption import AesGcm
from fairway.protocol.sds.channel import MessageChannel
from fairway.simulation import SimulationPlan
from fairway.simulation.foreign import ForeignTongue


@pytest.mark.parametrize("profile", Profile)
def test_an_own_message_says_nothing_beyond_the_specifications_and_that_of_another_is_left_as_it_is(profile):
    now_ms, key = 1_760_000_000_000, AesGcm(bytes(32))
    made = MessageChannel("harbour", "zoe", now_ms=now_ms, profile=profile).send(b"hello", now_ms)
    made = replace(made, acknowledged_by=b"mark")
    tongue, codec = ForeignTongue("zoe", profile.codec, key), profile.codec
    foreign = codec.decode(tongue.decrypt(tongue.encrypt(codec.encode(made))))
    assert made.vouches
    assert foreign == replace(made, vouches=False, acknowledged_by=b"", bloom_filter=codec.no_bloom)
    others = codec.encode(replace(made, sender_id="alice"))
    assert ForeignTongue("zoe", codec, None).encrypt(others) == others


def test_where_each_message_must_have_a_filter_nobody_is_of_another_make():
    with pytest.raises(ConfigurationError, match="another than always"):
        SimulationPlan(foreign=1, bloom_policy=BloomPolicy.ALWAYS)
