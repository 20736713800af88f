"""Channels with signatures: members are who they say they are, and nobody else is."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway import ConfigurationError, Identity, Members, create_reliable_channel
from fairway.encryption import AesGcm, Decoder, Encoder, SymmetricPayload, get_public_key
from fairway.events import (
    MemberTrusted,
    SignatureFault,
    SignatureRefused,
)
from fairway.nodes.local import NetworkFaults
from fairway.nodes.node import RoutedMessage
from fairway.options import Profile
from fairway.storage.memory_store import MemoryStore
from fairway.wire.sds import SdsMessage
from fairway.wire.signature import read_signature, signed_bytes, with_signature, with_signer_key
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage
from groups import in_group, run_in_group
from listening import TOPIC, heard_by

KEY = bytes(range(32))


def identity_of(name, kind="ed25519"):
    return Identity(hashlib.sha256(name.encode()).digest(), kind)


def keys_of(*names, kind="ed25519"):
    return {name: identity_of(name, kind).public_key for name in names}


async def until(condition):
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen")


async def member(group, name, *others, **more):
    """Make a participant who has the keys of others; without a store, which would return refused messages again."""
    if name not in group.nodes:
        group.nodes[name] = group.network.node(name)
        group.nodes[name].store_available = False
    return await group.channel(name, **{"identity": identity_of(name), "members": keys_of(*others), **more})


def refusals_of(channel):
    events = []
    channel.on(SignatureRefused, events.append)
    return events


class Mallory:
    """A forger with a key of her own: she sends any SDS message."""

    def __init__(self, group, encryption=None, kind="ed25519", name="mallory"):
        self._node = group.network.node("the node of mallory")
        self.encryption = encryption
        self._key = identity_of(name, kind)
        self.heard = []
        group.network.observers.append(lambda _, routed: self.heard.append(routed.message))

    def forged(self, claimed, payload, key=None, *, names_key=False, channel_id="harbour", **fields):
        """Return a message under a claimed name; signed by ``key``, unless that is None."""
        fields = {"lamport_timestamp": 1_760_000_000_000, "content": payload, **fields}
        message = SdsMessage(
            message_id=hashlib.sha256(payload).hexdigest(), sender_id=claimed, channel_id="harbour", **fields
        )
        encoded = Profile.WAKU.codec.encode(message)
        if key is None:
            return encoded
        covered = with_signer_key(encoded, key.public_key) if names_key else encoded
        return with_signature(covered, key.sign(signed_bytes(channel_id, claimed, covered)))

    async def send(self, encoded, **fields):
        payload = encoded if self.encryption is None else self.encryption.encrypt(encoded)
        version = getattr(self.encryption, "waku_version", 0)
        message = WakuMessage(
            payload=payload, content_topic=TOPIC, timestamp_ns=1_760_000_000_000_000_000, version=version, **fields
        )
        await self._node.send(RoutedMessage.of(autoshard(TOPIC, 1, 8), message))

    async def forge(self, claimed, payload, key="own", **how):
        await self.send(self.forged(claimed, payload, self._key if key == "own" else key, **how))


@in_group()
async def test_members_talk_as_in_any_channel(group):
    alice = await member(group, "alice", "bob")
    bob = await member(group, "bob", "alice")
    receipt = await alice.send(b"who is on watch?")
    assert bytes(await anext(aiter(bob))) == b"who is on watch?"
    assert (await receipt.delivered()).delivered_to == ("bob",)
    await bob.send_ephemeral(b"typing")
    assert bytes(await anext(aiter(alice))) == b"typing"
    await until(lambda: alice.statistics().protocol.received > 3)
    assert [channel.statistics().protocol.unverified for channel in (alice, bob)] == [0, 0]


@pytest.mark.parametrize("encryption", [None, AesGcm(KEY), SymmetricPayload(KEY)], ids=["open", "aes", "payload v1"])
@in_group()
async def test_a_message_under_the_name_of_a_member_needs_the_signature_of_the_member(group, encryption):
    alice = await member(group, "alice", "bob", "mallory", encryption=encryption)
    refused, heard = refusals_of(alice), heard_by(alice)
    mallory = Mallory(group, encryption)
    await mallory.forge("bob", b"unsigned", key=None)
    await mallory.forge("bob", b"signed by mallory")
    await mallory.forge("mallory", b"in her own name")
    await until(lambda: heard)
    assert heard == [b"in her own name"]
    assert [(each.sender_id, each.fault, each.signer) for each in refused] == [
        ("bob", SignatureFault.UNSIGNED, None),
        ("bob", SignatureFault.WRONG_KEY, "mallory"),
    ]
    assert alice.statistics().protocol.unverified == 2


@pytest.mark.parametrize("kind", ["sync", "ephemeral", "repair request"])
@in_group()
async def test_messages_without_content_are_signed_as_well(group, kind):
    alice = await member(group, "alice", "bob")
    bob = await member(group, "bob", "alice")
    receipt = await alice.send(b"hello")
    await receipt.delivered()
    before, heard = alice.statistics().protocol, heard_by(alice)
    fields = {
        "sync": {"content": None, "bloom_filter": b"\xff" * 18_000},
        "ephemeral": {"lamport_timestamp": None},
        "repair request": {"content": None, "bloom_filter": b""},
    }[kind]
    await Mallory(group).forge("bob", b"forged", **fields)
    await until(lambda: alice.statistics().protocol.unverified == 1)
    assert heard == []
    assert alice.statistics().protocol.forged == before.forged
    assert not bob.statistics().protocol.missing


@in_group()
async def test_a_stranger_is_refused_where_signatures_are_required(group):
    alice = await member(group, "alice", "bob")
    refused = refusals_of(alice)
    mallory = Mallory(group)
    await mallory.forge("mallory", b"signed", key=identity_of("mallory"))
    await mallory.forge("someone", b"unsigned", key=None)
    await until(lambda: len(refused) == 2)
    assert {(each.sender_id, each.fault) for each in refused} == {
        ("mallory", SignatureFault.UNKNOWN_MEMBER),
        ("someone", SignatureFault.UNSIGNED),
    }


@in_group()
async def test_a_channel_may_accept_both(group):
    alice = await member(group, "alice", "bob", require_signatures=False)
    bob = await member(group, "bob", "alice", require_signatures=False)
    carol = await group.channel("carol")
    await carol.send(b"unsigned")
    receipt = await bob.send(b"signed", by={"alice", "carol"})
    assert {bytes(await anext(aiter(alice))), bytes(await anext(aiter(alice)))} == {b"signed", b"unsigned"}
    await receipt.delivered()
    mallory = Mallory(group)
    await mallory.forge("bob", b"forged", key=None)
    await until(lambda: alice.statistics().protocol.unverified == 1)


@in_group()
async def test_a_message_under_our_own_name_needs_our_signature(group):
    alice = await member(group, "alice", "bob")
    refused = refusals_of(alice)
    await Mallory(group).forge("alice", b"I am alice")
    await until(lambda: refused)
    assert (refused[0].sender_id, refused[0].fault) == ("alice", SignatureFault.WRONG_KEY)
    assert alice.statistics().protocol.forged == 0, "SDS has not read it"


@in_group()
async def test_a_signature_holds_for_one_channel_only(group):
    alice = await member(group, "alice", "bob")
    mallory = Mallory(group)
    # Bob said this in another channel; mallory has put it into this one.
    await mallory.forge("bob", b"said elsewhere", key=identity_of("bob"), channel_id="pier")
    await until(lambda: alice.statistics().protocol.unverified == 1)


@in_group()
async def test_a_flood_of_forgeries_is_few_events(group):
    alice = await member(group, "alice", "bob")
    refused = refusals_of(alice)
    mallory = Mallory(group)
    for number in range(200):
        await mallory.forge(f"nobody {number}", b"%d" % number)
        await mallory.forge("bob", b"%d" % number)
    await until(lambda: alice.statistics().protocol.unverified == 400)
    assert len(refused) == 2


@settings(max_examples=40, deadline=None)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7), names_key=st.booleans())
def test_no_altered_byte_is_accepted(place, bit, names_key):
    async def scenario(group):
        alice = await member(group, "alice", "bob")
        heard, mallory = heard_by(alice), Mallory(group)
        genuine = mallory.forged("bob", b"genuine", identity_of("bob"), names_key=names_key)
        altered = bytearray(genuine)
        altered[place % len(altered)] ^= 1 << bit
        await mallory.send(bytes(altered))
        await mallory.send(genuine)
        await until(lambda: heard)
        assert heard == [b"genuine"]

    run_in_group(scenario)


@in_group()
async def test_an_answer_to_a_repair_request_has_the_signature_of_the_author(group):
    alice = await member(group, "alice", "bob", "carol")
    bob = await member(group, "bob", "alice", "carol")
    await (await alice.send(b"only bob has it")).delivered()
    await alice.close()
    carol = await member(group, "carol", "alice", "bob")
    await bob.send(b"a reply to alice")
    reading = aiter(carol)
    messages = [await anext(reading), await anext(reading)]
    assert [(each.sender_id, bytes(each)) for each in messages] == [
        ("alice", b"only bob has it"),
        ("bob", b"a reply to alice"),
    ]
    assert carol.statistics().protocol.unverified == 0


@pytest.mark.parametrize("profile", list(Profile), ids=lambda profile: profile.value)
def test_long_messages_over_a_network_that_loses_half_of_all(profile):
    async def scenario(group):
        options = replace(profile.options(), retry_interval_ms=2_000, max_retry_attempts=1_000)
        options = replace(options, segmentation=replace(options.segmentation, segment_size_bytes=1_000))
        names = ("alice", "bob", "carol")
        channels = [await member(group, name, *names, options=options) for name in names]
        receipts = [await channel.send(channel.sender_id.encode() * 2_000, count=2) for channel in channels]
        for receipt in receipts:
            await receipt.delivered()
        assert [channel.statistics().protocol.unverified for channel in channels] == [0, 0, 0]

    run_in_group(scenario, faults=NetworkFaults(loss=0.5))


@in_group()
async def test_a_segment_has_one_signature_of_68_bytes(group):
    sent = []
    group.network.observers.append(lambda name, routed: sent.append((name, routed.message.payload)))
    alice = await member(group, "alice", "bob")
    await member(group, "bob", "alice")
    await (await alice.send(bytes(250_000))).delivered()
    payloads = [payload for name, payload in sent if name == "alice"]
    assert len(payloads) >= 3
    for payload in payloads:
        signed = read_signature(payload)
        assert len(payload) - len(signed.covered) == 68
        assert read_signature(signed.covered) is None


@in_group()
async def test_a_restart_signs_and_verifies_as_before(group):
    stores = {"alice": MemoryStore(), "bob": MemoryStore()}
    alice = await member(group, "alice", "bob", store=stores["alice"])
    group.nodes["alice"].go_offline()
    receipt = await alice.send(b"before the crash", request_id="first")
    await alice.close()
    group.nodes["alice"].go_online()
    bob = await member(group, "bob", "alice", store=stores["bob"])
    alice = await member(group, "alice", "bob", store=stores["alice"])
    assert bytes(await anext(aiter(bob))) == b"before the crash"
    receipt = await alice.send(b"before the crash", request_id="first")
    assert (await receipt.delivered()).delivered_to == ("bob",)


def known_to(name, folder):
    return Members.trust_on_first_use(folder / f"known to {name}.json")


def test_the_first_key_of_a_name_is_trusted_and_another_one_is_refused(tmp_path):
    async def scenario(group):
        alice = await member(group, "alice", members=known_to("alice", tmp_path))
        trusted, refused, heard = [], refusals_of(alice), heard_by(alice)
        alice.on(MemberTrusted, trusted.append)
        bob = await member(group, "bob", members=known_to("bob", tmp_path))
        await (await bob.send(b"the true bob")).delivered()
        assert [(each.sender_id, each.public_key) for each in trusted] == [("bob", identity_of("bob").public_key)]
        mallory = Mallory(group)
        await mallory.forge("bob", b"the new bob", names_key=True)
        await mallory.forge("bob", b"no key", key=None)
        await until(lambda: len(refused) == 2)
        assert [(each.sender_id, each.fault, each.signer_key) for each in refused] == [
            ("bob", SignatureFault.KEY_CHANGED, identity_of("mallory").public_key),
            ("bob", SignatureFault.UNSIGNED, None),
        ]
        assert heard == [b"the true bob"]

    run_in_group(scenario)
    assert Members.load(tmp_path / "known to alice.json").get("bob") == identity_of("bob").public_key


def test_trust_survives_the_program(tmp_path):
    Members.trust_on_first_use(tmp_path / "known to alice.json").trust("bob", identity_of("bob").public_key)

    async def scenario(group):
        alice = await member(group, "alice", members=known_to("alice", tmp_path))
        await Mallory(group).forge("bob", b"first of all", names_key=True)
        await until(lambda: alice.statistics().protocol.unverified == 1)

    run_in_group(scenario)


def test_a_key_that_did_not_sign_is_not_trusted(tmp_path):
    async def scenario(group):
        alice = await member(group, "alice", members=known_to("alice", tmp_path))
        mallory, true_key = Mallory(group), identity_of("bob").public_key
        encoded = with_signer_key(mallory.forged("bob", b"stolen key"), true_key)
        await mallory.send(with_signature(encoded, bytes(64)))
        for public_key in (bytes(32), b"\xff" * 32, bytes(65)):
            await mallory.send(with_signature(with_signer_key(mallory.forged("bob", b"no key"), public_key), bytes(64)))
        await until(lambda: alice.statistics().protocol.unverified == 4)

    run_in_group(scenario)
    assert not (tmp_path / "known to alice.json").exists()


def test_payloads_of_version_1_are_verified_by_their_own_signature():
    """js-waku signs the payload, not the SDS message."""

    async def scenario(group):
        alice = await member(
            group,
            "alice",
            encryption=SymmetricPayload(KEY),
            identity=identity_of("alice", "secp256k1"),
            members=keys_of("bob", "mallory", kind="secp256k1"),
        )
        refused, heard = refusals_of(alice), heard_by(alice)
        secrets = {name: identity_of(name, "secp256k1").secret for name in ("bob", "mallory")}
        by_mallory = Mallory(group, SymmetricPayload(KEY, sign_with=secrets["mallory"]))
        await by_mallory.forge("bob", b"forged", key=None)
        await until(lambda: refused)
        assert (refused[0].sender_id, refused[0].fault, refused[0].signer) == (
            "bob",
            SignatureFault.WRONG_KEY,
            "mallory",
        )
        assert refused[0].signer_key == get_public_key(secrets["mallory"])
        group.network.node("the node of bob")
        genuine = by_mallory.forged("bob", b"genuine")
        by_mallory.encryption = SymmetricPayload(KEY, sign_with=secrets["bob"])
        await by_mallory.send(genuine)
        await until(lambda: heard)
        assert heard == [b"genuine"]

    run_in_group(scenario)


def test_nobody_repeats_a_message_of_js_waku_under_a_signature_of_its_own(tmp_path):
    """The signature of a payload names its author: with trust on first use, the key of another would be trusted."""

    async def scenario(group):
        async def secp256k1(name, folder):
            more = {"encryption": SymmetricPayload(KEY), "members": known_to(name, folder)}
            return await member(group, name, identity=identity_of(name, "secp256k1"), **more)

        alice = await secp256k1("alice", tmp_path)
        heard = heard_by(alice)
        js_waku = Mallory(group, SymmetricPayload(KEY, sign_with=identity_of("dave", "secp256k1").secret))
        await js_waku.forge("dave", b"I am dave", key=None)
        await until(lambda: heard == [b"I am dave"])
        carol = await secp256k1("carol", tmp_path)
        await alice.send(b"hello dave")
        await until(lambda: carol.statistics().protocol.missing == 1)
        await asyncio.sleep(600)
        assert known_to("carol", tmp_path).get("alice") == identity_of("alice", "secp256k1").public_key
        assert known_to("carol", tmp_path).get("dave") is None

    run_in_group(scenario)


@in_group()
async def test_an_identity_with_a_secp256k1_key_signs_payloads_of_version_1_for_js_waku(group):
    sent = []
    group.network.observers.append(lambda name, routed: sent.append(routed.message.payload))
    alice_key = identity_of("alice", "secp256k1")
    encoder, decoder = Encoder.symmetric(TOPIC, KEY), Decoder.symmetric(TOPIC, KEY)
    pair = {"encoder": encoder, "decoder": decoder}
    members = keys_of("alice", "bob", kind="secp256k1")
    async with (
        create_reliable_channel(
            group.network.node("a"), "harbour", "alice", identity=alice_key, members=members, **pair
        ) as alice,
        create_reliable_channel(
            group.network.node("b"), "harbour", "bob", identity=identity_of("bob", "secp256k1"), members=members, **pair
        ),
    ):
        await (await alice.send(b"hello")).delivered()
    assert SymmetricPayload(KEY).open(sent[0]).signer_public_key == alice_key.public_key


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"members": {"bob": bytes(31)}}, "31 bytes"),
        ({"members": keys_of("bob")}, "give its identity"),
        ({"members": keys_of("alice"), "require_signatures": False}, "give its identity"),
        ({"require_signatures": True}, "needs members"),
        ({"identity": identity_of("alice"), "require_signatures": True}, "needs members"),
        ({"identity": identity_of("alice"), "members": {"alice": keys_of("bob")["bob"]}}, "another key for 'alice'"),
        ({"identity": "alice.key"}, "Identity.load"),
        ({"members": ["bob"]}, "public keys by sender id"),
    ],
)
@in_group()
async def test_arguments_that_cannot_work_say_why(group, arguments, text):
    with pytest.raises(ConfigurationError, match=text):
        await group.channel("alice", **arguments)
