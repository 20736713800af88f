"""Options say what is wrong with them, and every event is known by name."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from fairway import events
from fairway.errors import ConfigurationError
from fairway.events import EVENT_NAMES, Event, MessageReceived
from fairway.options import (
    IdRule,
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
        (lambda: SegmentationConfig(segment_size_bytes=0), "segment_size_bytes must be at least 1, not 0"),
        (lambda: SegmentationConfig(parity_rate=1.5), r"parity_rate must lie in 0\.\.1, not 1\.5"),
        (lambda: SegmentationConfig(parity_rate=-0.1), "parity_rate must lie in"),
        (lambda: SegmentationConfig(max_total_segments=0), r"max_total_segments must lie in 1\.\.65536, not 0"),
        (lambda: SegmentationConfig(max_message_size_bytes=0), "max_message_size_bytes must be at least 1"),
        (lambda: SegmentationConfig(reassembly_timeout_ms=0), "reassembly_timeout_ms must be positive"),
        (lambda: SegmentationConfig(max_sets_per_sender=0), "max_sets_per_sender must be at least 1"),
        (lambda: SegmentationConfig(max_buffered_bytes_per_sender=1), "must hold at least one segment"),
        (lambda: RepairConfig(t_min_ms=2, t_max_ms=1), "0 <= t_min_ms <= t_max_ms"),
        (lambda: RepairConfig(response_groups=-1), "response_groups must not be negative"),
        (lambda: SdsConfig(causal_history_size=-1), "causal_history_size must not be negative"),
        (lambda: SdsConfig(bloom_capacity=0), "bloom_capacity must be at least 1"),
        (lambda: SdsConfig(bloom_error_rate=1.0), "bloom_error_rate must lie between 0 and 1"),
        (lambda: SdsConfig(possible_acks_threshold=0), "possible_acks_threshold must be at least 1"),
        (lambda: RateLimitConfig(epoch_ms=0), "epoch_ms must be positive, not 0"),
        (lambda: RateLimitConfig(approached_threshold=0.0), "approached_threshold must lie in"),
        (lambda: RateLimitConfig(enabled=True), "an enabled rate limit needs messages_per_epoch"),
        (lambda: ReliableChannelOptions(sync_min_interval_ms=-1), "sync_min_interval_ms must not be negative"),
        (lambda: ReliableChannelOptions(retry_interval_ms=-1), "retry_interval_ms must not be negative"),
        (lambda: ReliableChannelOptions(max_retry_attempts=-1), "max_retry_attempts must not be negative"),
        (lambda: ReliableChannelOptions(retrieve_frequency_ms=-1), "retrieve_frequency_ms must not be negative"),
        (lambda: ReliableChannelOptions(sweep_in_buf_interval_ms=0), "sweep_in_buf_interval_ms must be positive"),
    ],
)
def test_an_option_that_cannot_work_fails_where_it_is_written_and_says_why(make, text):
    with pytest.raises(ConfigurationError, match=text):
        make()
    # Whoever expects a plain ValueError of a wrong argument gets one.
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: SegmentationConfig(parity_rate=0.0),
        lambda: SegmentationConfig(parity_rate=1.0),
        lambda: RepairConfig(t_min_ms=0, t_max_ms=0),
        lambda: SdsConfig(causal_history_size=0),
        lambda: RateLimitConfig(enabled=True, messages_per_epoch=0),
        lambda: ReliableChannelOptions(
            sync_min_interval_ms=0, retry_interval_ms=0, max_retry_attempts=0, retrieve_frequency_ms=0
        ),
    ],
)
def test_values_at_the_edge_are_allowed(make):
    make()


def test_the_defaults_are_those_of_the_seeds():
    options = ReliableChannelOptions()
    assert options == ReliableChannelOptions.waku()
    assert (options.sync_min_interval_ms, options.retry_interval_ms, options.max_retry_attempts) == (30_000, 30_000, 10)
    assert (options.retrieve_frequency_ms, options.sweep_in_buf_interval_ms) == (10_000, 5_000)
    assert (options.query_on_connect, options.auto_start) == (True, True)
    assert (options.sds.causal_history_size, options.sds.bloom_capacity) == (2, 10_000)
    assert (options.sds.bloom_error_rate, options.sds.possible_acks_threshold) == (0.001, 2)
    assert (options.segmentation.segment_size_bytes, options.segmentation.max_message_size_bytes) == (102_400, 2**20)
    assert options.rate_limit.epoch_ms == 600_000
    assert ReliableChannelOptions.js_waku().sds.causal_history_size == 200


def test_the_logos_profile_has_the_defaults_of_its_specification():
    options = ReliableChannelOptions.logos()
    assert options.profile is Profile.LOGOS
    assert (options.retry_interval_ms, options.max_retry_attempts) == (5_000, 5)
    assert options.sds.id_rule is IdRule.KECCAK_TIMESTAMP
    assert options.segmentation.parity_rate == 0
    # An acknowledgement rides on a sync message at the latest: it must come before the retries are exhausted.
    assert options.sync_min_interval_ms < options.retry_interval_ms


def test_every_option_is_explained():
    for options in (SegmentationConfig, RepairConfig, SdsConfig, RateLimitConfig, ReliableChannelOptions):
        source = __import__("inspect").getsource(options)
        for field in dataclasses.fields(options):
            declaration, _, rest = source.partition(f"    {field.name}:")
            assert rest.split("\n", 1)[1].lstrip().startswith('"""'), f"{options.__name__}.{field.name}"
            assert declaration


def test_every_event_has_names_and_every_name_belongs_to_one_event():
    assert set(EVENT_NAMES) == set(typing.get_args(Event))
    names = [name for names in EVENT_NAMES.values() for name in names]
    assert len(names) == len(set(names))
    assert all(EVENT_NAMES.values())


def test_the_events_of_the_seeds_are_there_under_the_seeds_words():
    names = {name for names in EVENT_NAMES.values() for name in names}
    assert names >= {
        "sending-message",
        "message-sent",
        "message-possibly-acknowledged",
        "message-acknowledged",
        "sending-message-irrecoverable-error",
        "message-received",
        "irretrievable-message",
        "ephemeral-message-dropped",
        "reliable:message:received",
        "reliable:message:sent",
        "reliable:message:delivered",
        "reliable:message:send-error",
        "reliable:message:delivery-error",
    }


def test_events_are_values():
    for event in typing.get_args(Event):
        assert dataclasses.is_dataclass(event)
        assert event.__dataclass_params__.frozen
        assert hasattr(event, "__slots__")
        assert event.__module__ == events.__name__


def test_a_received_message_is_its_payload():
    event = MessageReceived(
        message_id="m",
        sender_id="alice",
        channel_id="harbour",
        content_topic="/a/1/b/proto",
        payload=b"hello",
        timestamp_ns=0,
        message_hashes=(),
        sds_ids=(),
    )
    assert bytes(event) == b"hello"
