"""`Composer`: makes the encrypted messages of one sender's payloads, with the protocol core of a live channel.

Invariant: the result depends only on the payloads, the options, the keys, and the state and time at the start of the
batch: a repetition makes the same bytes with the same ids. A payload results in all its messages or none; a refused
payload has no effect on the messages of others.

Citations have no retrieval hint: the hint is the hash of a WakuMessage, which gets its timestamp when it is sent.
Memory is bounded by one payload and a part of the log.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError, EmptyPayloadError, EncryptionError, FairwayError, MessageTooLargeError
from fairway.options import ReliableChannelOptions
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.outgoing.channel_state import ChannelState, open_channel, shortened
from fairway.protocol.encryption import Encryption, encrypt_at_once, waku_version_of
from fairway.protocol.segmentation.segmenter import OutgoingSegment, Segmenter, logical_message_id
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.topics import ContentTopic, autoshard, default_topic, pubsub_topic
from fairway.wire.waku_message import WakuMessage, encode_waku_message

KEPT_RECORDS: Final = 10_000
"""Messages that remain in the log after shortening; the log is shortened at twice as many."""
_LONGEST_WAIT_MS: Final = 366 * 86_400_000
"""Longest time between the batch and a message. A later time is a mistake, and would advance the channel's clock."""
_LATEST_STAMP_NS: Final = 2**62
"""A timestamp of the longest encoding on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A payload to send."""

    seq: int
    data: bytes
    content_topic: str | None = None
    """`default_topic` of the channel if None."""
    ephemeral: bool = False
    not_before_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """One encrypted SDS message, ready to be stamped and sent."""

    message: SdsMessage
    payload_id: str
    """Id of the logical message: SHA-256 of the payload."""
    order: int
    segment_count: int
    is_parity: bool
    content_topic: str
    pubsub_topic: str
    encrypted: bytes
    version: int
    meta: bytes | None
    ephemeral: bool
    release_ms: int
    """Earliest time to send the message, in Unix milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The pubsub topic and the encrypter of one content topic."""

    content_topic: str
    pubsub_topic: str
    encrypter: Encrypter


class Composer:
    """One sender in one channel, from the first payload of a batch to the last."""

    def __init__(
        self,
        channel_id: str,
        sender_id: str,
        options: ReliableChannelOptions,
        *,
        start_ms: int,
        keys: ChannelKeys | None = None,
        state: ChannelState | None = None,
        shard: int | None = None,
    ) -> None:
        """Begin at ``start_ms`` with a ``state`` (None: a new channel).

        ``shard`` is the network shard of all messages; None selects autosharding.

        Raises `ConfigurationError` for invalid names or options.
        """
        self._options = options
        self._keys = keys
        self._shard = shard
        self._sds = open_channel(channel_id, sender_id, options, state, start_ms)
        self._segmenter = Segmenter(options.segmentation, self._sds.profile.segments)
        self._meta = options.profile.marker
        self._places: dict[str, _Place] = {}
        self._now_ms = start_ms
        self._latest_ms = start_ms + _LONGEST_WAIT_MS

    def compose(self, payload: Payload) -> list[Composed]:
        """Return the messages of the next payload, in the order of sending.

        Raises `FairwayError` for a payload that cannot be sent: empty, too large, on an invalid topic, or without a
        key. The state of the composer is then unchanged.
        """
        place = self._place(payload.content_topic or default_topic(self._sds.channel_id))
        segments = self._segments(payload)
        now_ms = max(self._now_ms, payload.not_before_ms or 0)
        if now_ms > self._latest_ms:
            raise ConfigurationError(
                f"not_before_ms of {now_ms} is more than a year after the start of the batch; it is in milliseconds"
            )
        lamport, sequence, made = self._sds.lamport, self._sds.sequence, list[SdsMessage]()
        owed = self._sds.pending_citations.copy()
        try:
            composed = [self._composed(payload, place, segments, segment, now_ms, made) for segment in segments]
        except FairwayError:
            self._sds = shortened(self._sds, self._kept, without={message.message_id for message in made})
            self._sds.lamport, self._sds.sequence, self._sds.pending_citations = lamport, sequence, owed
            raise
        self._now_ms = now_ms
        # The journal is discarded, because a batch persists no channel state.
        self._sds.journal.drain()
        if self._sds.statistics().history >= 2 * self._kept:
            self._sds = shortened(self._sds, self._kept)
        return composed

    @property
    def _kept(self) -> int:
        return max(KEPT_RECORDS, 2 * self._options.sds.causal_history_size)

    def _segments(self, payload: Payload) -> tuple[OutgoingSegment, ...]:
        if not payload.data:
            raise EmptyPayloadError("an empty payload cannot be sent; give at least one byte")
        if not payload.ephemeral:
            return self._segmenter.split(payload.data).segments
        limit_bytes = self._options.segmentation.segment_size_bytes
        if len(payload.data) <= limit_bytes:
            if not self._options.profile.ephemeral_is_content:
                return (OutgoingSegment(content=payload.data, order=0, data_count=1, is_parity=False),)
            segments = self._segmenter.split(payload.data).segments
            if len(segments) == 1:
                return segments
        raise MessageTooLargeError(len(payload.data), limit_bytes, "ephemeral messages are never segmented")

    def _composed(
        self,
        payload: Payload,
        place: _Place,
        segments: tuple[OutgoingSegment, ...],
        segment: OutgoingSegment,
        now_ms: int,
        made: list[SdsMessage],
    ) -> Composed:
        if payload.ephemeral:
            message = self._sds.send_ephemeral(segment.content, now_ms)
        else:
            beside = _cited_by_first(made, segments, segment.order)
            message = self._sds.send(segment.content, now_ms, tracked=False, beside=beside)
            made.append(message)
        composed = Composed(
            message=message,
            payload_id=logical_message_id(payload.data),
            order=segment.order,
            segment_count=len(segments),
            is_parity=segment.is_parity,
            content_topic=place.content_topic,
            pubsub_topic=place.pubsub_topic,
            encrypted=place.encrypter.encrypt(self._sds.profile.codec.encode(message)),
            version=place.encrypter.waku_version,
            meta=self._meta,
            ephemeral=payload.ephemeral,
            release_ms=now_ms,
        )
        self._check_size(composed)
        return composed

    def _check_size(self, composed: Composed) -> None:
        message = WakuMessage(
            payload=composed.encrypted,
            content_topic=composed.content_topic,
            version=composed.version,
            timestamp_ns=_LATEST_STAMP_NS,
            meta=composed.meta,
            ephemeral=composed.ephemeral,
        )
        size, limit = len(encode_waku_message(message)), self._options.advanced.max_wire_message_bytes
        if size > limit:
            raise MessageTooLargeError(size, limit, "the network takes no larger message; use smaller segments")

    def _place(self, content_topic: str) -> _Place:
        place = self._places.get(content_topic)
        if place is None:
            ContentTopic.parse(content_topic)
            cluster_id, shard_count = self._options.cluster_id, self._options.shard_count
            place = self._places[content_topic] = _Place(
                content_topic=content_topic,
                pubsub_topic=autoshard(content_topic, cluster_id, shard_count)
                if self._shard is None
                else pubsub_topic(cluster_id, self._shard),
                encrypter=Encrypter(self._keys, self._sds.channel_id, content_topic),
            )
        return place


