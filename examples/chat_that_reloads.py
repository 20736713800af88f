"""A chat that shows its past when it is opened again, own lines included.

The store keeps the lines in the order of the channel, which is the same for all participants. So a program reads its
page from there, when it opens and whenever something comes.

Run it: python examples/chat_that_reloads.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import fairway
from fairway.testing import LocalNetwork

TOPIC = "/example/1/harbour/proto"


async def show(channel: fairway.ReliableChannel) -> None:
    """Print the last lines."""
    for line in await channel.history(20):
        sent = "" if line.outcome is None else f"  [{line.outcome.value}]"
        print(f"{line.position:>3}  {line.sender_id}: {bytes(line).decode()}{sent}")


async def visit(node: fairway.WakuNode, store: Path, words: str) -> None:
    """Open the chat, say something, and wait for the answer."""
    async with fairway.create_reliable_channel(node, "harbour", "alice", TOPIC, store=store) as channel:
        print("the chat opens")
        await show(channel)
        await channel.send(words.encode())
        async for _ in channel:
            print("an answer has come")
            await show(channel)
            break


async def answer(channel: fairway.ReliableChannel) -> None:
    """Answer every line."""
    async for message in channel:
        await channel.send(b"I heard: " + bytes(message))


async def main() -> None:
    """Visit a chat twice."""
    with LocalNetwork() as network, tempfile.TemporaryDirectory() as folder:
        async with fairway.create_reliable_channel(network.node("bob"), "harbour", "bob", TOPIC) as bob:
            answering = asyncio.ensure_future(answer(bob))
            async with network.node("alice") as node:
                for words in ("who is on watch?", "fog is coming"):
                    await visit(node, Path(folder) / "alice.db", words)
            answering.cancel()


asyncio.run(main())
