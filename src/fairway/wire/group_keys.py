"""The bytes of a group with keys that are renewed (``group_keys.proto``, docs/group-keys.md).

Nothing here encrypts or verifies: `fairway.protocol.encryption.epochs` does.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from fairway.errors import DecodeError
from fairway.wire.proto import group_keys_pb2 as pb
from fairway.wire.protobuf import encode, parse

EPOCH_ID_BYTES: Final = 16
KEY_BYTES: Final = 32
TAG_BYTES: Final = 8
MAX_RECORD_BYTES: Final = 30_000
"""Longest record: with it, a sync message and a full segment still fit a WakuMessage of 150 KiB."""
MAX_NUMBER: Final = 1_000_000
"""Highest number of an epoch: a receiver computes one hash for each."""
_NUMBER_BYTES: Final = 4
_MAX_MESSAGE_BYTES: Final = 1 << 26


class SignedRecord(Struct, frozen=True):
    """A record and the signature of an administrator over its bytes."""

    record: bytes
    signature: bytes


class GroupMessage(Struct, frozen=True, kw_only=True):
    """The payload of a WakuMessage."""

    epoch_id: bytes
    ciphertext: bytes
    record: SignedRecord | None = None
    """The record of the newest epoch, for members without its key."""
    closed: bytes = b""
    """Notice, encrypted with the newest key, for members who may not read ``ciphertext`` (`encode_notice`)."""


class SealedSecret(Struct, frozen=True):
    """The secret of one member."""

    member: bytes
    """Tag that the member recognises."""
    sealed: bytes


class WrappedKey(Struct, frozen=True):
    """An epoch with its encrypted key."""

    epoch_id: bytes
    number: int
    since_ms: int
    wrapped: bytes


class GroupRecord(Struct, frozen=True, kw_only=True):
    """An epoch, with its keys for each member."""

    salt: bytes
    administrators: tuple[bytes, ...]
    signer: int
    number: int
    secrets: tuple[SealedSecret, ...]
    epochs: tuple[WrappedKey, ...]
    """This epoch, then earlier ones."""
    roster: bytes
    """The encrypted members."""


class RosterEntry(Struct, frozen=True):
    """A present or a former member."""

    name: str
    public_key: bytes
    changed: int
    """Number of the epoch in which the entry was set."""
    since: int
    """Number of the first epoch that the member may read."""
    until_ms: int = 0
    """When the member was removed, in Unix milliseconds; 0 for a present member."""


def encode_message(message: GroupMessage) -> bytes:
    """Return the payload."""
    record = message.record
    return encode(
        pb.GroupMessage,
        epoch_id=message.epoch_id,
        ciphertext=message.ciphertext,
        record=None if record is None else {"record": record.record, "signature": record.signature},
        closed=message.closed,
    )


def decode_message(data: bytes) -> GroupMessage:
    """Return the message in a payload; raise `DecodeError` if it has none."""
    held = parse(pb.GroupMessage, data, max_bytes=_MAX_MESSAGE_BYTES)
    if len(held.epoch_id) != EPOCH_ID_BYTES or not held.ciphertext:
        raise DecodeError("no message of a group with keys")
    record = SignedRecord(held.record.record, held.record.signature) if held.HasField("record") else None
    return GroupMessage(
        epoch_id=held.epoch_id,
        ciphertext=held.ciphertext,
        record=record,
        closed=held.closed,
    )


def encode_notice(number: int, message_id: str) -> bytes:
    """Return what a repeated message says of its ciphertext: the number of its epoch, and the id of the SDS message."""
    return number.to_bytes(_NUMBER_BYTES, "big") + message_id.encode()


def decode_notice(notice: bytes) -> tuple[int, str]:
    """Return the number of the epoch and the id of the SDS message; raise `DecodeError` if they cannot be read."""
    try:
        return int.from_bytes(notice[:_NUMBER_BYTES], "big"), notice[_NUMBER_BYTES:].decode()
    except UnicodeDecodeError as error:
        raise DecodeError("no id of a message") from error


def encode_record(record: GroupRecord) -> bytes:
    """Return the bytes that an administrator signs."""
    return encode(pb.GroupRecord, **_fields(record))


def decode_signer(data: bytes) -> tuple[bytes, tuple[bytes, ...], int]:
    """Return the salt, the administrators and the signer in a record; raise `DecodeError` if it has none.

    A receiver verifies the signature before it reads the rest, which may have thousands of entries.
    """
    held = parse(pb.GroupRecord, data, max_bytes=MAX_RECORD_BYTES)
    administrators = tuple(held.administrators)
    if held.signer >= len(administrators) or any(len(key) != KEY_BYTES for key in administrators):
        raise DecodeError("no record of a group")
    return held.salt, administrators, held.signer


def decode_record(data: bytes) -> GroupRecord:
    """Return the record in signed bytes; raise `DecodeError` if they have none."""
    salt, administrators, signer = decode_signer(data)
    held = parse(pb.GroupRecord, data, max_bytes=MAX_RECORD_BYTES)
    record = GroupRecord(
        salt=salt,
        administrators=administrators,
        signer=signer,
        number=held.number,
        secrets=tuple(SealedSecret(each.member, each.sealed) for each in held.secrets),
        epochs=tuple(WrappedKey(each.epoch_id, each.number, each.since_ms, each.wrapped) for each in held.epochs),
        roster=held.roster,
    )
    ids = [each.epoch_id for each in record.epochs]
    is_whole = (
        ids
        and all(len(epoch_id) == EPOCH_ID_BYTES for epoch_id in ids)
        and all(0 < each.number <= record.number for each in record.epochs)
        and record.epochs[0].number == record.number <= MAX_NUMBER
    )
    if not is_whole:
        raise DecodeError("no record of a group")
    return record


def encode_secret(since: int, secret: bytes) -> bytes:
    """Return what is sealed for a member."""
    return encode(pb.GroupSecret, since=since, secret=secret)


def decode_secret(data: bytes) -> tuple[int, bytes]:
    """Return the number of the first epoch that a member may read, and its secret; raise `DecodeError` otherwise."""
    held = parse(pb.GroupSecret, data, max_bytes=MAX_RECORD_BYTES)
    if len(held.secret) != KEY_BYTES:
        raise DecodeError("no secret of a member")
    return held.since, held.secret


def encode_roster(entries: tuple[RosterEntry, ...]) -> bytes:
    """Return the members as bytes."""
    return encode(pb.GroupRoster, entries=[_fields(entry) for entry in entries])


def decode_roster(data: bytes) -> tuple[RosterEntry, ...]:
    """Return the members in bytes; raise `DecodeError` if they have none."""
    held = parse(pb.GroupRoster, data, max_bytes=MAX_RECORD_BYTES)
    return tuple(
        RosterEntry(each.name, each.public_key, each.changed, each.since, each.until_ms) for each in held.entries
    )


def _fields(struct: Struct) -> dict[str, Any]:
    """Return the fields of a record as arguments of its protobuf message."""
    return {
        name: [_fields(each) if isinstance(each, Struct) else each for each in value]
        if isinstance(value, tuple)
        else value
        for name, value in asdict(struct).items()
    }
