"""Members of another make, as others hear them.

`ForeignTongue` stands where the cipher stands: what a participant says leaves it without all that SDS does not ask for,
as messages of js-waku and nim-sds do. Such a message neither vouches for what comes before what it cites, nor says on a
copy whose acknowledgement is known, and it has no bloom filter, by which others could tell what its sender gave up.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

from fairway.protocol.encryption import Encryption
from fairway.wire.sds import SdsCodec


class ForeignTongue:
    """An encryption hook (`fairway.protocol.encryption.Encryption`) that takes such fields out of own messages."""

    def __init__(self, name: str, codec: SdsCodec, encryption: Encryption | None) -> None:
        """Stand before the cipher of a participant, if the channel has one."""
        self._name = name
        self._codec = codec
        self._encryption = encryption

    def encrypt(self, plaintext: bytes, /) -> bytes | Awaitable[bytes]:
        """Encrypt what is left of an own message, or, as it is, one of another participant that is sent again."""
        message = self._codec.decode(plaintext)
        if message.sender_id == self._name and message.lamport_timestamp:
            said = replace(message, vouches=False, acknowledged_by=b"", bloom_filter=self._codec.no_bloom)
            plaintext = self._codec.encode(said)
        return plaintext if self._encryption is None else self._encryption.encrypt(plaintext)

    def decrypt(self, ciphertext: bytes, /) -> bytes | Awaitable[bytes]:
        """Open something."""
        return ciphertext if self._encryption is None else self._encryption.decrypt(ciphertext)
