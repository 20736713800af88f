"""Passing the encryption hook without waiting for it (LIP-173, "Encryption Hook").

A hook may answer at once or give something to await. The protocol never awaits: `Ciphering.seal` and `Ciphering.open`
return an `AwaitCipher` then, and `Ciphering.done` returns the result once the shell has it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, NamedTuple

from fairway.errors import DecryptionError, EncryptionError
from fairway.protocol.effects import AwaitCipher
from fairway.protocol.encryption import Encryption, open_, seal

MAX_PENDING: Final = 10_000
"""Results that are waited for; a message that comes when so many are open is not decrypted, and will be sent again."""


class Ciphered(NamedTuple):
    """The result of a hook that was awaited."""

    carried: object
    """What `Ciphering.seal` or `Ciphering.open` was given."""
    result: bytes | Exception


class Ciphering:
    """The encryption hook of one channel, if it has one."""

    def __init__(self, encryption: Encryption | None) -> None:
        self._encryption = encryption
        self._pending: dict[int, tuple[object, bool]] = {}
        """What is waited for, by token, and whether it is a segment that is being sealed."""
        self._token = 0
        self._content = 0

    @property
    def sealing_content(self) -> bool:
        """Whether a segment is being sealed; the next one waits, so that segments keep their order."""
        return self._content > 0

    def seal(self, plaintext: bytes, carried: object, *, is_content: bool = False) -> bytes | AwaitCipher:
        """Return what leaves sealed, or the effect that awaits it; then `done` returns it with ``carried``.

        Raises `EncryptionError` if the hook fails: it does not leave, there is no fallback to clear text.
        """
        if self._encryption is None:
            return plaintext
        sealed = seal(self._encryption, plaintext)
        return sealed if isinstance(sealed, bytes) else self._await(sealed, carried, is_content=is_content)

    def open(self, ciphertext: bytes, carried: object) -> bytes | AwaitCipher:
        """Return what came opened, or the effect that awaits it; then `done` returns it with ``carried``.

        Raises `DecryptionError` if it cannot be opened, which is everyday traffic on a shared topic.
        """
        if self._encryption is None:
            return ciphertext
        if len(self._pending) >= MAX_PENDING:
            raise DecryptionError("too many messages are being decrypted")
        opened = open_(self._encryption, ciphertext)
        return opened if isinstance(opened, bytes) else self._await(opened, carried, is_content=False)

    def done(self, token: int, result: bytes | BaseException) -> Ciphered | None:
        """Take the result of an awaitable, and return it with what it is of; an unknown token is ignored."""
        pending = self._pending.pop(token, None)
        if pending is None:
            return None
        carried, is_content = pending
        self._content -= is_content
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            result = EncryptionError("the encryption hook was cancelled")
        return Ciphered(carried, result)

    def _await(self, awaitable: Awaitable[bytes], carried: object, *, is_content: bool) -> AwaitCipher:
        self._token += 1
        self._pending[self._token] = carried, is_content
        self._content += is_content
        return AwaitCipher(token=self._token, awaitable=awaitable)
