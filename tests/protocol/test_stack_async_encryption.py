"""An encryption hook that must be awaited (LIP-173, "Encryption Hook"): same results, later."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from fairway.errors import EncryptionError
from fairway.events import (
    DeliveryError,
    DropReason,
    EphemeralMessageDropped,
    MessageDelivered,
    MessageSendError,
    SendErrorReason,
)
from fairway.options import RateLimitConfig, ReliableChannelOptions, SegmentationConfig
from fairway.protocol.effects import Purpose

SMALL = ReliableChannelOptions(sync_min_interval_ms=0, segmentation=SegmentationConfig(segment_size_bytes=64))
TEN_AN_EPOCH = ReliableChannelOptions(
    sync_min_interval_ms=0, rate_limit=RateLimitConfig(enabled=True, epoch_ms=600_000, messages_per_epoch=10)
)
FILE = bytes(range(256)) * 2
"""Eight segments and one parity segment."""


class SlowCipher:
    """Encrypts and opens later; fails for what contains a given text."""

    def __init__(self, poison=None):
        self.poison = poison
        self.encrypted = 0

    async def encrypt(self, plaintext):
        if self.poison is not None and self.poison in plaintext:
            raise RuntimeError("the key store is away")
        self.encrypted += 1
        return b"encrypted" + plaintext[::-1]

    async def decrypt(self, ciphertext):
        if not ciphertext.startswith(b"encrypted"):
            raise ValueError("not ours")
        return ciphertext.removeprefix(b"encrypted")[::-1]


class Awaiter:
    """Awaits what a peer's hook returned, in an order of the test's choice."""

    def __init__(self, peer):
        self.peer = peer
        self.awaited = set()

    def waiting(self):
        return [effect for effect in self.peer.ciphers() if effect.token not in self.awaited]

    def one(self, effect=None):
        effect = effect or self.waiting()[0]
        self.awaited.add(effect.token)
        try:
            result = asyncio.run(self._result(effect.awaitable))
        except Exception as error:  # noqa: BLE001 - a shell hands on whatever the hook raised
            result = error
        return self.peer.do(self.peer.stack.cipher_done(effect.token, result, self.peer.now_ms))

    def all(self, rng=None):
        while waiting := self.waiting():
            self.one(rng.choice(waiting) if rng else waiting[0])

    def close(self):
        """Await what is left, and tell nobody: the process ends before."""
        for effect in self.waiting():
            self.awaited.add(effect.token)
            asyncio.run(self._result(effect.awaitable))

    @staticmethod
    async def _result(awaitable):
        return await awaitable


def pair(peer, options=SMALL, poison=None):
    alice, bob = peer("alice", options, encryption=SlowCipher(poison)), peer("bob", options, encryption=SlowCipher())
    return alice, Awaiter(alice), bob, Awaiter(bob)


def opened(publication):
    return asyncio.run(SlowCipher().decrypt(publication.message.payload))


def test_what_is_sent_arrives_as_with_a_hook_that_answers_at_once(peer):
    alice, alices, bob, bobs = pair(peer)
    for payload in (b"before", FILE, b"after"):
        alice.send(payload)
    assert not alice.published()
    alices.all()
    bob.receive(*alice.content())
    assert not bob.events()
    bobs.all()
    assert bob.payloads() == [b"before", FILE, b"after"]
    alice.check_rows()
    bob.check_rows()


def test_segments_keep_their_order_and_cite_each_other(peer):
    alice, alices, bob, _ = pair(peer)
    alice.send(FILE)
    alice.send(b"after")
    assert len(alices.waiting()) == 1
    alices.all()
    messages = [bob.stack.sds.profile.codec.decode(opened(publication)) for publication in alice.content()]
    for before, after in itertools.pairwise(messages):
        assert after.causal_history[-1].message_id == before.message_id
    assert [message.content for message in messages][-1] == b"after"


@pytest.mark.parametrize("seed", range(10))
def test_the_order_in_which_messages_are_opened_does_not_matter(peer, seed):
    alice, alices, bob, bobs = pair(peer)
    payloads = [b"one", FILE, b"two", b"three"]
    for payload in payloads:
        alice.send(payload)
    alices.all(random.Random(seed))
    bob.receive(*alice.content())
    bobs.all(random.Random(seed))
    assert bob.payloads() == payloads


def test_a_hook_that_fails_ends_the_request_and_leaks_nothing(peer):
    alice, alices, _, _ = pair(peer, poison=b"secret")
    accepted = alice.send(b"a secret")
    alices.all()
    assert not alice.published()
    [error] = alice.events(MessageSendError)
    assert (error.request_id, error.reason) == (accepted.request_id, SendErrorReason.ENCRYPTION_FAILED)
    assert [event.request_id for event in alice.events(DeliveryError)] == [accepted.request_id]
    alice.send(b"harmless")
    alices.all()
    assert len(alice.published()) == 1
    assert alice.published()[0].message.payload.startswith(b"encrypted")
    alice.check_rows()


def test_after_a_restart_the_next_message_takes_over_citations_of_one_that_was_never_encrypted(peer):
    others = [peer(f"p{number}", SMALL, encryption=SlowCipher()) for number in range(6)]
    bob = peer("bob", SMALL, encryption=SlowCipher())
    awaiter = Awaiter(bob)
    for other in others:
        other.send(b"hello")
        Awaiter(other).all()
        bob.receive(*other.content())
        awaiter.all()
    read = {record.message_id for record in bob.stack.sds.history}
    bob.send(b"poison")
    awaiter.close()
    bob = bob.restart(encryption=SlowCipher(poison=b"poison"))
    awaiter = Awaiter(bob)
    awaiter.all()
    assert not bob.published()
    bob.send(b"hello")
    awaiter.all()
    [transmission] = bob.content()
    said = bob.stack.sds.profile.codec.decode(transmission.message.payload.removeprefix(b"encrypted")[::-1])
    assert len(read) == 6
    assert {entry.message_id for entry in said.causal_history} == read


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), EncryptionError("no")])
def test_a_hook_that_was_cancelled_is_a_hook_that_failed(peer, error):
    alice, alices, _, _ = pair(peer)
    alice.send(b"hello")
    [effect] = alices.waiting()
    alices.close()
    alice.do(alice.stack.cipher_done(effect.token, error, alice.now_ms))
    assert not alice.published()
    assert len(alice.events(DeliveryError)) == 1


def test_a_segment_that_the_node_refused_leaves_although_a_later_one_cannot_be_encrypted(peer):
    """It is in the history, and the next message cites it: all would have to ask for it."""
    alice = peer("alice", SMALL, encryption=SlowCipher(b"poison"))
    awaiter = Awaiter(alice)
    alice.send(bytes(80) + b"poison" * 20)
    awaiter.one()
    alice.answer(*alice.unanswered, accepted=False)
    awaiter.one()
    assert len(alice.events(MessageSendError)) == 1
    for _ in range(2):
        awaiter.all()
        alice.pass_time(60_000)
    assert len(alice.published(Purpose.CONTENT)) == 2
    assert len({opened(publication) for publication in alice.published(Purpose.CONTENT)}) == 1
    awaiter.close()


@pytest.mark.parametrize("encrypted", range(11))
def test_a_crash_with_a_full_outbox_loses_nothing_and_reorders_nothing(peer, encrypted):
    alice, alices, bob, bobs = pair(peer)
    for payload in (b"before", FILE, b"after"):
        alice.send(payload)
    for _ in range(encrypted):
        alices.one()
        alice.answer()
    alice.check_rows()
    alices.close()
    first = alice.content()
    assert len(first) == encrypted
    again = alice.restart()
    agains = Awaiter(again)
    agains.all(random.Random(encrypted))
    bob.receive(*first, *again.content())
    bobs.all()
    assert bob.payloads() == [b"before", FILE, b"after"]
    messages = [bob.stack.sds.profile.codec.decode(opened(publication)) for publication in [*first, *again.content()]]
    assert len({message.message_id for message in messages}) == 11
    for before, after in itertools.pairwise(messages):
        assert before.message_id in {entry.message_id for entry in after.causal_history}
    again.check_rows()


def test_a_crash_with_messages_waiting_for_rate_limit_and_cipher_keeps_their_order(peer):
    options = ReliableChannelOptions(
        sync_min_interval_ms=0,
        segmentation=SegmentationConfig(segment_size_bytes=64),
        rate_limit=RateLimitConfig(enabled=True, epoch_ms=600_000, messages_per_epoch=2),
    )
    alice, alices, bob, bobs = pair(peer, options)
    for payload in (b"one", b"two", b"three", b"four", b"five"):
        alice.send(payload)
    alices.one()
    alice.answer()
    alices.close()
    first = alice.content()
    again = alice.restart()
    agains = Awaiter(again)
    # The message under encrypt was not in the history yet, and the next must cite it.
    agains.all(random.Random(1))
    for _ in range(3):
        again.pass_time(600_000)
        agains.all()
    bob.receive(*first, *again.content())
    bobs.all()
    assert bob.payloads() == [b"one", b"two", b"three", b"four", b"five"]


def test_retries_repairs_and_sync_messages_are_encrypted_anew(peer):
    alice, alices, bob, bobs = pair(peer, ReliableChannelOptions())
    alice.send(b"one")
    alice.send(b"two")
    alices.all()
    bob.receive(alice.content()[1])
    bobs.all()
    for _ in range(14):
        for participant, awaiter in ((alice, alices), (bob, bobs)):
            participant.pass_time(10_000)
            awaiter.all()
            participant.pass_time(0)
    assert alice.published(Purpose.RETRY)
    for publication in [*alice.published(), *bob.published()]:
        assert publication.message.payload.startswith(b"encrypted")
    bob.receive(*alice.published(Purpose.RETRY))
    bobs.all()
    assert bob.payloads() == [b"one", b"two"]
    alice.receive(*bob.published(Purpose.SYNC))
    alices.all()
    bob.pass_time(16_000)
    bobs.all()
    bob.pass_time(0)
    alice.receive(*bob.published(Purpose.SYNC))
    alices.all()
    assert len(alice.events(MessageDelivered)) == 2


def test_an_ephemeral_message_is_charged_to_the_epoch_in_which_it_leaves(peer):
    alice, alices, _, _ = pair(peer, TEN_AN_EPOCH)
    for _ in range(2):
        alice.send_ephemeral(b"typing")
    alice.pass_time(600_000 - alice.now_ms % 600_000)
    alices.all()
    assert len(alice.published(Purpose.EPHEMERAL)) == 2
    for _ in range(7):
        alice.send(b"content")
    alices.all()
    alice.send_ephemeral(b"typing")
    assert [event.rate_limit_utilization for event in alice.events(EphemeralMessageDropped)] == [90]


def test_an_ephemeral_message_is_dropped_if_the_limit_is_reached_while_it_is_encrypted(peer):
    alice, alices, _, _ = pair(peer, TEN_AN_EPOCH)
    alice.send_ephemeral(b"typing")
    typing = alices.waiting()[0]
    for _ in range(9):
        alice.send(b"content")
    alice.pass_time(1)
    while content := [effect for effect in alices.waiting() if effect is not typing]:
        alices.one(content[0])
    alices.one(typing)
    assert not alice.published(Purpose.EPHEMERAL)
    assert [event.reason for event in alice.events(EphemeralMessageDropped)] == [DropReason.RATE_LIMIT_APPROACHED]


def test_an_ephemeral_message_leaves_the_limit_to_content_that_waits_for_the_hook(peer):
    alice, alices, _, _ = pair(peer, TEN_AN_EPOCH)
    for _ in range(8):
        alice.send(b"content")
    alice.send_ephemeral(b"typing")
    alice.send(b"content")
    alice.send_ephemeral(b"typing too")
    alices.all()
    assert (len(alice.published(Purpose.EPHEMERAL)), len(alice.published(Purpose.CONTENT))) == (1, 9)
    assert [event.reason for event in alice.events(EphemeralMessageDropped)] == [DropReason.RATE_LIMIT_APPROACHED]


def test_an_ephemeral_message_that_cannot_be_encrypted_is_a_send_error(peer):
    alice, alices, _, _ = pair(peer, poison=b"typing")
    alice.send_ephemeral(b"typing")
    alices.all()
    assert alice.events(MessageSendError)[0].reason is SendErrorReason.ENCRYPTION_FAILED
    assert not alice.published()


def test_an_answer_to_nothing_is_ignored(peer):
    alice, _, _, _ = pair(peer)
    assert alice.do(alice.stack.cipher_done(99, b"what", alice.now_ms)) == ()


def test_a_flood_of_messages_to_open_is_bounded(peer, topic, monkeypatch):
    monkeypatch.setattr("fairway.protocol.encryption.ciphering.MAX_PENDING", 5)
    alice, alices, bob, bobs = pair(peer)
    for number in range(8):
        alice.send(f"message {number}".encode())
    alices.all()
    bob.receive(*alice.content())
    assert len(bobs.waiting()) == 5
    assert bob.stack.statistics().undecryptable == 3
    bobs.all()
    bob.receive(*alice.content()[5:])
    bobs.all()
    assert len(bob.payloads()) == 8
