"""The keys of a group in files, and the records that hand them out."""

import hashlib
import json
import os
import stat
import time
from contextvars import copy_context

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairway import ConfigurationError, GroupKeys, Identity
from fairway.environment import Environment, set_environment
from fairway.errors import DecodeError, DecryptionError, EncryptionError
from fairway.protocol.encryption.epochs import CLOSED, Epoch, MessageClosedError, cipher_of, signed_part
from fairway.wire.group_keys import (
    GroupMessage,
    GroupRecord,
    RosterEntry,
    SealedSecret,
    SignedRecord,
    WrappedKey,
    decode_message,
    decode_record,
    decode_roster,
    encode_message,
    encode_notice,
    encode_record,
    encode_roster,
)


def identity_of(name):
    return Identity(hashlib.sha256(name.encode()).digest())


def key_of(name):
    return identity_of(name).public_key


@pytest.fixture
def group(tmp_path):
    return GroupKeys.create(tmp_path / "alice", identity_of("alice"), "alice")


def joined(group, folder, name):
    return GroupKeys.join(folder / name, identity_of(name), group.id)


def test_a_member_reads_what_is_encrypted_while_it_is_in_the_group(group, tmp_path):
    bob = joined(group, tmp_path, "bob")
    before = group.encrypt(b"before bob")
    group.add("bob", str(identity_of("bob")))
    during = group.encrypt(b"with bob")
    assert bob.decrypt(during) == b"with bob"
    group.remove("bob")
    after = group.encrypt(b"without bob")
    for closed in (before, after):
        with pytest.raises(DecryptionError):
            bob.decrypt(closed)
    assert bob.decrypt(during) == b"with bob"
    assert group.decrypt(bob.encrypt(b"he does not know it yet")) == b"he does not know it yet"
    with pytest.raises(DecryptionError):
        bob.decrypt(group.encrypt(b"now he does"))
    with pytest.raises(EncryptionError, match="removed"):
        bob.encrypt(b"hello?")
    assert [group.decrypt(each) for each in (before, during, after)] == [b"before bob", b"with bob", b"without bob"]


def test_a_member_who_is_added_again_reads_nothing_of_the_time_between(group, tmp_path):
    bob = joined(group, tmp_path, "bob")
    group.add("bob", key_of("bob"))
    bob.decrypt(group.encrypt(b"in"))
    group.remove("bob")
    between = group.encrypt(b"between")
    group.add("bob", key_of("bob"))
    assert bob.decrypt(group.encrypt(b"in again")) == b"in again"
    with pytest.raises(DecryptionError):
        bob.decrypt(between)


def test_everything_is_the_same_after_a_restart(group, tmp_path):
    group.add("bob", key_of("bob"))
    sent = group.encrypt(b"hello")
    again = GroupKeys.load(tmp_path / "alice", identity_of("alice"))
    assert (again.id, again.epoch, again.members) == (group.id, 2, {"alice": key_of("alice"), "bob": key_of("bob")})
    bob = joined(group, tmp_path, "bob")
    assert bob.decrypt(again.encrypt(b"the record comes again")) == b"the record comes again"
    assert again.decrypt(sent) == b"hello"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_only_the_owner_may_read_the_file(group, tmp_path):
    group.renew()
    assert stat.S_IMODE((tmp_path / "alice").stat().st_mode) == 0o600


def test_two_programs_of_one_member_lose_no_change(group, tmp_path):
    other = GroupKeys.load(tmp_path / "alice", identity_of("alice"))
    group.add("bob", key_of("bob"))
    other.add("carol", key_of("carol"))
    assert other.members.keys() == {"alice", "bob", "carol"}


def test_a_file_of_another_group_is_not_mixed_with_the_keys_in_memory(group, tmp_path):
    GroupKeys.create(tmp_path / "other", identity_of("alice"), "alice").renew()
    (tmp_path / "other").replace(tmp_path / "alice")
    with pytest.raises(ConfigurationError, match="another group"):
        group.renew()
    before = group.id
    group.encrypt(b"hello")
    assert (group.id, group.epoch) == (before, 1)


