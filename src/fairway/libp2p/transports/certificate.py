"""`ServerCertificate`: the certificate and key of a server, which may be renewed while it runs.

Invariant: the context in use has a key that fits its certificate. A renewed file that cannot be used leaves the one in
use as it was.
"""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import Certificate, load_pem_x509_certificates

from fairway.environment import time_ns
from fairway.errors import ConfigurationError

_LOG: Final = logging.getLogger(__name__)


class ServerCertificate:
    """A certificate with the chain of its authorities, and its key: two files in PEM form, as ACME clients write."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read the files; raise `ConfigurationError` if they cannot be used, also for a certificate out of date."""
        self._certificate: Final = certificate
        self._key: Final = key
        self._stamp = self._stamp_now()
        self.context, self._expires = self._load()

    @property
    def expires_s(self) -> float:
        """End of the certificate, in Unix seconds."""
        return self._expires.timestamp()

    def following(self) -> ssl.SSLContext:
        """Return a context for a server that keeps one: each handshake has the certificate that is in use then."""
        first = self.context

        def use_present(connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
            connection.context = self.context

        first.sni_callback = use_present
        return first

    def refresh(self) -> None:
        """Read the files again if they have changed; a failure is logged, and the certificate in use stays."""
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.context, self._expires = self._load()
        except ConfigurationError as error:
            _LOG.warning("the renewed certificate is not used: %s", error)
        else:
            _LOG.info("the certificate was renewed; it ends on %s", self._expires.date())

    def _stamp_now(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_stamp_of, (self._certificate, self._key)))

    def _load(self) -> tuple[ssl.SSLContext, datetime]:
        first = _certificate_in(self._certificate)
        _check_dates(self._certificate, first)
        text = _read(self._key)
        try:
            key = load_pem_private_key(text, None)
        except TypeError as error:
            raise ConfigurationError(f"{self._key} is encrypted: give a key without a password") from error
        except (ValueError, UnsupportedAlgorithm) as error:
            # The text of the cause contains no byte of the key, but does not help people.
            raise ConfigurationError(f"{self._key} holds no private key in PEM form") from error
        if key.public_key() != first.public_key():
            raise ConfigurationError(
                f"the key {self._key} does not fit the certificate {self._certificate}: give the one for which it was "
                "issued; the first certificate in the file is the server's own"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            context.load_cert_chain(self._certificate, self._key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"{self._certificate} cannot be used for TLS: {error}") from error
        return context, first.not_valid_after_utc


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Return values that change when a file is replaced or written."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}; TLS needs it") from error


def _certificate_in(path: Path) -> Certificate:
    text = _read(path)
    try:
        return load_pem_x509_certificates(text)[0]
    except ValueError as error:
        raise ConfigurationError(f"{path} holds no certificate in PEM form") from error


def _check_dates(path: Path, certificate: Certificate) -> None:
    now = datetime.fromtimestamp(time_ns() / 1e9, UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        raise ConfigurationError(f"the certificate {path} has expired on {ends:%Y-%m-%d %H:%M} UTC: renew it")
    if now < begins:
        raise ConfigurationError(
            f"the certificate {path} is valid from {begins:%Y-%m-%d %H:%M} UTC on: is the clock of this machine right?"
        )
