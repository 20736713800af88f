"""26/WAKU2-PAYLOAD, version 1: the encrypted payloads that js-waku and other Waku clients exchange.

Two ciphers over one inner frame (`payload_frame`), byte-compatible with js-waku's
``@waku/message-encryption``:

* `SymmetricPayload`, AES-256-GCM under a key that the group shares: ciphertext || tag (16) || iv (12). The
  bound on messages per key of `aead` holds here too.
* `EciesPayload`, ECIES on secp256k1: encrypted to a public key, see `ecies`. A group shares one pair of keys.

Both are an `Encryption` hook with ``waku_version`` 1, and both can sign. The hook gives only the payload;
`open` also tells who signed it, and ``trusted_signers`` makes the signature binding: what none of them
signed does not open.

Invariant: ``encrypt`` raises only `EncryptionError`, ``open`` and ``decrypt`` only `DecryptionError`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairway.errors import ConfigurationError, DecryptionError
from fairway.protocol.encryption.aead import MAX_CIPHERTEXT_BYTES, NONCE_BYTES, TAG_BYTES, require_key
from fairway.protocol.encryption.ecies import ecies_decrypt, ecies_encrypt
from fairway.protocol.encryption.entropy import RandomBytes, draw
from fairway.protocol.encryption.payload_frame import DecodedPayload, decode_frame, encode_frame
from fairway.protocol.encryption.secp256k1 import PrivateKey, require_public_key
from fairway.type_checks import check_type

if TYPE_CHECKING:
    from collections.abc import Iterable

WAKU_VERSION: Final = 1
"""14/WAKU2-MESSAGE, "Payload encryption": the payload is encrypted as 26/WAKU2-PAYLOAD says."""


class PayloadCipher(ABC):
    """What both ciphers share: the frame, the signature and who may have made it."""

    waku_version: ClassVar[int] = WAKU_VERSION

    def __init__(
        self,
        *,
        sign_with: bytes | None,
        trusted_signers: Iterable[bytes] | None,
        random_bytes: RandomBytes,
    ) -> None:
        self._signer = None if sign_with is None else PrivateKey(sign_with)
        self._trusted_signers = None if trusted_signers is None else frozenset(trusted_signers)
        for public_key in self._trusted_signers or ():
            require_public_key(public_key)
        self._random_bytes = random_bytes

    @property
    def signer_public_key(self) -> bytes | None:
        """The public key under which this cipher signs, 65 bytes; None when it does not."""
        return None if self._signer is None else self._signer.public_key

    def encrypt(self, plaintext: bytes, /) -> bytes:
        """Frame, sign if asked to, and encrypt ``plaintext`` (at most 2**24 - 1 bytes)."""
        return self._encrypt_frame(encode_frame(plaintext, self._signer, self._random_bytes))

    def decrypt(self, ciphertext: bytes, /) -> bytes:
        """Return the payload that `encrypt`, or another implementation of 26/WAKU2-PAYLOAD, encrypted."""
        return self.open(ciphertext).payload

    def open(self, ciphertext: bytes) -> DecodedPayload:
        """Return the payload and who signed it; `DecryptionError` also for a signer who is not trusted."""
        if len(ciphertext) > MAX_CIPHERTEXT_BYTES:
            raise DecryptionError(f"{len(ciphertext)} bytes are more than any encrypted payload has")
        decoded = decode_frame(self._decrypt_frame(ciphertext))
        if self._trusted_signers is not None and decoded.signer_public_key not in self._trusted_signers:
            raise DecryptionError("the payload was not signed by any of the trusted signers")
        return decoded

    @abstractmethod
    def _encrypt_frame(self, frame: bytes) -> bytes: ...

    @abstractmethod
    def _decrypt_frame(self, ciphertext: bytes) -> bytes: ...

    def _described(self) -> str:
        signer = self.signer_public_key
        return "unsigned" if signer is None else f"signed by {signer.hex()}"


class SymmetricPayload(PayloadCipher):
    """26/WAKU2-PAYLOAD, "Symmetric": AES-256-GCM under a shared 32-byte key.

    ``sign_with`` is a 32-byte secp256k1 private key. With ``trusted_signers``, a collection of 65-byte
    public keys, only what one of them signed opens.
    """

    def __init__(
        self,
        key: bytes,
        *,
        sign_with: bytes | None = None,
        trusted_signers: Iterable[bytes] | None = None,
        random_bytes: RandomBytes = os.urandom,
    ) -> None:
        super().__init__(sign_with=sign_with, trusted_signers=trusted_signers, random_bytes=random_bytes)
        require_key(key)
        self._key = key

    def __repr__(self) -> str:
        return f"<SymmetricPayload, {self._described()}>"

    def _encrypt_frame(self, frame: bytes) -> bytes:
        iv = draw(self._random_bytes, NONCE_BYTES)
        # "Symmetric": tag and iv "MUST be appended to the resulting `ciphertext`, in that order".
        # AESGCM has appended the tag.
        return AESGCM(self._key).encrypt(iv, frame, None) + iv

    def _decrypt_frame(self, ciphertext: bytes) -> bytes:
        if len(ciphertext) < TAG_BYTES + NONCE_BYTES:
            raise DecryptionError(f"{len(ciphertext)} bytes are too few for an encrypted payload")
        view = memoryview(ciphertext)
        try:
            return AESGCM(self._key).decrypt(bytes(view[-NONCE_BYTES:]), view[:-NONCE_BYTES], None)
        except InvalidTag as cause:
            raise DecryptionError("not encrypted with this key, or altered on the way") from cause


class EciesPayload(PayloadCipher):
    """26/WAKU2-PAYLOAD, "Asymmetric": encrypted to a public key, opened with its private key.

    With ``private_key`` alone (32 bytes) it encrypts to that key's own public key: the group that shares the
    pair. With ``public_key`` alone (65 bytes) it can only encrypt. With both it writes to one peer and reads
    as another. ``sign_with`` and ``trusted_signers`` are as in `SymmetricPayload`; without them anyone who
    knows the public key can write.
    """

    def __init__(
        self,
        public_key: bytes | None = None,
        private_key: bytes | None = None,
        *,
        sign_with: bytes | None = None,
        trusted_signers: Iterable[bytes] | None = None,
        random_bytes: RandomBytes = os.urandom,
    ) -> None:
        super().__init__(sign_with=sign_with, trusted_signers=trusted_signers, random_bytes=random_bytes)
        self._private_key = None if private_key is None else PrivateKey(private_key)
        if public_key is not None:
            require_public_key(public_key)
        elif self._private_key is not None:
            public_key = self._private_key.public_key
        else:
            raise ConfigurationError("EciesPayload needs a public_key to encrypt, a private_key to open, or both")
        self.public_key: bytes = public_key
        """The key that is encrypted to, 65 bytes."""

    def __repr__(self) -> str:
        reads = "only encrypts" if self._private_key is None else f"opens for {self._private_key.public_key.hex()}"
        return f"<EciesPayload to {self.public_key.hex()}, {reads}, {self._described()}>"

    def _encrypt_frame(self, frame: bytes) -> bytes:
        return ecies_encrypt(self.public_key, frame, self._random_bytes)

    def _decrypt_frame(self, ciphertext: bytes) -> bytes:
        if self._private_key is None:
            raise DecryptionError("this cipher has no private key, it can only encrypt")
        return ecies_decrypt(self._private_key, ciphertext)


class PayloadKeyRing:
    """Several keys as one cipher: encrypts with the first, opens with the first that can.

    26/WAKU2-PAYLOAD, "Decoding a message": a node SHOULD try both symmetric and asymmetric decryption,
    because the kind is not on the wire. It also carries a group over a change of keys: the new key first,
    the old one behind it.
    """

    waku_version: ClassVar[int] = WAKU_VERSION

    def __init__(self, *ciphers: PayloadCipher) -> None:
        if not ciphers:
            raise ConfigurationError("a key ring needs at least one cipher")
        for cipher in ciphers:
            check_type("each cipher of a key ring", cipher, PayloadCipher, "such as a SymmetricPayload")
        self._ciphers = ciphers

    def __repr__(self) -> str:
        return f"<PayloadKeyRing {list(self._ciphers)!r}>"

    def encrypt(self, plaintext: bytes, /) -> bytes:
        """Encrypt with the first cipher."""
        return self._ciphers[0].encrypt(plaintext)

    def decrypt(self, ciphertext: bytes, /) -> bytes:
        """Return the payload, opened by whichever cipher can."""
        return self.open(ciphertext).payload

    def open(self, ciphertext: bytes) -> DecodedPayload:
        """Return the payload and its signer; `DecryptionError` of the last cipher when none can."""
        for cipher in self._ciphers[:-1]:
            try:
                return cipher.open(ciphertext)
            except DecryptionError:
                continue
        return self._ciphers[-1].open(ciphertext)
