"""The encryption hook: the only place where a channel's bytes are encrypted and opened.

LIP-173, "Encryption Hook": an upper layer may plug in any cipher; it is applied to each segment after SDS
on the way out and before SDS on the way in. With no hook the channel sends plaintext, and only then.

Invariant, in both directions *fail-closed*: `encrypt` either gives what the hook made of the plaintext or
raises `EncryptionError`, so nothing leaves in clear because a cipher broke; `decrypt` either gives what the
hook made of the ciphertext or raises `DecryptionError`, so nothing unopened is mistaken for a message.
Whatever a hook raises or returns, no other exception comes out. Only `KeyboardInterrupt` and `SystemExit`, which
end the program, pass, and a cancellation of the task that awaits the hook. A plain hook cannot be cancelled: a
`CancelledError` that it raises is a failure.

A hook must be authenticated (AEAD): SDS trusts what `decrypt` returns. This module cannot check that, just as
it cannot tell a broken cipher that returns its input from a null cipher that was plugged in on purpose, so
the latter is allowed: the author of a hook decides what it hides.
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
    """What a caller's cipher must have. Each method may be a plain function or a coroutine function.

    Failure is an exception, of any type. An optional attribute ``waku_version: int`` tells the ``version``
    of the WakuMessage that carries the ciphertext (14/WAKU2-MESSAGE: 1 for 26/WAKU2-PAYLOAD); without it
    the version is 0.
    """

    def encrypt(self, plaintext: bytes, /) -> bytes | Awaitable[bytes]:
        """Return the encrypted form of ``plaintext``, or raise."""
        ...

    def decrypt(self, ciphertext: bytes, /) -> bytes | Awaitable[bytes]:
        """Return the plaintext of ``ciphertext``, or raise when it was not encrypted for this cipher."""
        ...


def check_encryption(encryption: Encryption | None) -> None:
    """Raise `ConfigurationError` if an object is no cipher."""
    advice = "give a cipher with encrypt(bytes) and decrypt(bytes), such as fairway.encryption.AesGcm(key), not a key"
    check_type("encryption", encryption, Encryption | None, advice)


def waku_version_of(encryption: Encryption | None) -> int:
    """Return the WakuMessage version under which a hook's ciphertexts travel; 0 for none and by default."""
    version = getattr(encryption, "waku_version", 0)
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= MAX_WAKU_VERSION:
        raise ConfigurationError(f"waku_version of a cipher must be an integer in 0..2**32-1, not {version!r}")
    return version


def encrypt(encryption: Encryption, plaintext: bytes) -> bytes | Awaitable[bytes]:
    """Encrypt one SDS message; raise `EncryptionError` when the hook does not give its encrypted bytes.

    LIP-173, "Outgoing message processing", step 3. With an asynchronous hook the result is an
    awaitable that gives the bytes or raises the same error; the stack hands it outward and never awaits.
    """
    return _settled(_call(encryption, plaintext, _ENCRYPT), len(plaintext), _ENCRYPT)


def decrypt(encryption: Encryption, ciphertext: bytes) -> bytes | Awaitable[bytes]:
    """Decrypt one received payload; raise `DecryptionError` when the hook does not give its plaintext.

    LIP-173, "Incoming message processing", step 1. With an asynchronous hook the result is an
    awaitable that gives the bytes or raises the same error.
    """
    return _settled(_call(encryption, ciphertext, _DECRYPT), len(ciphertext), _DECRYPT)


def encrypt_at_once(encryption: Encryption, plaintext: bytes) -> bytes:
    """Encrypt where nothing can be awaited: as `encrypt`, but an asynchronous hook is an `EncryptionError`."""
    return _check(_refuse_awaitable(_call(encryption, plaintext, _ENCRYPT), _ENCRYPT), len(plaintext), _ENCRYPT)


def decrypt_at_once(encryption: Encryption, ciphertext: bytes) -> bytes:
    """Decrypt where nothing can be awaited: as `decrypt`, but an asynchronous hook is a `DecryptionError`."""
    return _check(_refuse_awaitable(_call(encryption, ciphertext, _DECRYPT), _DECRYPT), len(ciphertext), _DECRYPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Direction:
    method: str
    error: type[EncryptionError | DecryptionError]
    may_vanish: bool
    """Whether no bytes are a good answer to some bytes."""


_ENCRYPT: Final = _Direction(method="encrypt", error=EncryptionError, may_vanish=False)
_DECRYPT: Final = _Direction(method="decrypt", error=DecryptionError, may_vanish=True)


def _call(encryption: Encryption, argument: bytes, direction: _Direction) -> object:
    try:
        # Looked up inside the try: an object without the method is a failing hook as well.
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
    """Give an awaitable's result the same treatment as a plain one.

    Nothing in fairway.protocol awaits it. Its coroutine begins only when the shell awaits it, so that Python does not
    warn of a coroutine that was never awaited in a program that ends before.
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
        # It will never run; without this Python warns of a coroutine that was never awaited.
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
    # The cause's own text may quote key or plaintext: it is chained, not repeated.
    return direction.error(f"the encryption hook's {direction.method} raised {type(cause).__name__}")
