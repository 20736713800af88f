"""`Keystore`: the memberships of one person in a file, each encrypted with a password (WAKU-RLN-KEYSTORE).

::

    {"application": "waku-rln-relay", "appIdentifier": "01234567890abcdef", "version": "0.2",
     "credentials": {"<membership hash>": {"crypto": {"cipher": "aes-128-ctr", "kdf": "pbkdf2", ...}}}}

A credential is JSON, encrypted as in `fairway.rln.keyfile`. Other nodes read and write the same files.

The membership hash of a membership in a contract is SHA-256 of chain id, address and index, as in other nodes. For a
membership in no contract the identity commitment is appended, so that a file can hold several.

Only the owner of the file may read it. Texts of this module show only the commitment of a membership.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from fairway.errors import (
    ConfigurationError,
    DecodeError,
    StorageError,
    StoreCorruptError,
    StoreVersionError,
    WrongPasswordError,
)
from fairway.json_reading import read_json
from fairway.rln.identity import RlnIdentity
from fairway.rln.keyfile import KEYFILE_VERSION, PBKDF2_ROUNDS, Keyfile, decrypted, encrypted
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.whole_file import changing, replace_whole

APPLICATION: Final = "waku-rln-relay"
APPLICATION_IDENTIFIER: Final = "01234567890abcdef"
VERSION: Final = "0.2"
MAX_KEYSTORE_BYTES: Final = 1 << 24
"""Size limit of the file, enough for 8,000 memberships."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeystoreMembership:
    """An identity, and its place in a group."""

    identity: RlnIdentity
    chain_id: str = ""
    """Id of the chain with the contract of the group; empty for an identity in no contract."""
    contract: str = ""
    """Address of the contract."""
    index: int = 0
    """Place in the group; also 0 without a place."""
    limit: int | None = None
    """Messages in an epoch; None if the keystore does not have it."""

    @property
    def membership_hash(self) -> str:
        """The name of the membership in a keystore."""
        named = f"{self.chain_id}{self.contract}{self.index}"
        if not self.contract:
            named += self.identity.commitment.hex()
        return hashlib.sha256(named.encode()).hexdigest().upper()


class _Contract(msgspec.Struct, frozen=True):
    chainId: str  # noqa: N815 - the names of the file
    address: str


class _Secrets(msgspec.Struct, frozen=True):
    idTrapdoor: list[int]  # noqa: N815
    idNullifier: list[int]  # noqa: N815
    idSecretHash: list[int]  # noqa: N815
    idCommitment: list[int]  # noqa: N815

    def __repr__(self) -> str:
        return "_Secrets(...)"


class _Credential(msgspec.Struct, frozen=True):
    """The plaintext of a credential; lists of integers represent bytes."""

    membershipContract: _Contract  # noqa: N815
    treeIndex: int  # noqa: N815
    identityCredential: _Secrets  # noqa: N815
    userMessageLimit: int | None = None  # noqa: N815 - older files have none


class _File(msgspec.Struct, frozen=True):
    application: str
    appIdentifier: str  # noqa: N815
    version: str
    credentials: dict[str, Keyfile]


