r"""A bridge between subjects of NATS JetStream and a channel, both ways.

Messages of the stream go to the channel, each after its subject and a line feed. Messages of the channel go to the
subject ``channel.SENDER`` of the same stream. Bridge and server may be killed at any moment and started again. The
channel gets each message of the stream once, because its sequence number is the request id. JetStream drops a message
of the channel that it has already, if the repetition comes within its window for duplicates, by default two minutes.

Run it: pip install nats-py
        python examples/bridges/jetstream.py --server nats://127.0.0.1:4222 --subjects 'orders.>' \
            --node "$FAIRWAY_NODE" --folder bridge
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from pathlib import Path

import nats
from nats.js import JetStreamContext
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

import fairway

_STREAM = "fairway"
_AWAY = (TimeoutError, NoStreamResponseError, ServiceUnavailableError)
"""What the client raises while the server is away, or not ready yet."""


async def to_channel(stream: JetStreamContext, subjects: str, channel: fairway.ReliableChannel) -> None:
    """Send each message of some subjects to the channel."""
    messages = await stream.pull_subscribe(subjects, durable="fairway-bridge", stream=_STREAM)
    while True:
        try:
            batch = await messages.fetch(100, timeout=5)
        except _AWAY:  # or there is nothing new
            continue
        for message in batch:
            content = message.subject.encode() + b"\n" + message.data
            try:
                await channel.send(content, request_id=f"{_STREAM}-{message.metadata.sequence.stream}")
            except fairway.MessageTooLargeError as error:
                print(f"a message of {message.subject} stays here: {error}")
            await message.ack()


async def from_channel(channel: fairway.ReliableChannel, stream: JetStreamContext) -> None:
    """Publish each message of the channel."""
    async for message in channel:
        headers = {"Nats-Msg-Id": message.sds_ids[0]}
        is_published = False
        while not is_published:
            with contextlib.suppress(*_AWAY):
                await stream.publish(f"channel.{message.sender_id}", message.payload, headers=headers)
                is_published = True


async def main() -> None:
    """Run until Ctrl+C."""
    parser = argparse.ArgumentParser(description="Bridge subjects of NATS JetStream and a channel.")
    parser.add_argument("--server", default="nats://127.0.0.1:4222", help="address of the NATS server")
    parser.add_argument("--subjects", default="orders.>", help="subjects that go to the channel")
    parser.add_argument("--node", required=True, help="address of a Waku node")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the state")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    client = await nats.connect(options.server, max_reconnect_attempts=-1)
    stream = client.jetstream()
    await stream.add_stream(name=_STREAM, subjects=[options.subjects, "channel.*"])
    async with (
        fairway.connect(options.node) as node,
        fairway.create_reliable_channel(
            node, "bridge", "nats", "/example/1/bridge/proto", store=options.folder / "channel.db"
        ) as channel,
        asyncio.TaskGroup() as both,
    ):
        both.create_task(to_channel(stream, options.subjects, channel))
        both.create_task(from_channel(channel, stream))


asyncio.run(main())
