"""The errors of `fairway.libp2p`, as a tree: faults of peers, limits and wrong settings have separate classes.

::

    Libp2pError (a NetworkError)
    +-- AddressError              a multiaddr that cannot be read or cannot be used (also a ConfigurationError)
    +-- IdentityError             a malformed or inconsistent key, peer id, signature or signed record
    +-- DialError                 no connection was made: refused, unreachable, timed out
    +-- TlsError                  the TLS handshake of a WebSocket failed
    |   +-- UntrustedCertificateError   the certificate of the other side is not trusted
    +-- HandshakeError            the Noise handshake failed
    +-- NegotiationError          no agreement on a protocol, or the peer does not use multistream-select
    +-- FrameError                bytes that break the framing or the format of the layer that read them
    |   +-- FrameTooLongError     a message is longer, or a number larger, than allowed
    +-- LimitError                one of our limits was reached; the text names it
    +-- ConnectionClosedError     the connection has ended
    +-- StreamError
        +-- StreamResetError      a stream was reset: bytes in flight are lost
        +-- StreamClosedError     a stream was used after its own side had closed it

Invalid bytes from a peer raise only errors of this tree.
"""

from __future__ import annotations

from fairway.errors import ConfigurationError, NetworkError


class Libp2pError(NetworkError):
    """Base of all errors between two libp2p peers."""


class AddressError(Libp2pError, ConfigurationError):
    """A multiaddr that cannot be parsed, or that this program can neither dial nor listen on."""


class IdentityError(Libp2pError):
    """A key, peer id, signature or signed record that is malformed or does not fit the others."""


class DialError(Libp2pError):
    """A connection could not be made; the cause is chained."""


class TlsError(Libp2pError):
    """The TLS handshake failed: one side does not use TLS, or does not trust the certificate of the other."""


class UntrustedCertificateError(TlsError):
    """The certificate of the other side is not trusted; another attempt does not help."""


class HandshakeError(Libp2pError):
    """The Noise handshake failed: the connection must be closed."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"the Noise handshake failed: {detail}")


class NegotiationError(Libp2pError):
    """multistream-select agreed on no protocol."""


class FrameError(Libp2pError):
    """Bytes that break the framing or format of the layer that read them; nothing after them can be trusted."""


class FrameTooLongError(FrameError):
    """A message is longer, or a number larger, than allowed; only its length was read."""


class LimitError(Libp2pError):
    """A limit of this node was reached; the text names the limit."""


class ConnectionClosedError(Libp2pError):
    """The connection has ended, by either side."""


class StreamError(Libp2pError):
    """Base of the errors of one stream."""


class StreamResetError(StreamError):
    """The stream was reset by either side: bytes in flight are lost."""


class StreamClosedError(StreamError):
    """The stream was written to after this side had closed its writing half."""
