"""Options say what is wrong with them, and every event is known by name."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from fairway.errors import ConfigurationError
from fairway.events import EVENT_NAMES, Event
from fairway.options import (
    Advanced,
    Delivery,
    Profile,
    RateLimitConfig,
    ReliableChannelOptions,
    RepairConfig,
    SdsConfig,
    SegmentationConfig,
)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: SegmentationConfig(parity_rate=1.5), r"parity_rate must lie in 0\.\.1, not 1\.5"),
        (lambda: SegmentationConfig(max_buffered_bytes=1), "must hold at least eight segments"),
        (lambda: RepairConfig(t_min_ms=2, t_max_ms=1), "0 <= t_min_ms <= t_max_ms"),
        (lambda: SdsConfig(bloom_error_rate=1.0), "bloom_error_rate must lie between 0 and 1"),
        (lambda: SdsConfig(possible_acks_threshold=0), "possible_acks_threshold must be at least 1"),
        (lambda: RateLimitConfig(approached_threshold=0.0), "approached_threshold must lie in"),
        (lambda: RateLimitConfig(enabled=True), "an enabled rate limit needs messages_per_epoch"),
        (lambda: ReliableChannelOptions(retry_interval_ms=-1), "retry_interval_ms must not be negative, not -1"),
        (lambda: ReliableChannelOptions(sweep_in_buf_interval_ms=0), "sweep_in_buf_interval_ms must be at least 1"),
        (lambda: ReliableChannelOptions(batch_ms=60_001), "batch_ms must be at most 60,000, a minute, not 60,001"),
        (lambda: Advanced(max_missing=0), "max_missing must be at least 1, not 0"),
        (lambda: Advanced(handling_retry_ms=-1), "handling_retry_ms must not be negative, not -1"),
        (lambda: ReliableChannelOptions(causal_history_size=-1), "causal_history_size must not be negative, not -1"),
        (lambda: ReliableChannelOptions(bloom_filter_size=0), "bloom_filter_size must be at least 1"),
    ],
)
def test_an_impossible_option_raises_with_the_reason(make, text):
    with pytest.raises(ConfigurationError, match=text):
        make()


def test_the_defaults_are_those_of_the_specifications():
    options = ReliableChannelOptions()
    assert options == ReliableChannelOptions.waku()
    assert options.max_retry_attempts == 10
    adaptive = (options.sync_min_interval_ms, options.retry_interval_ms, options.retrieve_frequency_ms)
    assert adaptive == (None, None, None)
    assert options.sweep_in_buf_interval_ms == 5_000
    assert (options.sds.causal_history_size, options.sds.bloom_capacity) == (2, 10_000)
    assert (options.sds.bloom_error_rate, options.sds.possible_acks_threshold) == (0.001, 2)
    assert (options.segmentation.segment_size_bytes, options.segmentation.max_message_size_bytes) == (102_400, 2**20)
    assert options.rate_limit.epoch_ms == 600_000
    assert ReliableChannelOptions.js_waku().sds.causal_history_size == 200


def test_the_logos_profile_has_the_defaults_of_its_specification():
    options = ReliableChannelOptions.logos()
    assert options.profile is Profile.LOGOS
    assert (options.retry_interval_ms, options.max_retry_attempts) == (5_000, 5)
    assert options.segmentation.parity_rate == 0


# The names of RELIABLE-CHANNEL-API


def test_the_names_of_the_specification_replace_the_sds_layer():
    options = ReliableChannelOptions(
        causal_history_size=200, bloom_filter_size=500, sds=SdsConfig(bloom_error_rate=0.1)
    )
    assert options.sds == SdsConfig(causal_history_size=200, bloom_capacity=500, bloom_error_rate=0.1)


def test_in_a_copy_the_names_of_the_specification_replace_the_sds_layer_until_set_to_none():
    options = ReliableChannelOptions(causal_history_size=200)
    assert dataclasses.replace(options, advanced=Advanced(max_missing=1)).sds.causal_history_size == 200
    assert dataclasses.replace(options, causal_history_size=3).sds.causal_history_size == 3
    new = SdsConfig(causal_history_size=5)
    assert dataclasses.replace(options, sds=new).sds.causal_history_size == 200
    assert dataclasses.replace(options, sds=new, causal_history_size=None).sds == new
    assert options.sds.causal_history_size == 200


# Options from a file


def test_a_mapping_gives_options_with_nested_layers_and_choices_by_text():
    options = ReliableChannelOptions.from_mapping(
        {
            "profile": "logos",
            "delivery": "arrival",
            "query_on_connect": False,
            "bloom_filter_size": None,
            "segmentation": {"parity_rate": 0, "segment_size_bytes": 1_000},
            "sds": {"repair": {"t_min_ms": 5}},
            "rate_limit": {"enabled": True, "messages_per_epoch": 3},
        }
    )
    assert options == ReliableChannelOptions(
        profile=Profile.LOGOS,
        delivery=Delivery.ARRIVAL,
        query_on_connect=False,
        segmentation=SegmentationConfig(parity_rate=0.0, segment_size_bytes=1_000),
        sds=SdsConfig(repair=RepairConfig(t_min_ms=5)),
        rate_limit=RateLimitConfig(enabled=True, messages_per_epoch=3),
    )
    assert isinstance(options.segmentation.parity_rate, float)


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        (
            {"retry_interval": 1},
            r"there is no option retry_interval; did you mean retry_interval_ms\? the options are profile, ",
        ),
        (
            {"sds": {"repair": {"t_mim_ms": 1}}},
            r"no option sds\.repair\.t_mim_ms; did you mean sds\.repair\.t_min_ms\?",
        ),
        ({"zzz": 1}, r"there is no option zzz; the options are profile, "),
        ({7: 1}, "there is no option 7; "),
        ({"retry_interval_ms": "30"}, r"retry_interval_ms must be of type int, not str \('30'\)"),
        ({"retry_interval_ms": True}, "retry_interval_ms must be of type int, not bool"),
        ({"retry_interval_ms": 1.5}, "retry_interval_ms must be of type int, not float"),
        ({"query_on_connect": 1}, "query_on_connect must be of type bool, not int"),
        ({"bloom_filter_size": "10"}, "bloom_filter_size must be of type int, not str"),
        ({"segmentation": {"parity_rate": "high"}}, r"segmentation\.parity_rate must be of type float, not str"),
        ({"profile": "carrier pigeon"}, "profile must be one of 'waku', 'logos', not 'carrier pigeon'"),
        ({"profile": []}, "profile must be one of"),
        ({"sds": 3}, "sds must be a mapping of names to values: 3"),
        ({"sds": {"bloom_capacity": 0}}, "bloom_capacity must be at least 1"),
        ("profile=logos", "options must be a mapping of names to values"),
    ],
)
def test_a_wrong_mapping_is_refused_with_the_name_of_the_option(mapping, text):
    with pytest.raises(ConfigurationError, match=text):
        ReliableChannelOptions.from_mapping(mapping)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ReliableChannelOptions, "profile"),
        (ReliableChannelOptions, "delivery"),
        (SdsConfig, "bloom_policy"),
    ],
)
def test_the_text_of_a_choice_is_refused_in_place_of_the_choice(kind, name):
    chosen = next(field.default for field in dataclasses.fields(kind) if field.name == name)
    with pytest.raises(ConfigurationError, match=rf"{name} must be one of .*{chosen}.*, not str"):
        kind(**{name: chosen.value})


def test_no_two_events_share_a_name():
    assert set(EVENT_NAMES) == set(typing.get_args(Event))
    assert len(set(EVENT_NAMES.values())) == len(EVENT_NAMES)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bloom_filter_size": 100_000},
        {"causal_history_size": 2_000},
        {"segmentation": {"segment_size_bytes": 150_016}},
        {"advanced": Advanced(max_wire_message_bytes=100_000)},
    ],
)
def test_options_whose_full_segment_exceeds_the_message_limit_raise(wrong):
    with pytest.raises(ConfigurationError, match=r"at most .* may leave .* smaller bloom_filter_size"):
        ReliableChannelOptions.from_mapping(wrong)