def test_a_failed_disk_changes_nothing(group, tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(Exception, match="No space left"):
        group.add("bob", key_of("bob"))
    monkeypatch.undo()
    assert group.epoch == GroupKeys.load(tmp_path / "alice", identity_of("alice")).epoch == 1
    assert group.members.keys() == {"alice"}


def test_wrong_use_is_told(group, tmp_path):
    bob = joined(group, tmp_path, "bob")
    with pytest.raises(ConfigurationError, match="no key of the group yet"):
        bob.add("carol", key_of("carol"))
    group.add("bob", key_of("bob"))
    bob.decrypt(group.encrypt(b"hello"))
    with pytest.raises(ConfigurationError, match="only an administrator"):
        bob.remove("bob")
    with pytest.raises(ConfigurationError, match="has no member 'carol'; it has alice, bob"):
        group.remove("carol")
    with pytest.raises(ConfigurationError, match="is an administrator"):
        group.remove("alice")
    with pytest.raises(ConfigurationError, match="'bob' is a member already"):
        group.add("bob", key_of("bob"))
    with pytest.raises(ConfigurationError, match="is that of 'bob'"):
        group.add("robert", key_of("bob"))
    with pytest.raises(ConfigurationError, match="whose key cannot change"):
        group.add("alice", key_of("mallory"))
    with pytest.raises(ConfigurationError, match="the own name"):
        GroupKeys.create(tmp_path / "new", identity_of("alice"), "alice", administrators={"alice": key_of("bob")})
    with pytest.raises(ConfigurationError, match="another member"):
        GroupKeys.load(tmp_path / "bob", identity_of("carol"))
    with pytest.raises(ConfigurationError, match="ed25519"):
        group.add("carol", Identity(key_of("carol"), "secp256k1").public_key)
    with pytest.raises(ConfigurationError, match="exists"):
        joined(group, tmp_path, "bob")
    with pytest.raises(ConfigurationError, match="hexadecimal"):
        GroupKeys.join(tmp_path / "carol", identity_of("carol"), "team")
    (tmp_path / "carol").write_text(json.dumps({"group_id": 7}))
    for name in ("carol", "dave"):
        with pytest.raises(ConfigurationError, match=name):
            GroupKeys.load(tmp_path / name, identity_of(name))


def add_with_long_names(group, count):
    for number in range(count):
        group.add(f"{number:250}", key_of(str(number)))


def test_a_record_has_a_longest_size(group):
    with pytest.raises(ConfigurationError, match="the group is full"):
        add_with_long_names(group, 100)
    assert 50 < len(group.members) < 100


def test_administrators_who_begin_epochs_at_the_same_time_agree(tmp_path):
    keys = {"dave": key_of("dave")}
    alice = GroupKeys.create(tmp_path / "alice", identity_of("alice"), "alice", administrators=keys)
    alice.add("bob", key_of("bob"))
    dave, bob = joined(alice, tmp_path, "dave"), joined(alice, tmp_path, "bob")
    dave.decrypt(alice.encrypt(b"one"))
    alice.add("carol", key_of("carol"))
    dave.remove("bob")
    by_alice, by_dave = alice.encrypt(b"carol is here"), dave.encrypt(b"bob is gone")
    assert (alice.decrypt(by_dave), dave.decrypt(by_alice)) == (b"bob is gone", b"carol is here")
    # Both have merged the changes; one exchange later both have the same epoch.
    dave.decrypt(alice.encrypt(b"two"))
    alice.decrypt(dave.encrypt(b"three"))
    carol, alice = joined(alice, tmp_path, "carol"), GroupKeys.load(tmp_path / "alice", identity_of("alice"))
    last = alice.encrypt(b"four")
    assert carol.decrypt(last) == dave.decrypt(last) == b"four"
    assert alice.members.keys() == dave.members.keys() == carol.members.keys() == {"alice", "carol", "dave"}
    assert alice.epoch == dave.epoch == carol.epoch
    with pytest.raises(DecryptionError):
        bob.decrypt(last)


def test_an_administrator_killed_before_it_merged_merges_at_its_next_start(tmp_path, monkeypatch):
    keys = {"dave": key_of("dave")}
    alice = GroupKeys.create(tmp_path / "alice", identity_of("alice"), "alice", administrators=keys)
    dave = joined(alice, tmp_path, "dave")
    dave.decrypt(alice.encrypt(b"one"))
    alice.add("bob", key_of("bob"))
    dave.add("carol", key_of("carol"))
    by_dave, fsync, calls = dave.encrypt(b"carol is here"), os.fsync, []

    def fails_after_one_file(descriptor):
        calls.append(descriptor)
        if len(calls) > 2:
            raise OSError(28, "the process was killed")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails_after_one_file)
        assert alice.decrypt(by_dave) == b"carol is here"
    assert alice.epoch == 2
    again = GroupKeys.load(tmp_path / "alice", identity_of("alice"))
    assert again.epoch == 3
    assert dave.decrypt(again.encrypt(b"both are here")) == b"both are here"
    assert again.members.keys() == dave.members.keys() == {"alice", "bob", "carol", "dave"}


