"""Killed at any moment and started again, both sides go on: nothing that was acknowledged leaves again."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from fairway.events import MessageAcknowledged, MessageSending
from fairway.files.outcomes import FileReceived
from fairway.files.receiving import FileReceiver
from fairway.files.sending import send_file
from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.testing import Machine, Process, SimulatedDisk, run

SIZE = 120_000


class Sender:
    """Sends a file, and notes which segments leave after they were acknowledged."""

    def __init__(self, join, path):
        self._join = join
        self._path = path
        self.acknowledged = defaultdict(set)
        self.left_again = []
        self.resumed = []
        """For each life: how many segments were known to be acknowledged before, and how many were shown first."""
        self.delivery = None

    async def run(self, node, store):
        async with self._join(None, "alice", node=node, store=store) as channel:
            channel.on(MessageAcknowledged, self._note)
            channel.on(MessageSending, self._check)
            known, is_first = sum(map(len, self.acknowledged.values())), True

            def show(progress):
                nonlocal is_first
                if is_first:
                    self.resumed.append((known, progress.segments_acknowledged))
                is_first = False

            if self.delivery is None:
                self.delivery = await send_file(channel, self._path, progress=show)
            await asyncio.sleep(3_600)

    def _note(self, event):
        self.acknowledged[event.request_id].update(event.chunks_acknowledged)

    def _check(self, event):
        chunk = event.chunk_info
        if not chunk.is_parity and chunk.chunk_index in self.acknowledged[event.request_id]:
            self.left_again.append((event.request_id, chunk))


class Receiver:
    """Saves files, and notes how often one was reported."""

    def __init__(self, join, folder):
        self._join = join
        self._folder = folder
        self.received = []
        self.refused = []

    async def run(self, node, store):
        async with self._join(None, "bob", node=node, store=store) as channel:
            receiver = await FileReceiver.open(channel, self._folder)
            async for message in channel:
                outcome = await receiver.take(message)
                if isinstance(outcome, FileReceived):
                    self.received.append(outcome)
                elif not hasattr(outcome, "parts_received"):
                    self.refused.append(outcome)


MORE = [pytest.param(number, marks=pytest.mark.full) for number in range(1, 9)]


@pytest.mark.parametrize("number", [0, *MORE])
def test_after_crashes_of_both_sides_the_file_is_whole_and_no_acknowledged_segment_was_sent_again(
    join, make_file, tmp_path, seed, number
):
    path = make_file(SIZE)
    draws = random.Random(f"{seed}/{number}")
    sender, receiver = Sender(join, path), Receiver(join, tmp_path / "in")

    async def work():
        loop = asyncio.get_running_loop()
        with LocalNetwork(NetworkFaults(loss=0.3), seed=draws.getrandbits(32)) as network, SimulatedDisk() as disk:
            sides: dict[str, Sender | Receiver] = {"alice": sender, "bob": receiver}
            nodes = {name: network.node(name) for name in sides}
            machines = {name: Machine(loop) for name in sides}
            processes = {}

            def begin(name):
                processes[name] = Process(name, machines[name])
                processes[name].spawn(sides[name].run(nodes[name], disk.store(name)))

            for name in sides:
                begin(name)
            for victim in ("alice", "bob") * 3:
                await asyncio.sleep(draws.expovariate(1 / 4))
                disk.power_loss(victim)
                processes[victim].kill()
                begin(victim)
            async with asyncio.timeout(3_600):
                while sender.delivery is None or not receiver.received:  # noqa: ASYNC110 - time is virtual
                    await asyncio.sleep(1)
            for name, process in processes.items():
                disk.power_loss(name)
                process.kill()

    run(work(), seed=seed)
    assert sender.left_again == []
    assert receiver.refused == []
    assert receiver.received[-1].path.read_bytes() == path.read_bytes()
    assert [each.name for each in (tmp_path / "in").iterdir() if each.is_file()] == ["chart.pdf"]
    assert all(shown >= known for known, shown in sender.resumed), "what was acknowledged is shown at once"
