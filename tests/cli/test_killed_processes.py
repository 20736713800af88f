"""Processes that are killed at any moment and started again lose nothing and repeat nothing.

Participants talk over a node that loses a third of everything. Again and again one of the processes, or the node, is
ended with SIGKILL in the middle of whatever it does and started again on what it left on disk. The driver only knows
what the processes printed: a send whose answer went down with its process it repeats, with the same request id.

The seed decides who says what and who is killed after how long. What a process is doing at that moment differs from run
to run, so a failure shows the whole story; it may take several runs of its seed to see it again.
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
"""Between two kills, on average: most victims are talking when they are hit, some are still starting."""
HEALING_S = 300.0
"""How long everything may take to arrive after the last kill; usually it is some 10 s."""
START_S = 120.0
SEGMENT_BYTES = 2_048
OPTIONS = {
    "sync_min_interval_ms": 1_000,
    "retry_interval_ms": 1_500,
    "max_retry_attempts": 1_000,
    "retrieve_frequency_ms": 1_000,
    "sweep_in_buf_interval_ms": 500,
    "max_store_queries_per_minute": 600,
    "segmentation": {"segment_size_bytes": SEGMENT_BYTES},
    "sds": {"repair": {"t_min_ms": 1_000, "t_max_ms": 3_000}},
}


class World:
    """Participants, their node, and a driver who keeps the books."""

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
        self.started_s = time.monotonic()
        (folder / "options.json").write_text(json.dumps(OPTIONS))
        self.processes = {}

    @property
    def now_ms(self):
        return int((time.monotonic() - self.started_s) * 1000)

    async def begin(self, group):
        self.processes[NODE] = group.add(self.process(NODE, []))
        await self.start(NODE)
        # From now on it comes back where its clients look for it.
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
                self.books.line(name, line, life=self.processes[name].lives, at_ms=self.now_ms)

    def ask_again(self, name):
        """Repeat each send that has not been said to have ended: its answer may have gone down with an earlier life."""
        for message in self.books.messages.values():
            if message.sender == name and not message.has_ended:
                self.processes[name].tell(**self.commands[message.request_id])

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
        wish = self.random.choice(({}, {"by": list(self.books.others(name))}))
        content = {"base64": base64.b64encode(payload).decode(), "request_id": request_id}
        self.commands[request_id] = {"command": "send", **content, **wish}
        sha256 = hashlib.sha256(payload).hexdigest()
        note = {"title": request_id, "sha256": sha256, "size_bytes": len(payload), "at_ms": self.now_ms}
        self.books.command(name, request_id, **note)
        self.processes[name].tell(**self.commands[request_id])

    async def kill_again_and_again(self, kills):
        """Kill whoever chance names, wait or not, and start it again; several may be down at once."""
        async with asyncio.TaskGroup() as reviving:
            while len(self.kills) < kills:
                await asyncio.sleep(self.random.expovariate(1 / MEAN_PAUSE_S))
                running = [name for name, process in self.processes.items() if process.is_running]
                up = [name for name in running if name not in self.down]
                if up:
                    name = self.random.choice(up)
                    self.kills.append((self.now_ms, name, self.ready[name].is_set()))
                    self.down.add(name)
                    self.ready[name].clear()
                    self.processes[name].kill()
                    reviving.create_task(self.revive(name, self.random.choice((0, 0, 0.2, 1.0))))

    async def revive(self, name, after_s):
        await asyncio.sleep(after_s)
        await self.processes[name].gone()
        self.down.discard(name)
        await self.start(name)

    def unfinished(self):
        """Return what has still to come: who lacks what, and which sends have not ended."""
        lacking = [f"{name} lacks {message.title}" for message, name in self.books.lacking()]
        lacking += [f"{m.title} was not accepted" for m in self.books.messages.values() if m.accepted_at_ms is None]
        return lacking + [f"{m.title} has not ended" for m in self.books.messages.values() if not m.has_ended]

    async def heal(self):
        """Wait until nothing more has to come, but not for ever."""
        until_s = time.monotonic() + HEALING_S
        while self.unfinished() and time.monotonic() < until_s:
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
        # What must not come has come when these have: nothing is delivered before what was sent before it.
        for name in NAMES:
            world.say(name)
        await world.heal()


def story_of(world):
    """Return what a failure needs to be understood."""
    kills = ", ".join(f"{name} at {at_ms} ms{'' if up else ' while starting'}" for at_ms, name, up in world.kills)
    return f"{len(world.books.messages)} messages, {world.books.redelivered} told again; killed: {kills}"


@pytest.mark.full
def test_killing_any_process_at_any_moment_loses_nothing_and_repeats_nothing(tmp_path, seed):
    world = World(tmp_path, seed)
    asyncio.run(live(world, KILLS))
    books, told = world.books, story_of(world)
    assert len(world.kills) == KILLS
    assert {name for _, name, _ in world.kills} == {*NAMES, NODE}
    assert books.messages, told
    assert world.unfinished() == [], told
    assert books.faults == [], told
    assert books.irretrievable == [], told
    assert world.errors == [], told
    assert books.verdict().is_good, f"{books.verdict()}; {told}"
