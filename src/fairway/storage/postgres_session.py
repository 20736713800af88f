"""`PostgresSession`: one connection to PostgreSQL, which is opened again after a restart of the server.

A broken connection is replaced at the next use. Connecting takes at most `CONNECT_TIMEOUT_S`, a statement at most its
time limit. Error texts and ``repr`` never show credentials.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

from fairway.errors import ConfigurationError, StorageError
from fairway.extras import needing

if TYPE_CHECKING:
    import psycopg

CONNECT_TIMEOUT_S: Final = 5
LOCK_TIMEOUT_S: Final = 5
"""Time for which a statement waits for the lock of a table; while it waits it delays all later statements."""

_T = TypeVar("_T")


class PostgresSession:
    """A session that connects at its first use."""

    def __init__(
        self, uri: str, *, statement_limit_s: float | None = None, read_only: bool = False, settings: str = ""
    ) -> None:
        self.name: Final = place_without_credentials(uri)
        self._uri: Final = uri
        limit_ms = 0 if statement_limit_s is None else max(1, round(statement_limit_s * 1_000))
        self._options: Final = (
            f"-c client_encoding=UTF8 -c statement_timeout={limit_ms} -c lock_timeout={LOCK_TIMEOUT_S * 1_000} "
            f"-c default_transaction_read_only={'on' if read_only else 'off'} {settings}"
        )
        self._connection: psycopg.Connection[Any] | None = None

    def run(self, work: Callable[[psycopg.Connection[Any]], _T], *, again: bool = False) -> _T:
        """Return the result of ``work`` with the connection, which commits each statement by itself.

        With ``again``, work on a broken connection is repeated once with a new one. Raises `MissingExtraError` without
        psycopg, `ConfigurationError` for an invalid URI, and `StorageError` for all other failures.
        """
        driver = psycopg_driver()
        try:
            return work(self._connected())
        except driver.Error as error:
            is_broken = self._connection is not None and self._connection.broken
            if is_broken:
                self.close()
            if is_broken and again:
                return self.run(work)
            what = str(error).partition("\n")[0]  # the statement follows
            raise StorageError(f"{self.name}: {what}") from error

    def close(self) -> None:
        """Close the connection. Can be called twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            driver = psycopg_driver()
            try:
                self._connection = driver.connect(
                    self._uri, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, options=self._options
                )
            except driver.OperationalError as error:
                raise StorageError(
                    f"{self.name}: no connection to PostgreSQL: {' '.join(str(error).split())}"
                ) from error
            except driver.Error:
                # Without the cause: libpq quotes the URI, and with it the password.
                raise ConfigurationError(
                    f"{self.name}: not a connection URI; an example is postgresql://user@127.0.0.1:5432/postgres"
                ) from None
        return self._connection


def place_without_credentials(uri: str) -> str:
    """Return a URI without user, password, query and fragment, for tables and logs."""
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def psycopg_driver() -> Any:
    """Return the package psycopg; raises `MissingExtraError` without it."""
    with needing("postgresql", "an archive in PostgreSQL"):
        import psycopg  # noqa: PLC0415 - an extra
    return psycopg
