"""A cipher that takes its time and sometimes fails, as one that asks a service for keys.

Where it takes its time, half of what fails is cancelled, as by a time limit of the application's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from random import Random
from typing import Any, Final

from fairway.errors import DecryptionError, EncryptionError, FairwayError
from fairway.protocol.encryption.aead import AesGcm

_ENCRYPT: Final = 0.1
"""How much rarer it fails to encrypt than to open: what cannot be encrypted ends its send."""


class KeyServiceError(Exception):
    """An error of a cipher's own, which it does not name as the hook asks for."""


class TroubledCipher:
    """An encryption hook (`fairway.protocol.encryption.Encryption`) around one without troubles."""

    def __init__(
        self,
        cipher: AesGcm,
        dice: Random,
        delay_ms: int,
        failures: float,
        is_broken: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take up to ``delay_ms``, asynchronously if that is not 0, and fail a share of all calls.

        While it ``is_broken`` it encrypts nothing.
        """
        self._is_broken = is_broken
        self._cipher = cipher
        self._dice = dice
        self._delay_ms = delay_ms
        self._failures = failures

    def encrypt(self, plaintext: bytes, /) -> bytes | Awaitable[bytes]:
        """Encrypt something, or raise `EncryptionError`."""
        if self._dice.random() < _ENCRYPT * self._failures or self._is_broken():
            return self._fail(EncryptionError("the key could not be had at this moment"))
        encrypted = self._cipher.encrypt(plaintext)
        return self._later(encrypted) if self._delay_ms else encrypted

    def decrypt(self, ciphertext: bytes, /) -> bytes | Awaitable[bytes]:
        """Open something, or raise `DecryptionError`."""
        if self._dice.random() < self._failures:
            return self._fail(DecryptionError("the key could not be had at this moment"))
        opened = self._cipher.decrypt(ciphertext)
        return self._later(opened) if self._delay_ms else opened

    def _fail(self, error: FairwayError) -> Awaitable[bytes]:
        failure = self._dice.choice((error, KeyServiceError(str(error))))
        if not self._delay_ms:
            raise failure
        return self._later(self._dice.choice((failure, asyncio.CancelledError())))

    def _later(self, result: bytes | BaseException) -> Awaitable[bytes]:
        return _Later(self._dice, self._delay_ms, result)


class _Later(Awaitable[bytes]):
    """A result that takes its time; no coroutine, of which Python complains if a program is killed before it awaits."""

    def __init__(self, dice: Random, delay_ms: int, result: bytes | BaseException) -> None:
        self._dice = dice
        self._delay_ms = delay_ms
        self._result = result

    def __await__(self) -> Generator[Any, Any, bytes]:
        yield from asyncio.sleep(self._dice.randint(0, self._delay_ms) / 1_000).__await__()
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result
