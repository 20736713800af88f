"""A folder whose files appear at all others: whatever is put into ``outbox`` arrives in the ``inbox`` of each member.

A file moves to ``sent`` once somebody has it. A killed sender continues with the parts that nobody acknowledged, and a
killed receiver with those that it lacks.

Run it: python examples/programs/file_drop.py "$FAIRWAY_NODE" alice drop-of-alice
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import fairway
from fairway.files import FileArriving, FileReceived, FileReceiver, FileRefused, send_file

LOOK_EVERY_S = 0.5


async def send(channel: fairway.ReliableChannel, folder: Path) -> None:
    """Send what is put into the outbox, one file after the other."""
    while True:
        for path in sorted((folder / "outbox").iterdir()):
            try:
                delivery = await send_file(channel, path)
            except fairway.DeliveryFailedError as error:
                print(f"{path.name} waits: {error}", flush=True)
                continue
            path.rename(folder / "sent" / path.name)
            print(f"{path.name} is with {', '.join(delivery.delivered_to)}", flush=True)
        await asyncio.sleep(LOOK_EVERY_S)


async def receive(channel: fairway.ReliableChannel, folder: Path) -> None:
    """Save what the others send."""
    receiver = await FileReceiver.open(channel, folder / "inbox")
    async for message in channel:
        outcome = await receiver.take(message)
        if isinstance(outcome, FileReceived):
            print(f"{outcome.path.name} came from {message.sender_id}", flush=True)
        elif isinstance(outcome, FileArriving):
            print(f"{outcome.parts_received} of {outcome.total_parts} parts of {outcome.name} are here", flush=True)
        elif isinstance(outcome, FileRefused):
            print(f"refused: {outcome.detail}", flush=True)


async def main(address: str, name: str, folder: Path) -> None:
    """Run one member."""
    async with (
        fairway.connect(address) as node,
        fairway.create_reliable_channel(
            node, "file-drop", name, "/example/1/file-drop/proto", store=folder / "drop.db"
        ) as channel,
    ):
        await asyncio.gather(send(channel, folder), receive(channel, folder))


for part in ("outbox", "sent", "inbox"):
    Path(sys.argv[3], part).mkdir(parents=True, exist_ok=True)
asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
