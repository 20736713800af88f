"""Signals with real proofs: what holds, what every change of a field does, and what two signals give away."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from msgspec import structs

from fairway.errors import RlnError, RlnErrorKind
from fairway.protocol.ratelimit import rln_signal
from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import element, number_of, poseidon
from fairway.rln.membership_file import MembershipFile
from fairway.rln.proof import SignalProof
from fairway.rln.proving import CircuitVerifier
from fairway.rln.tree import RECENT_ROOTS, RootWindow
from fairway.rln.validation import ProofFault, ProofRefusal, ProofValidator
from fairway.wire.waku_message import WakuMessage

NOW_MS = 1_791_000_000_000
EPOCH = 2_985_000
TOPIC = "/fairway/1/rln/proto"


@pytest.fixture(scope="module")
def proven(prover, identities, tmp_path_factory):
    """Return what proves messages of a member; a proof holds in each test's group, which has the same members."""
    group = MembershipFile.create(tmp_path_factory.mktemp("group") / "group.json")
    for identity in identities:
        group.register(identity.commitment, 20)
    member = group.member(identities[2])

    def prove(payload: bytes, message_id: int, epoch: int) -> WakuMessage:
        timestamp_ns = NOW_MS * 1_000_000
        proof = prover.prove(member, message_id, rln_signal(payload, TOPIC, timestamp_ns), epoch)
        return WakuMessage(
            payload=payload, content_topic=TOPIC, timestamp_ns=timestamp_ns, rate_limit_proof=proof.encode()
        )

    return prove


@pytest.fixture(scope="module")
def message(proven):
    """Return a message with a proof, which is made once: to prove takes far longer than all that is tested here."""
    made = cache(proven)

    def make(payload: bytes = b"hello", *, message_id: int = 0, epoch: int = EPOCH) -> WakuMessage:
        return made(payload, message_id, epoch)

    return make


def with_field(message: WakuMessage, **changes) -> WakuMessage:
    proof = SignalProof.decode(message.rate_limit_proof)
    return structs.replace(message, rate_limit_proof=replace(proof, **changes).encode())


def judge(validator: ProofValidator, message: WakuMessage, now_ms: int) -> SignalProof | ProofRefusal:
    """Return the proof of a message that passes all steps, or the refusal."""
    proof = validator.examine(message, now_ms)
    if isinstance(proof, ProofRefusal):
        return proof
    return validator.repeated(proof) or validator.verify(message, proof) or validator.admit(proof, now_ms) or proof


def fault(judged) -> ProofFault | None:
    return judged.fault if isinstance(judged, ProofRefusal) else None


def test_a_message_of_a_member_is_admitted(validator, message):
    sent = message()
    assert judge(validator, sent, NOW_MS) == SignalProof.decode(sent.rate_limit_proof)


def test_each_message_id_of_an_epoch_admits_one_message(validator, message):
    log = [fault(judge(validator, message(b"%d" % number, message_id=number), NOW_MS)) for number in range(3)]
    assert log == [None, None, None]


@pytest.mark.parametrize("changes", [{"payload": b"hullo"}, {"content_topic": "/b/1/c/proto"}, {"timestamp_ns": 1}])
def test_a_proof_holds_for_its_own_message_alone(validator, message, changes):
    assert fault(judge(validator, structs.replace(message(), **changes), NOW_MS)) is ProofFault.INVALID


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("root", ProofFault.UNKNOWN_ROOT),
        ("share_x", ProofFault.INVALID),
        ("share_y", ProofFault.INVALID),
        ("nullifier", ProofFault.INVALID),
    ],
)
def test_an_element_that_was_changed_is_refused(validator, message, name, expected):
    sent = message()
    was = getattr(SignalProof.decode(sent.rate_limit_proof), name)
    assert fault(judge(validator, with_field(sent, **{name: element(number_of(was) ^ 1)}), NOW_MS)) is expected


