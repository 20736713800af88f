"""Settings of a participant: topics, keys, and options of a profile and in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairway.cli._settings import load_options, shared_key
from fairway.errors import ConfigurationError
from fairway.options import Profile, ReliableChannelOptions


@pytest.mark.parametrize("text", ["", "abc", "zz" * 32, "ab" * 16])
def test_a_wrong_key_raises_without_repeating_it(text: str):
    with pytest.raises(ConfigurationError) as error:
        shared_key(text)
    assert "64" in str(error.value)
    assert not text or text not in str(error.value)


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "text"])
def test_options_in_json_overlay_the_profile(tmp_path: Path, is_file: bool):
    text = json.dumps({"max_retry_attempts": 3, "sds": {"repair": {"t_min_ms": 7}}})
    (tmp_path / "options.json").write_text(text)
    options = load_options(str(tmp_path / "options.json") if is_file else text, profile=Profile.LOGOS)
    assert (options.max_retry_attempts, options.sds.repair.t_min_ms) == (3, 7)
    assert options.sds.repair.t_max_ms == ReliableChannelOptions.logos().sds.repair.t_max_ms
    assert options.profile is Profile.LOGOS


def test_options_may_name_the_profile():
    assert load_options('{"profile": "logos"}') == ReliableChannelOptions.logos()
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        load_options('{"profile": "logos"}', profile=Profile.WAKU)


@pytest.mark.parametrize("address", ["/ip4/127.0.0.1/tcp/60000", "http://localhost:8645"])
@pytest.mark.parametrize("profile", Profile)
def test_on_one_machine_acknowledgements_arrive_within_seconds(address: str, profile: Profile):
    options, usual = load_options(node=address, profile=profile), load_options(profile=profile)
    assert options.retry_interval_ms is not None
    assert options.retry_interval_ms <= 5_000
    assert (
        options.retry_interval_ms * options.max_retry_attempts
        == (usual.retry_interval_ms or 30_000) * usual.max_retry_attempts
    )
    assert load_options(node="/dns4/far.example.org/tcp/60000", profile=profile) == usual


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{no json", "is not JSON"),
        ("nowhere.json", "nowhere.json cannot be read"),
        ('{"retry_intervall_ms": 1}', "did you mean retry_interval_ms"),
        ('{"sds": {"repair": {"t_min": 1}}}', "sds.repair.t_min"),
        ('{"sds": 5}', "sds"),
        ('{"retry_interval_ms": "soon"}', "must be of type int"),
        ('{"profile": "walu"}', "'waku', 'logos'"),
    ],
)
def test_wrong_options_raise_with_the_reason(text: str, told: str):
    with pytest.raises(ConfigurationError) as error:
        load_options(text)
    assert told in str(error.value)
