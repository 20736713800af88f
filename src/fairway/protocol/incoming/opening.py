"""`Opener`: decrypts and decodes the WakuMessages of one channel (LIP-173, "Incoming message processing").

A transmission is a WakuMessage with its deterministic hash. `Opener` processes each transmission once, although nodes
push it twice and a store returns it again. A retransmission has another hash and is processed, because its sender may
need an acknowledgement.

Received bytes raise no exception: `Opener` counts and drops an unusable message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from fairway.errors import DecodeError, DecryptionError
from fairway.protocol.effects import AwaitCipher
from fairway.protocol.encryption import DecodedPayload
from fairway.protocol.encryption.epochs import MessageClosedError
from fairway.protocol.encryption.payload_v1 import PayloadCipher, PayloadKeyRing
from fairway.protocol.recent_hashes import RecentHashes
from fairway.protocol.shared import Shared
from fairway.units import NS_PER_MS
from fairway.wire.sds import SdsMessage
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, message_hash

_MAX_PROCESSED: Final = 10_000
"""Transmissions remembered. An older one is processed again, without effect."""
_EARLIEST_NS: Final = -(1 << 63)
_LATEST_NS: Final = (1 << 63) - 1
"""Bounds of a timestamp, an int64 (14/WAKU2-MESSAGE). The hash is undefined beyond them."""


class ReceivedWakuMessage(Struct, kw_only=True):
    """What remains of the WakuMessage that carried an SDS message."""

    message_hash: bytes
    """Its deterministic hash."""
    timestamp_ns: int
    meta: bytes | None
    is_ephemeral: bool
    """Whether it is marked as ephemeral (14/WAKU2-MESSAGE)."""
    from_store: bool
    """Whether a store returned it."""
    signer_key: bytes | None = None
    """Public key that signed its payload (26/WAKU2-PAYLOAD), if signatures are verified."""

    @property
    def sent_ms(self) -> int | None:
        """Return its timestamp in Unix milliseconds; None if it has none."""
        return self.timestamp_ns // NS_PER_MS if self.timestamp_ns else None


class OpenedMessage(NamedTuple):
    """An SDS message, its encoded bytes, and the transmission that carried it."""

    message: SdsMessage
    encoded: bytes
    transmission: ReceivedWakuMessage


class Opener:
    """Decrypts, decodes, and remembers the hashes of processed transmissions."""

    def __init__(self, shared: Shared) -> None:
        options = shared.options
        self._content_topic = shared.content_topic
        self._pubsub_topic = autoshard(shared.content_topic, options.cluster_id, options.shard_count)
        self._max_received_bytes = options.advanced.max_received_bytes
        self._waku_version = shared.waku_version
        self._sds = shared.sds
        self._ciphering = shared.ciphering
        self._open_signed: Callable[[bytes], DecodedPayload] | None = None
        if shared.signing is not None and isinstance(shared.ciphering.encryption, PayloadCipher | PayloadKeyRing):
            # The hook returns no signer, so these ciphers are called directly.
            self._open_signed = shared.ciphering.encryption.open
        self._tally = shared.tally
        self._processed = RecentHashes(_MAX_PROCESSED)

    def transmission_of(
        self, message: WakuMessage, known_hash: bytes | None, *, from_store: bool
    ) -> ReceivedWakuMessage | None:
        """Return the transmission of a WakuMessage; None if it is not for this channel or unusable.

        ``known_hash`` is the deterministic hash, if it is known.
        """
        if message.content_topic != self._content_topic:
            self._tally.add("foreign_topic")
        elif len(message.payload) > self._max_received_bytes:
            self._tally.add("oversized")
        elif (message.version or 0) != self._waku_version:
            self._tally.add("undecryptable")
        elif self._sds.profile.marker not in (None, message.meta):
            self._tally.add("unmarked")
        else:
            self._tally.add("received")
            timestamp_ns = message.timestamp_ns or 0
            if _EARLIEST_NS <= timestamp_ns <= _LATEST_NS:
                return ReceivedWakuMessage(
                    message_hash=known_hash or message_hash(self._pubsub_topic, message),
                    timestamp_ns=timestamp_ns,
                    meta=message.meta,
                    is_ephemeral=bool(message.ephemeral),
                    from_store=from_store,
                )
            self._tally.add("undecodable")
        return None

    def was_processed(self, transmission: ReceivedWakuMessage) -> bool:
        """Return whether a transmission was processed before, and count it if so."""
        if transmission.message_hash not in self._processed:
            return False
        self._tally.add("repeated")
        return True

    def note_processed(self, transmission: ReceivedWakuMessage) -> None:
        """Remember a transmission as processed."""
        self._processed.add(transmission.message_hash)

    def decrypt(self, payload: bytes, transmission: ReceivedWakuMessage) -> bytes | AwaitCipher | None:
        """Return the plaintext, or the effect that awaits it; None if the hook fails.

        Raises `MessageClosedError` for a message that this member of a group may not read.
        """
        try:
            if self._open_signed is None:
                return self._ciphering.decrypt(payload, transmission)
            decoded = self._open_signed(payload)
        except MessageClosedError:
            raise
        except DecryptionError:
            self.not_decrypted()
            return None
        transmission.signer_key = decoded.signer_public_key
        return decoded.payload

    def not_decrypted(self) -> None:
        """Count a message that is not encrypted for this channel."""
        self._tally.add("undecryptable")

    def decode(self, plaintext: bytes, transmission: ReceivedWakuMessage) -> OpenedMessage | None:
        """Return the SDS message in a plaintext, without fields that must be ignored; None if it cannot be decoded."""
        try:
            message = self._sds.profile.codec.decode(plaintext)
        except DecodeError:
            self._tally.add("undecodable")
            return None
        if message.sender_id != self._sds.sender_id:
            # Own messages are excluded: a node pushes them back, and even a wrong key decrypts them.
            self._tally.add("opened")
        if message.channel_id != self._sds.channel_id:
            self._tally.foreign_channel_id = message.channel_id
        if transmission.is_ephemeral and _has_no_place(message):
            message = replace(message, lamport_timestamp=None)
        if message.repair_request and transmission.from_store:
            # A stored repair request is old: it was answered or repeated.
            message = replace(message, repair_request=())
        return OpenedMessage(message, plaintext, transmission)


def _has_no_place(message: SdsMessage) -> bool:
    """Return whether a message has no Lamport timestamp and no history, as an ephemeral message.

    nim-sds cannot omit the timestamp and writes zero.
    """
    return not (message.lamport_timestamp or message.causal_history or message.bloom_filter)
