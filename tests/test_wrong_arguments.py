"""Arguments of a wrong type or value: an error at the call, which says what was given and what to do."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import warnings

import pytest

import fairway
from fairway.encryption import AesGcm
from fairway.errors import ConfigurationError, FairwayError, NotAwaitedError, StorageError, StorePathError
from fairway.files import FileLimits, FileReceiver, send_file
from fairway.nodes import LightOptions, RestNodeOptions
from fairway.options import RepairConfig
from fairway.service import ServiceOptions
from fairway.testing import LocalNetwork, NetworkFaults, virtual_time

TOPIC = "/fairway/1/harbour/proto"
ODD = (None, True, 5, -1, 1.5, float("nan"), "", "text", b"bytes", [], [""], [5], {"a": 1}, object(), AesGcm)
CREATING = {"channel_id": "harbour", "sender_id": "alice", "content_topic": TOPIC}


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("encryption", b"k" * 32, "encryption must be .* such as fairway.encryption.AesGcm\\(key\\)"),
        ("encryption", "secret", "not str"),
        ("encryption", AesGcm, "not the class AesGcm"),
        ("options", 5, "options must be a ReliableChannelOptions .*, not 5"),
        ("options", fairway.ReliableChannelOptions, "not the class ReliableChannelOptions"),
        ("store", 5, "store must be text or .*, not 5; give the path of a file"),
        ("content_topic", b"/a/1/b/proto", "content_topic must be text, not bytes"),
        ("sender_id", b"alice", "sender_id must be text, not bytes"),
        ("node", "local:", "node must be a WakuNode, not str; fairway.connect"),
        ("rln", "membership", "rln must be a RlnProofProvider or None, not str"),
        ("clock", lambda now: now, "clock is called with no arguments, and this one cannot be"),
        ("clock", lambda: "noon", "what clock returns must be an integer, not str"),
        ("encoder", TOPIC, "encoder must be an Encoder or None"),
    ],
)
@virtual_time()
async def test_a_wrong_argument_of_create_reliable_channel_raises(argument, value, text):
    with LocalNetwork() as network, pytest.raises(ConfigurationError, match=text):
        fairway.create_reliable_channel(**{"node": network.node(), **CREATING, argument: value})


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda channel: channel.send(b"x", by=[""]), "name of a participant to acknowledge must not be empty"),
        (lambda channel: channel.send(b"x", by=[5]), "must be text, not int; give its sender id"),
        (lambda channel: channel.send(b"x", by="bob"), r"such as \['bob'\], not as 'bob'"),
        (lambda channel: channel.send(b"x", by=None), "a collection of names"),
        (lambda channel: channel.send(b"x", count="2"), "number of participants .* must be an integer, not str"),
        (lambda channel: channel.send(b"x", count=True), "must be an integer, not True"),
        (lambda channel: channel.send("text"), r"encode text with \.encode\(\)"),
        (lambda channel: channel.send(None), "a payload is bytes, not NoneType"),
        (lambda channel: channel.send(b"x", request_id=5), "request_id must be text"),
        (lambda channel: channel.send(b"x", deadline="5"), "a deadline is a number of seconds"),
        (lambda channel: channel.send_ephemeral("x"), r"encode text with \.encode\(\)"),
        (lambda channel: channel.settle(5), "request_id must be text, not 5"),
        (lambda channel: send_file(channel, "notes.txt", wait="sent"), "wait must be one of Wait.NONE"),
        (lambda channel: send_file(channel, 5), "path must be text or a PathLike, not 5"),
        (lambda channel: send_file("harbour", "notes.txt"), "channel must be a ReliableChannel, not str"),
        (lambda channel: send_file(channel, "x" * 3_000), "cannot be read"),
        (lambda channel: send_file(channel, "notes.txt", progress=5), "progress must be a function of"),
        (lambda channel: FileReceiver.open(channel, 5), "folder must be text or a PathLike, not 5"),
        (lambda channel: channel.request(b"x", to=""), "to must not be empty; give the sender id .* or leave it out"),
        (lambda channel: channel.request(b"x", to=5), "to must be text, not int; give the sender id"),
        (lambda channel: channel.request(b"x", group=""), "group must not be empty; .* or leave it out"),
        (lambda channel: channel.request(b"x", group="g" * 257), "group has 257 bytes .* at most 256"),
        (lambda channel: channel.snapshot("text"), "state must be bytes, not str"),
    ],
)
@virtual_time()
async def test_a_wrong_argument_of_a_send_raises(call, text):
    with LocalNetwork() as network:
        async with fairway.create_reliable_channel(network.node(), **CREATING) as channel:
            with pytest.raises(ConfigurationError, match=text):
                await call(channel)
            assert channel.statistics().protocol.open_requests == 0


@virtual_time()
async def test_names_of_participants_can_come_from_an_iterator():
    with LocalNetwork() as network:
        async with (
            fairway.create_reliable_channel(network.node(), **CREATING) as alice,
            fairway.create_reliable_channel(network.node(), **CREATING | {"sender_id": "bob"}),
        ):
            receipt = await alice.send(b"x", by=iter(["bob"]))
            assert (await receipt.delivered()).delivered_to == ("bob",)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda channel: channel.on("message-sent", 5), "a handler must be a function of an event, not int"),
        (lambda channel: channel.on("message-sent", lambda: None), "called with an event, and this one cannot be"),
        (lambda channel: channel.on("mesage-sent", print), "did you mean 'message-sent'"),
        (lambda channel: channel.finish("x"), "give the object that was handed over"),
        (lambda channel: channel.hand_over_again("x"), r"give one of set_aside\(\)"),
        (lambda channel: channel.gaps(-1), "limit must not be negative, not -1"),
        (lambda channel: channel.receipt(5), "request_id must be text, not 5"),
        (lambda channel: channel.is_settled(5), "request_id must be text, not 5"),
        (lambda channel: channel.get_message_id("x"), r"encode text with \.encode\(\)"),
        (lambda channel: channel.requests(group=""), "group must not be empty; .* or leave it out"),
        (lambda channel: channel.on_request(print, group="g" * 257), "group has 257 bytes .* at most 256"),
        (
            fairway.Envelope.of,
            r"payload must be bytes, not ReliableChannel; give that of a message: Envelope.of\(message.payload\)",
        ),
    ],
)
@virtual_time()
async def test_a_wrong_argument_of_a_channel_function_raises(call, text):
    with LocalNetwork() as network:
        async with fairway.create_reliable_channel(network.node(), **CREATING) as channel:
            with pytest.raises(ConfigurationError, match=text):
                call(channel)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"address": b"local:"}, "address must be text, not bytes; this version understands"),
        ({"connect_timeout_s": "10"}, "connect_timeout_s must be a number or None, not str"),
        ({"connect_timeout_s": float("nan")}, "must be a number or None, not nan"),
        ({"connect_timeout_s": -1}, "connect_timeout_s must be above 0, or None, not -1"),
        ({"name": 5}, "name must be text or None, not 5"),
        ({"rln": object()}, "rln must be a RlnProofProvider or None"),
        ({"state": 5}, "state must be text or a PathLike or None, not 5"),
        ({"options": LightOptions()}, "local: or local:NAME has no option 'options'"),
    ],
)
def test_a_wrong_argument_of_connect_raises(arguments, text):
    with pytest.raises(ConfigurationError, match=text):
        fairway.connect(**{"address": "local:", **arguments})


OPTIONS = (
    fairway.ReliableChannelOptions,
    fairway.SegmentationConfig,
    fairway.SdsConfig,
    RepairConfig,
    fairway.RateLimitConfig,
    LightOptions,
    RestNodeOptions,
    ServiceOptions,
    FileLimits,
    NetworkFaults,
)


@pytest.mark.parametrize("kind", OPTIONS, ids=lambda kind: kind.__name__)
def test_every_option_refuses_values_of_other_types(kind):
    for option in dataclasses.fields(kind):
        refused = []
        for value in ODD:
            try:
                kind(**{option.name: value})
            except FairwayError as error:
                refused.append(str(error))
        assert len(refused) >= len(ODD) - 6, option.name
        assert any(option.name in text for text in refused)


@virtual_time()
async def test_a_channel_that_was_not_awaited_raises_at_its_first_use():
    with LocalNetwork() as network:
        channel = fairway.create_reliable_channel(network.node(), **CREATING)
        uses = (
            lambda: channel.send(b"x"),
            lambda: channel.on("message-sent", print),
            lambda: channel.messages,
            lambda: channel.statistics,
        )
        for use in uses:
            with pytest.raises(NotAwaitedError, match=r"'await fairway\.create_reliable_channel\(\.\.\.\)'"):
                use()
        assert not hasattr(channel, "anything")
        channel.close()


@virtual_time()
async def test_a_node_that_was_not_awaited_is_refused_by_create_reliable_channel():
    opening = fairway.connect("local:")
    with pytest.raises(ConfigurationError, match=r"node must be a WakuNode, .* not awaited: await it first"):
        fairway.create_reliable_channel(opening, **CREATING)
    await (await opening).close()


def test_the_warning_about_a_missing_await_names_the_function():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fairway.connect("local:")
        gc.collect()
    assert "coroutine 'fairway.connect' was never awaited" in [str(each.message) for each in told]


@pytest.mark.parametrize(
    ("path", "text"),
    [("nowhere/alice.db", "there is no directory .*nowhere: make it"), (".", "is a directory"), ("", "is a directory")],
)
def test_an_unusable_path_of_a_store_raises_a_store_path_error(tmp_path, monkeypatch, path, text):
    monkeypatch.chdir(tmp_path)

    async def story():
        with LocalNetwork() as network:
            await fairway.create_reliable_channel(network.node(), **CREATING, store=path)

    with pytest.raises(StorageError, match=text) as caught:
        asyncio.run(story())
    assert type(caught.value) is StorePathError
