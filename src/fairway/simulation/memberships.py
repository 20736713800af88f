"""RLN memberships of simulated participants, and what the network asks of proofs.

The membership is the one that ships, with its counter of message ids in a file that outlives its program. Only the
zero-knowledge proof, which takes 0.1 s and more, is left out: shares and nullifiers are made with another hash than the
circuit's, by the same arithmetic. So whoever signs two signals under one id gives its secret away here, too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from fairway.errors import RlnError, RlnErrorKind
from fairway.protocol.ratelimit import EpochQuota
from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import FIELD_ORDER, ZERO, element, hash_to_field, number_of
from fairway.rln.identity import Identity
from fairway.rln.membership import RlnMembership
from fairway.rln.message_ids import MessageIds
from fairway.rln.nullifiers import DoubleSignal, NullifierLog
from fairway.rln.proof import PROOF_BYTES, SignalProof
from fairway.rln.proving import RlnMember
from fairway.rln.tree import TREE_DEPTH, MerklePath, RootWindow
from fairway.rln.validation import ProofRefusal, ProofValidator
from fairway.units import NS_PER_MS
from fairway.waku.node import RoutedMessage

_NETWORK: Final = RlnNetwork(max_epoch_gap=0)
_OTHERS_SHARE: Final = 4
"""Another program with the same membership uses one in so many of its message ids."""
_OTHERS_SIGN: Final = 0.1
"""How often it has signed something when the quota or a proof is asked for."""


def identity_of(name: str) -> Identity:
    """Return the identity of a simulated member: its secret follows from its name."""
    secret = hash_to_field(name.encode())
    return Identity(trapdoor=ZERO, nullifier=ZERO, secret=secret, commitment=hash_to_field(secret))


class StubGroup:
    """A group that everybody is in, with limits of their own."""

    network = _NETWORK
    roots = RootWindow([ZERO])

    def __init__(self, limit: int) -> None:
        """Let each member send ``limit`` messages in an epoch."""
        self._limit = limit

    def member(self, identity: Identity) -> RlnMember:
        """Return a member of the group, whoever it is."""
        path = MerklePath(root=ZERO, siblings=(ZERO,) * TREE_DEPTH, bits=bytes(TREE_DEPTH))
        return RlnMember(identity=identity, limit=self._limit, path=path)

    def refresh(self) -> bool:
        """Return that nothing has changed."""
        return False


class StubProver:
    """Makes shares as the circuit does, and no proof of them."""

    def prepare(self, member: RlnMember) -> None:
        """Proofs of this kind share nothing."""

    def prove(self, member: RlnMember, message_id: int, signal: bytes, epoch: int) -> SignalProof:
        """Return what goes beside a signal: of two signals under one id the secret follows."""
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
            identifier=_NETWORK.padded_identifier,
        )


class _Unsure:
    """A membership that fails now and then, and that another program may use, too."""

    def __init__(
        self, membership: RlnMembership, dice: Random, failures: float, others_sign: Callable[[int], object]
    ) -> None:
        self._membership = membership
        self._dice = dice
        self._failures = failures
        self._others_sign = others_sign

    def epoch_quota(self, now_ms: int) -> EpochQuota:
        self._others_sign(now_ms)
        self._may_fail()
        return self._membership.epoch_quota(now_ms)

    def generate_proof(self, signal: bytes, now_ms: int) -> bytes:
        self._others_sign(now_ms)
        self._may_fail()
        proof = self._membership.generate_proof(signal, now_ms)
        # What fails here has cost a message id.
        self._may_fail()
        return proof

    def _may_fail(self) -> None:
        if self._dice.random() < self._failures / 2:
            kind = self._dice.choice((RlnErrorKind.NOT_READY, RlnErrorKind.TRANSIENT))
            raise RlnError(kind, "the membership fails for the moment")


@dataclass(frozen=True, slots=True)
class _Member:
    identity: Identity
    limit: int
    ids: Path


class Memberships:
    """The memberships of a world, each of which its participant opens anew in each life."""

    def __init__(self, limit: int, seed: int) -> None:
        """Let every other one allow ``limit`` messages in an epoch, and the rest twice as many."""
        self._limit = limit
        self._seed = seed
        self._folder = TemporaryDirectory(prefix="fairway-world-")
        self._members: dict[str, _Member] = {}
        self._open: dict[str, RlnMembership] = {}
        self._lives: Counter[str] = Counter()
        self._others: dict[tuple[str, int], list[int]] = {}
        """When another program signed something with a participant's membership, by name and epoch."""
        self.others_signed: Callable[[str, SignalProof], object] = lambda _name, _proof: None
        """Called with what another program signs with a participant's membership."""

    def limit_of(self, name: str) -> int:
        """Return how many messages a participant's membership allows in an epoch."""
        return self._member(name).limit

    def open(self, name: str, *, failures: float = 0.0, is_shared: bool = False) -> _Unsure:
        """Return the membership for a new life of a participant; the life before has ended.

        ``failures`` is the share of proofs that fail for the moment; with ``is_shared`` another program uses it, too.
        """
        member = self._member(name)
        self._close(name)
        ids = MessageIds(member.ids)
        membership = self._open[name] = RlnMembership(member.identity, StubGroup(member.limit), ids, StubProver())
        self._lives[name] += 1
        dice = Random(f"membership/{self._seed}/{name}/{self._lives[name]}")  # noqa: S311 - reproducible, and guards nothing
        share = _OTHERS_SIGN if is_shared else 0.0

        def others_sign(now_ms: int) -> None:
            used = self._others.setdefault((name, _NETWORK.epoch(now_ms)), [])
            if len(used) < member.limit // _OTHERS_SHARE and dice.random() < share:
                with suppress(RlnError):
                    proof = membership.generate_proof(dice.randbytes(32), now_ms)
                    used.append(now_ms)
                    self.others_signed(name, SignalProof.decode(proof))

        return _Unsure(membership, dice, failures, others_sign)

    def used_by_others(self, name: str, epoch: int, before_ms: int | None = None) -> int:
        """Return how many messages of an epoch another program sent with a membership, perhaps only before some time.

        Times are by the participant's clock.
        """
        used = self._others.get((name, epoch), [])
        return sum(before_ms is None or at_ms < before_ms for at_ms in used)

    def close(self) -> None:
        """Close all of them, and forget what was used."""
        for name in list(self._open):
            self._close(name)
        self._folder.cleanup()

    def _member(self, name: str) -> _Member:
        if name not in self._members:
            ids = Path(self._folder.name) / f"{len(self._members)}.ids"
            MessageIds.create(ids, first_epoch=0).close()
            self._members[name] = _Member(identity_of(name), self._limit * (1 + len(self._members) % 2), ids)
        return self._members[name]

    def _close(self, name: str) -> None:
        if name in self._open:
            self._open.pop(name).close()


