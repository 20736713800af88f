"""The encryption hook: whatever a cipher does, a channel gets bytes or one typed error."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecryptionError, EncryptionError
from fairway.protocol.encryption import (
    Encryption,
    decrypt,
    decrypt_at_once,
    encrypt,
    encrypt_at_once,
    waku_version_of,
)


@dataclass
class Answers:
    """A caller's own cipher that answers every call with the same thing."""

    answer: Any

    def encrypt(self, plaintext, /):
        return self.answer

    def decrypt(self, ciphertext, /):
        return self.answer


@dataclass
class Raises:
    """A caller's own cipher that breaks."""

    error: BaseException

    def encrypt(self, plaintext, /):
        raise self.error

    def decrypt(self, ciphertext, /):
        raise self.error


@dataclass
class Later:
    """Any cipher, made asynchronous."""

    inner: Any

    async def encrypt(self, plaintext, /):
        await asyncio.sleep(0)
        return self.inner.encrypt(plaintext)

    async def decrypt(self, ciphertext, /):
        await asyncio.sleep(0)
        return self.inner.decrypt(ciphertext)


class Reversing:
    """The least that a caller has to write."""

    waku_version: object
    """No class has to have it."""

    def encrypt(self, plaintext: bytes, /) -> bytes:
        return plaintext[::-1]

    def decrypt(self, ciphertext: bytes, /) -> bytes:
        return ciphertext[::-1]


def outcome(result):
    """Give what the shell would get, from a plain result or an awaitable one."""

    async def awaited():
        return await result

    return asyncio.run(awaited()) if inspect.isawaitable(result) else result


either = pytest.mark.parametrize("wrap", [lambda hook: hook, Later], ids=["at once", "later"])

NOT_BYTES = [None, "text", 7, [1, 2], object()]
FAILURES = [ValueError("secret"), TypeError(), RuntimeError("x"), OSError(), LookupError(), Exception()]


@either
@given(plaintext=st.binary(max_size=50))
def test_a_minimal_cipher_encrypts_and_opens(wrap, plaintext):
    hook = wrap(Reversing())
    encrypted = outcome(encrypt(hook, plaintext))
    assert encrypted == plaintext[::-1]
    assert outcome(decrypt(hook, encrypted)) == plaintext


def test_a_plain_cipher_answers_without_an_awaitable_and_an_asynchronous_one_with_it():
    assert encrypt(Reversing(), b"ab") == b"ba"
    pending = encrypt(Later(Reversing()), b"ab")
    assert inspect.isawaitable(pending)
    assert outcome(pending) == b"ba"


def test_an_object_without_the_two_methods_is_told_apart():
    assert isinstance(Reversing(), Encryption)
    assert isinstance(Later(Reversing()), Encryption)
    assert not isinstance(object(), Encryption)


@either
@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_whatever_a_cipher_raises_becomes_the_typed_error_of_its_direction(wrap, error):
    hook = wrap(Raises(error))
    with pytest.raises(EncryptionError) as encrypting:
        outcome(encrypt(hook, b"x"))
    with pytest.raises(DecryptionError) as opening:
        outcome(decrypt(hook, b"x"))
    assert encrypting.value.__cause__ is error
    assert opening.value.__cause__ is error


def test_the_text_of_a_cipher_s_own_error_is_not_repeated():
    with pytest.raises(EncryptionError) as caught:
        encrypt(Raises(ValueError("the key is hunter2")), b"x")
    assert "hunter2" not in str(caught.value)
    assert "ValueError" in str(caught.value)


@either
def test_a_typed_error_of_the_cipher_itself_passes_unchanged(wrap):
    refused, foreign = EncryptionError("over quota"), DecryptionError("not ours")
    with pytest.raises(EncryptionError) as encrypting:
        outcome(encrypt(wrap(Raises(refused)), b"x"))
    with pytest.raises(DecryptionError) as opening:
        outcome(decrypt(wrap(Raises(foreign)), b"x"))
    assert encrypting.value is refused
    assert opening.value is foreign


