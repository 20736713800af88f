"""Processes that are killed at any moment and started again lose nothing and repeat nothing.

Participants talk over a network that loses a third of everything. Again and again one of the processes, or the network
itself, is ended with SIGKILL in the middle of whatever it does and started again on what it left on disk. The driver
only knows what the processes printed: a send whose answer went down with its process it repeats, with the same
request id.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import re
import time

import pytest

from fairway.apps.demonstration_bookkeeping import Bookkeeping
from fairway.apps.demonstration_processes import Process, ProcessGroup, fairway_command

NAMES = ("alice", "bob", "carol")
NETWORK = "network"
KILLS = 50
MEAN_PAUSE_S = 0.7
"""Between two kills, on average: most victims are talking when they are hit, some are still starting."""
HEALING_S = 90.0
START_S = 40.0
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
    """Participants, their network, and a driver who keeps the books."""

    def __init__(self, folder, seed):
        self.random = random.Random(seed)
        self.folder = folder
        self.books = Bookkeeping(NAMES)
        self.commands = {}
        self.ready = {name: asyncio.Event() for name in (*NAMES, NETWORK)}
        self.processes = {}
        self.errors = []
        self.port = 0
        self.started_s = time.monotonic()
        (folder / "options.json").write_text(json.dumps(OPTIONS))

    @property
    def now_ms(self):
        return int((time.monotonic() - self.started_s) * 1000)

    def process(self, name):
        if name == NETWORK:
            arguments = ["network", "--json", "--until-stdin-closes", "--port", str(self.port), "--loss", "0.3"]
            arguments += ["--min-delay-ms", "5", "--max-delay-ms", "60", "--seed", "1"]
            arguments += ["--archive", str(self.folder / "archive.sqlite")]
        else:
            arguments = ["participant", "--node", f"local://127.0.0.1:{self.port}", "--channel", "team"]
            arguments += ["--sender", name, "--store", str(self.folder / f"{name}.db")]
            arguments += ["--options", str(self.folder / "options.json")]
        log = self.folder / f"{name}.log"
        return Process(name, fairway_command(*arguments), log, lambda line: self.hear(name, line))

    def hear(self, name, line):
        if "address" in line:
            self.port = int(re.fullmatch(r"local://127\.0\.0\.1:(\d+)", line["address"])[1])
            self.ready[name].set()
        elif line.get("event") == "ready":
            self.ready[name].set()
            self.repeat(name)
        elif line.get("event") == "error":
            self.errors.append((name, line))
        else:
            self.books.line(name, line, life=self.processes[name].lives, at_ms=self.now_ms)
            if line.get("event") == "accepted" and line["outcome"]:
                message = self.books.messages[line["request_id"]]
                # Its terminal event went down with an earlier life, or comes in the next lines.
                message.asked_outcome = line["outcome"]

    def repeat(self, name):
        """Ask again about whatever this participant has not said to have ended."""
        for message in self.books.messages.values():
            if message.sender == name and not self.has_ended(message):
                self.processes[name].tell(**self.commands[message.request_id])

    def has_ended(self, message):
        return message.has_ended or message.request_id in self.outcomes

    async def start(self, name):
        self.ready[name].clear()
        await self.processes[name].start()
