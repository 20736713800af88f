"""One reliable channel of a js-waku participant and a fairway participant, through one service node or through two.

The second one is go-waku: we are its client, js-waku is the client of ours, and the two nodes relay to each other.
"""

import asyncio
import base64
import hashlib
import os
import random
import statistics
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

import fairway
from fairway.events import MessageAcknowledged, SignatureFault, SignatureRefused
from fairway.identity import Identity
from fairway.libp2p.peer_id import PeerId
from fairway.options import BloomPolicy, ReliableChannelOptions, SdsConfig, SegmentationConfig
from fairway.protocol.encryption import EciesPayload, SymmetricPayload, generate_private_key, get_public_key
from fairway.service.node import ServiceNode, parts_of
from fairway.service.options import ServiceOptions
from patience import run, until

TOPIC = "/fairway-interop/1/mixed/proto"
SHARD = "/waku/2/rs/16/0"
SIZES = (1, 100, 1_000, 10_000, 60_000, 130_000)
LAST = b"the last word of "
"""What both say at the end: what came twice of the rest has come before it."""
PARTINGS = 2
TIMEOUT_S = 240
RETRY_MS, RETRIES = 5_000, TIMEOUT_S // 5
"""Neither side gives up before the test does. By default js-waku repeats a message 10 times and never again, and we
report an error then, whatever comes later. Repeating more often would keep a busy machine from opening what it has."""
JS_OPTIONS = {
    "syncMinIntervalMs": 1_000,
    "retryIntervalMs": RETRY_MS,
    "maxRetryAttempts": RETRIES,
    "retrieveFrequencyMs": 1_000,
    "sweepInBufIntervalMs": 500,
    "processTaskMinElapseMs": 100,
}
OUR_OPTIONS = ReliableChannelOptions(
    cluster_id=16,
    shard_count=1,
    retry_interval_ms=RETRY_MS,
    max_retry_attempts=RETRIES,
    sweep_in_buf_interval_ms=500,
    # js-waku sends every message whole, so what goes to it does, too.
    segmentation=SegmentationConfig(segment_size_bytes=134_000),
    sds=SdsConfig(lost_timeout_ms=TIMEOUT_S * 1_000),
)


def text(payload):
    return base64.b64encode(payload).decode()


def ciphers(kind):
    """Return our cipher and what js-waku is told of it."""
    if kind == "symmetric":
        key = os.urandom(32)
        return SymmetricPayload(key), {"kind": kind, "key": text(key)}
    if kind == "ecies":
        # A pair that the group shares: js-waku 0.0.36 ends with a TypeError at the first message that it cannot open,
        # and with a pair each its own messages, which it hears too, are such.
        private = generate_private_key()
        told = {"kind": kind, "publicKey": text(get_public_key(private)), "privateKey": text(private)}
        return EciesPayload(private_key=private), told
    return None, None


def digest(payload):
    return hashlib.sha256(payload).digest()


def js_id(payload):
    return hashlib.sha256(payload).hexdigest()


def payloads(who, seed, count):
    """Return what one of them says, nothing of it twice: js-waku takes the payload's hash for the message's id."""
    rng = random.Random(f"{who}/{seed}")
    single = rng.sample(range(who == "js", 256, 2), count)  # of one byte js sends the odd ones, we the even ones
    return [
        bytes([single[number]]) if SIZES[number % len(SIZES)] == 1 else rng.randbytes(SIZES[number % len(SIZES)])
        for number in range(count)
    ]


@asynccontextmanager
async def mixed(
    js_peer,
    *,
    kind=None,
    loss=0.0,
    seed=None,
    transport="ws",
    beyond=None,
    options=OUR_OPTIONS,
    js_options=JS_OPTIONS,
    js_name="js",
    js_key=None,
    **signatures,
):
    """``beyond`` is the address of a node behind ours, and where our participant is; js-waku signs with ``js_key``."""
    cipher, told = ciphers(kind)
    if js_key is not None:
        told["signWith"] = text(js_key)
    peers = () if beyond is None else (beyond,)
    node = await ServiceNode.start(
        ServiceOptions(
            cluster_id=16,
            shards=(0,),
            shard_count=1,
            request_rate=None,
            loss=loss,
            seed=seed,
            peers=peers,
        )
    )
    address = next(str(one) for one in node.addresses if ("/ws" in str(one)) == (transport == "ws"))
    settings = {
        "cluster": 16,
        "shard": 0,
        "contentTopic": TOPIC,
        "peers": [address],
        "channel": "mixed",
        "sender": js_name,
        "options": js_options,
        "encryption": told,
    }
    try:
        await until(lambda: not peers or parts_of(node).relay.peers_of(SHARD))
        async with js_peer("light.mjs", "js", settings) as js, await fairway.connect(beyond or address) as client:
            channel = await fairway.create_reliable_channel(
                client, "mixed", "python", TOPIC, options=options, encryption=cipher, **signatures
            )
            async with channel:
                yield js, channel, node
    finally:
        await node.close()


