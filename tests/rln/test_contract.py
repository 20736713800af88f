"""A group in a contract, asked of a node that speaks JSON-RPC on loopback, and may lie, stall or stop."""

from __future__ import annotations

import logging
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain_node import (
    ADDRESS,
    CHAIN_ID,
    IS_MEMBER,
    MEMBERSHIP,
    MERKLE_PROOF,
    RECENT_ROOTS,
    ROOT,
    ChainNode,
    serving,
    silent,
    status,
    word,
)
from fairway.errors import ConfigurationError, DecodeError, NodeUnavailableError, RlnError, RlnErrorKind
from fairway.rln.contract import ContractMembership
from fairway.rln.field import FIELD_ORDER
from fairway.rln.membership import RlnGroup, RlnMembership
from fairway.rln.message_ids import MessageIds
from fairway.rln.proof import SignalProof
from fairway.rln.validation import ProofValidator
from patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("compiled")

NOW_MS = 1_791_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """The clock that groups read."""
    clock = Clock()
    monkeypatch.setattr("fairway.rln.contract.monotonic_s", clock)
    return clock


@pytest.fixture
def chain(compiled):
    with serving(ChainNode()) as node:
        yield node


@pytest.fixture
def members(chain, identities):
    for identity in identities:
        chain.register(identity.commitment, 20)
    return identities


@pytest.fixture
def group(chain, clock) -> ContractMembership:
    return ContractMembership(chain.url, ADDRESS, timeout_s=PATIENCE_S)


def kind_of(told) -> RlnErrorKind:
    return told.value.kind


def test_the_newest_roots_are_accepted_as_far_as_the_contract_remembers_them(chain, group, members):
    assert group.refresh()
    roots = [bytes.fromhex(root)[::-1] for root in chain.recent]
    assert len(group.roots) == 5
    assert all(root in group.roots for root in roots)
    assert roots[0] == chain.tree.root


def test_the_window_has_the_roots_of_before_and_at_most_50(chain, group, clock, identities):
    seen = []
    for number in range(55):
        chain.register((1_000 + number).to_bytes(32, "little"), 1)
        seen.append(chain.tree.root)
        clock.now_s += 10
        assert group.refresh()
    assert len(group.roots) == 50
    assert [root in group.roots for root in seen] == [False] * 5 + [True] * 50


def test_a_contract_that_remembers_no_roots_is_asked_for_its_newest(chain, group, members):
    chain.remembers = False
    assert group.refresh()
    assert chain.asked == [RECENT_ROOTS, ROOT]
    assert (len(group.roots), chain.tree.root in group.roots) == (1, True)


def test_roots_are_asked_for_again_only_after_a_while(chain, group, clock, members):
    assert group.refresh()
    assert not group.refresh()
    clock.now_s += 0.9
    assert not group.refresh()
    assert len(chain.asked) == 1
    clock.now_s += 0.1
    assert not group.refresh()
    assert len(chain.asked) == 2


def test_a_member_has_the_path_to_the_newest_root(chain, group, members):
    found = group.member(members[2])
    assert (found.identity, found.limit) == (members[2], 20)
    assert found.path == chain.tree.path(2)
    assert found.path.root in group.roots


def test_a_path_is_used_until_its_root_is_no_fresh_one(chain, group, clock, members):
    first = group.member(members[0])
    asked = len(chain.asked)
    assert group.member(members[0]) is first
    assert len(chain.asked) == asked
    for number in range(3):
        chain.register((2_000 + number).to_bytes(32, "little"), 1)
        clock.now_s += 10
        found = group.member(members[0])
        assert (found is first) == (number < 2)
    assert found.path == chain.tree.path(0)


def test_an_identity_outside_the_group_raises_an_error_until_it_joins(chain, group, clock, members):
    chain.members.clear()
    with pytest.raises(RlnError, match=f"{members[0].commitment.hex()} is no member of {ADDRESS.lower()}") as told:
        group.member(members[0])
    assert kind_of(told) is RlnErrorKind.NOT_READY
    chain.register(members[0].commitment, 3)
    assert group.member(members[0]).limit == 3


