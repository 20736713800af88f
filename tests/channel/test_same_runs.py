"""A seed gives the same run in every process."""

from __future__ import annotations

import os
import subprocess
import sys

from patience import PATIENCE_S

STORY = """
import asyncio
from fairway.channel.creation import create_reliable_channel
from fairway.testing import run
from listening import listen
from fairway.nodes.local import LocalNetwork, NetworkFaults

NAMES = ("alice", "bob", "carol", "dave")
FAULTS = NetworkFaults(
    loss=0.3, duplication=0.1, store_loss=0.1, answer_loss=0.02, too_many_requests=0.05, invalid_message=0.02,
    no_peers_to_relay=0.05, store_lag_ms=5_000, store_lies=0.2,
)

async def story():
    loop = asyncio.get_running_loop()
    with LocalNetwork(FAULTS, seed=5) as network:
        network.observers.append(lambda name, message: print(f"{loop.time():.6f}", name, message.message_hash.hex()))
        nodes = [network.node(name) for name in NAMES]
        channels = [
            await create_reliable_channel(node, "harbour", node.name, "/fairway/1/harbour/proto") for node in nodes
        ]
        for channel in channels:
            listen(channel, lambda event, me=channel.sender_id: print(me, "hears", event.message_id))
        for number in range(12):
            await channels[number % 4].send(bytes([number]) * (1 if number % 6 else 150_000))
            if number == 7:
                nodes[1].die()
            if number == 9:
                nodes[2].go_deaf()
            if number == 10:
                nodes[1].come_back()
            await asyncio.sleep(15)
        await asyncio.sleep(120)
        for channel in channels:
            await channel.close()

run(story(), seed=5)
"""


def run_with(hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(
        [sys.executable, "-c", STORY], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()


def test_a_run_is_the_same_in_two_processes():
    one, other = run_with("1"), run_with("2")
    assert len(one) > 50
    assert one == other