def test_only_an_administrator_begins_an_epoch(group, tmp_path):
    group.add("bob", key_of("bob"))
    sent = decode_message(group.encrypt(b"hello"))
    mallory = GroupKeys.create(tmp_path / "mallory", identity_of("mallory"), "mallory")
    mallory.add("bob", key_of("bob"))
    of_another = decode_message(mallory.encrypt(b"join me"))
    record = decode_record(sent.record.record)
    unsigned = SignedRecord(sent.record.record, bytes(64))
    renumbered = encode_record(
        GroupRecord(
            salt=record.salt,
            administrators=(key_of("mallory"),),
            signer=0,
            number=9,
            secrets=record.secrets,
            epochs=(WrappedKey(bytes(16), 9, 0, bytes(60)),),
            roster=record.roster,
        )
    )
    by_mallory = SignedRecord(renumbered, identity_of("mallory").sign(signed_part(renumbered)))
    for forged in (unsigned, by_mallory, of_another.record):
        bob = GroupKeys.join(tmp_path / f"bob {forged.signature.hex()}", identity_of("bob"), group.id)
        with pytest.raises(DecryptionError):
            bob.decrypt(encode_message(GroupMessage(epoch_id=sent.epoch_id, ciphertext=sent.ciphertext, record=forged)))
        assert (bob.epoch, bob.members) == (0, {})


def test_an_answer_to_a_repair_request_stays_closed_for_who_came_later(group, tmp_path):
    group.add("bob", key_of("bob"))
    bob, carol = joined(group, tmp_path, "bob"), joined(group, tmp_path, "carol")
    bob.decrypt(group.encrypt(b"bob has this key"))
    made_ms = time.time_ns() // 1_000_000
    time.sleep(0.002)
    group.add("carol", key_of("carol"))
    carol.decrypt(group.encrypt(b"carol has this key"))
    answer = group.encrypt_as_of(b"an old message", "message id", made_ms)
    assert bob.decrypt(answer) == b"an old message"
    with pytest.raises(MessageClosedError) as closed:
        carol.decrypt(answer)
    assert closed.value.message_id == "message id"
    with pytest.raises(DecryptionError):
        GroupKeys.join(tmp_path / "dave", identity_of("dave"), group.id).decrypt(answer)


@settings(max_examples=50, deadline=None)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_altered_byte_is_accepted(tmp_path_factory, place, bit):
    folder = tmp_path_factory.mktemp("group")
    group = GroupKeys.create(folder / "alice", identity_of("alice"), "alice")
    group.add("bob", key_of("bob"))
    bob = joined(group, folder, "bob")
    altered = bytearray(group.encrypt(b"hello"))
    altered[place % len(altered)] ^= 1 << bit
    try:
        # A record may be altered in parts that no member reads, but not in what it says.
        assert bob.decrypt(bytes(altered)) == b"hello"
    except (DecodeError, DecryptionError):
        return


