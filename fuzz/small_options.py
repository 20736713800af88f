"""Options that are small enough for short inputs to reach every bound and every timeout."""

from __future__ import annotations

from typing import Final

from fairway.options import (
    Advanced,
    Profile,
    RateLimitConfig,
    ReliableChannelOptions,
    RepairConfig,
    SdsConfig,
    SegmentationConfig,
)

LONG_MS: Final = 45_000
"""Longer than anything is waited for under these options."""

SEGMENTATION: Final = SegmentationConfig(
    segment_size_bytes=192,  # LIP-243 needs 128 beside an aligned chunk of 64
    parity_rate=0.5,
    max_message_size_bytes=4_096,
    reassembly_timeout_ms=20_000,
    max_buffered_bytes=16_384,
)
"""Of the reassembler and of whole channels."""


def small_options(profile: Profile) -> ReliableChannelOptions:
    """Return the options of a channel."""
    return ReliableChannelOptions(
        profile=profile,
        sync_min_interval_ms=5_000,
        retry_interval_ms=4_000,
        max_retry_attempts=2,
        advanced=Advanced(max_received_bytes=8_192),
        segmentation=SEGMENTATION,
        sds=SdsConfig(
            causal_history_size=3,
            bloom_capacity=16,
            bloom_error_rate=0.01,
            lost_timeout_ms=30_000,
            max_incoming_buffer=6,
            repair=RepairConfig(t_min_ms=1_000, t_max_ms=4_000),
        ),
        rate_limit=RateLimitConfig(epoch_ms=10_000, max_queued=16),
    )
