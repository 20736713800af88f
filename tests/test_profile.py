"""A profile carries what distinguishes its wire, and is one and the same object wherever it arrives."""

from __future__ import annotations

import copy
import pickle

import pytest

from fairway.options import Profile
from fairway.wire.sds import NIM_SDS, WAKU_SDS
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS


def test_each_profile_has_the_codecs_of_its_implementations():
    assert (Profile.WAKU.codec, Profile.WAKU.segments) == (WAKU_SDS, WAKU_SEGMENTS)
    assert (Profile.LOGOS.codec, Profile.LOGOS.segments) == (NIM_SDS, LIP_243)


@pytest.mark.parametrize("profile", Profile)
def test_a_profile_survives_pickling_and_copying_as_the_same_object(profile: Profile):
    assert Profile(profile.value) is profile
    assert pickle.loads(pickle.dumps(profile)) is profile
    assert copy.deepcopy(profile) is profile


def test_only_a_known_marker_makes_a_message_one_of_the_logos_profile():
    assert Profile.of_marker(Profile.LOGOS.marker) is Profile.LOGOS
    assert {Profile.of_marker(meta) for meta in (None, b"", b"RELIABLE-CHANNEL-API/2")} == {Profile.WAKU}
