"""A planner with tasks, and any number of workers that share them and send the results.

Each may be killed at any moment and started again. A task has the same request id in every run, so it is the same
request: the planner gets the result that came while it was away. A worker that is back soon does its unfinished task
again; otherwise another worker does it.

Run them: python examples/programs/tasks.py "$FAIRWAY_NODE" anna anna-state
          python examples/programs/tasks.py "$FAIRWAY_NODE" ben ben-state
          python examples/programs/tasks.py "$FAIRWAY_NODE" planner planner-state "sort the mail" "water the plants"
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import fairway

DAY_S = 86_400


async def work(request: fairway.Request) -> bytes:
    """Do one task."""
    print("begin:", bytes(request).decode(), flush=True)
    await asyncio.sleep(0.5)
    return b"done: " + bytes(request)


async def ask(channel: fairway.ReliableChannel, number: int, task: str) -> None:
    """Give one task to the workers, and print the result."""
    reply = await channel.request(task.encode(), group="workers", timeout=DAY_S, request_id=f"task {number}")
    print(f"{bytes(reply).decode()} by {reply.sender_id}", flush=True)


async def main(address: str, name: str, folder: Path, tasks: list[str]) -> None:
    """Run the planner or a worker."""
    async with (
        fairway.connect(address) as node,
        fairway.create_reliable_channel(
            node, "tasks", name, "/example/1/tasks/proto", store=folder / "tasks.db"
        ) as channel,
    ):
        if name == "planner":
            await asyncio.gather(*(ask(channel, number, task) for number, task in enumerate(tasks)))
        else:
            channel.on_request(work, group="workers")
            await asyncio.Event().wait()


Path(sys.argv[3]).mkdir(parents=True, exist_ok=True)
asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:]))
