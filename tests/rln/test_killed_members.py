"""Twenty kills of programs with real proofs, over a node that asks for them and loses 30 %: nothing is given away."""

from __future__ import annotations

import asyncio
import os
import sys
from random import Random

import pytest

from fairway.rln.message_ids import MessageIds
from fairway.rln.validation import ProofFault
from fairway.service.node import parts_of
from patience import until

KILLS = 20
PEOPLE = ("alice", "bob", "carol")
MESSAGES = 3
POINTS = ("before-the-id", "with-the-id", "with-the-proof", "sending")

PROGRAM = """
import asyncio, os, signal, sys
import fairway
from fairway.rln.identity import RlnIdentity
from fairway.rln.membership import RlnMembership
from fairway.rln.membership_file import MembershipFile
from fairway.rln.message_ids import MessageIds
from fairway.rln.proving import CircuitProver

folder, name, number, address, point, proofs, count = sys.argv[1:]
left = int(proofs)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Prover(CircuitProver):
    def prove(self, *arguments):
        if point == "with-the-id" and left < 0:
            die()
        return super().prove(*arguments)

class Membership(RlnMembership):
    def generate_proof(self, signal, now_ms):
        global left
        left -= 1
        if point == "before-the-id" and left < 0:
            die()
        proof = super().generate_proof(signal, now_ms)
        if point == "with-the-proof" and left < 0:
            die()
        if point == "sending" and left < 0:
            loop.call_soon_threadsafe(loop.call_later, 0.02, die)
        return proof

async def main():
    global loop
    loop = asyncio.get_running_loop()
    identity = RlnIdentity.create(lambda size: int(number).to_bytes(size, "big"))
    group = MembershipFile(f"{folder}/group.json")
    membership = Membership(identity, group, MessageIds(f"{folder}/{name}.ids"), Prover(group.network))
    options = fairway.ReliableChannelOptions(
        cluster_id=16, shard_count=1, sync_min_interval_ms=1_000, retry_interval_ms=2_000, max_retry_attempts=1_000
    )
    async with fairway.connect(address, rln=membership, connect_timeout_s=60) as node:
        async with fairway.create_reliable_channel(
            node, "room", name, "/fairway-test/1/room/proto", options=options, store=f"{folder}/{name}.db"
        ) as channel:
            for at in range(int(count)):
                await channel.send(f"{name} {at}".encode(), request_id=f"{name} {at}")
            async for message in channel:
                print(message.payload.decode(), flush=True)

asyncio.run(main())
"""


class Person:
    """A participant, whose program is started again after each end."""

    def __init__(self, harbour, number, address, dice):
        self.name, self.number = PEOPLE[number], number + 1
        self.heard: set[str] = set()
        self.wanted = {f"{name} {at}" for name in PEOPLE if name != self.name for at in range(MESSAGES)}
        self.kills = 0
        self._folder, self._address, self._dice = harbour.folder, address, dice

    async def live(self, kills_left):
        """Run lives, each killed at a drawn point while there are kills left."""
        while True:
            point = self._dice.choice(POINTS) if kills_left() > 0 else "never"
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, self._folder, self.name, str(self.number), self._address),
                *(point, str(self._dice.randrange(3)), str(MESSAGES)),
                stdout=asyncio.subprocess.PIPE,
                env=dict(os.environ),
            )
            try:
                while line := await process.stdout.readline():
                    self.heard.add(line.decode().strip())
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
            self.kills += 1


@pytest.mark.full
async def test_twenty_kills_with_real_proofs_lose_nothing_and_reveal_nothing(harbour):
    for name in PEOPLE:
        MessageIds.create(harbour.folder / f"{name}.ids", first_epoch=0).close()
    doubles = []
    async with harbour:
        node = await harbour.node(record=lambda double, _: doubles.append(double), loss=0.3, seed=1)
        dice = Random(1)
        people = [Person(harbour, number, str(node.addresses[0]), dice) for number in range(len(PEOPLE))]
        lives = [
            asyncio.create_task(person.live(lambda: KILLS - sum(one.kills for one in people))) for person in people
        ]
        try:
            while sum(one.kills for one in people) < KILLS:
                before = sum(one.kills for one in people)
                await until(lambda: sum(one.kills for one in people) > before)  # noqa: B023 - waited for at once
            await until(lambda: all(one.heard >= one.wanted for one in people), lambda: [one.heard for one in people])
        finally:
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)
        assert sum(one.kills for one in people) >= KILLS
        assert all(one.heard == one.wanted for one in people)
        refused = parts_of(node).gate.statistics().refused
        assert refused[ProofFault.DOUBLE_SIGNAL] == 0
        assert refused[ProofFault.INVALID] == 0
        assert parts_of(node).gate.statistics().admitted > MESSAGES * len(PEOPLE)
    assert not doubles
