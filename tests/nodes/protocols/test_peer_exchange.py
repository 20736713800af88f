"""Records of nodes from other nodes: bounded on both sides, verified by the one who asks."""

from __future__ import annotations

import contextlib
import random

import pytest

from fairway.errors import DecodeError
from fairway.libp2p.errors import FrameTooLongError, NegotiationError
from fairway.libp2p.host import Host
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.libp2p.multiaddr import Multiaddr
from fairway.nodes.discovery import node_records
from fairway.nodes.discovery.node_record import NodeRecord
from fairway.nodes.discovery.node_records import NodeRecords
from fairway.nodes.protocols.exchange import answering
from fairway.nodes.protocols.peer_exchange import PeerExchangeService, ask_for_records
from fairway.nodes.protocols.request_limiter import RequestLimiter, RequestRate
from fairway.wire.peer_exchange import MAX_RECORDS, PEER_EXCHANGE_PROTOCOL, PeerExchangeResponse, encode_response
from fairway.wire.relay_shards import RelayShards
from patience import PATIENCE_S, run


def key(number):
    return IdentityKey.from_secret(number.to_bytes(32), KeyType.SECP256K1)


def record(number, *, sequence=1, cluster=1, shards=(0, 1), address="/ip4/192.0.2.7/tcp/60000"):
    return NodeRecord.sign(
        key(number),
        sequence=sequence,
        addresses=[Multiaddr.parse(address)] if address else [],
        relay_shards=None if cluster is None else RelayShards(cluster_id=cluster, shards=frozenset(shards)),
    )


RECORDS = [record(number) for number in range(1, 101)]


@contextlib.asynccontextmanager
async def connected(respond):
    """A host that is connected to one which answers peer exchange with a function."""

    async def handler(peer, request):
        return respond(peer, request)

    async with await Host.start() as ours, await Host.start(key=key(1), listen=["/ip4/127.0.0.1/tcp/0"]) as theirs:
        theirs.handle(PEER_EXCHANGE_PROTOCOL, answering(handler, max_request_bytes=1024))
        await ours.connect(theirs.addresses[0])
        yield ours, theirs


def service(records, rate=None):
    made = PeerExchangeService(records=lambda: records, limiter=RequestLimiter(rate), rng=random.Random(7))
    return lambda peer, request: made.respond(peer, request, 0.0)


async def asked(respond, count=60):
    async with connected(respond) as (ours, theirs):
        return await ask_for_records(ours, theirs.peer_id, count, timeout_s=PATIENCE_S)


@pytest.mark.parametrize(("wanted", "given"), [(0, 0), (5, 5), (60, 60), (10_000, MAX_RECORDS)])
def test_a_service_gives_as_many_records_as_are_wanted_and_allowed(wanted, given):
    found = run(asked(service(RECORDS), wanted))
    assert len(set(found.records)) == given
    assert set(found.records) <= set(RECORDS)
    assert found.wrong == 0


def test_a_peer_that_asks_too_often_is_refused():
    async def work():
        async with connected(service(RECORDS, RequestRate(per_second=0.1, burst=2))) as (ours, theirs):
            for _ in range(2):
                await ask_for_records(ours, theirs.peer_id, 1, timeout_s=PATIENCE_S)
            with pytest.raises(NegotiationError, match="429"):
                await ask_for_records(ours, theirs.peer_id, 1, timeout_s=PATIENCE_S)

    run(work())


def test_a_request_that_cannot_be_read_is_refused():
    reply = service(RECORDS)("peer", b"\xff\xff")
    with pytest.raises(NegotiationError, match="400"):
        run(asked(lambda _peer, _request: reply))


def test_forged_records_are_counted_and_left_out():
    forged = RECORDS[0].encoded[:-1] + b"\0"
    reply = encode_response(
        PeerExchangeResponse(records=(forged, b"", b"\xc0", RECORDS[1].encoded, RECORDS[1].encoded))
    )
    found = run(asked(lambda _peer, _request: reply))
    assert found.records == (RECORDS[1],)
    assert found.wrong == 3


def test_no_more_records_are_taken_than_were_asked_for():
    reply = encode_response(PeerExchangeResponse(records=tuple(one.encoded for one in RECORDS[:60])))
    assert run(asked(lambda _peer, _request: reply, 4)).records == tuple(RECORDS[:4])


def test_an_answer_without_an_end_is_an_error():
    with pytest.raises(FrameTooLongError):
        run(asked(lambda _peer, _request: bytes(10_000_000)))


def test_an_answer_that_is_none_is_an_error():
    with pytest.raises(DecodeError):
        run(asked(lambda _peer, _request: b"\xff"))


REFUSED = {
    "of another cluster": (record(1, cluster=2), "other network"),
    "of no cluster": (record(1, cluster=None), "other network"),
    "of other shards": (record(1, shards=(5, 6)), "other network"),
    "without an address": (record(1, address=None), "no address"),
}


@pytest.mark.parametrize(("one", "refusal"), REFUSED.values(), ids=REFUSED)
def test_a_record_is_not_kept_that_is(one, refusal):
    shelf = NodeRecords(cluster_id=1, shards=[0, 1, 2])
    assert shelf.add(one) == refusal
    assert shelf.records() == ()


def test_the_newest_record_of_a_node_is_kept():
    shelf = NodeRecords(cluster_id=1)
    assert shelf.add(record(1, sequence=5)) is None
    assert shelf.add(record(1, sequence=5)) == "old"
    assert shelf.add(record(1, sequence=4)) == "old"
    assert shelf.add(record(1, sequence=6)) is None
    assert [one.sequence for one in shelf.records()] == [6]


def test_a_full_shelf_takes_newer_records_of_the_nodes_it_has_only(monkeypatch):
    monkeypatch.setattr(node_records, "MAX_RECORDS", 2)
    shelf = NodeRecords(cluster_id=None)
    assert [shelf.add(record(number)) for number in (1, 2, 3)] == [None, None, "full"]
    assert shelf.add(record(2, sequence=2)) is None
    shelf.remove(RECORDS[0].peer_id)
    assert shelf.add(record(3)) is None
    assert len(shelf) == 2
