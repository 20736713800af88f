"""`Shared`: the objects that all parts of one channel use."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.options import ReliableChannelOptions
from fairway.protocol.encryption import Encryption, waku_version_of
from fairway.protocol.encryption.ciphering import Ciphering
from fairway.protocol.journal import Journal
from fairway.protocol.limits import LimitWatch
from fairway.protocol.network_times import NetworkTimes
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.protocol.signing import Signing
from fairway.protocol.statistics import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The options of a channel, its SDS state, its journal and its counters."""

    content_topic: str
    options: ReliableChannelOptions
    sds: MessageChannel
    segmenter: Segmenter
    ciphering: Ciphering
    signing: Signing | None
    waku_version: int
    """The version of WakuMessages that the encryption makes (14/WAKU2-MESSAGE)."""
    journal: Journal
    tally: Tally
    limits: LimitWatch
    times: NetworkTimes

    @classmethod
    def of(
        cls,
        channel_id: str,
        sender_id: str,
        content_topic: str,
        options: ReliableChannelOptions,
        encryption: Encryption | None,
        signing: Signing | None,
        now_ms: int,
    ) -> Shared:
        """Return the shared objects of a new channel."""
        journal = Journal()
        sds = MessageChannel(
            channel_id,
            sender_id,
            options.sds,
            now_ms=now_ms,
            profile=options.profile,
            segment_format=options.segment_format,
            journal=journal,
            max_missing=options.advanced.max_missing,
            signing=signing,
        )
        return cls(
            content_topic=content_topic,
            options=options,
            sds=sds,
            segmenter=Segmenter(options.segmentation, options.segment_format),
            ciphering=Ciphering(encryption),
            signing=signing,
            waku_version=waku_version_of(encryption),
            journal=journal,
            tally=Tally(),
            limits=LimitWatch(),
            times=NetworkTimes(options),
        )
