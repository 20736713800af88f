"""Peer ids: the multihash of a peer's public key (libp2p "Peer Ids and Keys").

A key with an encoding of at most 42 bytes is used unchanged (identity multihash). A longer key is hashed with SHA-256.
Any other hash is refused. The text form is base58btc ("12D3KooW...", "16Uiu2...", "Qm..."); CIDv1 is read as well.
"""

from __future__ import annotations

import hashlib
from base64 import b32decode, b32encode
from functools import lru_cache
from typing import Final

from msgspec import Struct

from fairway.libp2p.errors import IdentityError
from fairway.libp2p.keys import PublicKey

MAX_INLINE_KEY_BYTES: Final = 42
"""Encoded keys up to this size are not hashed."""

MAX_TEXT_CHARACTERS: Final = 128
"""Longer texts are not read; the longest valid one has fewer than 80 characters."""

_IDENTITY: Final = 0x00
_SHA2_256: Final = 0x12
_SHA2_256_BYTES: Final = 32
_CID_V1_LIBP2P_KEY: Final = b"\x01\x72"

_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class PeerId(Struct, frozen=True, order=True):
    """The id of a peer. Raises `IdentityError` for a multihash that cannot be that of a key."""

    multihash: bytes
    """The peer id in binary: hash code, length, digest."""

    def __post_init__(self) -> None:
        code, size = self.multihash[:1], len(self.multihash) - 2
        known = code == bytes([_IDENTITY]) and 0 < size <= MAX_INLINE_KEY_BYTES
        known = known or (code == bytes([_SHA2_256]) and size == _SHA2_256_BYTES)
        if not known or self.multihash[1] != size:
            raise IdentityError(
                f"{len(self.multihash)} bytes are no peer id: expected a SHA-256 multihash, or an identity multihash "
                f"of at most {MAX_INLINE_KEY_BYTES} bytes"
            )

    @classmethod
    def from_public_key(cls, key: PublicKey) -> PeerId:
        """Return the peer id of a public key."""
        encoded = key.to_bytes()
        if len(encoded) <= MAX_INLINE_KEY_BYTES:
            return cls(bytes([_IDENTITY, len(encoded)]) + encoded)
        return cls(bytes([_SHA2_256, _SHA2_256_BYTES]) + hashlib.sha256(encoded).digest())

    @classmethod
    def parse(cls, text: str) -> PeerId:
        """Read text: base58btc, or a CIDv1 of the libp2p-key codec in base32, base36 or base58btc."""
        if len(text) > MAX_TEXT_CHARACTERS:
            raise IdentityError(f"a peer id of {len(text)} characters; at most {MAX_TEXT_CHARACTERS} are read")
        if text.startswith(("1", "Qm")):
            return cls(_decode_digits(text, _BASE58, text))
        if text.startswith("b"):
            binary = _decode_base32(text[1:], text)
        elif text.startswith(("k", "z")):
            binary = _decode_digits(text[1:], _BASE36 if text[0] == "k" else _BASE58, text)
        else:
            raise IdentityError(f"{text!r} is no peer id: one begins with 1, Qm, or b, k or z for its CID form")
        if not binary.startswith(_CID_V1_LIBP2P_KEY):
            raise IdentityError(f"{text!r} is a CID, but not of a libp2p key")
        return cls(binary[len(_CID_V1_LIBP2P_KEY) :])

    def __str__(self) -> str:
        return _encode_base58(self.multihash)

    def __repr__(self) -> str:
        return f"PeerId({self})"


@lru_cache(maxsize=4096)
def _encode_base58(data: bytes) -> str:
    number = int.from_bytes(data)
    digits = []
    while number:
        number, digit = divmod(number, 58)
        digits.append(_BASE58[digit])
    # Each leading zero byte is one leading "1"; the number does not contain them.
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + "".join(reversed(digits))


def _decode_digits(text: str, alphabet: str, whole: str) -> bytes:
    number = 0
    for character in text:
        digit = alphabet.find(character)
        if digit < 0:
            raise IdentityError(f"{whole!r} is no peer id: {character!r} is no digit of base {len(alphabet)}")
        number = number * len(alphabet) + digit
    zeros = len(text) - len(text.lstrip(alphabet[0]))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8)


def _decode_base32(text: str, whole: str) -> bytes:
    try:
        binary = b32decode(text.upper() + "=" * (-len(text) % 8))
    except ValueError as error:
        raise IdentityError(f"{whole!r} is no peer id: {error}") from error
    if b32encode(binary).decode().rstrip("=").lower() != text:
        raise IdentityError(f"{whole!r} is no peer id: base32 has another form for the same bytes")
    return binary
