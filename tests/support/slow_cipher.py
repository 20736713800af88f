"""A cipher that takes time."""

from __future__ import annotations

import asyncio


class SlowCipher:
    """Takes 10 ms for each message."""

    async def encrypt(self, plaintext: bytes) -> bytes:
        await asyncio.sleep(0.01)
        return plaintext[::-1]

    decrypt = encrypt