async def converse(js, channel, *, seed, count, pause_s):
    """Both send; return what each got of the other, and what was acknowledged to each."""
    from_js, from_us = payloads("js", seed, count), payloads("py", seed, count)
    got, acknowledged = [], set()

    async def read():
        async for message in channel:
            got.append(bytes(message))  # noqa: PERF401 - it is looked at while it grows

    async def follow():
        async for event in channel.events():
            if isinstance(event, MessageAcknowledged):
                acknowledged.add(event.message_id)

    tasks = [asyncio.create_task(work()) for work in (read, follow)]
    js_got, js_acked = set(), set()
    try:
        wanted = set()
        for theirs, ours in zip(from_js, from_us, strict=True):
            js.tell("send", payload=text(theirs))
            receipt = await channel.send(ours)
            wanted.add(receipt.message_id)
            await asyncio.sleep(pause_s)
        said_last = False
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                js_got = {
                    hashlib.sha256(base64.b64decode(event["payload"])).digest() for event in js.of("message-received")
                }
                js_acked = {event["id"] for event in js.of("message-acknowledged")}
                assert not js.of("ended"), js.state()
                done = (
                    len(got) >= count
                    and set(map(digest, from_us)) <= js_got
                    and set(map(js_id, from_js)) <= js_acked
                    and wanted <= acknowledged
                )
                if done and not said_last:
                    said_last = True
                    js.tell("send", payload=text(LAST + b"js"))
                    await channel.send(LAST + b"py")
                if done and LAST + b"js" in got and digest(LAST + b"py") in js_got:
                    break
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(
            f"seed {seed}: we got {len(got)} of {count + 1}, js {len(js_got)}; acknowledged to us {len(acknowledged)}, "
            f"to js {len(js_acked)}; {js.state()}"
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [*from_js, LAST + b"js"], got


KINDS = pytest.mark.parametrize("kind", [None, "symmetric", "ecies"], ids=["plain", "symmetric", "ecies"])


@pytest.mark.full
@KINDS
def test_both_get_and_acknowledge_everything_from_1_byte_to_130_kb(js_peer, kind, seed):
    async def work():
        async with mixed(js_peer, kind=kind) as (js, channel, _):
            sent, got = await converse(js, channel, seed=seed, count=len(SIZES), pause_s=0.2)
            assert sorted(got) == sorted(sent), f"seed {seed}"

    run(work())


@pytest.mark.full
@KINDS
def test_at_30_percent_loss_nothing_is_lost_and_nothing_comes_twice_on_our_side(js_peer, kind, seed):
    async def work():
        async with mixed(js_peer, kind=kind, loss=0.3, seed=seed, transport="tcp") as (js, channel, _):
            sent, got = await converse(js, channel, seed=seed, count=18, pause_s=0.1)
            assert sorted(got) == sorted(sent), f"seed {seed}"

    run(work())


@pytest.mark.full
def test_when_connections_with_js_waku_end_meanwhile_nothing_is_lost_either(js_peer, seed):
    async def work():
        async with mixed(js_peer, loss=0.3, seed=seed, transport="tcp") as (js, channel, node):
            other = PeerId.parse((await js.wait("ready"))[0]["peerId"])

            async def part():
                parted = 0
                while parted < PARTINGS:
                    await asyncio.sleep(0.7)  # of the conversation, in which the next one parts them
                    if other in {connection.peer_id for connection in parts_of(node).host.connections()}:
                        parted += 1
                        await parts_of(node).host.disconnect(other)

            async with asyncio.TaskGroup() as group:
                group.create_task(part())
                sent, got = await converse(js, channel, seed=seed, count=18, pause_s=0.1)
            assert sorted(got) == sorted(sent), f"seed {seed}"

    run(work())


@pytest.mark.full
@pytest.mark.enclosed
@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_with_go_waku_between_us_and_js_waku_nothing_is_lost_either(js_peer, go_peer, seed, loss):
    async def work():
        async with go_peer("go") as go:
            (ready,) = go.of("ready")
            async with mixed(js_peer, loss=loss, seed=seed, beyond=ready["multiaddrs"][0]) as (js, channel, _):
                sent, got = await converse(js, channel, seed=seed, count=12, pause_s=0.2)
                assert sorted(got) == sorted(sent), f"seed {seed}"

    run(work())


@pytest.mark.full
def test_js_waku_skips_the_signatures_of_a_channel_that_accepts_both(js_peer, seed):
    identity = Identity.new()

    async def work():
        ways = {"identity": identity, "members": {"python": identity.public_key}, "require_signatures": False}
        async with mixed(js_peer, loss=0.3, seed=seed, **ways) as (js, channel, _):
            sent, got = await converse(js, channel, seed=seed, count=len(SIZES), pause_s=0.2)
            assert sorted(got) == sorted(sent), f"seed {seed}"
            assert channel.statistics().protocol.unverified == 0

    run(work())


@pytest.mark.full
@pytest.mark.parametrize("kind", ["symmetric", "ecies"])
def test_js_waku_signs_its_payloads_as_a_member_and_verifies_ours(js_peer, seed, kind):
    """js-waku signs payloads of 26/WAKU2-PAYLOAD; we sign them with a key of secp256k1."""
    identity, js_key = Identity.new("secp256k1"), generate_private_key()

    async def work():
        ways = {"identity": identity, "members": {"js": get_public_key(js_key)}}
        async with mixed(js_peer, kind=kind, js_key=js_key, **ways) as (js, channel, _):
            sent, got = await converse(js, channel, seed=seed, count=len(SIZES), pause_s=0.2)
            assert sorted(got) == sorted(sent), f"seed {seed}"
            assert channel.statistics().protocol.unverified == 0
            signers = {event["signedBy"] for event in js.of("message-received")}
            assert text(identity.public_key) in signers
            assert signers <= {text(identity.public_key), text(get_public_key(js_key))}

    run(work())


@pytest.mark.full
@pytest.mark.parametrize("kind", [None, "symmetric"], ids=["unsigned", "signed by another"])
def test_js_waku_under_the_name_of_a_member_is_refused(js_peer, kind):
    identities = {name: Identity.new("secp256k1") for name in ("python", "alice", "mallory")}
    members = {name: identity.public_key for name, identity in identities.items()}
    js_key = identities["mallory"].secret if kind else None

    async def work():
        ways = {"identity": identities["python"], "members": members}
        async with mixed(js_peer, kind=kind, js_name="alice", js_key=js_key, **ways) as (js, channel, _):
            refusals = channel.events()
            js.tell("send", payload=text(b"I am alice"))
            async for event in refusals:
                if isinstance(event, SignatureRefused):
                    break
            fault, signer = (SignatureFault.WRONG_KEY, "mallory") if kind else (SignatureFault.UNSIGNED, None)
            assert (event.sender_id, event.fault, event.signer) == ("alice", fault, signer)
            # Its retransmissions are refused, too.
            await until(lambda: channel.statistics().protocol.unverified > 2)
            assert await channel.history(10) == []
            assert not js.of("message-acknowledged")

    run(work())


class Conversation:
    """What both said, and when each heard that the other has it."""

    def __init__(self, js, channel):
        self.js, self.channel = js, channel
        self.js_said, self.we_said, self.js_heard, self.we_heard = {}, {}, {}, {}

    async def follow(self):
        async for event in self.channel.events():
            if isinstance(event, MessageAcknowledged):
                self.we_heard.setdefault(event.message_id, time.monotonic())

    async def read(self):
        async for _ in self.channel:
            pass

    def js_says(self, payload):
        self.js.tell("send", payload=text(payload))
        self.js_said[js_id(payload)] = time.monotonic()

    async def we_say(self, payload):
        receipt = await self.channel.send(payload)
        self.we_said[receipt.message_id] = time.monotonic()

    async def wait(self, for_s):
        end_s = time.monotonic() + for_s
        while time.monotonic() < end_s:
            for event in self.js.of("message-acknowledged"):
                self.js_heard.setdefault(event["id"], time.monotonic())
            await asyncio.sleep(0.02)

    async def talk(self, dice):
        """Talk until both know of all that was said; return how long js-waku took to hear it of each message."""
        for number in range(16):
            self.js_says(b"js %d " % number + dice.randbytes(60))
            if number % 4 == 0:
                await self.we_say(b"py %d " % number + dice.randbytes(60))
            await self.wait(dice.choice((0.05, 0.3, 2.0)))
        js_said, we_said = dict(self.js_said), dict(self.we_said)
        while js_said.keys() - self.js_heard.keys() or we_said.keys() - self.we_heard.keys():
            # What reached js-waku late it cites only through what follows, if its history is short.
            await self.wait(5)
            await self.we_say(LAST + b"py" + dice.randbytes(20))
            await self.wait(5)
            self.js_says(LAST + b"js" + dice.randbytes(20))
        return [self.js_heard[said] - at_s for said, at_s in js_said.items()]


@pytest.mark.full
@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("history", [2, 200])
@pytest.mark.parametrize("policy", [BloomPolicy.ALWAYS, BloomPolicy.NEWS])
def test_with_few_filters_too_all_is_acknowledged_both_ways(js_peer, seed, policy, history, loss):
    """js-waku cites 200 messages unless it is told to cite 2, as SDS recommends; -rP prints how soon it heard."""
    sds = replace(OUR_OPTIONS.sds, bloom_policy=policy)
    options = replace(OUR_OPTIONS, sds=sds)
    js_options = {**JS_OPTIONS, "syncMinIntervalMs": 3_000, "causalHistorySize": history}
    ways = {"loss": loss, "seed": seed, "transport": "tcp", "options": options, "js_options": js_options}

    async def work():
        async with mixed(js_peer, **ways) as (js, channel, _):
            conversation = Conversation(js, channel)
            tasks = [asyncio.create_task(work()) for work in (conversation.follow, conversation.read)]
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    return await conversation.talk(random.Random(seed))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    took = run(work())
    how = f"{policy.value}, js-waku cites {history}, {loss:.0%} loss"
    sys.stdout.write(f"{how}: half within {statistics.median(took):.2f} s, all within {max(took):.2f} s\n")
