"""Which certificate authorities a client trusts."""

from __future__ import annotations

import ssl
from pathlib import Path

from fairway.errors import ConfigurationError


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