class _Believing:
    """Takes each proof for one that holds: none is made."""

    def verify(self, _proof: SignalProof, _signal: bytes) -> bool:
        return True


class ProofRules:
    """What a network that asks for RLN proofs sees of each message that participants hand to their nodes."""

    def __init__(self, limit_of: Callable[[str], int]) -> None:
        """``limit_of`` returns how many messages in an epoch a participant's membership allows."""
        self._limit_of = limit_of
        self._log = NullifierLog()
        self._validator = ProofValidator(_NETWORK, RootWindow([ZERO]), _Believing(), self._log)
        self._used: Counter[tuple[str, int]] = Counter()

    def faults(self, name: str, message: RoutedMessage) -> Iterator[str]:
        """Yield what is wrong with the proof of a message that a participant hands to its node."""
        proof = self._validator.examine(message.message, (message.message.timestamp_ns or 0) // NS_PER_MS)
        if isinstance(proof, ProofRefusal):
            yield proof.detail
        else:
            yield from self.signed(name, proof)

    def signed(self, name: str, proof: SignalProof) -> Iterator[str]:
        """Yield what is wrong with the use that a membership is made of, by its participant or another program."""
        noted = self._log.note(proof)
        if isinstance(noted, DoubleSignal):
            yield "it is the second one under one message id, which gives the secret of the membership away"
        elif noted is None:
            self._used[name, proof.epoch] += 1
            if self._used[name, proof.epoch] == self._limit_of(name) + 1:
                yield f"it is one more than the {self._limit_of(name)} of an epoch that the membership allows"