def _cited_by_first(
    made: list[SdsMessage], segments: tuple[OutgoingSegment, ...], order: int
) -> tuple[HistoryEntry, ...]:
    """Return the citations that a segment repeats from the first one, in case that is lost, as in a live channel."""
    if not 0 < order <= len(segments) - segments[0].data_count:
        return ()
    return made[0].causal_history


_PURPOSE: Final = b"fairway outgoing synthetic nonce v1"


class _Synthetic:
    """A source of bytes that depend only on a key and on the message to encrypt."""

    def __init__(self, key: bytes, context: bytes) -> None:
        self._key = hmac.digest(key, _PURPOSE + context, "sha256")
        self._seed: bytes | None = None
        self._count = 0

    def begin(self, plaintext: bytes) -> None:
        self._seed = hmac.digest(self._key, hashlib.sha256(plaintext).digest(), "sha256")
        self._count = 0

    def __call__(self, size: int) -> bytes:
        if self._seed is None:
            raise EncryptionError("there is no message to compute a nonce from")
        # Two draws for one message, such as padding and nonce, must differ.
        drawn = b""
        while len(drawn) < size:
            self._count += 1
            drawn += hmac.digest(self._seed, self._count.to_bytes(4, "big"), "sha256")
        return drawn[:size]


class Encrypter:
    """Encrypts the messages of one channel on one content topic, equal messages to equal bytes.

    With a random nonce, a repeated task would make another WakuMessage, with another hash, from the same SDS message.
    So the random bytes of a cipher (nonce, padding) are HMAC-SHA-256 over the plaintext, under a key derived from that
    of the channel, expanded as in HKDF-Expand (RFC 5869). This is the construction of SIV (RFC 5297).

    Invariant: nonces of different messages are as independent as random ones, so the bound on messages per key of
    `fairway.protocol.encryption.aead` holds, also beside participants that use random nonces.
    """

    def __init__(self, keys: ChannelKeys | None, channel_id: str, content_topic: str) -> None:
        """Use the newest key; raise `EncryptionError` if there are keys, but none for this channel."""
        self._source: _Synthetic | None = None
        self._cipher: Encryption | None = None
        if keys is not None:
            self._cipher = keys.cipher_for_sending(channel_id, content_topic, self._synthetic)
            if self._cipher is None:
                raise EncryptionError(
                    f"the key file has no key for the channel {channel_id!r} or its topic {content_topic}: add one, or "
                    "send the messages in clear in another batch, without --keys"
                )

    @property
    def waku_version(self) -> int:
        """Return the version that the WakuMessages carry."""
        return waku_version_of(self._cipher)

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return a message encrypted, or unchanged without keys; raise `EncryptionError` if encryption fails."""
        if self._cipher is None or self._source is None:
            return plaintext
        self._source.begin(plaintext)
        return encrypt_at_once(self._cipher, plaintext)

    def _synthetic(self, key: bytes, context: bytes) -> _Synthetic:
        self._source = _Synthetic(key, context)
        return self._source
