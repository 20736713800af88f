"""Members who sign: `Identity` is the own private key, `Members` the public keys of the others.

::

    identity = Identity.create("alice.key")           # once; later Identity.load("alice.key")
    members = {"bob": "ed25519:8a88e3dd..."}          # as ``fairway identity show bob.key`` prints it
    channel = await fairway.create_reliable_channel(node, "team", "alice", topic, identity=identity, members=members)

docs/identity.md says what a channel with signatures promises.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, ItemsView, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from fairway.environment import environment
from fairway.errors import ConfigurationError, DecodeError
from fairway.json_reading import read_json
from fairway.protocol.names import checked_name
from fairway.protocol.signing import SigningKey, public_key_of, public_key_text
from fairway.protocol.signing.keys import ED25519, SECP256K1
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.store_lock import StoreLock
from fairway.storage.whole_file import replace_whole
from fairway.type_checks import check_type

MAX_LEARNED: Final = 1_000
"""Sender ids whose first key is trusted, at most. A stranger can invent any number of sender ids."""
_SECRET_BYTES: Final = 32
_MAX_KEY_FILE_BYTES: Final = 16_384
_MAX_MEMBERS_FILE_BYTES: Final = 1 << 24
_LOCK_S: Final = 1.0
"""Longest wait for another process that writes the same file of members."""


class Identity(SigningKey):
    """The private key of a participant, kept in a file. Its repr and its text show only the public key."""

    @classmethod
    def new(cls, kind: str = ED25519) -> Self:
        """Return a new key that is in no file.

        ``kind`` is ``"ed25519"``, or ``"secp256k1"`` if programs of js-waku must verify payloads (26/WAKU2-PAYLOAD).
        """
        while True:
            secret = environment().random_bytes(_SECRET_BYTES)
            try:
                return cls(secret, kind)
            except ConfigurationError:
                # Once in 2**128 draws a secret is outside the order of secp256k1.
                if kind != SECP256K1:
                    raise

    @classmethod
    def create(cls, path: str | PathLike[str], kind: str = ED25519) -> Self:
        """Make a new key in a new file that only its owner may read (mode 0600).

        The file is PEM (PKCS #8), as ``openssl genpkey -algorithm ed25519`` writes it. Raises `ConfigurationError` if
        the file exists or cannot be written.
        """
        identity, file = cls.new(kind), Path(path)
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(identity.to_pem())
                opened.flush()
                os.fsync(opened.fileno())
        except FileExistsError:
            raise ConfigurationError(f"{file} exists: give the path of a new file, or load the key in it") from None
        except OSError as error:
            raise ConfigurationError(f"the key cannot be written to {file}: {error.strerror}") from error
        return identity

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return the key in a file: PEM, of the kind Ed25519 or secp256k1, without a password.

        Raises `ConfigurationError` if the file cannot be read or has no such key.
        """
        file = Path(path)
        try:
            with file.open("rb") as opened:
                data = opened.read(_MAX_KEY_FILE_BYTES)
        except OSError as error:
            raise ConfigurationError(
                f"the key of an identity cannot be read from {file} ({error.strerror}); 'fairway identity new {file}' "
                "makes one"
            ) from error
        try:
            key = serialization.load_pem_private_key(data, None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            # The text of the cause contains no byte of the key.
            raise ConfigurationError(f"{file} has no private key in PEM form without a password: {error}") from error
        if isinstance(key, ed25519.Ed25519PrivateKey):
            return cls(key.private_bytes_raw())
        if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256K1):
            return cls(key.private_numbers().private_value.to_bytes(_SECRET_BYTES, "big"), SECP256K1)
        raise ConfigurationError(f"the key in {file} is of another kind than ed25519 and secp256k1")

    def __str__(self) -> str:
        """Return the public key as text, to give to the other members."""
        return public_key_text(self.public_key)

    def to_pem(self) -> bytes:
        """Return the private key as PEM (PKCS #8)."""
        key = (
            ed25519.Ed25519PrivateKey.from_private_bytes(self.secret)
            if self.kind == ED25519
            else ec.derive_private_key(int.from_bytes(self.secret, "big"), ec.SECP256K1())
        )
        return key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


class Members:
    """The public keys of the members of a channel, by sender id. Changes take effect in running channels.

    A key is 32 bytes (Ed25519), 65 bytes (secp256k1), or text such as ``ed25519:8a88e3dd...``. With a file (`load`,
    `trust_on_first_use`) every change is written to it before it takes effect. The file is JSON: an object of sender
    ids and keys as text. Several processes can use one file; each reads the entries of the others when it writes.
    """

    def __init__(self, keys: Mapping[str, bytes | str] | None = None) -> None:
        """Keep the keys in memory only."""
        check_type("members", keys, Mapping | None, "give public keys by sender id")
        self._keys = {_name(name): public_key_of(key) for name, key in (keys or {}).items()}
        self._path: Path | None = None
        self._learns = False

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return the members in a file; raise `ConfigurationError` if it cannot be read."""
        members = cls()
        members._path = Path(path)
        members._keys = members._read(is_new=False)
        return members

    @classmethod
    def trust_on_first_use(cls, path: str | PathLike[str]) -> Self:
        """Return members whose first key is trusted, and written to a file; the file need not exist.

        At most `MAX_LEARNED` sender ids are trusted in this way. An attacker who is first to use a name gets the name:
        compare the keys over another way (``fairway identity show``).
        """
        members = cls()
        members._path = Path(path)
        members._keys = members._read(is_new=True)
        members._learns = True
        return members

    def __repr__(self) -> str:
        learning = ", first keys are trusted" if self._learns else ""
        place = f" in {self._path}" if self._path is not None else ""
        return f"<Members: {len(self._keys)} keys{place}{learning}>"

    def __contains__(self, sender_id: object) -> bool:
        return sender_id in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def learns(self) -> bool:
        """Whether the first key that a sender id names becomes its key."""
        return self._learns

    def get(self, sender_id: str) -> bytes | None:
        """Return the public key of a sender id, or None."""
        return self._keys.get(sender_id)

    def items(self) -> ItemsView[str, bytes]:
        """Return all sender ids with their public keys."""
        return self._keys.items()

    def trust(self, sender_id: str, public_key: bytes | str) -> None:
        """Set the key of a sender id. Raises `ConfigurationError` for a wrong key, a `StorageError` for a bad disk."""
        name, key = _name(sender_id), public_key_of(public_key)
        self._change(lambda keys: keys.update({name: key}))

    def forget(self, sender_id: str) -> None:
        """Remove the key of a sender id, if it has one. Raises a `StorageError` if the disk fails."""
        self._change(lambda keys: keys.pop(sender_id, None))

    def learn(self, sender_id: str, public_key: bytes) -> bool:
        """Keep the first key of a sender id; return False if there is no room for it, or if it has another key.

        Raises a `StorageError` if the disk fails.
        """
        if not sender_id or len(self._keys) >= MAX_LEARNED:
            return False
        # Another process may have learned another key.
        self._change(lambda keys: keys.setdefault(sender_id, public_key))
        return self._keys[sender_id] == public_key

    def _change(self, change: Callable[[dict[str, bytes]], object]) -> None:
        if self._path is None:
            change(self._keys)
            return
        with typed_errors(self._path, "writing"):
            lock = StoreLock(self._path, user="channel", kind="file of members", wait_s=_LOCK_S)
            try:
                keys = self._read(is_new=True)
                change(keys)
                replace_whole(self._path, _encoded(keys))
            finally:
                lock.release()
        self._keys = keys

    def _read(self, *, is_new: bool) -> dict[str, bytes]:
        """Return the entries of the file; an absent file is empty if it may be new."""
        assert self._path is not None, "only members with a file read it"
        try:
            with self._path.open("rb") as opened:
                data = opened.read(_MAX_MEMBERS_FILE_BYTES)
        except FileNotFoundError as error:
            if is_new:
                return {}
            raise _unreadable(self._path, error.strerror or "") from error
        except OSError as error:
            raise _unreadable(self._path, error.strerror or "") from error
        try:
            return {_name(name): public_key_of(key) for name, key in read_json(data, dict[str, str]).items()}
        except (DecodeError, ConfigurationError) as error:
            raise _unreadable(self._path, str(error)) from error


def _unreadable(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f'the members in {path} cannot be read ({why}); the file is JSON such as {{"bob": "ed25519:8a88e3dd..."}}'
    )


def _encoded(keys: Mapping[str, bytes]) -> bytes:
    texts = {name: public_key_text(keys[name]) for name in sorted(keys)}
    return (json.dumps(texts, indent=2, ensure_ascii=False) + "\n").encode()


def _name(sender_id: str) -> str:
    return checked_name("the sender id of a member", sender_id, "give the name that the member has in the channel")