tags, ids = st.binary(min_size=8, max_size=8), st.binary(min_size=16, max_size=16)
numbers = st.integers(1, 1_000)
keys = st.binary(min_size=32, max_size=32)


@st.composite
def records(draw):
    number = draw(numbers)
    wrapped = st.builds(WrappedKey, ids, st.integers(1, number), st.integers(0, 2**63), st.binary(max_size=60))
    first = WrappedKey(draw(ids), number, draw(st.integers(0, 2**63)), draw(st.binary(max_size=60)))
    administrators = draw(st.lists(keys, min_size=1, max_size=3))
    return GroupRecord(
        salt=draw(st.binary(max_size=16)),
        administrators=tuple(administrators),
        signer=draw(st.integers(0, len(administrators) - 1)),
        number=number,
        secrets=tuple(draw(st.lists(st.builds(SealedSecret, tags, st.binary(max_size=84)), max_size=5))),
        epochs=(first, *draw(st.lists(wrapped, max_size=5))),
        roster=draw(st.binary(max_size=100)),
    )


@given(record=records())
def test_a_record_survives_the_wire(record):
    assert decode_record(encode_record(record)) == record


@given(
    entries=st.lists(
        st.builds(RosterEntry, st.text(max_size=20), keys, numbers, st.integers(0, 1_000), st.integers(0, 2**63))
    )
)
def test_a_roster_survives_the_wire(entries):
    assert decode_roster(encode_roster(tuple(entries))) == tuple(entries)


