"""Groups whose key is renewed when a member leaves: `GroupKeys` is the encryption of one member.

::

    group = GroupKeys.create("team.group", identity, "alice")     # alice is the administrator
    group.add("bob", "ed25519:1f0c...")                           # his public key, as for members who sign
    channel = await fairway.create_reliable_channel(node, "team", "alice", topic, encryption=group)

    group = GroupKeys.join("bob.group", identity, "5d3c...")      # bob: the id of the group, which alice gives him
    channel = await fairway.create_reliable_channel(node, "team", "bob", topic, encryption=group)

docs/group-keys.md says what such a group promises, and has the bytes on the wire.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Final, Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairway.bounded import BoundedDict
from fairway.environment import monotonic_s, random_bytes, time_ns
from fairway.errors import ConfigurationError, DecodeError, DecryptionError, EncryptionError, FairwayError
from fairway.identity import Identity
from fairway.json_reading import read_json
from fairway.protocol.encryption.aead import AesGcm
from fairway.protocol.encryption.epochs import (
    CLOSED,
    MESSAGE,
    Epoch,
    MessageClosedError,
    Roster,
    cipher_of,
    group_id_of,
    keys_in,
    make_record,
    rank_of,
    roster_in,
    signed_part,
    tag_of,
)
from fairway.protocol.names import checked_name
from fairway.protocol.sds.channel import LAMPORT_TOLERANCE_MS
from fairway.protocol.signing import public_key_of
from fairway.protocol.signing.keys import ED25519, KINDS, verify
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.store_lock import StoreLock
from fairway.storage.whole_file import replace_whole
from fairway.type_checks import check_type
from fairway.units import MS_PER_S, NS_PER_MS
from fairway.waiters import Waiters
from fairway.wire.group_keys import (
    KEY_BYTES,
    MAX_NUMBER,
    MAX_RECORD_BYTES,
    TAG_BYTES,
    GroupMessage,
    GroupRecord,
    RosterEntry,
    SignedRecord,
    decode_message,
    decode_notice,
    decode_record,
    decode_signer,
    encode_message,
    encode_notice,
    encode_record,
)

HAND_OUT_PAUSE_S: Final = 10.0
"""Shortest time between two messages with the record of an epoch, of all members together."""
LONGEST_PAUSE_S: Final = 120.0
"""Longest time between two messages that are sent for the record alone; the pauses double (RFC 6206, Trickle)."""
MAX_MESSAGES: Final = 10_000
"""Messages whose epoch is remembered, the newest. Of an older one the date tells the epoch."""
MAX_EPOCHS: Final = 1_000
"""Epochs whose keys are kept, the newest."""
_MAX_WAKU_MESSAGE_BYTES: Final = 153_600
_BESIDE_BYTES: Final = 2_048
"""Bytes of a WakuMessage that a message with a record leaves to its topic, its proof and the encryption."""
_MAX_SEEN: Final = 1_000
"""Records remembered as processed."""
_MAX_FILE_BYTES: Final = 1 << 22
_LOCK_S: Final = 1.0
_READ_PAUSE_S: Final = 1.0
"""Shortest time between two looks whether another program changed the file."""
_SALT_BYTES: Final = 16


class _State(Struct, frozen=True, kw_only=True):
    """The contents of the file, as JSON."""

    group_id: bytes
    record: SignedRecord | None = None
    """The record of the newest epoch."""
    roster: tuple[RosterEntry, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    """The epochs whose keys this member has, newest first."""

    def joined(self, other: _State) -> _State:
        """Return all that both states know."""
        roster = Roster(self.roster)
        roster.merge(other.roster)
        epochs = {epoch.epoch_id: epoch for epoch in (*other.epochs, *self.epochs)}
        return replace(
            self,
            record=max(self.record, other.record, key=_rank_of_record),
            roster=tuple(roster),
            epochs=tuple(sorted(epochs.values(), key=lambda epoch: epoch.rank, reverse=True)[:MAX_EPOCHS]),
        )


def _rank_of_record(signed: SignedRecord | None) -> tuple[int, bytes]:
    if signed is None:
        return 0, b""
    record = decode_record(signed.record)
    return rank_of(record.number, record.epochs[0].epoch_id)


class GroupKeys:
    """The keys of one member of a group, in a file; give it to a channel as ``encryption``.

    Members sign their messages with the same identity, and the channel knows the keys of the others from the group. An
    administrator adds and removes members; each change begins an epoch with a new key. The next message of any member
    who has the new key hands it to the others. Every change is written to the file before it takes effect.
    """

    def __init__(self, path: Path, identity: Identity, state: _State) -> None:
        """Use `create`, `join` or `load`."""
        self.identity: Final = identity
        """Key of this member."""
        self.roster: Final = Roster()
        """The present and the former members, with their keys."""
        self.max_message_bytes = _MAX_WAKU_MESSAGE_BYTES
        """Longest WakuMessage of the channels with these keys; a longer one gets no record."""
        self.keys_learned = 0
        """Number of records whose keys this object has learned."""
        self._path = path
        self._state = state
        self._lock = threading.RLock()
        self._waiters = Waiters()
        self._seen: BoundedDict[bytes, None] = BoundedDict(_MAX_SEEN)
        self._ciphers: dict[bytes, AesGcm] = {}
        self._epoch_ids: BoundedDict[bytes, bytes] = BoundedDict(MAX_MESSAGES)
        """Epoch in which a message was encrypted first, by the hash of its plaintext."""
        self._tag = tag_of(identity.public_key)
        self._record: GroupRecord | None = None
        self._current: Epoch | None = None
        """The epoch that encrypts; None if this member does not have the newest key."""
        self._known: set[bytes] = set()
        """Tags of the other present and former members."""
        self._others: set[bytes] = set()
        """Tags of the other present members."""
        self._unaware: set[bytes] = set()
        """Tags of those who have not encrypted with the newest key, or with an older one since."""
        self._record_seen_s = self._hand_out_at_s = self._read_at_s = float("-inf")
        self._pause_s = HAND_OUT_PAUSE_S
        self._latest_ms = 0
        """The latest date of a message."""
        self._version: tuple[int, ...] = ()
        """Identifies the contents of the file that were read last."""
        self._install(state)

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        identity: Identity,
        name: str,
        *,
        administrators: Mapping[str, bytes | str] | None = None,
    ) -> Self:
        """Make a group in a new file that only its owner may read.

        ``name`` is the own sender id. ``administrators`` has the sender ids and public keys of other members who may
        add and remove members. The administrators of a group never change. Raises `ConfigurationError` if the file
        exists, a `StorageError` if it cannot be written.
        """
        check_type("administrators", administrators, Mapping | None, "give public keys by sender id")
        keys = {_name(other): _member_key(key) for other, key in (administrators or {}).items()}
        if keys.setdefault(_name(name), _own_key(identity)) != identity.public_key:
            raise ConfigurationError(f"administrators has another key for {name!r}, which is the own name")
        salt, known = random_bytes(_SALT_BYTES), tuple(keys.values())
        group = cls(Path(path), identity, _State(group_id=group_id_of(salt, known)))
        roster = Roster(RosterEntry(each, key, 1, 0) for each, key in keys.items())
        group._write(group._renewed(group._state, roster, salt, known), is_new=True)
        return group

    @classmethod
    def join(cls, path: str | PathLike[str], identity: Identity, group_id: str) -> Self:
        """Make the new file of a member that an administrator adds, before or after this call.

        ``group_id`` is the `id` of the group; it proves who the administrators are. Until the key arrives over the
        channel, nothing can be read, and messages wait before they are sent. Raises `ConfigurationError` if the file
        exists, a `StorageError` if it cannot be written.
        """
        _own_key(identity)
        try:
            raw = bytes.fromhex(group_id)
        except (ValueError, TypeError):
            raw = b""
        if len(raw) != KEY_BYTES:
            raise ConfigurationError(f"the id of a group is {2 * KEY_BYTES} hexadecimal digits, not {group_id!r}")
        group = cls(Path(path), identity, _State(group_id=raw))
        group._write(group._state, is_new=True)
        return group

    @classmethod
    def load(cls, path: str | PathLike[str], identity: Identity) -> Self:
        """Return the keys in a file of `create` or `join`.

        Raises `ConfigurationError` if it cannot be read, or if it is the file of another identity.
        """
        key, state = _own_key(identity), _read(Path(path))
        if state.epochs and all(entry.public_key != key for entry in state.roster):
            raise ConfigurationError(f"{path} has the keys of another member than {identity}: give its identity")
        group = cls(Path(path), identity, state)
        group._merge()
        return group

    def __repr__(self) -> str:
        return f"<GroupKeys {self.id[:8]}: epoch {self.epoch}, {len(self.members)} members, in {self._path}>"

    @property
    def id(self) -> str:
        """The id of the group, 64 hexadecimal digits, for `join`. It is no secret."""
        return self._state.group_id.hex()

    @property
    def epoch(self) -> int:
        """Number of the newest epoch that this member knows; 0 before the first."""
        return 0 if self._record is None else self._record.number

    @property
    def members(self) -> dict[str, bytes]:
        """The public keys of the present members, by sender id."""
        return {entry.name: entry.public_key for entry in self.roster.present}

    @property
    def is_administrator(self) -> bool:
        """Whether this member may add and remove members."""
        return self._record is not None and self.identity.public_key in self._record.administrators

    @property
    def is_member(self) -> bool:
        """Whether this member has the newest key that it knows of: False until it is added, and when it is removed."""
        return self._current is not None

    def add(self, name: str, public_key: bytes | str, *, with_history: bool = False) -> None:
        """Add a member, who reads all messages from now on; ``with_history`` also the earlier ones.

        ``name`` is its sender id, ``public_key`` that of its identity. Raises `ConfigurationError` for a wrong key, a
        key of another member, in a group that is too large, and if this member is no administrator; a `StorageError` if
        the disk fails.
        """
        name, key = _name(name), _member_key(public_key)
        entry = self.roster.entry(name)
        owner = next((each.name for each in self.roster.present if each.public_key == key), name)
        if owner != name:
            raise ConfigurationError(f"the key of {name!r} is that of {owner!r}: each member has a key of its own")
        if entry is not None and entry.public_key != key and self._is_of_administrator(entry):
            raise ConfigurationError(f"{name!r} is an administrator, whose key cannot change: make a new group")
        is_present = entry is not None and not entry.until_ms and entry.public_key == key
        if is_present and not with_history:
            raise ConfigurationError(f"{name!r} is a member already; with_history=True gives it the earlier keys")
        self._renew(lambda number: RosterEntry(name, key, number, 0 if with_history else number))

    def remove(self, name: str) -> None:
        """Remove a member, who cannot read what is encrypted with the new key. Raises as `add`."""
        entry = self.roster.entry(name)
        if entry is None or entry.until_ms:
            raise ConfigurationError(f"the group has no member {name!r}; it has {', '.join(self.members) or 'none'}")
        if self._is_of_administrator(entry):
            raise ConfigurationError(f"{name!r} is an administrator, and cannot be removed: make a new group")
        # The dates of a channel are ahead of this clock if the clock of some member is.
        until_ms = max(_now_ms(), min(self._latest_ms, _now_ms() + LAMPORT_TOLERANCE_MS))
        self._renew(lambda number: replace(entry, changed=number, until_ms=until_ms))

    def _is_of_administrator(self, entry: RosterEntry) -> bool:
        return self._record is not None and entry.public_key in self._record.administrators

    def renew(self) -> None:
        """Begin an epoch with a new key for the same members. Raises as `add`."""
        self._renew(None)

    def encrypt(self, plaintext: bytes, /) -> bytes | Awaitable[bytes]:
        """Encrypt with the newest key; without any key, when it arrives. Raises `EncryptionError` after a removal."""
        self._read_again()
        epoch = self._current
        if epoch is not None:
            return self._encrypted(plaintext, epoch)
        if self._state.epochs:
            raise EncryptionError("this member was removed from the group")
        return self._encrypted_later(plaintext)

    def decrypt(self, ciphertext: bytes, /) -> bytes:
        """Return the plaintext, with any key that this member has; take the keys that the message hands out."""
        message = decode_message(ciphertext)
        if message.record is not None:
            try:
                self._take(message.record)
            except FairwayError:
                # The disk failed, for example. An earlier key may decrypt this message; the record comes again.
                if self._cipher(message.epoch_id) is None:
                    raise
        cipher = self._cipher(message.epoch_id)
        if cipher is None:
            raise self._unreadable(message)
        decrypted = cipher.decrypt(message.ciphertext)
        tag, plaintext = decrypted[:TAG_BYTES], decrypted[TAG_BYTES:]
        self._remember(plaintext, message.epoch_id)
        if message.record is not None and message.record == self._state.record:
            self._record_seen()
        if self._current is not None and message.epoch_id == self._current.epoch_id:
            self._unaware.discard(tag)
        elif tag in self._known - self._unaware and not message.closed:
            # A former member, too: the record tells it of its removal.
            self._unaware.add(tag)
            self._pause_s = HAND_OUT_PAUSE_S
            self._plan()
        return plaintext

    def unread_since_ms(self, after_ms: int) -> int | None:
        """Return the beginning of the earliest epoch whose key came at ``after_ms`` or later; None without one."""
        return min((epoch.since_ms for epoch in self._state.epochs if epoch.learned_ms >= after_ms), default=None)

    @property
    def hand_out_in_ms(self) -> int | None:
        """Time until a message is needed to hand out the newest key; None if every member has it."""
        self._read_again()
        if self._current is None or not self._unaware & self._others:
            return None
        return math.ceil(max(0.0, self._hand_out_at_s - monotonic_s()) * MS_PER_S)

    def encrypt_as_of(self, plaintext: bytes, message_id: str, made_ms: int) -> bytes:
        """Encrypt an earlier message again, with the key of the epoch in which it was encrypted first."""
        current = self._current
        if current is None:
            raise EncryptionError("this member has no key of the group")
        epoch = self._epoch(self._epoch_ids.get(_digest(plaintext), b"")) or self._epoch_at(made_ms)
        if epoch == current:
            return self._encrypted(plaintext, current)
        cipher = self._cipher(epoch.epoch_id)
        assert cipher is not None, "its key is here"
        ciphertext = cipher.encrypt(self._tag + plaintext)
        notice = encode_notice(epoch.number, message_id)
        return encode_message(
            GroupMessage(
                epoch_id=epoch.epoch_id,
                ciphertext=ciphertext,
                closed=self._notice_cipher(current, epoch.epoch_id, ciphertext).encrypt(notice),
            )
        )

    def admits(self, sender_id: str, made_ms: int) -> bool:
        """Return whether a message may be of its sender: a former member sends none after its removal."""
        self._latest_ms = max(self._latest_ms, made_ms)
        return self.roster.admits(sender_id, made_ms)

    async def _encrypted_later(self, plaintext: bytes) -> bytes:
        while self._current is None:
            await self._waiters.wait()
        return self._encrypted(plaintext, self._current)

    def _encrypted(self, plaintext: bytes, epoch: Epoch) -> bytes:
        cipher = self._cipher(epoch.epoch_id)
        assert cipher is not None, "its key is here"
        ciphertext = cipher.encrypt(self._tag + plaintext)
        self._remember(plaintext, epoch.epoch_id)
        record = self._state.record if self._hands_out(len(plaintext)) else None
        return encode_message(GroupMessage(epoch_id=epoch.epoch_id, ciphertext=ciphertext, record=record))

    def _hands_out(self, size_bytes: int) -> bool:
        """Return whether the next message carries the record: a member was not heard with the newest key yet."""
        signed, now_s = self._state.record, monotonic_s()
        if signed is None or not self._unaware or now_s - self._record_seen_s < HAND_OUT_PAUSE_S:
            return False
        if size_bytes + len(signed.record) + _BESIDE_BYTES > self.max_message_bytes:
            if now_s >= self._hand_out_at_s:
                self._plan()
            return False
        self._unaware &= self._others
        self._record_seen()
        return True

    def _record_seen(self) -> None:
        self._record_seen_s = monotonic_s()
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._plan()

    def _plan(self) -> None:
        """Plan a message for the record alone, at a random time after the pause: one member is the first."""
        self._hand_out_at_s = monotonic_s() + self._pause_s * (1 + random_bytes(1)[0] / 256)

    def _cipher(self, epoch_id: bytes) -> AesGcm | None:
        cipher = self._ciphers.get(epoch_id)
        if cipher is None:
            epoch = self._epoch(epoch_id)
            if epoch is not None:
                cipher = self._ciphers[epoch_id] = cipher_of(epoch, MESSAGE, self._state.group_id, random_bytes)
        return cipher

    def _epoch(self, epoch_id: bytes) -> Epoch | None:
        return next((epoch for epoch in self._state.epochs if epoch.epoch_id == epoch_id), None)

    def _epoch_at(self, made_ms: int) -> Epoch:
        """Return the epoch of a date; the clock of its administrator may be ahead of the clock of this member."""
        epochs = self._state.epochs
        return next((each for each in epochs if min(each.since_ms, each.learned_ms) <= made_ms), epochs[-1])

    def _remember(self, plaintext: bytes, epoch_id: bytes) -> None:
        digest = _digest(plaintext)
        if digest not in self._epoch_ids:
            self._epoch_ids[digest] = epoch_id

    def _notice_cipher(self, epoch: Epoch, about_epoch_id: bytes, about: bytes) -> AesGcm:
        """Return the cipher of the notice beside a ciphertext: it holds for this ciphertext only."""
        return cipher_of(epoch, CLOSED, self._state.group_id + about_epoch_id + about, random_bytes)

    def _unreadable(self, message: GroupMessage) -> DecryptionError:
        if self._current is None or not message.closed:
            return DecryptionError("this member has no key of the message's epoch")
        notice = self._notice_cipher(self._current, message.epoch_id, message.ciphertext).decrypt(message.closed)
        number, message_id = decode_notice(notice)
        if number >= self._first_number:
            return DecryptionError("the key of the message's epoch has not arrived yet")
        return MessageClosedError(message_id)

    @property
    def _first_number(self) -> int:
        """Number of the first epoch whose key the newest record may have for this member."""
        handed_out = [] if self._record is None else [each.number for each in self._record.epochs]
        since = [entry.since for entry in self.roster if entry.public_key == self.identity.public_key]
        return max(min(handed_out, default=0), min(since, default=0))

    def _take(self, signed: SignedRecord) -> None:
        """Learn the keys of a record that an administrator signed."""
        digest = hashlib.sha256(signed.record + signed.signature).digest()
        with self._lock:
            if digest not in self._seen:
                record = self._verified(signed)
                if record is None:
                    return
                if self._epoch(record.epochs[0].epoch_id) is None:
                    self._learn(signed, record)
                self._seen[digest] = None

    def _verified(self, signed: SignedRecord) -> GroupRecord | None:
        try:
            salt, administrators, signer = decode_signer(signed.record)
            is_ours = group_id_of(salt, administrators) == self._state.group_id
            is_true = is_ours and verify(administrators[signer], signed.signature, signed_part(signed.record))
            return decode_record(signed.record) if is_true else None
        except (DecodeError, ValueError):
            return None

    def _learn(self, signed: SignedRecord, record: GroupRecord) -> None:
        known = {epoch.epoch_id for epoch in self._state.epochs}
        epochs = keys_in(record, self.identity.public_key, self.identity.secret, _now_ms())
        roster = roster_in(record, epochs[0]) if epochs else ()
        new = tuple(epoch for epoch in epochs if epoch.epoch_id not in known)
        learned = _State(group_id=self._state.group_id, record=signed, roster=roster, epochs=new)
        self._change(lambda state: state.joined(learned))
        self.keys_learned += bool(new)
        self._merge()

    def _merge(self) -> None:
        """Begin an epoch if this administrator knows a change or a key that the newest record does not have."""
        newest, current = self._record, self._current
        if newest is None or current is None or current.epoch_id != newest.epochs[0].epoch_id:
            return
        handed_out, newer = {each.epoch_id for each in newest.epochs}, self._state.epochs[: len(newest.epochs)]
        # Messages of an own epoch are repeated with its key, which the newest record may lack.
        is_lacking = any(epoch.is_own and epoch.epoch_id not in handed_out for epoch in newer)
        is_changed = tuple(Roster(roster_in(newest, current))) != tuple(self.roster)
        if self.is_administrator and (is_lacking or is_changed):
            # In a group that is full, the next change raises this error.
            with suppress(ConfigurationError):
                self._renew(None)

    def _renew(self, change: Callable[[int], RosterEntry] | None) -> None:
        """Begin an epoch; ``change`` returns the changed entry for the number of that epoch."""
        with self._lock:
            self._change(lambda state: self._changed(state, change))

    def _changed(self, state: _State, change: Callable[[int], RosterEntry] | None) -> _State:
        if state.record is None:
            raise ConfigurationError("this member has no key of the group yet; only an administrator changes a group")
        record, roster = decode_record(state.record.record), Roster(state.roster)
        if self.identity.public_key not in record.administrators:
            raise ConfigurationError(
                "only an administrator changes a group: the member that created it, and those whom it named"
            )
        if change is not None:
            roster.merge([change(record.number + 1)])
        return self._renewed(state, roster, record.salt, record.administrators)

    def _renewed(self, state: _State, roster: Roster, salt: bytes, administrators: tuple[bytes, ...]) -> _State:
        """Return a state with another epoch, for the members of a roster."""
        number = _rank_of_record(state.record)[0] + 1
        if number > MAX_NUMBER:
            raise ConfigurationError(f"a group has at most {MAX_NUMBER:,} epochs: make a new group")
        epoch = Epoch.new(number, _now_ms(), random_bytes)
        signer = administrators.index(self.identity.public_key)
        made = make_record(salt, administrators, signer, (epoch, *state.epochs), roster, random_bytes)
        encoded = encode_record(made)
        if len(encoded) > MAX_RECORD_BYTES:
            raise ConfigurationError(
                f"the group is full, with {len(roster.present)} members and {len(list(roster)) - len(roster.present)} "
                f"former members: its record would have {len(encoded):,} bytes, at most {MAX_RECORD_BYTES:,} fit. "
                "Make a new group"
            )
        signed = SignedRecord(encoded, self.identity.sign(signed_part(encoded)))
        return state.joined(_State(group_id=state.group_id, record=signed, roster=tuple(roster), epochs=(epoch,)))

    def _change(self, change: Callable[[_State], _State]) -> None:
        """Write a changed state; another process may have written the file in between."""
        with typed_errors(self._path, "writing"):
            lock = StoreLock(self._path, user="channel", kind="file of group keys", wait_s=_LOCK_S)
            try:
                self._write(change(self._joined_with_file()))
            finally:
                lock.release()

    def _joined_with_file(self) -> _State:
        state = _read(self._path)
        if state.group_id != self._state.group_id:
            raise ConfigurationError(f"{self._path} has the keys of another group now: restore the file of {self.id}")
        return state.joined(self._state)

    def _read_again(self) -> None:
        """Take over what another program wrote to the file, such as ``fairway group``."""
        now_s = monotonic_s()
        if now_s < self._read_at_s:
            return
        self._read_at_s = now_s + _READ_PAUSE_S
        # A file that cannot be read now is read later; the keys in memory remain.
        with suppress(OSError, ConfigurationError):
            status = self._path.stat()
            version = status.st_ino, status.st_mtime_ns, status.st_size
            if version == self._version:
                return
            with self._lock:
                before = len(self._state.epochs)
                self._install(self._joined_with_file())
                self.keys_learned += len(self._state.epochs) > before
            self._version = version

    def _write(self, state: _State, *, is_new: bool = False) -> None:
        if is_new and self._path.exists():
            raise ConfigurationError(f"{self._path} exists: give the path of a new file, or load the keys in it")
        with typed_errors(self._path, "writing"):
            replace_whole(self._path, msgspec.json.format(msgspec.json.encode(state)) + b"\n", private=True)
        self._install(state)

    def _install(self, state: _State) -> None:
        before, self._state = self._record, state
        self.roster.merge(state.roster)
        self._record = record = None if state.record is None else decode_record(state.record.record)
        if record is None:
            return
        # The record of an administrator who does not know this member yet has no key for it, and the same number.
        newest = state.epochs[0] if state.epochs else None
        self._current = newest if newest is not None and newest.number == record.number else None
        self._known = {tag_of(entry.public_key) for entry in self.roster} - {self._tag}
        self._others = {tag_of(entry.public_key) for entry in self.roster.present} - {self._tag}
        if before is None or before.epochs[0].epoch_id != record.epochs[0].epoch_id:
            self._unaware = set(self._others)
            self._pause_s = HAND_OUT_PAUSE_S
            self._record_seen_s = self._hand_out_at_s = float("-inf")
        if self._current is not None:
            self._waiters.wake()


def _read(path: Path) -> _State:
    try:
        with path.open("rb") as opened:
            state = read_json(opened.read(_MAX_FILE_BYTES), _State)
        _rank_of_record(state.record)
    except OSError as error:
        raise ConfigurationError(f"the group keys in {path} cannot be read ({error.strerror})") from error
    except DecodeError as error:
        raise ConfigurationError(
            f"{path} is no file of group keys ({error}): restore a copy, or make a new file with GroupKeys.join"
        ) from error
    return state


def _own_key(identity: Identity) -> bytes:
    check_type("identity", identity, Identity, "Identity.load(path) reads one")
    return _member_key(identity.public_key)


def _member_key(public_key: bytes | str) -> bytes:
    key = public_key_of(public_key)
    if KINDS[len(key)] != ED25519:
        raise ConfigurationError("a member of a group has a key of ed25519: make one with 'fairway identity new FILE'")
    return key


def _name(sender_id: str) -> str:
    return checked_name("the sender id of a member", sender_id, "give the name that the member has in the channel")


def _digest(plaintext: bytes) -> bytes:
    return hashlib.sha256(plaintext).digest()


def _now_ms() -> int:
    return time_ns() // NS_PER_MS
