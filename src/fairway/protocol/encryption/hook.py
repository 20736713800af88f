"""The encryption hook: the only module that encrypts and decrypts the bytes of a channel.

LIP-173, "Encryption Hook": the application may supply any cipher. It is applied to each segment, after SDS for sent
messages and before SDS for received ones. Only a channel without a hook sends plaintext.

Invariant: the hook *fails closed* in both directions. `encrypt` returns the bytes of the cipher or raises
`EncryptionError`, so a broken cipher never causes plaintext to be sent. `decrypt` returns the bytes of the cipher or
raises `DecryptionError`, so ciphertext is never decoded as a message. Any other exception of a cipher becomes one of
these two errors. The exceptions are `KeyboardInterrupt` and `SystemExit`, and a cancellation of the task that awaits an
asynchronous cipher. A `CancelledError` of a synchronous cipher is a failure.

The cipher must be authenticated (AEAD): SDS trusts the result of `decrypt`. This module cannot check that. A cipher
that returns its input unchanged is allowed, because it may be intended.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Generator
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from fairway.errors import ConfigurationError, DecryptionError, EncryptionError
from fairway.type_checks import check_type

MAX_WAKU_VERSION: Final = 2**32 - 1
"""14/WAKU2-MESSAGE: ``version`` is a uint32."""


@runtime_checkable
class Encryption(Protocol):
    """The methods of a cipher. Each may be a plain function or a coroutine function.

    A method fails by raising any exception. The optional attribute ``waku_version: int`` is the ``version`` of the
    WakuMessage with the ciphertext (14/WAKU2-MESSAGE: 1 for 26/WAKU2-PAYLOAD); the default is 0.
    """

    def encrypt(self, plaintext: bytes, /) -> bytes | Awaitable[bytes]:
        """Return the encrypted form of ``plaintext``, or raise."""
        ...

    def decrypt(self, ciphertext: bytes, /) -> bytes | Awaitable[bytes]:
        """Return the plaintext of ``ciphertext``, or raise if it was not encrypted for this cipher."""
        ...


def check_encryption(encryption: Encryption | None) -> None:
    """Raise `ConfigurationError` if an object is not a cipher."""
    advice = "give a cipher with encrypt(bytes) and decrypt(bytes), such as fairway.encryption.AesGcm(key), not a key"
    check_type("encryption", encryption, Encryption | None, advice)


def waku_version_of(encryption: Encryption | None) -> int:
    """Return the WakuMessage version for a hook's ciphertexts; 0 without a hook and by default."""
    version = getattr(encryption, "waku_version", 0)
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= MAX_WAKU_VERSION:
        raise ConfigurationError(f"waku_version of a cipher must be an integer in 0..2**32-1, not {version!r}")
    return version


def encrypt(encryption: Encryption, plaintext: bytes) -> bytes | Awaitable[bytes]:
    """Encrypt one SDS message; raise `EncryptionError` if the hook does not return encrypted bytes.

    LIP-173, "Outgoing message processing", step 3. With an asynchronous hook the result is an awaitable that returns
    the bytes or raises the same error. The stack passes it to the shell and never awaits.
    """
    return _settled(_call(encryption, plaintext, _ENCRYPT), len(plaintext), _ENCRYPT)


def decrypt(encryption: Encryption, ciphertext: bytes) -> bytes | Awaitable[bytes]:
    """Decrypt one received payload; raise `DecryptionError` if the hook does not return the plaintext.

    LIP-173, "Incoming message processing", step 1. With an asynchronous hook the result is an awaitable that returns
    the bytes or raises the same error.
    """
    return _settled(_call(encryption, ciphertext, _DECRYPT), len(ciphertext), _DECRYPT)


def encrypt_at_once(encryption: Encryption, plaintext: bytes) -> bytes:
    """Encrypt without awaiting: as `encrypt`, but raise `EncryptionError` for an asynchronous hook."""
    return _check(_refuse_awaitable(_call(encryption, plaintext, _ENCRYPT), _ENCRYPT), len(plaintext), _ENCRYPT)


def decrypt_at_once(encryption: Encryption, ciphertext: bytes) -> bytes:
    """Decrypt without awaiting: as `decrypt`, but raise `DecryptionError` for an asynchronous hook."""
    return _check(_refuse_awaitable(_call(encryption, ciphertext, _DECRYPT), _DECRYPT), len(ciphertext), _DECRYPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Direction:
    method: str
    error: type[EncryptionError | DecryptionError]
    may_vanish: bool
    """Whether an empty result for a non-empty argument is valid."""


_ENCRYPT: Final = _Direction(method="encrypt", error=EncryptionError, may_vanish=False)
_DECRYPT: Final = _Direction(method="decrypt", error=DecryptionError, may_vanish=True)


def _call(encryption: Encryption, argument: bytes, direction: _Direction) -> object:
    try:
        # The lookup is inside the try: a missing method is a failure of the hook too.
        return getattr(encryption, direction.method)(argument)
    except (direction.error, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as cause:
        raise _failure(direction, cause) from cause


def _settled(result: object, argument_size: int, direction: _Direction) -> bytes | Awaitable[bytes]:
    if inspect.isawaitable(result):
        return _Pending(result, argument_size, direction)
    return _check(result, argument_size, direction)


class _Pending(Awaitable[bytes]):
    """Checks the result of an awaitable as that of a plain function.

    The shell awaits it, not fairway.protocol. Its own coroutine begins only then: if the program ends before, Python
    does not warn of a coroutine that was never awaited.
    """

    def __init__(self, result: Awaitable[object], argument_size: int, direction: _Direction) -> None:
        self._result = result
        self._argument_size = argument_size
        self._direction = direction

    def __await__(self) -> Generator[Any, Any, bytes]:
        return self._settled().__await__()

    async def _settled(self) -> bytes:
        try:
            result = await self._result
        except self._direction.error:
            raise
        except Exception as cause:
            raise _failure(self._direction, cause) from cause
        return _check(result, self._argument_size, self._direction)


def _refuse_awaitable(result: object, direction: _Direction) -> object:
    if not inspect.isawaitable(result):
        return result
    if inspect.iscoroutine(result):
        # The coroutine never runs; close() avoids Python's warning.
        result.close()
    raise direction.error(f"the encryption hook's {direction.method} is asynchronous and cannot be awaited here")


def _check(result: object, argument_size: int, direction: _Direction) -> bytes:
    if not isinstance(result, bytes | bytearray | memoryview):
        raise direction.error(
            f"the encryption hook's {direction.method} must return bytes, not {type(result).__name__}"
        )
    if argument_size and not len(result) and not direction.may_vanish:
        raise direction.error(f"{direction.method} returned no bytes, which would lose the message")
    return bytes(result)


def _failure(direction: _Direction, cause: BaseException) -> EncryptionError | DecryptionError:
    # The text of the cause may contain the key or the plaintext: the cause is chained, its text not repeated.
    return direction.error(f"the encryption hook's {direction.method} raised {type(cause).__name__}")
