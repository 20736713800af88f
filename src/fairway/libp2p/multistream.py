"""multistream-select 1.0: two peers agree on the protocol of a connection or stream (libp2p "Connections").

No I/O: pass received bytes to ``receive_data``, and send the bytes that ``data_to_send`` returns. The negotiation ends
when ``receive_data`` returns `Negotiated`; its ``leftover`` has the bytes that arrived behind the negotiation.

The dialer sends the header and its first protocol in one write, and the listener answers both in one: an agreement on
the first protocol takes one round trip. Invariants: a message has at most 1,024 bytes, and a negotiation has a bounded
number of proposals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError
from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.errors import FrameError, NegotiationError
from fairway.wire.varint import length_prefixed

MULTISTREAM_PROTOCOL: Final = "/multistream/1.0.0"
MAX_MESSAGE_BYTES: Final = 1024
"""Longest message that is read, its newline included."""

MAX_PROPOSALS: Final = 64
"""Proposals that a listener answers; after the last one it gives up."""

_NOT_AVAILABLE: Final = "na"
_LIST: Final = "ls"


@dataclass(frozen=True, slots=True)
class Negotiated:
    """The result of a negotiation."""

    protocol: str
    """The protocol that both sides agreed on."""
    leftover: bytes
    """Bytes that arrived behind the negotiation: the first of that protocol."""


def encode_message(text: str) -> bytes:
    """Return one multistream-select message: length, text, newline."""
    return length_prefixed(text.encode() + b"\n")


_HEADER: Final = encode_message(MULTISTREAM_PROTOCOL)


class _Negotiation(ABC):
    """The common part of both sides: reads messages from the received bytes, and keeps the result."""

    __slots__ = ("_buffer", "_greeted", "_out")

    def __init__(self) -> None:
        self._buffer = b""
        self._out: list[bytes] = []
        self._greeted = False

    def data_to_send(self) -> bytes:
        """Return the bytes to send now, perhaps none; they must also be sent after an agreement."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def receive_data(self, data: bytes) -> Negotiated | None:
        """Process received bytes; return the agreement once there is one, else None.

        Raises `NegotiationError` if the peer does not use multistream-select, declines all protocols or exceeds a
        bound. After an error or the agreement the negotiation has ended.
        """
        self._buffer += data
        offset = 0
        agreed: str | None = None
        try:
            while agreed is None and (found := self._next_message(offset)) is not None:
                text, offset = found
                agreed = self._receive(text)
        except FrameError as error:
            raise NegotiationError(str(error)) from error
        self._buffer = self._buffer[offset:]
        return None if agreed is None else Negotiated(agreed, self._buffer)

    def _next_message(self, offset: int) -> tuple[str, int] | None:
        prefix = decode_uvarint(self._buffer, offset, max_value=MAX_MESSAGE_BYTES)
        if prefix is None or len(self._buffer) < sum(prefix):
            return None
        size, start = prefix
        line = self._buffer[start : start + size]
        if not line.endswith(b"\n"):
            raise NegotiationError(
                f"a message of multistream-select ends with a newline; this has {size} bytes: {line[:40]!r}"
            )
        try:
            return line[:-1].decode(), start + size
        except UnicodeDecodeError as error:
            raise NegotiationError(f"a message that is not UTF-8: {line[:40]!r}") from error

    def _receive(self, text: str) -> str | None:
        if self._greeted:
            return self._answer(text)
        # "If either side receives anything other than the multistream protocol id as the first message, they abort"
        if text != MULTISTREAM_PROTOCOL:
            raise NegotiationError(f"expected {MULTISTREAM_PROTOCOL!r} first, not {text[:80]!r}")
        self._greeted = True
        self._greet()
        return None

    @abstractmethod
    def _greet(self) -> None:
        """React to the peer's header."""

    @abstractmethod
    def _answer(self, text: str) -> str | None:
        """React to a message after the header; return the protocol once it is agreed on."""


class MultistreamDialer(_Negotiation):
    """The side that proposes protocols, preferred first. Raises `ConfigurationError` for names that cannot be sent."""

    __slots__ = ("_proposals", "_proposed")

    def __init__(self, protocols: Sequence[str]) -> None:
        super().__init__()
        if not protocols:
            raise ConfigurationError("a dialer proposes at least one protocol; none was given")
        for protocol in protocols:
            size = len(protocol.encode()) + 1
            if "\n" in protocol or protocol in {"", _NOT_AVAILABLE, _LIST} or size > MAX_MESSAGE_BYTES:
                raise ConfigurationError(
                    f"{protocol!r} cannot be proposed: one line of 1 to {MAX_MESSAGE_BYTES - 1} bytes"
                )
        self._proposals = tuple(protocols)
        self._proposed = 0
        self._out += [_HEADER, encode_message(self._proposals[0])]

    @property
    def proposal(self) -> str:
        """The protocol that is proposed now."""
        return self._proposals[self._proposed]

    def _greet(self) -> None:
        """Do nothing: the header and the first proposal were sent at the start."""

    def _answer(self, text: str) -> str | None:
        if text == self.proposal:
            return text
        if text != _NOT_AVAILABLE:
            raise NegotiationError(
                f"proposed {self.proposal!r}, expected it back or {_NOT_AVAILABLE!r}, not {text[:80]!r}"
            )
        if self._proposed + 1 == len(self._proposals):
            raise NegotiationError(f"the peer supports none of {', '.join(self._proposals)}")
        self._proposed += 1
        self._out.append(encode_message(self.proposal))
        return None


class MultistreamListener(_Negotiation):
    """The side that accepts the proposals for which ``serves`` is true, and declines others until it gives up.

    It answers "ls", which asks for all names, with "na".
    """

    __slots__ = ("_left", "_serves")

    def __init__(self, serves: Callable[[str], bool]) -> None:
        super().__init__()
        self._serves = serves
        self._left = MAX_PROPOSALS

    def _greet(self) -> None:
        self._out.append(_HEADER)

    def _answer(self, text: str) -> str | None:
        if self._serves(text):
            self._out.append(encode_message(text))
            return text
        self._out.append(encode_message(_NOT_AVAILABLE))
        self._left -= 1
        if self._left <= 0:
            raise NegotiationError(f"the peer asked for too many protocols, the last was {text[:80]!r}")
        return None
