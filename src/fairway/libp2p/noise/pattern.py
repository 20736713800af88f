"""The Noise Protocol Framework, cut down to the one protocol that libp2p uses: Noise_XX_25519_ChaChaPoly_SHA256.

Sections 4 and 5 of the framework's specification. `XX` lists the steps of each message, `_DH` the keys of each
Diffie-Hellman step; the code only looks up. Frames and identities are not handled here: keys and payloads are
arguments. Invariant: after a failure, or after the last message, no further step is possible.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fairway.environment import random_bytes
from fairway.libp2p.errors import HandshakeError

PROTOCOL_NAME: Final = b"Noise_XX_25519_ChaChaPoly_SHA256"
KEY_BYTES: Final = 32
TAG_BYTES: Final = 16


class Role(Enum):
    """The two sides of a connection."""

    INITIATOR = "initiator"
    RESPONDER = "responder"


Step = Literal["e", "s", "ee", "es", "se"]

XX: Final[tuple[tuple[Role, tuple[Step, ...]], ...]] = (
    (Role.INITIATOR, ("e",)),
    (Role.RESPONDER, ("e", "ee", "s", "es")),
    (Role.INITIATOR, ("s", "se")),
)
"""The handshake: the sender of each message, and its steps before the payload (section 7.5)."""

_DH: Final[dict[tuple[Role, Step], tuple[Literal["e", "s"], Literal["re", "rs"]]]] = {
    (Role.INITIATOR, "ee"): ("e", "re"),
    (Role.RESPONDER, "ee"): ("e", "re"),
    (Role.INITIATOR, "es"): ("e", "rs"),
    (Role.RESPONDER, "es"): ("s", "re"),
    (Role.INITIATOR, "se"): ("s", "re"),
    (Role.RESPONDER, "se"): ("e", "rs"),
}
"""The own key and the peer's key of each step; the first letter of a step is the initiator's key (section 5.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKeys:
    """The keys after the last message (section 5.2, ``Split``)."""

    send: bytes
    """32 bytes: the key for messages of this side."""
    receive: bytes
    """32 bytes: the key for messages of the peer."""
    handshake_hash: bytes
    """32 bytes, the same at both sides, that identify the session (section 11.2)."""

    def __repr__(self) -> str:
        return f"<SessionKeys of session {self.handshake_hash.hex()[:16]}>"


def generate_noise_key() -> X25519PrivateKey:
    """Make a new X25519 key: a static one for a node's lifetime, or an ephemeral one for a single handshake."""
    return X25519PrivateKey.from_private_bytes(random_bytes(KEY_BYTES))


class SymmetricState:
    """The chaining key, the handshake hash and the present key (section 5.2 with the cipher of 5.1)."""

    __slots__ = ("_chaining_key", "_cipher", "_nonce", "hash")

    def __init__(self) -> None:
        # The name has exactly HASHLEN bytes, so it is the first hash itself.
        self.hash = PROTOCOL_NAME
        self._chaining_key = PROTOCOL_NAME
        self._cipher: ChaCha20Poly1305 | None = None
        self._nonce = 0

    def mix_hash(self, data: bytes) -> None:
        """Mix ``data`` into the handshake hash, which authenticates all later messages."""
        self.hash = hashlib.sha256(self.hash + data).digest()

    def mix_key(self, secret: bytes) -> None:
        """Derive the next key from a Diffie-Hellman secret."""
        self._chaining_key, key = self._derive(secret)
        self._cipher = ChaCha20Poly1305(key)
        self._nonce = 0

    def encrypt_and_hash(self, plaintext: bytes) -> bytes:
        """Encrypt ``plaintext``, or return it unchanged while there is no key."""
        sealed = plaintext
        if self._cipher is not None:
            sealed = self._cipher.encrypt(self._next_nonce(), plaintext, self.hash)
        self.mix_hash(sealed)
        return sealed

    def decrypt_and_hash(self, sealed: bytes) -> bytes:
        """Undo `encrypt_and_hash`; raise `InvalidTag` if the text was encrypted with another key or changed."""
        plaintext = sealed
        if self._cipher is not None:
            plaintext = self._cipher.decrypt(self._next_nonce(), sealed, self.hash)
        self.mix_hash(sealed)
        return plaintext

    @property
    def sealed_overhead(self) -> int:
        """Bytes that encryption adds: 0 while there is no key."""
        return 0 if self._cipher is None else TAG_BYTES

    def split(self) -> tuple[bytes, bytes]:
        """Return the sending keys of the initiator and of the responder."""
        return self._derive(b"")

    def _derive(self, secret: bytes) -> tuple[bytes, bytes]:
        """Return both outputs of the framework's HKDF (section 4.3)."""
        extracted = hmac.digest(self._chaining_key, secret, "sha256")
        first = hmac.digest(extracted, b"\x01", "sha256")
        return first, hmac.digest(extracted, first + b"\x02", "sha256")

    def _next_nonce(self) -> bytes:
        # Section 12.3: 32 bits of zeros, then the number in 64 bits, little endian.
        nonce = b"\0\0\0\0" + self._nonce.to_bytes(8, "little")
        self._nonce += 1
        return nonce


class XXHandshake:
    """One side of the handshake `XX`: `write_message` and `read_message` in turn, then `keys`.

    ``static`` and ``ephemeral`` are the keys of this side; an ephemeral key must not be used twice.
    """

    __slots__ = ("_failed", "_keys", "_own", "_position", "_role", "_symmetric", "_theirs")

    def __init__(
        self, *, role: Role, static: X25519PrivateKey, ephemeral: X25519PrivateKey, prologue: bytes = b""
    ) -> None:
        self._role = role
        self._own = {"e": ephemeral, "s": static}
        self._theirs: dict[str, X25519PublicKey] = {}
        self._position = 0
        self._failed = False
        self._keys: SessionKeys | None = None
        self._symmetric = SymmetricState()
        self._symmetric.mix_hash(prologue)

    @property
    def turn(self) -> Role | None:
        """The side that sends the next message; None after the last message or a failure."""
        return XX[self._position][0] if self._position < len(XX) and not self._failed else None

    @property
    def message_number(self) -> int:
        """The number of the next message, 1 to 3; 4 after the last."""
        return self._position + 1

    @property
    def remote_static(self) -> bytes | None:
        """The peer's static key (32 bytes), or None before it is received."""
        key = self._theirs.get("rs")
        return None if key is None else key.public_bytes_raw()

    @property
    def keys(self) -> SessionKeys:
        """The keys of the session; raises `HandshakeError` before the last message."""
        if self._keys is None:
            raise HandshakeError(f"{self._position} of {len(XX)} messages were exchanged")
        return self._keys

    def write_message(self, payload: bytes) -> bytes:
        """Return the next message with ``payload`` in it."""
        parts = []
        for step in self._steps(self._role):
            if step == "e":
                public = self._own["e"].public_key().public_bytes_raw()
                self._symmetric.mix_hash(public)
                parts.append(public)
            elif step == "s":
                parts.append(self._symmetric.encrypt_and_hash(self._own["s"].public_key().public_bytes_raw()))
            else:
                self._mix_dh(step)
        parts.append(self._symmetric.encrypt_and_hash(payload))
        self._advance()
        return b"".join(parts)

    def read_message(self, message: bytes) -> bytes:
        """Return the payload of the peer's next message, or raise `HandshakeError`."""
        other = Role.RESPONDER if self._role is Role.INITIATOR else Role.INITIATOR
        offset = 0
        try:
            for step in self._steps(other):
                if step == "e":
                    public = self._part(message, offset, KEY_BYTES)
                    self._symmetric.mix_hash(public)
                    self._theirs["re"] = X25519PublicKey.from_public_bytes(public)
                    offset += KEY_BYTES
                elif step == "s":
                    size = KEY_BYTES + self._symmetric.sealed_overhead
                    public = self._symmetric.decrypt_and_hash(self._part(message, offset, size))
                    self._theirs["rs"] = X25519PublicKey.from_public_bytes(public)
                    offset += size
                else:
                    self._mix_dh(step)
            self._part(message, offset, self._symmetric.sealed_overhead)
            payload = self._symmetric.decrypt_and_hash(message[offset:])
        except InvalidTag as error:
            self._failed = True
            raise HandshakeError(
                f"message {self.message_number} was not sealed for this handshake, or was changed on the way"
            ) from error
        self._advance()
        return payload

    def _steps(self, sender: Role) -> tuple[Step, ...]:
        if self.turn is not sender:
            state = "failed" if self._failed else f"message {self.message_number}"
            raise HandshakeError(f"{state}: it is not the {sender.value}'s turn")
        return XX[self._position][1]

    def _part(self, message: bytes, offset: int, size: int) -> bytes:
        part = message[offset : offset + size]
        if len(part) != size:
            self._failed = True
            raise HandshakeError(
                f"message {self.message_number} has {len(message)} bytes, at least {offset + size} are needed"
            )
        return part

    def _mix_dh(self, step: Step) -> None:
        own, theirs = _DH[self._role, step]
        try:
            secret = self._own[own].exchange(self._theirs[theirs])
        except ValueError as error:
            self._failed = True
            # RFC 7748, section 6.1: a point of low order gives an all-zero secret with any own key.
            raise HandshakeError(
                f"message {self.message_number} holds a key of the peer that gives no secret"
            ) from error
        self._symmetric.mix_key(secret)

    def _advance(self) -> None:
        self._position += 1
        if self._position == len(XX):
            first, second = self._symmetric.split()
            send, receive = (first, second) if self._role is Role.INITIATOR else (second, first)
            self._keys = SessionKeys(send=send, receive=receive, handshake_hash=self._symmetric.hash)
