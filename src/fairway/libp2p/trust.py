"""Which certificate authorities a client trusts, and what it says of a certificate that it does not trust."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from fairway.errors import ConfigurationError

_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's X509_V_ERR_* for a chain that ends in no trusted authority: these a file of authorities mends."""


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
