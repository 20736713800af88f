"""What an application gets: messages and events, by loops and by handlers."""

from __future__ import annotations

import asyncio

import pytest

from fairway.errors import (
    ConfigurationError,
    DeliveryFailedError,
    EmptyPayloadError,
    EncryptionError,
    MessageTooLargeError,
)
from fairway.events import (
    MessageDelivered,
    MessageSendError,
    MessageSent,
    SendErrorReason,
)
from groups import in_group


@in_group()
async def test_every_event_of_a_send_comes_in_order(group):
    alice, _ = await group.channel("alice"), await group.channel("bob")
    events = alice.events()
    receipt = await alice.send(b"hello")
    seen = []
    async for event in events:
        if getattr(event, "request_id", None) == receipt.request_id:
            seen.append(type(event).__name__)
        if seen[-1:] == ["MessageDelivered"]:
            break
    seen = [name for name in seen if name != "MessagePossiblyAcknowledged"]
    assert seen == ["MessageSending", "MessageSent", "RequestSent", "MessageAcknowledged", "MessageDelivered"]


@in_group()
async def test_a_handler_can_be_registered_by_type_and_by_name(group):
    alice, told = await group.channel("alice"), []
    alice.on(MessageSent, told.append)
    remove = alice.on("message-sent", told.append)
    await (await alice.send(b"hello")).sent()
    assert [type(event) for event in told] == [MessageSent, MessageSent]
    remove()
    await (await alice.send(b"hello")).sent()
    assert len(told) == 3


@in_group()
async def test_the_handler_of_messages_gets_one_after_the_other_in_order(group):
    heard = []

    async def slowly(message):
        await asyncio.sleep(0.01 if not heard else 0)
        heard.append(message.payload)

    alice, bob = await group.channel("alice"), await group.channel("bob", receive=slowly)
    for number in range(5):
        await alice.send(str(number).encode())
    await group.until(lambda: bob.statistics().unfinished == 0 and len(heard) == 5)
    assert heard == [b"0", b"1", b"2", b"3", b"4"]


@in_group()
async def test_all_first_listeners_get_earlier_events(group):
    alice, _ = await group.channel("alice"), await group.channel("bob")
    receipt = await alice.send(b"hello")
    await receipt.delivered()
    sent, delivered = [], []
    alice.on(MessageSent, sent.append)
    alice.on(MessageDelivered, delivered.append)
    events = alice.events()
    async for event in events:
        if isinstance(event, MessageDelivered):
            break
    assert {each.request_id for each in sent} == {each.request_id for each in delivered} == {receipt.request_id}
    later = []
    alice.on(MessageSent, later.append)
    await (await alice.send(b"again")).delivered()
    assert receipt.request_id not in {each.request_id for each in later}


@in_group(retry_interval_ms=3_600_000)
async def test_a_program_without_listeners_keeps_the_latest_thousand_events(group):
    alice = await group.channel("alice")
    for number in range(400):
        receipt = await alice.send(b"%d" % number)
    await receipt.sent()
    assert alice.statistics().events_dropped == 0
    events = alice.events()
    early = [await anext(events) for _ in range(1_000)]
    told = [event for event in early if getattr(event, "request_id", None) == receipt.request_id]
    assert told
    assert not [event for event in early if getattr(event, "message_id", None) == alice.get_message_id(b"0")]


@pytest.mark.parametrize(("name", "hint"), [("mesage-sent", "message-sent"), (int, "the names are")])
@in_group()
async def test_an_unknown_event_is_refused_with_the_names_that_there_are(group, name, hint):
    alice = await group.channel("alice")
    with pytest.raises(ConfigurationError, match=hint):
        alice.on(name, print)
    with pytest.raises(ConfigurationError, match="function"):
        alice.on("message-sent", "print")


@pytest.mark.parametrize(
    ("payload", "error", "reason"),
    [
        (b"", EmptyPayloadError, SendErrorReason.EMPTY_PAYLOAD),
        (bytes(1_048_577), MessageTooLargeError, SendErrorReason.MESSAGE_TOO_LARGE),
    ],
)
@in_group()
async def test_a_payload_that_cannot_be_sent_raises_and_emits_an_error_event(group, payload, error, reason):
    alice = await group.channel("alice")
    told = []
    alice.on("sending-message-irrecoverable-error", told.append)
    with pytest.raises(error):
        await alice.send(payload)
    assert [(event.reason, event.message_id) for event in told] == [(reason, alice.get_message_id(payload))]


class Broken:
    """A cipher that fails in one of the ways in which ciphers fail."""

    def __init__(self, how):
        self.how = how

    def encrypt(self, plaintext):
        if self.how == "raises":
            raise RuntimeError("no key")
        return {"text": "sealed", "nothing": None, "empty": b""}[self.how]

    def decrypt(self, ciphertext):
        return self.encrypt(ciphertext)


@pytest.mark.parametrize("how", ["raises", "text", "nothing", "empty"])
@in_group(sync_min_interval_ms=0)
async def test_a_broken_cipher_ends_the_send_with_an_error_and_nothing_leaves(group, how):
    alice = await group.channel("alice", encryption=Broken(how))
    told = []
    alice.on(MessageSendError, told.append)
    receipt = await alice.send(b"secret")
    with pytest.raises(DeliveryFailedError, match="encryption failed"):
        await receipt.delivered()
    assert told[0].reason is SendErrorReason.ENCRYPTION_FAILED
    assert group.network.statistics().published == 0
    assert issubclass(EncryptionError, Exception)
