"""Settings of a participant: topics, keys, and options from a profile, a file and single knobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairway.cli._settings import load_options, shared_key
from fairway.errors import ConfigurationError
from fairway.options import BloomPolicy, Profile, ReliableChannelOptions
from fairway.wire.topics import default_topic


def written(folder: Path, content: Any) -> Path:
    path = folder / "options.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("channel_id", ["", "a/b"])
def test_a_channel_id_that_fits_in_no_topic_raises_and_names_the_option(channel_id: str):
    with pytest.raises(ConfigurationError, match="--topic"):
        default_topic(channel_id)


@pytest.mark.parametrize("text", ["", "abc", "zz" * 32, "ab" * 16])
def test_a_wrong_key_raises_without_repeating_it(text: str):
    with pytest.raises(ConfigurationError) as error:
        shared_key(text)
    assert "64" in str(error.value)
    assert not text or text not in str(error.value)


def test_a_file_of_options_overlays_the_profile(tmp_path: Path):
    file = written(tmp_path, {"max_retry_attempts": 3, "sds": {"repair": {"t_min_ms": 7}}})
    options = load_options(profile=Profile.LOGOS, file=file)
    assert (options.max_retry_attempts, options.sds.repair.t_min_ms) == (3, 7)
    assert options.sds.repair.t_max_ms == ReliableChannelOptions.logos().sds.repair.t_max_ms
    assert options.profile is Profile.LOGOS


def test_a_file_of_options_may_name_the_profile(tmp_path: Path):
    options = load_options(file=written(tmp_path, {"profile": "logos"}))
    assert options == ReliableChannelOptions.logos()


def test_two_different_profiles_raise(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        load_options(profile=Profile.WAKU, file=written(tmp_path, {"profile": "logos"}))


def test_single_options_take_precedence_over_the_file(tmp_path: Path):
    file = written(tmp_path, {"retry_interval_ms": 1, "sync_min_interval_ms": 2})
    options = load_options(file=file, retry_interval_ms=10, max_message_bytes=20)
    assert (options.retry_interval_ms, options.sync_min_interval_ms) == (10, 2)
    assert options.segmentation.max_message_size_bytes == 20
    assert load_options(sync_interval_ms=30).sync_min_interval_ms == 30
    assert load_options(file=file, gap_timeout_ms=40).sds.gap_timeout_ms == 40
    file = written(tmp_path, {"sds": {"bloom_policy": "never"}})
    assert load_options(file=file).sds.bloom_policy is BloomPolicy.NEVER
    assert load_options(file=file, bloom_policy=BloomPolicy.ALWAYS).sds.bloom_policy is BloomPolicy.ALWAYS


@pytest.mark.parametrize("address", ["/ip4/127.0.0.1/tcp/60000", "http://localhost:8645"])
@pytest.mark.parametrize("profile", Profile)
def test_on_one_machine_a_store_is_queried_before_a_retry(address: str, profile: Profile):
    options, usual = load_options(node=address, profile=profile), load_options(profile=profile)
    assert 3 * options.retrieve_frequency_ms <= options.retry_interval_ms <= 5_000
    assert options.sync_min_interval_ms <= 5_000
    assert options.retry_interval_ms * options.max_retry_attempts == usual.retry_interval_ms * usual.max_retry_attempts
    assert load_options(node="/dns4/far.example.org/tcp/60000", profile=profile) == usual


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no json", "is not JSON"),
        ("[1]", "must hold a JSON object"),
        ({"retry_intervall_ms": 1}, "did you mean retry_interval_ms"),
        ({"sds": {"repair": {"t_min": 1}}}, "sds.repair.t_min"),
        ({"sds": 5}, "sds"),
        ({"retry_interval_ms": "soon"}, "must be of type int"),
        ({"profile": "walu"}, "'waku', 'logos'"),
    ],
)
def test_a_wrong_file_of_options_raises_with_the_reason(tmp_path: Path, content: Any, told: str):
    with pytest.raises(ConfigurationError) as error:
        load_options(file=written(tmp_path, content))
    assert told in str(error.value)


def test_a_missing_file_of_options_raises(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_options(file=tmp_path / "nowhere")
