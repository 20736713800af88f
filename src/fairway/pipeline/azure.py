"""Azure's object store as a file system of Arrow, with the key of its account.

Arrow accepts such a key from programs, but not from URIs. With a URI it uses the identity of the machine or the user,
which needs TLS and a directory of users. So this module reads a URI with a key, or with ``AZURE_STORAGE_KEY`` in the
environment::

    abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH
    abfs://ACCOUNT@HOST:PORT/CONTAINER/PATH?enable_tls=false        another server of its interface
"""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from pyarrow.fs import FileSystem

from fairway.errors import ConfigurationError

KEY_VARIABLE: Final = "AZURE_STORAGE_KEY"
"""The variable with the key of the account, as for Azure's own commands."""
AZURE_HOSTS: Final = (".dfs.core.windows.net", ".blob.core.windows.net")
"""Suffixes of the host names of Azure's own servers, after the name of the account."""
_TLS: Final = "enable_tls"


def azure_of(uri: str) -> tuple[FileSystem, str]:
    """Return the file system of a URI and the path on it, which begins with the container.

    Raises `ConfigurationError` for unknown options beside a key, and the errors of Arrow.
    """
    parts = urlsplit(uri)
    key = unquote(parts.password or "") or os.environ.get(KEY_VARIABLE)
    host = parts.hostname or ""
    if not key or not parts.username:
        filesystem, path = FileSystem.from_uri(uri)
        return filesystem, str(path)
    from pyarrow.fs import AzureFileSystem  # noqa: PLC0415 - not in every build of Arrow

    given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if given.keys() - {_TLS}:
        raise ConfigurationError(f"{parts.scheme}://{host}: beside a key of the account the only option is {_TLS}")
    if host.endswith(AZURE_HOSTS):
        path = parts.username + parts.path
        return AzureFileSystem(host.partition(".")[0], account_key=key), path
    authority = host if parts.port is None else f"{host}:{parts.port}"
    scheme = "https" if given.get(_TLS, "true") == "true" else "http"
    options = {f"{kind}_storage_authority": authority for kind in ("blob", "dfs")}
    options |= {f"{kind}_storage_scheme": scheme for kind in ("blob", "dfs")}
    return AzureFileSystem(parts.username, account_key=key, **options), parts.path.lstrip("/")