def test_a_member_that_joins_between_two_calls_gets_a_path(chain, group, members):
    group.refresh()
    joined = []

    def join(selector):
        if selector == MERKLE_PROOF and not joined:
            joined.append(chain.register((77).to_bytes(32, "little"), 1))

    chain.before = join
    assert group.member(members[1]).path.root == chain.tree.root


def test_a_group_in_a_contract_serves_signers_and_validators_as_one_in_a_file_does(
    chain, group, members, prover, verifier, tmp_path
):
    of_contract: RlnGroup = group
    with MessageIds.create(tmp_path / "ids.db", first_epoch=0) as ids:
        membership = RlnMembership(members[0], of_contract, ids, prover)
        proof = SignalProof.decode(membership.generate_proof(b"signal", NOW_MS))
        assert membership.epoch_quota(NOW_MS).remaining == 19
    assert proof.root in of_contract.roots
    assert verifier.verify(proof, b"signal")
    validator = ProofValidator(of_contract.network, of_contract.roots, verifier)
    assert validator.admit(proof, NOW_MS) is None


def test_the_chain_is_compared_before_anything_else_is_asked(chain, members, clock):
    right = ContractMembership(chain.url, ADDRESS, chain_id=CHAIN_ID)
    assert right.refresh()
    assert chain.asked == ["eth_chainId", RECENT_ROOTS]
    chain.asked.clear()
    wrong = ContractMembership(chain.url, ADDRESS, chain_id=1)
    with pytest.raises(ConfigurationError, match=f"is a node of chain {CHAIN_ID}, not 1"):
        wrong.refresh()
    with pytest.raises(RlnError) as told:
        wrong.member(members[0])
    assert kind_of(told) is RlnErrorKind.PERMANENT
    assert set(chain.asked) == {"eth_chainId"}


NO_ELEMENT = word(FIELD_ORDER)


@pytest.mark.parametrize(
    ("selector", "lie", "said"),
    [
        (RECENT_ROOTS, word(1) * 4 + NO_ELEMENT, r"getRecentRoots\(\) gave is not below the order"),
        (RECENT_ROOTS, word(1)[:-2], r"getRecentRoots\(\) gave 31 bytes, not whole words"),
        (RECENT_ROOTS, "".join(word(number) for number in range(1, 52)), "gave 51 roots"),
        (RECENT_ROOTS, "xy", "no bytes in hex digits"),
        (ROOT, NO_ELEMENT, r"root\(\) gave is not below the order"),
        (ROOT, word(1) * 2, r"root\(\) gave 64 bytes, not 32"),
        (ROOT, "", "is there a contract at"),
    ],
)
def test_a_root_that_cannot_be_is_an_error_and_the_roots_stay(chain, group, clock, members, selector, lie, said):
    group.refresh()
    before = [bytes.fromhex(root)[::-1] for root in chain.recent]
    chain.remembers = selector == RECENT_ROOTS
    chain.lies[selector] = lambda: lie
    chain.register((77).to_bytes(32, "little"), 1)
    clock.now_s += 10
    with pytest.raises(DecodeError, match=said):
        group.refresh()
    assert len(group.roots) == 5
    assert all(root in group.roots for root in before)


@pytest.mark.parametrize(
    ("selector", "lie", "said"),
    [
        (IS_MEMBER, word(1) * 2, "gave 64 bytes, not 32"),
        (MEMBERSHIP, word(20) + word(0), "gave 64 bytes, not 96"),
        (MEMBERSHIP, word(0) * 3, "do not belong together"),
        (MEMBERSHIP, word(21) + word(0) + word(1), "do not belong together"),
        (MERKLE_PROOF, word(1) * 20, "leads to a root that the contract has not"),
        (MERKLE_PROOF, word(1) * 19, "gave 608 bytes, not 640"),
        (MERKLE_PROOF, word(1) * 19 + NO_ELEMENT, "is not below the order"),
        (MERKLE_PROOF, None, "execution reverted"),
    ],
)
def test_an_invalid_membership_has_no_path(chain, group, members, selector, lie, said):
    chain.lies[selector] = lambda: lie
    with pytest.raises(RlnError, match=said) as told:
        group.member(members[0])
    assert kind_of(told) is RlnErrorKind.TRANSIENT