@either
@pytest.mark.parametrize("answer", NOT_BYTES, ids=lambda answer: type(answer).__name__)
def test_an_answer_that_is_not_bytes_is_a_failure(wrap, answer):
    hook = wrap(Answers(answer))
    with pytest.raises(EncryptionError, match="must return bytes"):
        outcome(encrypt(hook, b"x"))
    with pytest.raises(DecryptionError, match="must return bytes"):
        outcome(decrypt(hook, b"x"))


@either
@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_kinds_of_byte_strings_become_bytes(wrap, kind):
    hook = wrap(Answers(kind(b"abc")))
    assert type(outcome(encrypt(hook, b"x"))) is bytes
    assert outcome(decrypt(hook, b"x")) == b"abc"


@either
def test_encrypting_to_nothing_fails_because_it_would_lose_the_message(wrap):
    with pytest.raises(EncryptionError, match="lose"):
        outcome(encrypt(wrap(Answers(b"")), b"x"))
    assert outcome(decrypt(wrap(Answers(b"")), b"x")) == b""


def test_a_null_cipher_is_the_caller_s_right():
    class Null:
        def encrypt(self, plaintext, /):
            return plaintext

        decrypt = encrypt

    assert encrypt(Null(), b"clear") == b"clear"
    assert decrypt(Null(), b"clear") == b"clear"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()], ids=repr)
def test_what_is_no_failure_of_the_cipher_passes(error):
    with pytest.raises(type(error)):
        encrypt(Raises(error), b"x")
    with pytest.raises(type(error)):
        decrypt(Raises(error), b"x")


def test_cancelling_the_wait_is_not_mistaken_for_a_cipher_that_failed():
    class Never:
        async def encrypt(self, plaintext, /):
            await asyncio.Event().wait()

        async def decrypt(self, ciphertext, /):
            await asyncio.Event().wait()

    async def cancelled_while(pending):
        task = asyncio.ensure_future(pending)
        await asyncio.sleep(0)
        task.cancel()
        await task

    for pending in (encrypt(Never(), b"x"), decrypt(Never(), b"x")):
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(cancelled_while(pending))


def test_a_future_is_as_good_as_a_coroutine():
    async def through_a_future():
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, b"encrypted")
        encrypted = encrypt(Answers(future), b"x")
        assert isinstance(encrypted, Awaitable)
        return await encrypted

    assert asyncio.run(through_a_future()) == b"encrypted"


def test_where_nothing_can_be_awaited_a_plain_cipher_works_and_fails_as_ever():
    assert decrypt_at_once(Reversing(), encrypt_at_once(Reversing(), b"ab")) == b"ab"
    for answer in (None, "text"):
        with pytest.raises(EncryptionError, match="must return bytes"):
            encrypt_at_once(Answers(answer), b"x")
        with pytest.raises(DecryptionError, match="must return bytes"):
            decrypt_at_once(Answers(answer), b"x")
    with pytest.raises(EncryptionError, match="lose"):
        encrypt_at_once(Answers(b""), b"x")
    with pytest.raises(EncryptionError, match="ValueError"):
        encrypt_at_once(Raises(ValueError()), b"x")
    with pytest.raises(DecryptionError, match="ValueError"):
        decrypt_at_once(Raises(ValueError()), b"x")


def test_where_nothing_can_be_awaited_an_asynchronous_cipher_is_refused():
    class FutureLike:
        def __await__(self):
            yield

    for hook in (Later(Reversing()), Answers(FutureLike())):
        with pytest.raises(EncryptionError, match="asynchronous"):
            encrypt_at_once(hook, b"x")
        with pytest.raises(DecryptionError, match="asynchronous"):
            decrypt_at_once(hook, b"x")


def test_the_waku_version_is_zero_unless_the_cipher_names_one():
    hook = Reversing()
    assert waku_version_of(None) == 0
    assert waku_version_of(hook) == 0
    hook.waku_version = 2
    assert waku_version_of(hook) == 2


@pytest.mark.parametrize("version", [-1, 2**32, "1", None, True, 1.0], ids=repr)
def test_a_waku_version_that_no_message_can_carry_is_refused(version):
    hook = Reversing()
    hook.waku_version = version
    with pytest.raises(ConfigurationError, match="waku_version"):
        waku_version_of(hook)
