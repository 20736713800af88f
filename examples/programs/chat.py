"""A group chat whose lines survive crashes, and whose members are who they were.

A line is on disk once it is shown as yours; it is then sent even if the program is killed. On the next start the last
lines are shown, and what came meanwhile arrives. Each member signs; the first key that a name shows is its key from
then on.

Run it: python examples/programs/chat.py "$FAIRWAY_NODE" alice chat-of-alice
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import fairway
from fairway.events import SignatureRefused


async def read(channel: fairway.ReliableChannel) -> None:
    """Print what the others say."""
    async for message in channel:
        print(f"{message.sender_id}: {bytes(message).decode(errors='replace')}", flush=True)


async def main(address: str, name: str, folder: Path) -> None:
    """Chat until the end of the input."""
    key = folder / "identity.key"
    async with (
        fairway.connect(address) as node,
        fairway.create_reliable_channel(
            node,
            "group-chat",
            name,
            "/example/1/group-chat/proto",
            store=folder / "chat.db",
            identity=fairway.Identity.load(key) if key.exists() else fairway.Identity.create(key),
            members=fairway.Members.trust_on_first_use(folder / "members.json"),
        ) as channel,
    ):
        for line in await channel.history(20):
            print(f"  {line.sender_id}: {bytes(line).decode(errors='replace')}", flush=True)
        channel.on(fairway.MessageDelivered, lambda event: print(f"✓ {', '.join(event.delivered_to)}", flush=True))
        channel.on(SignatureRefused, lambda event: print(f"refused: {event.fault.value} {event.sender_id}", flush=True))
        reading = asyncio.create_task(read(channel))
        while line_typed := await asyncio.to_thread(sys.stdin.readline):
            await channel.send(line_typed.strip().encode() or b"...")
            print(f"{name}: {line_typed.strip()}", flush=True)
        reading.cancel()


Path(sys.argv[3]).mkdir(parents=True, exist_ok=True)
asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
