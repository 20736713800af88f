"""Tests of RLN run the compiled package fairway-rln. Without it they are skipped; in CI with Rust they must run."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

import pytest

from fairway.nodes.light import LightNode, LightOptions
from fairway.nodes.node import RoutedMessage
from fairway.rln.identity import RlnIdentity
from fairway.rln.membership import RlnMembership
from fairway.rln.membership_file import MembershipFile
from fairway.rln.message_ids import MessageIds
from fairway.rln.proving import CircuitProver, CircuitVerifier, RlnMember
from fairway.rln.validation import ProofValidator
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.service.proof_gate import ProofGate
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S


def identity_of(number: int) -> RlnIdentity:
    """Return one of the identities that the tests know."""
    return RlnIdentity.create(lambda size: number.to_bytes(size, "big"))


@pytest.fixture(scope="session")
def identities(compiled) -> list[RlnIdentity]:
    return [identity_of(number) for number in range(1, 6)]


@pytest.fixture
def group(tmp_path, identities) -> MembershipFile:
    """A group of five, of whom each may send 20 messages in an epoch."""
    group = MembershipFile.create(tmp_path / "group.json")
    for identity in identities:
        group.register(identity.commitment, 20)
    return group


@pytest.fixture
def member(group, identities) -> RlnMember:
    return group.member(identities[2])


@pytest.fixture(scope="session")
def prover(compiled) -> CircuitProver:
    return CircuitProver()


@pytest.fixture(scope="session")
def verifier(compiled) -> CircuitVerifier:
    return CircuitVerifier()


@pytest.fixture
def validator(group, verifier) -> ProofValidator:
    return ProofValidator(group.network, group.roots, verifier)


class Harbour:
    """A network that asks for proofs: its group, memberships in it, and nodes that verify."""

    shard = "/waku/2/rs/16/0"
    topic = "/fairway-test/1/room/proto"
    limit = 1_000

    def __init__(self, folder, identities, provers):
        self.folder, self.identities, self.provers = folder, identities, provers
        self.group = folder / "group.json"
        made = MembershipFile.create(self.group)
        for identity in identities:
            made.register(identity.commitment, self.limit)
        self.exits = AsyncExitStack()

    async def node(self, *peers, record=None, rln=None, gate=None, **changes):
        """A service node that asks for proofs."""
        gate = gate or ProofGate(MembershipFile(self.group), record=record)
        options = self._options(*peers, **changes)
        return await self.exits.enter_async_context(await ServiceNode.start(options, gate=gate, rln=rln))

    async def careless_node(self, *peers, **changes):
        """A service node of the same network that verifies nothing."""
        return await self.exits.enter_async_context(await ServiceNode.start(self._options(*peers, **changes)))

    def _options(self, *peers, **changes):
        given = {"cluster_id": 16, "shards": (0,), "shard_count": 1, "request_rate": None, **changes}
        return ServiceOptions(peers=tuple(map(str, peers)), **given)

    def membership(self, number, name="ids"):
        """One of the identities, as a program holds it; one program at a time."""
        path = self.folder / f"{name}-{number}.db"
        ids = MessageIds(path) if path.exists() else MessageIds.create(path, first_epoch=0)
        membership = RlnMembership(self.identities[number], MembershipFile(self.group), ids, self.provers[number])
        self.exits.callback(membership.close)
        return membership

    async def client(self, node, rln=None, **options):
        given = LightOptions(request_timeout_s=PATIENCE_S, **options)
        return await self.exits.enter_async_context(await LightNode.start([node.addresses[0]], given, rln=rln))

    def message(self, payload=b"hello", *, topic=topic, **fields):
        fields = {"timestamp_ns": time.time_ns(), **fields}
        return RoutedMessage.of(self.shard, WakuMessage(payload=payload, content_topic=topic, **fields))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        """Close all that was opened."""
        return await self.exits.__aexit__(*error)


@pytest.fixture(scope="session")
def provers(identities) -> list[CircuitProver]:
    """Return a prover for each identity: in every harbour they have the same places, so what is prepared serves all."""
    return [CircuitProver() for _ in identities]


@pytest.fixture
def harbour(tmp_path, identities, provers) -> Harbour:
    return Harbour(tmp_path, identities, provers)