@given(data=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    for decode in (decode_message, decode_record, decode_roster):
        try:
            decode(data)
        except DecodeError:
            continue


def altered(message, **fields):
    return encode_message(replace(decode_message(message), **fields))


def refusal(member, ciphertext):
    with pytest.raises(DecryptionError) as refused:
        member.decrypt(ciphertext)
    return refused.value


def test_a_stranger_cannot_alter_an_answer_so_that_a_member_skips_its_message(group, tmp_path):
    group.add("bob", key_of("bob"))
    bob, carol = joined(group, tmp_path, "bob"), joined(group, tmp_path, "carol")
    bob.decrypt(group.encrypt(b"an old message"))
    group.add("carol", key_of("carol"))
    newest = group.encrypt(b"both have this key")
    for member in (bob, carol):
        member.decrypt(newest)
    answer = group.encrypt_as_of(b"an old message", "id", 0)
    assert isinstance(refusal(carol, answer), MessageClosedError)
    for fields in ({"epoch_id": bytes(16)}, {"epoch_id": bytes(16), "ciphertext": bytes(60)}):
        for member in (bob, carol):
            assert not isinstance(refusal(member, altered(answer, **fields)), MessageClosedError)


def test_a_member_skips_no_message_whose_key_it_may_still_get(group, tmp_path):
    for name in ("bob", "carol"):
        group.add(name, key_of(name))
    bob, carol = joined(group, tmp_path, "bob"), joined(group, tmp_path, "carol")
    first = group.encrypt(b"first")
    for member in (bob, carol):
        member.decrypt(first)
    newest = msgspec.convert(json.loads((tmp_path / "carol").read_text())["epochs"][0], Epoch)
    notices = cipher_of(newest, CLOSED, bytes.fromhex(group.id) + bytes(16) + bytes(60))
    for number, is_believed in ((1, True), (carol.epoch, False)):
        forged = GroupMessage(
            epoch_id=bytes(16), ciphertext=bytes(60), closed=notices.encrypt(encode_notice(number, "id"))
        )
        assert isinstance(refusal(bob, encode_message(forged)), MessageClosedError) is is_believed


def test_a_repeated_message_has_the_key_of_its_first_time_whatever_its_date(group, tmp_path):
    bob, dave = joined(group, tmp_path, "bob"), joined(group, tmp_path, "dave")
    for name in ("bob", "dave"):
        group.add(name, key_of(name))
    before = group.encrypt(b"with bob")
    for member in (bob, dave):
        member.decrypt(before)
    group.remove("bob")
    dave.decrypt(group.encrypt(b"without bob"))
    for member in (group, dave):
        assert bob.decrypt(member.encrypt_as_of(b"with bob", "id", 1 << 60)) == b"with bob"
        refusal(bob, member.encrypt_as_of(b"without bob", "id", 0))


class AnHourAhead(Environment):
    def time_ns(self):
        return time.time_ns() + 3_600_000_000_000


def test_a_clock_that_is_ahead_gives_former_members_no_answers(group, tmp_path):
    bob, dave = joined(group, tmp_path, "bob"), joined(group, tmp_path, "dave")
    for name in ("bob", "dave"):
        group.add(name, key_of(name))
    first = group.encrypt(b"one")
    for member in (bob, dave):
        member.decrypt(first)
    ahead = copy_context()
    ahead.run(set_environment, AnHourAhead())
    ahead.run(group.remove, "bob")
    dave.decrypt(ahead.run(group.encrypt, b"two"))
    time.sleep(0.002)
    made_ms = time.time_ns() // 1_000_000
    dave = GroupKeys.load(tmp_path / "dave", identity_of("dave"))
    refusal(bob, dave.encrypt_as_of(b"three", "id", made_ms))


def test_who_repeats_an_old_message_still_has_the_newest_key(group, tmp_path):
    bob = joined(group, tmp_path, "bob")
    group.add("bob", key_of("bob"))
    bob.decrypt(group.encrypt(b"one"))
    group.renew()
    bob.decrypt(group.encrypt(b"two"))
    group.decrypt(bob.encrypt(b"three"))
    assert group.hand_out_in_ms is None
    assert group.decrypt(bob.encrypt_as_of(b"one", "id", 0)) == b"one"
    assert group.hand_out_in_ms is None


def test_a_record_on_a_message_of_a_stranger_does_not_keep_members_from_handing_it_out(group, tmp_path):
    group.add("bob", key_of("bob"))
    record = decode_message(group.encrypt(b"hello")).record
    again = GroupKeys.load(tmp_path / "alice", identity_of("alice"))
    refusal(again, altered(group.encrypt(b"hello"), ciphertext=bytes(60), record=record))
    assert decode_message(again.encrypt(b"hello")).record == record


def test_a_failed_disk_makes_no_message_unreadable_whose_key_is_here(group, tmp_path, monkeypatch):
    group.add("bob", key_of("bob"))
    bob = joined(group, tmp_path, "bob")
    with_old_key = group.encrypt(b"old")
    bob.decrypt(with_old_key)
    old = group.encrypt(b"old key")
    group.renew()
    record = decode_message(group.encrypt(b"new key")).record

    def fails(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        assert bob.decrypt(altered(old, record=record)) == b"old key"
    assert bob.epoch == 2
    assert bob.decrypt(altered(old, record=record)) == b"old key"
    assert bob.epoch == 3


def test_administrators_whose_additions_exceed_the_size_of_a_record_together_still_read(tmp_path):
    alice = GroupKeys.create(tmp_path / "alice", identity_of("alice"), "alice", administrators={"dave": key_of("dave")})
    dave = joined(alice, tmp_path, "dave")
    dave.decrypt(alice.encrypt(b"one"))
    for group, letter in ((alice, "a"), (dave, "d")):
        for number in range(50):
            group.add(f"{letter}{number:250}", key_of(f"{letter}{number}"))
    by_alice, by_dave = alice.encrypt(b"two"), dave.encrypt(b"three")
    assert alice.decrypt(by_dave) == b"three"
    assert dave.decrypt(by_alice) == b"two"
    with pytest.raises(ConfigurationError, match="full, with 102 members and 0 former"):
        alice.renew()
    again = GroupKeys.load(tmp_path / "alice", identity_of("alice"))
    assert again.decrypt(again.encrypt(b"four")) == b"four"


def test_the_repr_of_an_epoch_has_no_key():
    epoch = Epoch.new(1, 0, os.urandom)
    assert repr(epoch) == f"<Epoch 1 {epoch.epoch_id.hex()}>"
