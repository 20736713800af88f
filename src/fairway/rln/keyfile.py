"""A secret encrypted with a password, in the format of Ethereum's wallets (Web3 Secret Storage, version 3).

A key of 32 bytes is derived from the password. Its first half encrypts. Keccak-256 of its second half and the
ciphertext is the MAC, which shows whether a password is right. As other Waku nodes do, this module takes the password
in UTF-8 without the normalization of EIP-2335.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from hmac import compare_digest
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fairway.environment import random_bytes
from fairway.errors import DecodeError
from fairway.wire.hashing import keccak256

KEYFILE_VERSION: Final = 3
PBKDF2_ROUNDS: Final = 1_000_000
"""The rounds of other nodes; they take 0.3 s of one core."""
MAX_PBKDF2_ROUNDS: Final = 100_000_000
MAX_SCRYPT_BYTES: Final = 1 << 30
"""Largest memory of scrypt: 128 * n * r."""
MAX_SCRYPT_PASSES: Final = 64
_KEY_BYTES: Final = 32
_MAX_KEY_BYTES: Final = 128
_SALT_BYTES: Final = 16
_IV_BYTES: Final = 16
_HASHES: Final = {"hmac-sha256": "sha256", "hmac-sha512": "sha512"}


class CipherParameters(msgspec.Struct, frozen=True):
    """The parameters of the cipher."""

    iv: str


class Crypto(msgspec.Struct, frozen=True):
    """The encrypted secret and the parameters of its encryption; bytes are hex digits."""

    cipher: str
    cipherparams: CipherParameters
    ciphertext: str
    kdf: str
    kdfparams: dict[str, Any]
    mac: str


class Keyfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """An encrypted secret in a file."""

    crypto: Crypto
    version: int = KEYFILE_VERSION


class _Pbkdf2(msgspec.Struct, frozen=True):
    dklen: int
    c: int
    prf: str
    salt: str


class _Scrypt(msgspec.Struct, frozen=True):
    dklen: int
    n: int
    r: int
    p: int
    salt: str


def encrypted(plain: bytes, password: str, *, rounds: int = PBKDF2_ROUNDS) -> Keyfile:
    """Return a secret encrypted with a password, with PBKDF2."""
    salt, iv = random_bytes(_SALT_BYTES), random_bytes(_IV_BYTES)
    parameters = {"dklen": _KEY_BYTES, "c": rounds, "prf": "hmac-sha256", "salt": salt.hex()}
    encryption_key, mac_key = _derived("pbkdf2", parameters, password)
    ciphertext = _aes(encryption_key, iv, plain)
    return Keyfile(
        crypto=Crypto(
            cipher="aes-128-ctr",
            cipherparams=CipherParameters(iv=iv.hex()),
            ciphertext=ciphertext.hex(),
            kdf="pbkdf2",
            kdfparams=parameters,
            mac=keccak256(mac_key + ciphertext).hex(),
        )
    )


def decrypted(keyfile: Keyfile, password: str) -> bytes | None:
    """Return the secret; None if the password is wrong, or the ciphertext or the MAC was changed.

    Raises `DecodeError` for an unknown version, cipher or derivation, and for parameters beyond the bounds of this
    module.
    """
    crypto = keyfile.crypto
    if keyfile.version != KEYFILE_VERSION:
        raise DecodeError(f"version {keyfile.version} of keyfiles is unknown; {KEYFILE_VERSION} is supported")
    if crypto.cipher.lower() != "aes-128-ctr":
        raise DecodeError(f"the cipher {crypto.cipher!r} is unknown; aes-128-ctr is supported")
    iv = _hex(crypto.cipherparams.iv, "iv")
    if len(iv) != _IV_BYTES:
        raise DecodeError(f"the iv has {_IV_BYTES} bytes, not {len(iv)}")
    ciphertext, mac = _hex(crypto.ciphertext, "ciphertext"), _hex(crypto.mac, "mac")
    encryption_key, mac_key = _derived(crypto.kdf, crypto.kdfparams, password)
    if not compare_digest(keccak256(mac_key + ciphertext), mac):
        return None
    return _aes(encryption_key, iv, ciphertext)


def _aes(key: bytes, iv: bytes, data: bytes) -> bytes:
    """Encrypt or decrypt; in this mode both are the same."""
    return Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor().update(data)


def _derived(kdf: str, parameters: Mapping[str, Any], password: str) -> tuple[bytes, bytes]:
    """Return the encryption key and the MAC key of a password. Work and memory are bounded."""
    raw = password.encode()
    try:
        match kdf:
            case "pbkdf2":
                key = _pbkdf2(msgspec.convert(parameters, _Pbkdf2), raw)
            case "scrypt":
                key = _scrypt(msgspec.convert(parameters, _Scrypt), raw)
            case _:
                raise DecodeError(f"the key derivation {kdf!r} is unknown; pbkdf2 and scrypt are supported")
    except msgspec.ValidationError as error:
        raise DecodeError(f"the parameters of {kdf} are wrong: {error}") from error
    half = _KEY_BYTES // 2
    return key[:half], key[half:]


def _pbkdf2(parameters: _Pbkdf2, password: bytes) -> bytes:
    _check_length(parameters.dklen)
    if parameters.prf.lower() not in _HASHES:
        raise DecodeError(f"pbkdf2 with {parameters.prf!r} is not known; {' and '.join(_HASHES)} are")
    if not 1 <= parameters.c <= MAX_PBKDF2_ROUNDS:
        raise DecodeError(f"pbkdf2 takes 1 to {MAX_PBKDF2_ROUNDS} rounds here, not {parameters.c}")
    salt = _hex(parameters.salt, "salt")
    return hashlib.pbkdf2_hmac(_HASHES[parameters.prf.lower()], password, salt, parameters.c, _KEY_BYTES)


def _scrypt(parameters: _Scrypt, password: bytes) -> bytes:
    _check_length(parameters.dklen)
    n, r, p = parameters.n, parameters.r, parameters.p
    if n < 2 or n & (n - 1) or r < 1 or not 1 <= p <= MAX_SCRYPT_PASSES or 128 * n * r > MAX_SCRYPT_BYTES:
        raise DecodeError(
            f"scrypt with n {n}, r {r}, p {p}: n is a power of 2, p at most {MAX_SCRYPT_PASSES}, "
            f"and 128 * n * r at most {MAX_SCRYPT_BYTES} here"
        )
    # OpenSSL's scrypt refuses n of 2**16 or more with r = 1, which other nodes write.
    from Crypto.Protocol.KDF import scrypt  # noqa: PLC0415 - as in fairway.wire.hashing

    key: bytes = scrypt(password, _hex(parameters.salt, "salt"), _KEY_BYTES, N=n, r=r, p=p)
    return key


def _check_length(length: int) -> None:
    # A longer key begins with the 32 bytes that are used.
    if not _KEY_BYTES <= length <= _MAX_KEY_BYTES:
        raise DecodeError(f"a derived key has {_KEY_BYTES} to {_MAX_KEY_BYTES} bytes, not {length}")


def _hex(text: str, name: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise DecodeError(f"the {name} is not in hex digits") from error
