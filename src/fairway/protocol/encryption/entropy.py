"""The source of random bytes for nonces, padding and ephemeral keys.

In the protocol only encryption needs randomness. The caller passes the source as an argument (`os.urandom` by default),
so a test or a simulation can replay every encrypted byte. Invariant: if a source fails or returns too few bytes, the
encryption fails; random bytes are never padded or reused.
"""

from __future__ import annotations

from collections.abc import Callable

from fairway.errors import EncryptionError

RandomBytes = Callable[[int], bytes]
"""Returns the requested number of unpredictable bytes, as `os.urandom` does."""


def draw(random_bytes: RandomBytes, size_bytes: int) -> bytes:
    """Return exactly ``size_bytes`` bytes of the source, or raise `EncryptionError`."""
    try:
        drawn = random_bytes(size_bytes)
    except Exception as cause:
        raise EncryptionError(f"the source of random bytes failed: {type(cause).__name__}") from cause
    if not isinstance(drawn, bytes) or len(drawn) != size_bytes:
        raise EncryptionError(f"the source of random bytes must give {size_bytes} bytes when asked for them")
    return drawn
