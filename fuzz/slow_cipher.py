"""An asynchronous encryption hook of which the script decides when it is done.

It changes nothing about the bytes, so that a stack with it and one without read the same messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator


class _Later:
    """What a slow cipher gives at once: something to await."""

    def __init__(self, result: bytes) -> None:
        self._result = result

    def __await__(self) -> Generator[None, None, bytes]:
        yield
        return self._result


class SlowCipher:
    """Encrypts and opens by changing nothing, later."""

    def encrypt(self, plaintext: bytes, /) -> Awaitable[bytes]:
        """Encrypt, later."""
        return _Later(plaintext)

    def decrypt(self, ciphertext: bytes, /) -> Awaitable[bytes]:
        """Open, later."""
        return _Later(ciphertext)


def awaited(awaitable: Awaitable[bytes]) -> bytes:
    """Return the result of what is ready to be awaited."""
    running = awaitable.__await__()
    while True:
        try:
            next(running)
        except StopIteration as done:
            return bytes(done.value)
