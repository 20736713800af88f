"""`TlsTransport`: TLS (RFC 8446, RFC 5246) over another byte stream, and the authorities that a client trusts.

It is OpenSSL without sockets, between the bytes of one transport and those of its user. So a connection counts for the
host's limits before its first byte. Back-pressure is that of TCP. A fault of a peer ends its own connection only. The
identity of a peer comes from the Noise handshake inside; browsers require TLS.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from fairway.errors import ConfigurationError
from fairway.libp2p.errors import TlsError, UntrustedCertificateError
from fairway.libp2p.transports.transport import ByteTransport

_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's X509_V_ERR_* for a chain without a trusted authority, which a file of authorities can fix."""


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """Return the settings of a TLS client that trusts the system's authorities, and those of a file in PEM form.

    OpenSSL takes the system's authorities from the files that ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` name, if they are
    set. Raises `ConfigurationError` for a file that cannot be read or holds no certificate.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:
            reason = "it holds none in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
            raise ConfigurationError(
                f"{ca_file} names no certificate authority: {reason}; give a file with its certificate in PEM form"
            ) from error
    return context


def distrust(error: ssl.SSLCertVerificationError) -> str:
    """Return why a certificate is not trusted and, where that helps, how its authority is named."""
    reason = f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
    if error.verify_code not in _UNKNOWN_AUTHORITY:
        return reason
    return f"{reason}; name its authority with tls_ca_file (--ca, or --tls-ca for 'fairway node')"


_RECORD_BYTES: Final = 16_384
"""Longest content of a TLS record."""
_REASONS: Final = {
    "HTTP_REQUEST": "the client uses plain HTTP; the address of this port ends with /tls/ws",
    "WRONG_VERSION_NUMBER": "the other side does not use TLS; the address of a plain WebSocket ends with /ws",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of the certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate has expired, says the client",
}
"""OpenSSL's names of the most frequent mistakes, in words."""


class TlsTransport(ByteTransport):
    """One TLS connection. Made by `connect` and `accept`."""

    def __init__(self, raw: ByteTransport, context: ssl.SSLContext, *, server_name: str | None) -> None:
        """``server_name`` is the name or IP address that the certificate must have; None for the server's side."""
        self._raw = raw
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._ended = False
        self.remote_address = raw.remote_address
        raw.on_writable = self._writable

    @classmethod
    async def connect(cls, raw: ByteTransport, context: ssl.SSLContext, server_name: str) -> TlsTransport:
        """Carry out the client's handshake on a new connection.

        Raises `UntrustedCertificateError` if the server's certificate is not trusted, `TlsError` if anything else
        fails.
        """
        try:
            transport = cls(raw, context, server_name=server_name)
        except ValueError as error:  # also for a name that is invalid in DNS
            raise TlsError(f"no TLS with {raw.remote_address}: {server_name!r} is no name of a server") from error
        await transport._handshake()
        return transport

    @classmethod
    async def accept(cls, raw: ByteTransport, context: ssl.SSLContext) -> TlsTransport:
        """Carry out the server's handshake on an accepted connection; raise `TlsError` if it fails."""
        transport = cls(raw, context, server_name=None)
        await transport._handshake()
        return transport

    @property
    def can_write(self) -> bool:
        """Whether the send buffer has room."""
        return self._raw.can_write

    @property
    def is_closed(self) -> bool:
        """Whether the stream has ended."""
        return self._ended or self._raw.is_closed

    async def read(self) -> bytes:
        """Return the received bytes; ``b""`` once the stream has ended."""
        while True:
            # Records may have arrived with the handshake, so they are taken before the network is read.
            data = self._take()
            if data or self._ended:
                return data
            await self._receive()

    def write(self, data: bytes) -> None:
        """Send ``data``."""
        if self.is_closed or not data:
            return
        try:
            self._tls.write(data)
        except ssl.SSLError:
            self._ended = True
            self.abort()
        else:
            self._flush()

    async def close(self) -> None:
        """Send the TLS close alert and the waiting bytes, for at most a second, and end the connection."""
        if not self.is_closed:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                # It would wait for the close alert of the other side, which is not needed.
                self._flush()
        await self._raw.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._raw.abort()

    async def _handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                await self._receive()
            except ssl.SSLError as error:
                self._flush()  # the alert with the reason
                untrusted = isinstance(error, ssl.SSLCertVerificationError)
                kind = UntrustedCertificateError if untrusted else TlsError
                raise kind(f"no TLS with {self.remote_address}: {_words(error)}") from error
            else:
                self._flush()
                return

    async def _receive(self) -> None:
        data = await self._raw.read()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _take(self) -> bytes:
        """Return the bytes that can be decrypted now; note the end of the stream."""
        parts = []
        try:
            while part := self._tls.read(_RECORD_BYTES):
                parts.append(part)
            self._ended = True
        except ssl.SSLWantReadError:
            pass  # the next record is not complete
        except ssl.SSLError:
            self._ended = True  # closed, cut off, or changed on the way
        self._flush()
        return b"".join(parts)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def _writable(self) -> None:
        if self.on_writable is not None:
            self.on_writable()


def _words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return distrust(error)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "the connection ended during the handshake; does the other side use TLS there?"
    reason = str(error.reason or error)
    return _REASONS.get(reason, reason.replace("_", " ").lower())
