"""What a member of another make, whose messages have no bloom filter, makes others believe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.channel.reliable_channel import ReliableChannel
from fairway.events import MessageDelivered
from fairway.options import BloomPolicy, Profile, SdsConfig
from fairway.protocol.sds.channel import MessageChannel
from fairway.simulation import World
from fairway.simulation.world import DEFAULT_CHANNEL_ID
from fairway.waku.node import RoutedMessage
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage

MINUTE_MS = 60_000
TOPIC = "/fairway/1/harbour/proto"
COUNT = 8


class Zoe:
    """A member that delivers what follows a message that it gave up, cites that, and never sends a filter."""

    def __init__(self, world: World, profile: Profile) -> None:
        self.world, self.profile = world, profile
        self.node = world.network.node("zoe")
        config = SdsConfig(bloom_policy=BloomPolicy.NEVER)
        self.sds = MessageChannel(DEFAULT_CHANNEL_ID, "zoe", config, now_ms=world.now_ms, profile=profile)

    def hears_all_but(self, lost: str) -> None:
        """Hear what Alice said but one message, and go on without that."""
        alice = self.world.participants["alice"].stack.sds
        for record in alice.log():
            encoded = alice.retained.encoded(record.message_id)
            assert encoded is not None
            if record.message_id != lost:
                self.sds.receive(self.profile.codec.decode(encoded), record.retrieval_hint, self.world.now_ms)
        self.sds.deliver_around_gaps(self.world.now_ms)
        assert len(self.sds.log()) == COUNT - 1

    def speaks(self) -> None:
        """Send a message that cites the newest that is here."""
        now_ms = self.world.now_ms
        message = replace(self.sds.send(b"hello", now_ms), bloom_filter=None, vouches=False)
        carrier = WakuMessage(
            payload=self.profile.codec.encode(message),
            content_topic=TOPIC,
            timestamp_ns=now_ms * 1_000_000,
            meta=self.profile.marker,
        )
        sent = self.node.send(RoutedMessage.of(autoshard(TOPIC, 1, 8), carrier))
        assert self.world.loop.run_until_complete(sent).accepted


@pytest.mark.parametrize("policy", BloomPolicy)
@pytest.mark.parametrize("profile", Profile)
def test_a_member_without_filters_that_gives_messages_up_is_not_taken_to_have_them(
    seed: int, profile: Profile, policy: BloomPolicy
) -> None:
    options = profile.options()
    options = replace(options, sds=replace(options.sds, bloom_policy=policy))
    with World(("alice",), seed=seed, options=options, content_topic=TOPIC) as world:
        zoe = Zoe(world, profile)
        world.run(1_000)
        for number in range(COUNT):
            world.send("alice", b"%d" % number, by=("zoe",))
            world.run(1_000)
        lost = 2
        zoe.hears_all_but(world.participants["alice"].stack.sds.log()[lost].message_id)
        zoe.speaks()
        world.run(MINUTE_MS)
        events = [event for _, event in world.participants["alice"].events]
        delivered = {event.message_id for event in events if isinstance(event, MessageDelivered)}
        assert delivered, "what she cites"
        assert ReliableChannel.get_message_id(b"%d" % lost) not in delivered
