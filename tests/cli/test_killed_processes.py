"""Processes that are killed at any moment and restarted lose nothing and repeat nothing.

Participants talk over a node that loses a third of all deliveries. The test kills one of the processes, or the node,
again and again with SIGKILL, and restarts it on its store. The test knows only what the processes printed. If a kill
took the answer to a send, the test repeats the command with the same request id.

The seed decides the messages, the victims and the pauses. What a process does at the moment of its kill differs from
run to run, so a failure prints all kills; several runs of its seed may be needed to repeat it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import time

import pytest

from bookkeeping import Bookkeeping
from fairway_processes import ParticipantProcess, ProcessGroup, fairway_command

NAMES = ("alice", "bob", "carol")
NODE = "node"
KILLS = 50
MEAN_PAUSE_S = 0.7
"""Mean pause between two kills: most victims are running, some are still starting."""
HEALING_S = 300.0
"""Time in which everything must arrive after the last kill; usually some 10 s."""
START_S = 120.0
SEGMENT_BYTES = 2_048
OPTIONS = {
    "sync_min_interval_ms": 1_000,
    "retry_interval_ms": 1_500,
    "max_retry_attempts": 1_000,
    "retrieve_frequency_ms": 1_000,
    "sweep_in_buf_interval_ms": 500,
    "advanced": {"max_store_queries_per_minute": 600},
    "segmentation": {"segment_size_bytes": SEGMENT_BYTES},
    "sds": {"repair": {"t_min_ms": 1_000, "t_max_ms": 3_000}},
}


class World:
    """Participants, their node, and the books."""

    def __init__(self, folder, seed):
        self.random = random.Random(seed)
        self.folder = folder
        self.books = Bookkeeping(NAMES)
        self.commands = {}
        self.ready = {name: asyncio.Event() for name in (*NAMES, NODE)}
        self.errors = []
        self.kills = []
        self.down = set()
        self.address = ""
        (folder / "options.json").write_text(json.dumps(OPTIONS))
        self.processes = {}

    async def begin(self, group):
        self.processes[NODE] = group.add(self.process(NODE, []))
        await self.start(NODE)
        # After a restart it listens where its clients dial.
        self.processes[NODE].command += ("--tcp-port", self.address.split("/")[4])
        for name in NAMES:
            node = ["--node", self.address]
            self.processes[name] = group.add(self.process(name, node))
        await asyncio.gather(*map(self.start, NAMES))

    def process(self, name, node):
        if name == NODE:
            arguments = ["node", "--json", "--until-stdin-closes", "--loss", 0.3, "--state", self.folder / "state"]
            arguments += ["--archive", f"sqlite:{self.folder / 'archive.sqlite'}"]
        else:
            arguments = ["participant", *node, "--channel", "team", "--sender", name]
            arguments += ["--store", self.folder / f"{name}.db", "--options", self.folder / "options.json"]
        log = self.folder / f"{name}.log"
        return ParticipantProcess(name, fairway_command(*map(str, arguments)), log, lambda line: self.hear(name, line))

    async def start(self, name):
        await self.processes[name].gone()
        self.ready[name].clear()
        await self.processes[name].start()
        async with asyncio.timeout(START_S):
            while not self.ready[name].is_set():
                self.processes[name].check()
                if not self.processes[name].is_running:
                    return  # killed while it was starting
                await asyncio.sleep(0.02)

    def hear(self, name, line):
        match line:
            case {"multiaddrs": [address, *_]}:
                self.address = address
                self.ready[name].set()
            case {"event": "ready"}:
                self.ready[name].set()
                self.ask_again(name)
            case {"event": "error"}:
                self.errors.append((name, line))
            case _:
                self.books.line(name, line, life=self.processes[name].lives)

    def ask_again(self, name):
        """Repeat each send that has not ended: a kill may have taken its answer."""
        for request_id, message in self.books.messages.items():
            if message.sender == name and not message.has_ended:
                self.processes[name].tell(**self.commands[request_id])

    async def talk(self, name, talking):
        """Send texts and segmented messages while the talking goes on."""
        while talking.is_set():
            await asyncio.sleep(self.random.uniform(0.1, 0.8))
            if self.ready[name].is_set():
                self.say(name)

    def say(self, name):
        """Send a text or a segmented message."""
        request_id = f"{name}-{len(self.books.messages)}"
        size = self.random.choice((20, 20, 300, 3 * SEGMENT_BYTES, 9 * SEGMENT_BYTES))
        payload = request_id.encode() + self.random.randbytes(size)
        wish = self.random.choice(({}, {"by": self.books.others(name)}))
        content = {"base64": base64.b64encode(payload).decode(), "request_id": request_id}
        self.commands[request_id] = {"command": "send", **content, **wish}
        self.books.command(name, request_id, hashlib.sha256(payload).hexdigest())
        self.processes[name].tell(**self.commands[request_id])

    async def kill_again_and_again(self, kills):
        """Kill a random process, and restart it at once or after a pause; several may be down at once."""
        async with asyncio.TaskGroup() as reviving:
            while len(self.kills) < kills:
                await asyncio.sleep(self.random.expovariate(1 / MEAN_PAUSE_S))
                running = [name for name, process in self.processes.items() if process.is_running]
                up = [name for name in running if name not in self.down]
                if up:
                    name = self.random.choice(up)
                    self.kills.append((name, self.ready[name].is_set()))
                    self.down.add(name)
                    self.ready[name].clear()
                    self.processes[name].kill()
                    reviving.create_task(self.revive(name, self.random.choice((0, 0, 0.2, 1.0))))

    async def revive(self, name, after_s):
        await asyncio.sleep(after_s)
        await self.processes[name].gone()
        self.down.discard(name)
        await self.start(name)

    async def heal(self):
        """Wait until nothing is unfinished, for at most `HEALING_S`."""
        until_s = time.monotonic() + HEALING_S
        while self.books.unfinished() and time.monotonic() < until_s:
            for process in self.processes.values():
                process.check()
            await asyncio.sleep(0.1)


async def live(world, kills):
    async with ProcessGroup() as group:
        await world.begin(group)
        talking = asyncio.Event()
        talking.set()
        speakers = [asyncio.ensure_future(world.talk(name, talking)) for name in NAMES]
        try:
            await world.kill_again_and_again(kills)
        finally:
            talking.clear()
            await asyncio.gather(*speakers)
        await world.heal()
        # A wrong second delivery comes before these: each is delivered after everything that was sent before it.
        for name in NAMES:
            world.say(name)
        await world.heal()


@pytest.mark.full
def test_killing_any_process_at_any_moment_loses_nothing_and_repeats_nothing(tmp_path, seed):
    world = World(tmp_path, seed)
    asyncio.run(live(world, KILLS))
    killed = ", ".join(f"{name}{'' if was_up else ' while starting'}" for name, was_up in world.kills)
    story = f"{len(world.books.messages)} messages, {world.books.redeliveries} delivered again; killed: {killed}"
    assert {name for name, _ in world.kills} == {*NAMES, NODE}
    assert world.books.messages, story
    assert (world.books.unfinished(), world.books.faults(), world.errors) == ([], [], []), story
