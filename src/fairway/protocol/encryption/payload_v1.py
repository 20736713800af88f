"""26/WAKU2-PAYLOAD, version 1: the encrypted payloads that js-waku and other Waku clients exchange.

Two ciphers over one inner frame (`payload_frame`), byte-compatible with js-waku's
``@waku/message-encryption``:

* `SymmetricPayload`, AES-256-GCM with a shared key: ciphertext || tag (16) || iv (12). The bound on messages per key
  of `aead` also applies here.
* `EciesPayload`, ECIES on secp256k1: encrypted to a public key, see `ecies`. A group shares one pair of keys.

Both are an `Encryption` hook with ``waku_version`` 1, and both can sign. `decrypt` returns only the payload; `open`
also returns the signer. With ``trusted_signers``, a payload without a signature of one of these keys is rejected.

Invariant: ``encrypt`` raises only `EncryptionError`, ``open`` and ``decrypt`` only `DecryptionError`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from copy import copy
from typing import TYPE_CHECKING, ClassVar, Final, Self

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
"""14/WAKU2-MESSAGE, "Payload encryption": the version of a payload encrypted by 26/WAKU2-PAYLOAD."""


class PayloadCipher(ABC):
    """The common base of both ciphers: the frame, the signature and the trusted signers."""

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
        """The public key of this cipher's signatures, 65 bytes; None if it does not sign."""
        return None if self._signer is None else self._signer.public_key

    def signing_with(self, private_key: bytes) -> Self:
        """Return this cipher with another ``sign_with``."""
        copied = copy(self)
        copied._signer = PrivateKey(private_key)  # noqa: SLF001 - a new object of this class
        return copied

    def encrypt(self, plaintext: bytes, /) -> bytes:
        """Encrypt ``plaintext`` (at most 2**24 - 1 bytes), signed if ``sign_with`` was given."""
        return self._encrypt_frame(encode_frame(plaintext, self._signer, self._random_bytes))

    def decrypt(self, ciphertext: bytes, /) -> bytes:
        """Return the payload of a ciphertext of 26/WAKU2-PAYLOAD, or raise `DecryptionError`."""
        return self.open(ciphertext).payload

    def open(self, ciphertext: bytes) -> DecodedPayload:
        """Return the payload and its signer; raise `DecryptionError`, also if the signer is not trusted."""
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
    """26/WAKU2-PAYLOAD, "Symmetric": AES-256-GCM with a shared 32-byte key.

    ``sign_with`` is a 32-byte secp256k1 private key. ``trusted_signers`` is a collection of 65-byte public keys; a
    payload without a signature of one of them is rejected.
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
    """26/WAKU2-PAYLOAD, "Asymmetric": encrypted to a public key, decrypted with its private key.

    With ``private_key`` alone (32 bytes) it encrypts to the public key of that key, for a group that shares the pair.
    With ``public_key`` alone (65 bytes) it can only encrypt. With both it encrypts to ``public_key`` and decrypts with
    ``private_key``. ``sign_with`` and ``trusted_signers`` are as in `SymmetricPayload`; without them, knowledge of the
    public key is enough to write.
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
        """Public key of the recipient, 65 bytes."""

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
    """Several ciphers as one: encrypts with the first, and tries all of them to decrypt.

    26/WAKU2-PAYLOAD, "Decoding a message": a node SHOULD try both symmetric and asymmetric decryption, because the
    message does not name its kind. For a change of keys, give the new key first and the old key second.
    """

    waku_version: ClassVar[int] = WAKU_VERSION

    def __init__(self, *ciphers: PayloadCipher, encrypt_with: PayloadCipher | None = None) -> None:
        """``encrypt_with`` encrypts in place of the first cipher, and does not decrypt."""
        if not ciphers:
            raise ConfigurationError("a key ring needs at least one cipher")
        for cipher in (*ciphers, *(() if encrypt_with is None else (encrypt_with,))):
            check_type("each cipher of a key ring", cipher, PayloadCipher, "such as a SymmetricPayload")
        self._ciphers = ciphers
        self._encrypting = ciphers[0] if encrypt_with is None else encrypt_with

    @property
    def signer_public_key(self) -> bytes | None:
        """The public key of the signatures, 65 bytes; None if the encrypting cipher does not sign."""
        return self._encrypting.signer_public_key

    def signing_with(self, private_key: bytes) -> PayloadKeyRing:
        """Return this key ring with another ``sign_with``."""
        return PayloadKeyRing(*self._ciphers, encrypt_with=self._encrypting.signing_with(private_key))

    def __repr__(self) -> str:
        return f"<PayloadKeyRing {list(self._ciphers)!r}>"

    def encrypt(self, plaintext: bytes, /) -> bytes:
        """Encrypt with the first cipher, or with ``encrypt_with``."""
        return self._encrypting.encrypt(plaintext)

    def decrypt(self, ciphertext: bytes, /) -> bytes:
        """Return the payload, decrypted by the first cipher that succeeds."""
        return self.open(ciphertext).payload

    def open(self, ciphertext: bytes) -> DecodedPayload:
        """Return the payload and its signer; raise the last cipher's `DecryptionError` if all fail."""
        for cipher in self._ciphers[:-1]:
            try:
                return cipher.open(ciphertext)
            except DecryptionError:
                continue
        return self._ciphers[-1].open(ciphertext)


def signs_payloads(encryption: object) -> bool:
    """Return whether an encryption is a cipher of 26/WAKU2-PAYLOAD that signs."""
    return isinstance(encryption, PayloadCipher | PayloadKeyRing) and encryption.signer_public_key is not None
