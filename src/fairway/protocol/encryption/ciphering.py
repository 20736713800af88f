"""Passing the encryption hook without waiting for it (LIP-173, "Encryption Hook").

A hook may answer at once or give something to await. The protocol never awaits: it hands the awaitable outward and
continues when `done` brings the result. Both ways look the same to the caller, who says what to do next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

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
class _Pending:
    then: Then
    failed: Failed
    is_content: bool


class Ciphering:
    """The encryption hook of one channel, if it has one."""

    def __init__(self, encryption: Encryption | None, emit: Callable[[AwaitCipher], None]) -> None:
        self._encryption = encryption
        self._emit = emit
        self._pending: dict[int, _Pending] = {}
        self._token = 0
        self._content = 0

    @property
    def sealing_content(self) -> bool:
        """Whether a segment is being sealed; the next one waits, so that segments keep their order."""
        return self._content > 0

    def seal(self, plaintext: bytes, *, then: Then, failed: Failed, now_ms: int, is_content: bool = False) -> None:
        """Seal what leaves. A failing hook means that it does not leave; there is no fallback to clear text."""
        if self._encryption is None:
            then(plaintext, now_ms)
            return
        try:
            sealed = seal(self._encryption, plaintext)
        except EncryptionError as error:
            failed(error, now_ms)
            return
        self._continue(sealed, _Pending(then=then, failed=failed, is_content=is_content), now_ms)

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
        self._continue(opened, _Pending(then=then, failed=failed, is_content=False), now_ms)

    def done(self, token: int, result: bytes | BaseException, now_ms: int) -> None:
        """Continue with the result of an awaitable; an unknown token is ignored."""
        pending = self._pending.pop(token, None)
        if pending is None:
            return
        self._content -= pending.is_content
        if isinstance(result, bytes):
            pending.then(result, now_ms)
        else:
            error = result if isinstance(result, Exception) else EncryptionError("the encryption hook was cancelled")
            pending.failed(error, now_ms)

    def _continue(self, result: bytes | Awaitable[bytes], pending: _Pending, now_ms: int) -> None:
        if isinstance(result, bytes):
            pending.then(result, now_ms)
            return
        self._token += 1
        self._pending[self._token] = pending
        self._content += pending.is_content
        self._emit(AwaitCipher(token=self._token, awaitable=result))
