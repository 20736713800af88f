"""Random bytes as an argument: where nonces, padding and ephemeral keys come from.

Only encryption needs randomness below the shells. It is drawn through a
function that the caller hands in (`os.urandom` by default), so a test or a simulation can replay
every encrypted byte. Invariant: a source that fails or gives too few bytes stops the encryption; nothing is ever
padded out or reused.
"""

from __future__ import annotations

from collections.abc import Callable

from fairway.errors import EncryptionError

RandomBytes = Callable[[int], bytes]
"""Gives as many unpredictable bytes as it is asked for, as `os.urandom` does."""


def draw(random_bytes: RandomBytes, size_bytes: int) -> bytes:
    """Return exactly ``size_bytes`` bytes of the source, or raise `EncryptionError`."""
    try:
        drawn = random_bytes(size_bytes)
    except Exception as cause:
        raise EncryptionError(f"the source of random bytes failed: {type(cause).__name__}") from cause
    if not isinstance(drawn, bytes) or len(drawn) != size_bytes:
        raise EncryptionError(f"the source of random bytes must give {size_bytes} bytes when asked for them")
    return drawn
