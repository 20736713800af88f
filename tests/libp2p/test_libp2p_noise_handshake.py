from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.libp2p.errors import HandshakeError, Libp2pError
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.libp2p.noise.handshake import NoiseCredentials, NoiseHandshake
from fairway.libp2p.noise.pattern import Role, XXHandshake, generate_noise_key
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.proto import noise_pb2

ALICE = IdentityKey.from_secret(b"\x0a" * 32)
BOB = IdentityKey.from_secret(b"\x0b" * 32, KeyType.SECP256K1)
CREDENTIALS = {Role.INITIATOR: NoiseCredentials.make(ALICE), Role.RESPONDER: NoiseCredentials.make(BOB)}
ALICE_ID, BOB_ID = PeerId.from_public_key(ALICE.public_key), PeerId.from_public_key(BOB.public_key)


def side(role, **options):
    options = {"credentials": CREDENTIALS[role], "ephemeral": generate_noise_key(), **options}
    return NoiseHandshake(role=role, **options)


def pair(initiator=(), responder=()):
    return side(Role.INITIATOR, **dict(initiator)), side(Role.RESPONDER, **dict(responder))


def run(alice, bob):
    """Exchange all messages; return what each side ends with."""
    assert bob.receive_data(alice.data_to_send()) is None
    at_alice = alice.receive_data(bob.data_to_send())
    return at_alice, bob.receive_data(alice.data_to_send())


def frame(message):
    return len(message).to_bytes(2) + message


def lying_responder(payload, bob_static=None):
    """Return what an initiator gets from a responder that puts ``payload`` into its message."""
    alice = side(Role.INITIATOR)
    liar = XXHandshake(role=Role.RESPONDER, static=bob_static or generate_noise_key(), ephemeral=generate_noise_key())
    liar.read_message(alice.data_to_send()[2:])
    return alice, frame(liar.write_message(payload))


def refused(handshake, data, words):
    with pytest.raises(HandshakeError, match=words):
        handshake.receive_data(data)


def test_both_sides_know_each_other_and_share_a_session():
    at_alice, at_bob = run(*pair())
    assert (at_alice.peer_id, at_bob.peer_id) == (BOB_ID, ALICE_ID)
    assert at_alice.session.handshake_hash == at_bob.session.handshake_hash
    assert at_bob.session.receive_data(at_alice.session.encrypt(b"to bob")) == b"to bob"
    assert at_alice.session.receive_data(at_bob.session.encrypt(b"to alice")) == b"to alice"


@examples(0.3)
@given(st.data())
def test_two_sides_agree_however_reads_are_cut(data):
    alice, bob = pair()
    wires = {alice: bytearray(), bob: bytearray()}
    done = {}
    for _ in range(2_000):
        wires[bob] += alice.data_to_send()
        wires[alice] += bob.data_to_send()
        ready = [end for end, wire in wires.items() if wire and end not in done]
        if not ready:
            break
        end = data.draw(st.sampled_from(ready))
        size = data.draw(st.integers(1, len(wires[end])))
        piece = bytes(wires[end][:size])
        del wires[end][:size]
        if (secured := end.receive_data(piece)) is not None:
            done[end] = secured
    assert (done[alice].peer_id, done[bob].peer_id) == (BOB_ID, ALICE_ID)
    assert done[bob].session.receive_data(done[alice].session.encrypt(b"x")) == b"x"


def run_with_a_change(number, position, bit):
    """Exchange all messages, with one bit of one of them flipped on the way; return what the responder ends with."""
    alice, bob = pair()
    for index, (sender, receiver) in enumerate([(alice, bob), (bob, alice), (alice, bob)]):
        message = bytearray(sender.data_to_send())
        if index == number:
            message[position % len(message)] ^= 1 << bit
        secured = receiver.receive_data(bytes(message))
    return secured


@examples(0.6)
@given(st.integers(0, 2), st.integers(0, 1_000), st.integers(0, 7))
def test_a_changed_handshake_never_succeeds(number, position, bit):
    with suppress(HandshakeError):
        # A frame whose length has grown is awaited without end.
        assert run_with_a_change(number, position, bit) is None


@examples(0.6)
@given(st.sampled_from(Role), st.lists(st.binary(max_size=120), max_size=4), st.booleans())
def test_garbage_raises_nothing_but_a_handshake_error(role, pieces, framed):
    end = side(role)
    try:
        for piece in pieces:
            assert end.receive_data(frame(piece) if framed else piece) is None
    except Libp2pError as error:
        assert isinstance(error, HandshakeError)  # noqa: PT017 - the class is what is claimed


def test_a_peer_that_is_not_the_expected_one_learns_nothing_of_the_initiator():
    alice, bob = pair(initiator={"expected_peer": ALICE_ID})
    bob.receive_data(alice.data_to_send())
    refused(alice, bob.data_to_send(), "the node has another key than before")
    assert alice.data_to_send() == b""


def test_an_identity_that_did_not_sign_this_noise_key_is_refused():
    # The payload of another session: a replay of the peer's signature over its other Noise key.
    alice, message = lying_responder(CREDENTIALS[Role.RESPONDER].payload())
    refused(alice, message, "did not sign")


def test_a_signature_of_another_identity_is_refused():
    static = generate_noise_key()
    mallory = NoiseCredentials.make(IdentityKey.generate(), static)
    payload = noise_pb2.NoiseHandshakePayload(identity_key=BOB.public_key.to_bytes(), identity_sig=mallory.signature)
    alice, message = lying_responder(payload.SerializeToString(), static)
    refused(alice, message, "did not sign")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff" * 40,
        noise_pb2.NoiseHandshakePayload(identity_key=BOB.public_key.to_bytes()).SerializeToString(),
        noise_pb2.NoiseHandshakePayload(identity_sig=b"s").SerializeToString(),
        noise_pb2.NoiseHandshakePayload(identity_key=b"no key", identity_sig=b"s").SerializeToString(),
        noise_pb2.NoiseHandshakePayload(identity_key=b"\x08\x01\x12\x01x", identity_sig=b"s").SerializeToString(),
    ],
)
def test_a_payload_without_a_usable_identity_is_refused(payload):
    alice, message = lying_responder(payload)
    refused(alice, message, "payload")


def test_a_point_of_low_order_is_refused():
    refused(side(Role.RESPONDER), frame(bytes(32)), "gives no secret")


def test_a_message_that_was_sealed_for_another_handshake_is_refused():
    alice, bob = pair()
    bob.receive_data(side(Role.INITIATOR).data_to_send())
    refused(alice, bob.data_to_send(), "not sealed for this handshake")


@pytest.mark.parametrize("size", [0, 1, 31])
def test_a_message_that_is_too_short_is_truncated(size):
    refused(side(Role.RESPONDER), frame(bytes(size)), "at least 32 are needed")


def test_a_message_that_claims_too_much_is_refused_before_it_arrives():
    refused(side(Role.RESPONDER), b"\xff\xff", "claims 65535 bytes")
