"""The epochs of a group: the records by which administrators hand their keys to the members.

Each epoch has a random key for the messages of the group. An administrator begins an epoch by a record. The record has,
encrypted: the keys of this epoch and of earlier ones, and the names and public keys of the members. It is signed, so
anyone may pass it on.

A member gets the keys of the epochs from a number on, which is that of the epoch in which it was added, or 0. For each
record the administrator draws a secret for number 0. The secret for each next number is the hash of the one before. The
key of an epoch is encrypted with the secret of its number. A member gets the secret of its first number, so it can
compute all later secrets and no earlier one.

The secret is sealed to the public key of the member by HPKE (RFC 9180), base mode, DHKEM(X25519, HKDF-SHA256),
HKDF-SHA256, ChaCha20-Poly1305. The X25519 key is the Ed25519 key of the identity on the other form of the curve (RFC
7748, 4.1): one key for signatures and for this KEM is secure (E. Thormarker, "On using the same key pair for Ed25519
and an X25519 based KEM", 2021).

Several administrators may begin epochs at the same time. The newest epoch is that with the highest number, then the one
with the lowest id, so all members agree. All keys stay readable. Rosters are merged entry by entry: the entry that was
set in the later epoch counts, and of two the removal. An administrator whose merged roster differs from that of the
newest epoch begins another one (`fairway.group_keys`), so no addition or removal is lost.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from itertools import accumulate, repeat
from typing import Final, Protocol, runtime_checkable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from msgspec import Struct

from fairway.errors import DecodeError, DecryptionError
from fairway.protocol.encryption.aead import AesGcm
from fairway.protocol.encryption.entropy import RandomBytes, draw
from fairway.protocol.encryption.hook import Encryption
from fairway.wire.group_keys import (
    EPOCH_ID_BYTES,
    KEY_BYTES,
    TAG_BYTES,
    GroupRecord,
    RosterEntry,
    SealedSecret,
    WrappedKey,
    decode_roster,
    decode_secret,
    encode_roster,
    encode_secret,
)

MAX_EPOCHS_HANDED_OUT: Final = 64
"""Epochs in a record, the newest."""
REMOVED_GRACE_MS: Final = 60_000
"""A former member may not know yet that it was removed: messages that it dates up to this much later are accepted."""

MESSAGE: Final = b"message"
CLOSED: Final = b"closed"
ROSTER: Final = b"roster"
"""Uses of the key of an epoch."""
_SUITE: Final = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
_PRIME: Final = 2**255 - 19


class MessageClosedError(DecryptionError):
    """A message that this member may not read, with its id: other messages need not wait for it."""

    def __init__(self, message_id: str) -> None:
        super().__init__("the message is of an epoch whose key this member does not get")
        self.message_id = message_id


@runtime_checkable
class EpochCipher(Encryption, Protocol):
    """What the stack asks an encryption with epochs, beside encrypting and decrypting."""

    max_message_bytes: int
    """Longest WakuMessage of its channels; the stack lowers it."""

    @property
    def keys_learned(self) -> int:
        """Number of records whose keys this member has learned: if it grows, earlier messages became readable."""

    @property
    def hand_out_in_ms(self) -> int | None:
        """Time until a message is needed to hand out the newest key; None if every member has it."""

    def unread_since_ms(self, after_ms: int) -> int | None:
        """Return the beginning of the earliest epoch whose key came at ``after_ms`` or later; None without one."""

    def encrypt_as_of(self, plaintext: bytes, message_id: str, made_ms: int) -> bytes:
        """Encrypt an earlier message again, with the key of the epoch in which it was encrypted first."""

    def admits(self, sender_id: str, made_ms: int) -> bool:
        """Return whether a message may be of its sender: a former member sends none after its removal."""


class Epoch(Struct, frozen=True):
    """An epoch with its key. Its repr does not show the key."""

    epoch_id: bytes
    number: int
    since_ms: int
    key: bytes
    learned_ms: int
    is_own: bool = False
    """Whether this member began it."""

    def __repr__(self) -> str:
        return f"<Epoch {self.number} {self.epoch_id.hex()}>"

    @property
    def rank(self) -> tuple[int, bytes]:
        """Sorts epochs: the newest is the highest."""
        return rank_of(self.number, self.epoch_id)

    @classmethod
    def new(cls, number: int, now_ms: int, random_bytes: RandomBytes) -> Epoch:
        """Return an epoch with a random id and a random key."""
        return cls(
            draw(random_bytes, EPOCH_ID_BYTES), number, now_ms, draw(random_bytes, KEY_BYTES), now_ms, is_own=True
        )


def rank_of(number: int, epoch_id: bytes) -> tuple[int, bytes]:
    """Return what sorts epochs: a higher number is newer, and of one number a lower id."""
    return number, bytes(0xFF - byte for byte in epoch_id)


class Roster:
    """The present and the former members of a group, by name."""

    learns: Final = False

    def __init__(self, entries: Iterable[RosterEntry] = ()) -> None:
        self._entries: dict[str, RosterEntry] = {}
        self.merge(entries)

    def __iter__(self) -> Iterator[RosterEntry]:
        """Iterate over the entries, by name."""
        return iter(sorted(self._entries.values(), key=lambda entry: entry.name))

    def merge(self, entries: Iterable[RosterEntry]) -> None:
        """Take over the entries that count more than those for the same names."""
        for entry in entries:
            known = self._entries.get(entry.name)
            if known is None or _weight(entry) > _weight(known):
                self._entries[entry.name] = entry

    def entry(self, sender_id: str) -> RosterEntry | None:
        """Return the entry of a present or former member."""
        return self._entries.get(sender_id)

    @property
    def present(self) -> list[RosterEntry]:
        """The present members, by name."""
        return [entry for entry in self if not entry.until_ms]

    def admits(self, sender_id: str, made_ms: int) -> bool:
        """Return whether a message under a name may be accepted; a former member sends none after its removal."""
        entry = self._entries.get(sender_id)
        return entry is None or not entry.until_ms or made_ms <= entry.until_ms + REMOVED_GRACE_MS

    def get(self, sender_id: str) -> bytes | None:
        """Return the public key of a present or former member."""
        entry = self._entries.get(sender_id)
        return None if entry is None else entry.public_key

    def items(self) -> list[tuple[str, bytes]]:
        """Return all names with their public keys."""
        return [(entry.name, entry.public_key) for entry in self]

    def learn(self, _sender_id: str, _public_key: bytes) -> bool:
        """Return False: administrators alone add members."""
        return False


def _weight(entry: RosterEntry) -> tuple[int, int, bytes, int]:
    return entry.changed, entry.until_ms, entry.public_key, -entry.since


def group_id_of(salt: bytes, administrators: Iterable[bytes]) -> bytes:
    """Return the id of a group. It proves who the administrators are."""
    return hashlib.sha256(b"".join((b"fairway group 1\x00", salt, *administrators))).digest()


def signed_part(record: bytes) -> bytes:
    """Return the bytes that an administrator signs for a record."""
    return b"fairway group record 1\x00" + record


def tag_of(public_key: bytes) -> bytes:
    """Return the tag of a member, which begins the plaintext of each message."""
    return hashlib.sha256(b"fairway group member 1\x00" + public_key).digest()[:TAG_BYTES]


def make_record(
    salt: bytes,
    administrators: tuple[bytes, ...],
    signer: int,
    epochs: Iterable[Epoch],
    roster: Roster,
    random_bytes: RandomBytes,
) -> GroupRecord:
    """Return the record of the newest one of ``epochs``, for all present members."""
    handed_out = sorted(epochs, key=lambda epoch: epoch.rank, reverse=True)[:MAX_EPOCHS_HANDED_OUT]
    newest, group_id = handed_out[0], group_id_of(salt, administrators)
    secrets = list(accumulate(repeat(None, newest.number), _next_secret, initial=draw(random_bytes, KEY_BYTES)))
    return GroupRecord(
        salt=salt,
        administrators=administrators,
        signer=signer,
        number=newest.number,
        secrets=tuple(
            SealedSecret(
                _recipient(entry.public_key, newest.epoch_id),
                _SUITE.encrypt(
                    encode_secret(entry.since, secrets[entry.since]),
                    _agreement_key(entry.public_key),
                    _sealing_info(group_id, newest.epoch_id),
                ),
            )
            for entry in roster.present
        ),
        epochs=tuple(
            WrappedKey(
                epoch.epoch_id,
                epoch.number,
                epoch.since_ms,
                _wrapping(secrets[epoch.number], epoch.epoch_id, random_bytes).encrypt(epoch.key),
            )
            for epoch in handed_out
        ),
        roster=cipher_of(newest, ROSTER, group_id, random_bytes).encrypt(encode_roster(tuple(roster))),
    )


def keys_in(record: GroupRecord, public_key: bytes, secret: bytes, now_ms: int) -> list[Epoch]:
    """Return the epochs of a record that a member may read; empty if the record has no secret for it.

    ``secret`` is the private Ed25519 key. Raises `DecodeError` or `DecryptionError` for a record that no administrator
    makes.
    """
    newest_id = record.epochs[0].epoch_id
    recipient = _recipient(public_key, newest_id)
    sealed = next((each.sealed for each in record.secrets if each.member == recipient), None)
    if sealed is None:
        return []
    info = _sealing_info(group_id_of(record.salt, record.administrators), newest_id)
    try:
        since, first = decode_secret(_SUITE.decrypt(sealed, _agreement_secret(secret), info))
    except (InvalidTag, ValueError) as error:
        raise DecryptionError("the secret in a record was not sealed for this member") from error
    if since > record.number:
        raise DecodeError("a record begins before its member may read")
    secrets = list(accumulate(repeat(None, record.number - since), _next_secret, initial=first))
    return [
        Epoch(
            each.epoch_id,
            each.number,
            each.since_ms,
            _wrapping(secrets[each.number - since], each.epoch_id).decrypt(each.wrapped),
            now_ms,
        )
        for each in record.epochs
        if each.number >= since
    ]


def roster_in(record: GroupRecord, epoch: Epoch) -> tuple[RosterEntry, ...]:
    """Return the members that a record names; raise `DecodeError` or `DecryptionError` if it names none."""
    group_id = group_id_of(record.salt, record.administrators)
    return decode_roster(cipher_of(epoch, ROSTER, group_id).decrypt(record.roster))


def cipher_of(epoch: Epoch, use: bytes, context: bytes, random_bytes: RandomBytes = os.urandom) -> AesGcm:
    """Return the cipher for one use of the key of an epoch: message, closed or roster.

    ``context`` is the id of the group; of a closed message its epoch id and its ciphertext follow.
    """
    return AesGcm(epoch.key, associated_data=_labelled(use, context + epoch.epoch_id), random_bytes=random_bytes)


def _wrapping(secret: bytes, epoch_id: bytes, random_bytes: RandomBytes = os.urandom) -> AesGcm:
    return AesGcm(secret, associated_data=_labelled(b"key", epoch_id), random_bytes=random_bytes)


def _labelled(label: bytes, data: bytes) -> bytes:
    return b"fairway group " + label + b" 1\x00" + data


def _next_secret(secret: bytes, _: None) -> bytes:
    return hashlib.sha256(_labelled(b"secret", secret)).digest()


def _recipient(public_key: bytes, epoch_id: bytes) -> bytes:
    return hashlib.sha256(_labelled(b"recipient", epoch_id + public_key)).digest()[:TAG_BYTES]


def _sealing_info(group_id: bytes, epoch_id: bytes) -> bytes:
    return _labelled(b"sealing", group_id + epoch_id)


def _agreement_key(public_key: bytes) -> X25519PublicKey:
    """Return the X25519 key of an Ed25519 key: u = (1 + y) / (1 - y) (RFC 7748, 4.1)."""
    y = int.from_bytes(public_key, "little") & (1 << 255) - 1
    u = (1 + y) * pow(1 - y, -1, _PRIME) % _PRIME
    return X25519PublicKey.from_public_bytes(u.to_bytes(32, "little"))


def _agreement_secret(secret: bytes) -> X25519PrivateKey:
    """Return the X25519 key of a private Ed25519 key: the scalar that signs (RFC 8032, 5.1.5)."""
    return X25519PrivateKey.from_private_bytes(hashlib.sha512(secret).digest()[:32])
