"""No log, error, text of an object or statistic has a secret of a membership, also where things go wrong."""

from __future__ import annotations

import logging
import traceback

import pytest

from fairway.channel.creation import create_reliable_channel
from fairway.errors import FairwayError
from fairway.nodes.proving import with_proof
from fairway.options import ReliableChannelOptions
from fairway.rln.identity import RlnIdentity
from fairway.rln.membership import RlnMembership
from fairway.rln.membership_file import MembershipFile
from fairway.rln.message_ids import MessageIds
from fairway.rln.proof import SignalProof
from fairway.service.node import parts_of


def forms_of(secret: bytes) -> list[str]:
    """The texts in which a secret could be shown."""
    return [secret.hex(), secret[::-1].hex(), str(int.from_bytes(secret, "little")), repr(secret)[2:-1]]


def texts_of(*things: object) -> str:
    return "\n".join(f"{thing!r} {thing!s} {getattr(thing, '__dict__', '')!r}" for thing in things)


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.DEBUG)
    return caplog


async def test_neither_success_nor_failure_shows_a_secret(harbour, logged, tmp_path):
    identity = harbour.identities[0]
    shown = []
    async with harbour:
        double = []
        node = await harbour.node(record=lambda told, _: double.append(told))
        membership = harbour.membership(0)
        other = RlnMembership(
            identity, MembershipFile(harbour.group), MessageIds.create(tmp_path / "copy", first_epoch=0)
        )
        harbour.exits.callback(other.close)
        alice = await harbour.client(node, membership)
        options = ReliableChannelOptions(cluster_id=16, shard_count=1)
        opened = await create_reliable_channel(alice, "room", "alice", harbour.topic, options=options)
        channel = await harbour.exits.enter_async_context(opened)
        receipt = await channel.send(b"hello")
        await receipt.sent()
        result = await alice.send(await with_proof(other, harbour.message(b"a double signal")))
        assert not result.accepted
        bare = await (await harbour.client(node)).send(harbour.message())
        membership.close()
        failed = await alice.send(harbour.message(b"the count is closed"))
        assert not failed.accepted
        proof = SignalProof.decode((await with_proof(other, harbour.message())).message.rate_limit_proof)
        shown.append(texts_of(membership, other, result, bare, failed, proof, receipt, channel, alice, node))
        shown.append(texts_of(parts_of(node).gate.statistics(), membership.network, *double))
    stranger = RlnIdentity.create()
    try:
        harbour.identities = [stranger]
        harbour.membership(0, "stranger").generate_proof(b"signal", 0)
    except FairwayError:
        shown.append(traceback.format_exc())
    assert "not-ready" in shown[-1]
    everything = logged.text + "\n".join(shown)
    assert identity.commitment.hex() in everything
    for one in (identity, stranger):
        for secret in (one.secret, one.trapdoor, one.nullifier):
            for form in forms_of(secret):
                assert form not in everything
