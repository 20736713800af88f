"""A channel of three over a network that asks for proofs, with loss and crashes at every point of the counter.

Everything is delivered to all, and nobody's secret is given away: the network computes it from any two signals under
one id. The counter, the channels and the arithmetic of the shares are the real ones; a stub takes the place of the
zero-knowledge proof, which hides the secret and would take 0.1 s each.

``FAIRWAY_RLN_CRASHES`` sets how many crashes the long test has: 500 by default, 10,000 for the long form.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from contextvars import copy_context
from enum import Enum
from pathlib import Path
from random import Random

from fairway.channel.creation import create_reliable_channel
from fairway.errors import RlnError, RlnErrorKind
from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.options import ReliableChannelOptions, SdsConfig
from fairway.protocol.ratelimit import RlnProofProvider, rln_signal
from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import FIELD_ORDER, ZERO, element, hash_to_field, number_of
from fairway.rln.identity import RlnIdentity
from fairway.rln.membership import RlnMembership
from fairway.rln.message_ids import MessageIds
from fairway.rln.proof import PROOF_BYTES, SignalProof
from fairway.rln.proving import RlnMember
from fairway.rln.tree import TREE_DEPTH, MerklePath, RootWindow
from fairway.rln.validation import DoubleSignal, NullifierLog
from fairway.storage.memory_store import MemoryStore
from fairway.testing import run
from fairway.testing.loop import Machine, Process

TOPIC = "/fairway/1/harbour/proto"
LIMIT = 50_000
PEOPLE = ("alice", "bob", "carol")
OPTIONS = ReliableChannelOptions(sds=SdsConfig(lost_timeout_ms=86_400_000), max_retry_attempts=1_000)
GIVEN_UP_AFTER_S = 4 * 3_600


NETWORK = RlnNetwork(max_epoch_gap=0)


def identity_of(name):
    """Return the identity of a member: its secret follows from its name."""
    secret = hash_to_field(name.encode())
    return RlnIdentity(trapdoor=ZERO, nullifier=ZERO, secret=secret, commitment=hash_to_field(secret))


class StubGroup:
    """A group that everybody is in."""

    network = NETWORK
    roots = RootWindow([ZERO])

    def __init__(self, limit):
        self._limit = limit

    def member(self, identity):
        path = MerklePath(root=ZERO, siblings=(ZERO,) * TREE_DEPTH, bits=bytes(TREE_DEPTH))
        return RlnMember(identity=identity, limit=self._limit, path=path)

    def refresh(self):
        return False


class StubProver:
    """Makes shares as the circuit does, and no proof of them: of two signals under one id the secret follows."""

    def prepare(self, member):
        pass

    def prove(self, member, message_id, signal, epoch):
        secret = member.identity.secret
        slope = hash_to_field(secret + epoch.to_bytes(8, "little") + message_id.to_bytes(8, "little"))
        share_x = hash_to_field(signal)
        share_y = (number_of(secret) + number_of(slope) * number_of(share_x)) % FIELD_ORDER
        return SignalProof(
            proof=hashlib.sha512(signal).digest().ljust(PROOF_BYTES, b"\0"),
            root=ZERO,
            epoch=epoch,
            share_x=share_x,
            share_y=element(share_y),
            nullifier=hash_to_field(slope),
            identifier=NETWORK.padded_identifier,
        )


class Point(Enum):
    """Where a program is killed."""

    BEFORE_THE_ID = "before an id is reserved"
    WITH_THE_ID = "after an id is reserved"
    WITH_THE_PROOF = "after the proof is made"
    SENDING = "while the message is being sent"
    ANYWHERE = "at any time"


class Fragile:
    """A membership in a program that is killed at a point."""

    def __init__(self, membership, prover, kill, point, dice):
        self._membership, self._prover, self._kill, self._point = membership, prover, kill, point
        self._proofs_left = dice.randrange(4)

    def epoch_quota(self, now_ms):
        return self._membership.epoch_quota(now_ms)

    def generate_proof(self, signal, now_ms):
        self._proofs_left -= 1
        if self._proofs_left >= 0 or self._point is Point.ANYWHERE:
            return self._membership.generate_proof(signal, now_ms)
        self._kill()
        if self._point is Point.BEFORE_THE_ID:
            raise killed()
        self._prover.fails = self._point is Point.WITH_THE_ID
        proof = self._membership.generate_proof(signal, now_ms)
        if self._point is Point.WITH_THE_PROOF:
            raise killed()
        return proof


class FragileProver(StubProver):
    fails = False

    def prove(self, *arguments):
        if self.fails:
            raise killed()
        return super().prove(*arguments)


def killed():
    """What a call never returns from; the program ends before it takes notice."""
    return RlnError(RlnErrorKind.TRANSIENT, "killed")


class Watching(LocalNetwork):
    """A network that computes the secret of each member that signs two signals under one id."""

    def __init__(self, faults, seed):
        super().__init__(faults, seed=seed)
        self.log = NullifierLog()
        self.seen = Counter()

    def handed_over(self, publisher, message):
        super().handed_over(publisher, message)
        one = message.message
        proof = SignalProof.decode(one.rate_limit_proof)
        assert proof.share_x == hash_to_field(rln_signal(one.payload, one.content_topic, one.timestamp_ns))
        noted = self.log.note(proof)
        assert not isinstance(noted, DoubleSignal), f"{publisher.name} gave its secret away"
        self.seen["new" if noted is None else "again"] += 1


class Person:
    """One participant over all its lives."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.node = world.network.node(name)
        self.store = MemoryStore()
        self.channels = []
        self.wishes = [f"{name} {number}".encode() for number in range(world.messages)]
        self.received = set()
        self.lives = 0
        self.points = Counter()
        self.ids = world.folder / f"{name}.db"
        MessageIds.create(self.ids, first_epoch=0).close()
        self.begin()

    def begin(self):
        """Begin a life, whose end is drawn with it."""
        world, dice = self.world, self.world.dice
        self.lives += 1
        life = self.lives
        self.process = Process(self.name, Machine(asyncio.get_running_loop()))
        prover = FragileProver()
        self.membership = RlnMembership(identity_of(self.name), StubGroup(LIMIT), MessageIds(self.ids), prover)
        rln: RlnProofProvider = self.membership
        if world.crashes_left > 0:
            point = dice.choice(list(Point))
            rln = Fragile(self.membership, prover, lambda: world.soon(0, self.kill, life, point), point, dice)
            world.soon(dice.uniform(0.01, 60), self.kill, life, Point.ANYWHERE)
        self.process.spawn(self.live(rln))

    def kill(self, life, point):
        """End this life, and begin the next one a little later."""
        if life != self.lives or not self.process.is_alive:
            return
        self.points[point] += 1
        self.world.crashes_left -= 1
        self.process.kill()
        self.membership.close()
        self.store.close()
        self.world.soon(self.world.dice.uniform(0, 2), self.begin)

    async def live(self, rln):
        channel = await create_reliable_channel(
            self.node, "harbour", self.name, TOPIC, options=OPTIONS, store=self.store, rln=rln
        )
        self.channels.append(channel)  # a channel that is collected closes its store, which the next life has open
        reading = asyncio.ensure_future(self.read(channel))
        for payload in self.wishes:
            await channel.send(payload, request_id=payload.decode())
            await asyncio.sleep(self.world.dice.uniform(0, 3))
        await reading

    async def read(self, channel):
        async for message in channel:
            self.received.add(message.payload)


