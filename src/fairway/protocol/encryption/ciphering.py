"""Passing the encryption hook without waiting for it (LIP-173, "Encryption Hook").

A hook may answer at once or give something to await. The protocol never awaits: it hands the awaitable outward and
continues when `done` brings the result. What is sealed is returned: by `seal` if the hook answered at once, and by
`done` otherwise. What is opened goes to a function that the caller gives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from fairway.errors import DecryptionError, EncryptionError
from fairway.protocol.effects import AwaitCipher
from fairway.protocol.encryption import Encryption, open_, seal

Then = Callable[[bytes, int], None]
"""What to do with the result, at a time."""
Failed = Callable[[Exception, int], None]
"""What to do with the error, at a time."""

MAX_PENDING: Final = 10_000
"""Results that are waited for; a message that comes when so many are open is not decrypted, and will be sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opening:
    then: Then
    failed: Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sealing:
    leaving: object
    is_content: bool


class Sealed(NamedTuple):
    """The result of a seal that was awaited."""

    leaving: object
    """What `Ciphering.seal` was given."""
    result: bytes | Exception


class Ciphering:
    """The encryption hook of one channel, if it has one."""

    def __init__(self, encryption: Encryption | None, emit: Callable[[AwaitCipher], None]) -> None:
        self._encryption = encryption
        self._emit = emit
        self._pending: dict[int, _Opening | _Sealing] = {}
        self._token = 0
        self._content = 0

    @property
    def sealing_content(self) -> bool:
        """Whether a segment is being sealed; the next one waits, so that segments keep their order."""
        return self._content > 0

    def seal(self, plaintext: bytes, leaving: object, *, is_content: bool = False) -> bytes | None:
        """Return what leaves sealed, or None while the hook is awaited; then `done` returns it with ``leaving``.

        Raises `EncryptionError` if the hook fails: it does not leave, there is no fallback to clear text.
        """
        if self._encryption is None:
            return plaintext
        sealed = seal(self._encryption, plaintext)
        if isinstance(sealed, bytes):
            return sealed
        self._await(sealed, _Sealing(leaving=leaving, is_content=is_content))
        self._content += is_content
        return None

    def open(self, ciphertext: bytes, *, then: Then, failed: Failed, now_ms: int) -> None:
        """Open what came. Failing is everyday traffic on a shared topic."""
        if self._encryption is None:
            then(ciphertext, now_ms)
            return
        if len(self._pending) >= MAX_PENDING:
            failed(DecryptionError("too many messages are being decrypted"), now_ms)
            return
        try:
            opened = open_(self._encryption, ciphertext)
        except DecryptionError as error:
            failed(error, now_ms)
            return
        if isinstance(opened, bytes):
            then(opened, now_ms)
        else:
            self._await(opened, _Opening(then=then, failed=failed))

    def done(self, token: int, result: bytes | BaseException, now_ms: int) -> Sealed | None:
        """Take the result of an awaitable, and return it if it is of a seal; an unknown token is ignored."""
        pending = self._pending.pop(token, None)
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            result = EncryptionError("the encryption hook was cancelled")
        match pending:
            case _Sealing(leaving=leaving, is_content=is_content):
                self._content -= is_content
                return Sealed(leaving, result)
            case _Opening(then=then, failed=failed):
                if isinstance(result, bytes):
                    then(result, now_ms)
                else:
                    failed(result, now_ms)
        return None

    def _await(self, awaitable: Awaitable[bytes], pending: _Opening | _Sealing) -> None:
        self._token += 1
        self._pending[self._token] = pending
        self._emit(AwaitCipher(token=self._token, awaitable=awaitable))
