"""`Envelope`: headers around the content of a message, requests with their replies, and snapshots.

The payload begins with `ENVELOPE_PREFIX`. No UTF-8 text has its first byte; its last byte is the version. Any other
payload has no envelope, and is the content. The schema is fairway's own (docs/requests.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum
from typing import Final, Self

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.coverage import Coverage
from fairway.wire.proto import envelope_pb2 as pb
from fairway.wire.protobuf import encode, parse

ENVELOPE_PREFIX: Final = b"\xffENV\x01"
"""Beginning of the payload: a byte that begins no UTF-8 text, a mark, and version 1."""

MAX_ENVELOPE_BYTES: Final = 268_435_456
"""Longer payloads are not parsed."""


class EnvelopeKind(IntEnum):
    """The kind of a message in an envelope."""

    MESSAGE = pb.Envelope.MESSAGE
    REQUEST = pb.Envelope.REQUEST
    """A question that `ReliableChannel.requests` hands over."""
    REPLY = pb.Envelope.REPLY
    FAILURE = pb.Envelope.FAILURE
    """The answer if there is no reply; the content is a text with the reason."""
    CANCEL = pb.Envelope.CANCEL
    """The sender of a request does not wait for the reply any more."""
    CLAIM = pb.Envelope.CLAIM
    """A worker of a group holds the request with this correlation id; without one it holds none."""
    SNAPSHOT = pb.Envelope.SNAPSHOT
    """A state of the application; `ReliableChannel.snapshot` sends it."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The content of a message and its headers; ``channel.send(Envelope(b"...", headers={...}))`` sends them."""

    content: bytes
    _: KW_ONLY
    content_type: str = ""
    """Media type of the content, such as ``application/json``; empty if it is not named."""
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: EnvelopeKind = EnvelopeKind.MESSAGE
    to: str = ""
    """Sender id of the only participant for which the message is; empty for all. In a claim, the requester."""
    correlation_id: str = ""
    """Id of the request, in the request and in all that answers it."""
    expires_after_ms: int = 0
    """How long the content is of use, counted from the timestamp of the message; 0 for always."""
    group: str = ""
    """Workers of which one answers the request; empty for a request without a group."""
    coverage: Coverage | None = None
    """The messages that a snapshot covers."""

    def encode(self) -> bytes:
        """Return the payload; raise `ConfigurationError` for a field of a wrong type."""
        return ENVELOPE_PREFIX + encode(
            pb.Envelope,
            content_type=self.content_type,
            headers=[{"name": name, "value": value} for name, value in sorted(self.headers.items(), key=str)],
            kind=int(self.kind),
            to=self.to,
            correlation_id=self.correlation_id,
            expires_after_ms=self.expires_after_ms,
            content=self.content,
            group=self.group,
            **({} if self.coverage is None else {"coverage": self.coverage.fields()}),
        )

    @classmethod
    def of(cls, payload: bytes) -> Self:
        """Return what a payload holds; a payload without an envelope, or with a broken one, is the content."""
        if not isinstance(payload, bytes):
            raise ConfigurationError(
                f"payload must be bytes, not {type(payload).__name__}; give that of a message: "
                "Envelope.of(message.payload)"
            )
        return cls.decode(payload) or cls(payload)

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        """Return the envelope in a payload, or None if it has none, or a broken one, or one of an unknown kind."""
        if not payload.startswith(ENVELOPE_PREFIX):
            return None
        try:
            held = parse(pb.Envelope, payload[len(ENVELOPE_PREFIX) :], max_bytes=MAX_ENVELOPE_BYTES)
            kind = EnvelopeKind(held.kind)
        except (DecodeError, ValueError):
            return None
        return cls(
            held.content,
            content_type=held.content_type,
            headers={each.name: each.value for each in held.headers},
            kind=kind,
            to=held.to,
            correlation_id=held.correlation_id,
            expires_after_ms=held.expires_after_ms,
            group=held.group,
            coverage=Coverage.of(held.coverage) if held.HasField("coverage") else None,
        )