class World:
    def __init__(self, folder: Path, seed: int, *, crashes: int, messages: int):
        self.dice = Random(seed)
        self._context = copy_context()
        self.folder, self.crashes_left, self.messages = folder, crashes, messages
        self.network = Watching(NetworkFaults(loss=0.3), seed)
        self.people = [Person(self, name) for name in PEOPLE]

    def soon(self, after_s, call, *arguments):
        """Call something that no program takes with it when it ends."""
        asyncio.get_running_loop().call_later(after_s, call, *arguments, context=self._context)

    @property
    def is_over(self):
        everything = {payload for person in self.people for payload in person.wishes}
        return self.crashes_left <= 0 and all(
            person.received | set(person.wishes) >= everything for person in self.people
        )


def crashes_of(folder: Path, seed: int, *, crashes: int, messages: int) -> Counter[Point]:
    """Run a world until so many crashes have happened and all is delivered; return how many at which point."""

    async def work():
        world = World(folder, seed, crashes=crashes, messages=messages)
        async with asyncio.timeout(GIVEN_UP_AFTER_S + 40 * crashes):
            while not world.is_over:  # noqa: ASYNC110 - time is virtual
                await asyncio.sleep(5)
        for person in world.people:
            person.process.kill()
            person.membership.close()
        assert world.network.seen["new"] > 3 * messages
        return sum((person.points for person in world.people), Counter())

    return run(work(), seed=seed)


def test_sixty_crashes_lose_nothing_and_reveal_nothing(tmp_path):
    points = crashes_of(tmp_path, 3, crashes=60, messages=5)
    assert sum(points.values()) >= 60
    assert set(points) == set(Point)