class Keystore:
    """The memberships in a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file.

        Raises `StorageError` if it cannot be read, `StoreCorruptError` if it is no keystore, `StoreVersionError` for
        another version.
        """
        self._path = Path(path).absolute()
        self._file = self._read()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        memberships: Iterable[KeystoreMembership],
        password: str,
        *,
        rounds: int = PBKDF2_ROUNDS,
    ) -> Keystore:
        """Write a keystore of memberships, each encrypted with a password; ``rounds`` is the work of PBKDF2.

        Raises `ConfigurationError` for an empty password, and if the file exists.
        """
        if not password:
            raise ConfigurationError("the password of a keystore is empty: choose one")
        whole = Path(path).absolute()
        credentials = {each.membership_hash: encrypted(_plain(each), password, rounds=rounds) for each in memberships}
        file = _File(APPLICATION, APPLICATION_IDENTIFIER, VERSION, credentials)
        with changing(whole):
            if whole.exists():
                raise ConfigurationError(f"{whole} exists: give another path")
            # In one line: other nodes read each line of the file as a keystore.
            replace_whole(whole, msgspec.json.encode(file) + b"\n", private=True)
        return cls(whole)

    def __len__(self) -> int:
        return len(self._file.credentials)

    def __repr__(self) -> str:
        return f"Keystore({str(self._path)!r}, {len(self)} memberships)"

    def membership(self, password: str, membership_hash: str | None = None) -> KeystoreMembership:
        """Return one membership: the named one, or the only one that the password decrypts.

        Raises the errors of `memberships`, and `ConfigurationError` if the file has no such membership, or if the
        password decrypts several and none is named.
        """
        if membership_hash is not None:
            name = next((each for each in self._file.credentials if each.lower() == membership_hash.lower()), None)
            if name is None:
                known = ", ".join(self._file.credentials) or "none"
                raise ConfigurationError(f"{self._path} has no membership {membership_hash}; it has {known}")
            found = self._decrypted(name, password)
            if found is None:
                raise self._wrong_password(f"the membership {name}")
            return found
        all_of_them = self.memberships(password)
        if len(all_of_them) > 1:
            raise ConfigurationError(
                f"{self._path} has {len(all_of_them)} memberships with this password: name one of "
                + ", ".join(all_of_them)
            )
        return next(iter(all_of_them.values()))

    def memberships(self, password: str) -> Mapping[str, KeystoreMembership]:
        """Return the memberships that a password decrypts, by membership hash; takes 0.3 s for each in the file.

        Raises `WrongPasswordError` if it decrypts none, `ConfigurationError` if the file has none, `StoreCorruptError`
        for a membership that is damaged or encrypted in an unknown way.
        """
        if not self._file.credentials:
            raise ConfigurationError(f"{self._path} has no memberships: create one first")
        found = {name: self._decrypted(name, password) for name in self._file.credentials}
        right = {name: membership for name, membership in found.items() if membership is not None}
        if not right:
            raise self._wrong_password("any of its memberships")
        return right

    def _wrong_password(self, what: str) -> WrongPasswordError:
        return WrongPasswordError(
            f"{self._path}: the password does not decrypt {what}: check the password; the file may be damaged"
        )

    def _decrypted(self, name: str, password: str) -> KeystoreMembership | None:
        """Return a membership; None if the password is wrong."""
        try:
            plain = decrypted(self._file.credentials[name], password)
            return None if plain is None else _membership(plain)
        except DecodeError as error:
            raise StoreCorruptError(f"{self._path}: the membership {name}: {error}") from error

    def _read(self) -> _File:
        if not self._path.exists():
            raise StorageError(f"there is no keystore {self._path}: 'fairway rln create FILE' makes one")
        with typed_errors(self._path, "reading"):
            if self._path.stat().st_size > MAX_KEYSTORE_BYTES:
                raise StoreCorruptError(f"{self._path} has more than {MAX_KEYSTORE_BYTES} bytes: it is no keystore")
            data = self._path.read_bytes()
        try:
            file = read_json(data, _File)
        except DecodeError as error:
            raise StoreCorruptError(f"{self._path} is no keystore of RLN memberships: {error}") from error
        if file.application != APPLICATION:
            raise StoreCorruptError(
                f"{self._path} is a keystore of the application {file.application!r}, not {APPLICATION!r}"
            )
        if file.version != VERSION:
            raise StoreVersionError(f"{self._path} is a keystore of version {file.version!r}; {VERSION!r} is supported")
        for name, keyfile in file.credentials.items():
            if keyfile.version != KEYFILE_VERSION:
                raise StoreVersionError(
                    f"{self._path}: the membership {name} is encrypted with version {keyfile.version}; "
                    f"{KEYFILE_VERSION} is supported"
                )
        return file


def _plain(membership: KeystoreMembership) -> bytes:
    identity = membership.identity
    return msgspec.json.encode(
        _Credential(
            membershipContract=_Contract(chainId=membership.chain_id, address=membership.contract),
            treeIndex=membership.index,
            identityCredential=_Secrets(
                idTrapdoor=list(identity.trapdoor),
                idNullifier=list(identity.nullifier),
                idSecretHash=list(identity.secret),
                idCommitment=list(identity.commitment),
            ),
            userMessageLimit=membership.limit or 0,
        )
    )


def _membership(plain: bytes) -> KeystoreMembership:
    """Return a decrypted membership. The text of a `DecodeError` shows nothing of it."""
    try:
        told = read_json(plain, _Credential)
        secrets = told.identityCredential
        trapdoor, nullifier = bytes(secrets.idTrapdoor), bytes(secrets.idNullifier)
    except (DecodeError, ValueError):
        raise DecodeError("the decrypted bytes are no membership") from None  # the cause would quote secrets
    identity = RlnIdentity.of(trapdoor, nullifier)
    same = (list(identity.secret), list(identity.commitment)) == (secrets.idSecretHash, secrets.idCommitment)
    if not same:
        raise DecodeError("the secret hash or the commitment does not follow from the other secrets")
    if not 0 <= told.treeIndex < 1 << 32:
        raise DecodeError(f"the index {told.treeIndex} is no place in a group")
    return KeystoreMembership(
        identity=identity,
        chain_id=told.membershipContract.chainId,
        contract=told.membershipContract.address,
        index=told.treeIndex,
        limit=told.userMessageLimit or None,
    )
