"""`PostgresSession`: one connection to PostgreSQL, made again after a restart of the server.

A broken connection is replaced at the next use, never within one. Connecting takes at most `CONNECT_TIMEOUT_S`, and a
statement at most the time limit. Error texts and ``repr`` never show credentials.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fairway.errors import ConfigurationError, StorageError
from fairway.storage.postgres_archive import place_without_credentials, psycopg_driver

if TYPE_CHECKING:
    import psycopg

CONNECT_TIMEOUT_S: Final = 5
LOCK_TIMEOUT_S: Final = 5
"""How long a statement waits for the lock of a table, because it delays all statements after it."""

_T = TypeVar("_T")


class PostgresSession:
    """Opens its connection when it is first used."""

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

    def __repr__(self) -> str:
        """Show the database, without credentials."""
        return f"<PostgresSession {self.name}>"

    def run(self, work: Callable[[psycopg.Connection[Any]], _T], *, again: bool = False) -> _T:
        """Return the result of ``work`` with the connection, which commits each statement by itself.

        With ``again``, work on a broken connection is repeated once with a new one. Raises `ConfigurationError` for an
        invalid URI, `StorageError` for all other failures.
        """
        driver = psycopg_driver()
        fresh = self._connection is None
        try:
            return work(self._connected())
        except driver.Error as error:
            broken = self._connection is None or self._connection.broken
            if broken:
                self.close()
            if broken and again and not fresh:
                return self.run(work)
            raise StorageError(f"{self.name}: {error}") from error

    def close(self) -> None:
        """Close the connection; more than once does no harm."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        driver = psycopg_driver()
        if self._connection is None:
            try:
                self._connection = driver.connect(
                    self._uri, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, options=self._options
                )
            except driver.OperationalError:
                raise
            except driver.Error:
                # Without the cause: libpq quotes what it was given, the password with it.
                raise ConfigurationError(
                    f"{self.name}: not a connection URI; an example is postgresql://user@127.0.0.1:5432/postgres"
                ) from None
        connection: psycopg.Connection[Any] = self._connection
        return connection
