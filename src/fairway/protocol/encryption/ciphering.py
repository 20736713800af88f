"""`Ciphering`: calls the encryption hook without waiting for it (LIP-173, "Encryption Hook").

A hook may return bytes or an awaitable. The protocol never awaits. For an awaitable `Ciphering.encrypt` and
`Ciphering.decrypt` return an `AwaitCipher`; the shell awaits it and passes the result to `Ciphering.done`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from enum import Enum
from typing import Final, NamedTuple

from fairway.errors import DecryptionError, EncryptionError
from fairway.protocol.effects import AwaitCipher
from fairway.protocol.encryption import Encryption, decrypt, encrypt
from fairway.protocol.encryption.epochs import EpochCipher

MAX_PENDING: Final = 10_000
"""Results of each direction awaited at the same time. Beyond that a received message is dropped; its sender retransmits
it. A message that is to be sent is not encrypted."""


class _Work(Enum):
    ENCRYPT_SEGMENT = "encrypt a segment"
    ENCRYPT_OTHER = "encrypt an ephemeral, sync or repeated message"
    DECRYPT = "decrypt"


class Ciphered(NamedTuple):
    """The result of an asynchronous hook."""

    carried: object
    """The ``carried`` argument of `Ciphering.encrypt` or `Ciphering.decrypt`."""
    result: bytes | Exception


class Ciphering:
    """The encryption hook of one channel, if it has one."""

    def __init__(self, encryption: Encryption | None) -> None:
        self.encryption = encryption
        self.epochs = encryption if isinstance(encryption, EpochCipher) else None
        """The encryption, if its keys are renewed."""
        self._pending: dict[int, tuple[object, _Work]] = {}
        """``carried`` and the kind of work, by token."""
        self._token = 0
        self.decrypting = 0
        """Number of messages that are being decrypted."""
        self.encrypting_segments = 0
        """Number of segments that are being encrypted; the next one waits, so that segments keep their order."""

    def encrypt(self, plaintext: bytes, carried: object, *, is_content: bool = False) -> bytes | AwaitCipher:
        """Return the encrypted bytes, or the effect that awaits them; then `done` returns them with ``carried``.

        Raises `EncryptionError` if the hook fails. The message is not sent; plaintext is never a fallback.
        """
        if self.encryption is None:
            return plaintext
        if len(self._pending) - self.decrypting >= MAX_PENDING:
            raise EncryptionError(f"{MAX_PENDING:,} messages are being encrypted, and none is done")
        encrypted = encrypt(self.encryption, plaintext)
        work = _Work.ENCRYPT_SEGMENT if is_content else _Work.ENCRYPT_OTHER
        return encrypted if isinstance(encrypted, bytes) else self._await(encrypted, carried, work)

    def decrypt(self, ciphertext: bytes, carried: object) -> bytes | AwaitCipher:
        """Return the plaintext, or the effect that awaits it; then `done` returns it with ``carried``.

        Raises `DecryptionError` if the hook fails, which is usual on a content topic with several channels.
        """
        if self.encryption is None:
            return ciphertext
        if self.decrypting >= MAX_PENDING:
            raise DecryptionError("too many messages are being decrypted")
        opened = decrypt(self.encryption, ciphertext)
        return opened if isinstance(opened, bytes) else self._await(opened, carried, _Work.DECRYPT)

    def done(self, token: int, result: bytes | BaseException) -> Ciphered | None:
        """Return the result of an awaitable with its ``carried``; None for an unknown token."""
        pending = self._pending.pop(token, None)
        if pending is None:
            return None
        carried, work = pending
        self._count(work, -1)
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            result = EncryptionError(f"the encryption hook raised {type(result).__name__}")
        return Ciphered(carried, result)

    def _await(self, awaitable: Awaitable[bytes], carried: object, work: _Work) -> AwaitCipher:
        self._token += 1
        self._pending[self._token] = carried, work
        self._count(work, 1)
        return AwaitCipher(token=self._token, awaitable=awaitable)

    def _count(self, work: _Work, change: int) -> None:
        if work is _Work.DECRYPT:
            self.decrypting += change
        elif work is _Work.ENCRYPT_SEGMENT:
            self.encrypting_segments += change