@pytest.mark.parametrize("at", [0, 31, 32, 95, 96, 127])
def test_a_proof_that_was_changed_is_refused(validator, message, at):
    sent = message()
    changed = bytearray(SignalProof.decode(sent.rate_limit_proof).proof)
    changed[at] ^= 1
    assert fault(judge(validator, with_field(sent, proof=bytes(changed)), NOW_MS)) is ProofFault.INVALID


def test_a_proof_under_another_epoch_or_network_is_refused(validator, message):
    sent = message()
    assert fault(judge(validator, with_field(sent, epoch=EPOCH + 1), NOW_MS)) is ProofFault.INVALID
    assert fault(judge(validator, with_field(sent, identifier=bytes(32)), NOW_MS)) is ProofFault.OTHER_NETWORK
    elsewhere = CircuitVerifier(RlnNetwork(identifier=b"another"))
    relabelled = SignalProof.decode(with_field(sent, identifier=b"another".ljust(32, b"\0")).rate_limit_proof)
    assert not elsewhere.verify(relabelled, rln_signal(sent.payload, TOPIC, sent.timestamp_ns))


@pytest.mark.parametrize(
    ("epoch", "expected"), [(-2, ProofFault.EPOCH_GAP), (-1, None), (1, None), (2, ProofFault.EPOCH_GAP)]
)
def test_an_epoch_may_be_one_off(validator, message, epoch, expected):
    assert fault(judge(validator, message(epoch=EPOCH + epoch), NOW_MS)) is expected


def test_a_message_without_a_proof_or_with_other_bytes_is_refused(validator):
    bare = WakuMessage(payload=b"x", content_topic=TOPIC)
    assert fault(judge(validator, bare, NOW_MS)) is ProofFault.MISSING
    assert fault(judge(validator, structs.replace(bare, rate_limit_proof=b"\xff"), NOW_MS)) is ProofFault.MALFORMED


def test_a_proof_with_a_root_of_a_moment_ago_is_admitted_and_one_of_long_ago_is_not(group, message, verifier):
    sent = message()
    old = group.root
    group.register(element(77), 1)
    assert fault(judge(ProofValidator(group.network, group.roots, verifier), sent, NOW_MS)) is None
    window = RootWindow([old, *(element(number) for number in range(RECENT_ROOTS))])
    assert fault(judge(ProofValidator(group.network, window, verifier), sent, NOW_MS)) is ProofFault.UNKNOWN_ROOT


def test_two_messages_under_one_id_reveal_the_secret(validator, message, identities):
    assert fault(judge(validator, message(b"one"), NOW_MS)) is None
    refused = judge(validator, message(b"two"), NOW_MS)
    assert refused.fault is ProofFault.DOUBLE_SIGNAL
    assert refused.double_signal.secret == identities[2].secret
    assert poseidon(refused.double_signal.secret) == identities[2].commitment
    assert "secret" not in repr(refused)


def test_a_repeated_message_is_a_duplicate_and_reveals_nothing(validator, proven):
    first, second = (proven(b"hello", 0, EPOCH) for _ in range(2))
    assert first.rate_limit_proof != second.rate_limit_proof  # proofs of one signal differ
    assert fault(judge(validator, first, NOW_MS)) is None
    refused = judge(validator, second, NOW_MS)
    assert (refused.fault, refused.double_signal) == (ProofFault.DUPLICATE, None)


def test_the_same_id_of_another_epoch_or_member_is_no_double_signal(validator, message, prover, group, identities):
    signal = rln_signal(b"a", TOPIC, 1)
    found = {
        prover.prove(group.member(identity), 0, signal, epoch).nullifier
        for identity in identities[:2]
        for epoch in (EPOCH, EPOCH + 1)
    }
    assert len(found) == 4


def test_a_member_whose_limit_is_not_that_of_the_group_proves_nothing(prover, member):
    with pytest.raises(RlnError) as told:
        prover.prove(replace(member, limit=21), 20, b"signal", EPOCH)
    assert told.value.kind is RlnErrorKind.NOT_READY