def test_an_address_without_a_contract_raises_an_error(chain, clock):
    other = ContractMembership(chain.url, "0x" + "11" * 20)
    with pytest.raises(DecodeError, match="is there a contract at 0x1111"):
        other.refresh()


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (status(429), NodeUnavailableError, "HTTP status 429"),
        (status(500, b"{}"), NodeUnavailableError, "HTTP status 500"),
        (status(200), DecodeError, "is no JSON-RPC"),
        (status(200, b"[]"), DecodeError, "is no JSON-RPC"),
        (status(200, b'{"jsonrpc":"2.0","id":99,"result":"0x"}'), DecodeError, "is to call 99, not 1"),
        (status(200, b'{"jsonrpc":"2.0","id":1}'), DecodeError, "no bytes in hex digits"),
        (status(200, b" " * 70_000), NodeUnavailableError, "an answer of more than 65536 bytes"),
        (status(302, b""), NodeUnavailableError, "HTTP status 302"),
        (lambda handler: handler.wfile.write(b"SSH-2.0\r\n\r\n"), NodeUnavailableError, "BadStatusLine"),
        (lambda handler: handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: "), DecodeError, "is no JSON-RPC"),
        (lambda handler: None, NodeUnavailableError, "RemoteDisconnected"),
        (
            lambda handler: handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000),
            NodeUnavailableError,
            "LineTooLong",
        ),
    ],
)
def test_an_invalid_answer_raises_an_error(chain, group, answer, error, said):
    chain.raw = answer
    with pytest.raises(error, match=said):
        group.refresh()


def test_a_node_that_stalls_is_left_when_the_time_is_over(chain):
    chain.raw = silent(chain)
    group = ContractMembership(chain.url, ADDRESS, timeout_s=0.2)
    with pytest.raises(NodeUnavailableError, match=r"no answer to eth_call within 0\.2 s"):
        group.refresh()


def test_after_a_failure_the_node_is_asked_again_5_s_later(chain, group, clock):
    chain.raw = status(503)
    with pytest.raises(NodeUnavailableError, match=r"HTTP status 503$"):
        group.refresh()
    chain.raw = None
    clock.now_s += 4
    with pytest.raises(NodeUnavailableError, match=r"HTTP status 503; asked again in 1\.0 s"):
        group.refresh()
    clock.now_s += 1
    assert group.refresh()


def test_roots_survive_an_outage_of_the_chains_node(chain, group, clock, members):
    found = group.member(members[0])
    chain.raw = status(503)
    clock.now_s += 100
    with pytest.raises(RlnError) as told:
        group.member(members[0])
    assert kind_of(told) is RlnErrorKind.TRANSIENT
    assert found.path.root in group.roots
    chain.raw = None
    clock.now_s += 100
    assert group.member(members[0]) is found


def test_a_node_that_is_not_there_is_an_error(clock):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        group = ContractMembership(f"http://127.0.0.1:{taken.getsockname()[1]}", ADDRESS)
        with pytest.raises(NodeUnavailableError, match="ConnectionRefusedError"):
            group.refresh()


@pytest.mark.parametrize("answer", [status(503), status(200), None], ids=["busy", "wrong", "right"])
def test_the_key_in_the_address_is_in_no_text(chain, group, caplog, answer):
    caplog.set_level(logging.DEBUG)
    chain.raw = answer
    texts = [repr(group)]
    try:
        group.refresh()
    except (NodeUnavailableError, DecodeError) as error:
        texts.append(str(error))
    assert set(chain.paths) == {"/v3/a-secret-key"}
    assert "a-secret-key" not in "".join([*texts, caplog.text])


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_end_in_a_typed_error(shared_chain, data):
    shared_chain.raw = lambda handler: handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n" + data)
    group = ContractMembership(shared_chain.url, ADDRESS, timeout_s=PATIENCE_S)
    with pytest.raises((NodeUnavailableError, DecodeError)):
        group.refresh()


@pytest.fixture(scope="module")
def shared_chain(compiled):
    with serving(ChainNode()) as node:
        yield node
