"""RLN: the time of a proof, the verifications of a core, and the delay of honest messages amid invalid proofs.

``python -m benchmarks.rln`` needs fairway-rln (``make rln``). The crate's own time is that of the calls into it, with
its partial proof made before. Ours is the time that a channel waits: the group is read, the message id is on the disk,
and the proof is encoded. Both take turns in one run. Invalid proofs come straight to the gate of a node.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from fairway.nodes.node import RoutedMessage
from fairway.nodes.proving import with_proof
from fairway.rln.field import ELEMENT_BYTES, element, hash_to_field
from fairway.rln.identity import RlnIdentity
from fairway.rln.membership import RlnMembership
from fairway.rln.membership_file import MembershipFile
from fairway.rln.proof import SignalProof
from fairway.rln.proving import CircuitVerifier, RlnMember, circuit
from fairway.service.proof_gate import ProofGate
from fairway.wire.waku_message import WakuMessage

_CLUSTER = 16
_SHARD = f"/waku/2/rs/{_CLUSTER}/0"
_TOPIC = "/fairway-bench/1/rln/proto"
_MEMBERS = 20
_LIMIT = 60_000
_FLOODING_CLIENTS = 40
_HONEST_PER_S = 5

_FIRST = """
import sys, time
began = time.perf_counter()
from pathlib import Path
from fairway.rln.identity import RlnIdentity
from fairway.rln.membership import RlnMembership
identity = RlnIdentity.create(lambda size: (1).to_bytes(size, "big"))
with RlnMembership.open(identity, sys.argv[1], Path(sys.argv[1]).with_name("first.ids"), never_used=True) as membership:
    membership.generate_proof(b"signal", time.time_ns() // 1_000_000)
print(time.perf_counter() - began)
"""


class _Bench:
    """A group, and a membership in it."""

    def __init__(self, folder: Path) -> None:
        self.group = folder / "group.json"
        made = MembershipFile.create(self.group)
        self.identities = [
            RlnIdentity.create(lambda size, number=number: number.to_bytes(size, "big"))  # type: ignore[misc]
            for number in range(1, _MEMBERS + 1)
        ]
        for identity in self.identities:
            made.register(identity.commitment, _LIMIT)
        self.members = made
        self.membership = RlnMembership.open(self.identities[0], self.group, folder / "ids", never_used=True)

    def prove(self, count: int) -> tuple[list[float], list[float]]:
        """Return the seconds of proofs of ours, and of the crate alone."""
        member = self.members.member(self.identities[0])
        now_ms = time.time_ns() // 1_000_000
        epoch = self.members.network.epoch(now_ms)
        native = circuit()
        partial = native.prove_partially(self._witness(member, 0, b"partial", epoch))
        self.membership.generate_proof(b"first", now_ms)
        ours, crate = [], []
        for number in range(count):
            signal = b"signal %d" % number
            ours.append(_seconds(lambda: self.membership.generate_proof(signal, now_ms)))  # noqa: B023 - called at once
            witness = self._witness(member, number, signal, epoch)
            crate.append(_seconds(lambda: native.finish(partial, witness)))  # noqa: B023
        return ours, crate

    def verify(self, count: int) -> tuple[float, float]:
        """Return the seconds and the seconds of CPU of a verification, with the hash of its signal."""
        now_ms = time.time_ns() // 1_000_000
        signal = b"x" * 500
        proof = SignalProof.decode(self.membership.generate_proof(signal, now_ms))
        verifier = CircuitVerifier(self.members.network)
        if not verifier.verify(proof, signal):
            raise SystemExit("a proof of ours does not hold")
        cpu_s = time.process_time()
        taken = [_seconds(lambda: verifier.verify(proof, signal)) for _ in range(count)]
        return statistics.median(taken), (time.process_time() - cpu_s) / count

    def first_proofs(self, count: int) -> tuple[list[float], float]:
        """Return the seconds from the first import of a new process to its first proof, and the CPU-seconds of one."""
        taken = []
        before_s = _cpu_of_children_s()
        for _ in range(count):
            ran = subprocess.run([sys.executable, "-c", _FIRST, self.group], capture_output=True, text=True, check=True)
            taken.append(float(ran.stdout))
        return taken, (_cpu_of_children_s() - before_s) / count

    def _witness(self, member: RlnMember, message_id: int, signal: bytes, epoch: int) -> bytes:
        return b"".join(
            (
                member.identity.secret,
                element(member.limit),
                element(message_id),
                hash_to_field(signal),
                self.members.network.external_nullifier(epoch),
                *member.path.siblings,
                member.path.bits,
            )
        )


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _seconds(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _message(payload: bytes) -> RoutedMessage:
    return RoutedMessage.of(_SHARD, WakuMessage(payload=payload, content_topic=_TOPIC, timestamp_ns=time.time_ns()))


def _proven(bench: _Bench, count: int) -> list[RoutedMessage]:
    async def work() -> list[RoutedMessage]:
        made = [await with_proof(bench.membership, _message(b"%d" % number)) for number in range(count)]
        return [message for message in made if isinstance(message, RoutedMessage)]

    return asyncio.run(work())


def _forged(template: RoutedMessage, number: int) -> RoutedMessage:
    """Return a message of which all is right that can be seen without mathematics."""
    proof = SignalProof.decode(template.message.rate_limit_proof or b"")
    changed = dataclasses.replace(proof, nullifier=number.to_bytes(ELEMENT_BYTES, "little")).encode()
    return RoutedMessage.of(_SHARD, structs.replace(template.message, rate_limit_proof=changed))


async def _flood_gate(
    bench: _Bench, honest: list[RoutedMessage], forged: list[RoutedMessage], per_s: float
) -> tuple[list[float], Counter[str]]:
    """Let forged messages come to a gate at a rate; return what honest ones took, and what became of the others."""
    gate = ProofGate(MembershipFile(bench.group))
    gate.start()
    taken: list[float] = []

    async def one_honest(message: RoutedMessage, number: int) -> None:
        await asyncio.sleep(number / _HONEST_PER_S)
        began_s = time.perf_counter()
        if (refusal := await gate.judge("honest", message)) is not None:
            raise SystemExit(f"an honest message was refused: {refusal.detail}")
        taken.append(time.perf_counter() - began_s)

    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number, message in enumerate(honest):
            tasks.create_task(one_honest(message, number))
        for number, message in enumerate(forged):
            if number % 10 == 0:
                await asyncio.sleep(max(0, began_s + number / per_s - time.perf_counter()))
            tasks.create_task(gate.judge(f"flood {number % _FLOODING_CLIENTS}", message))
    counted = gate.statistics()
    await gate.close()
    return taken, Counter({fault.value: count for fault, count in counted.refused.items() if count})


def _measure_gate(bench: _Bench, per_s: float, for_s: float) -> None:
    messages = _proven(bench, round(for_s * _HONEST_PER_S) + 1)
    template = messages.pop()
    forged = [_forged(template, number) for number in range(1, round(per_s * for_s) + 1)]
    taken, refused = asyncio.run(_flood_gate(bench, messages, forged, per_s))
    ordered = sorted(taken)
    print(
        f"gate: {per_s:.0f} forged proofs a second, refused {dict(refused)}; honest messages: all {len(taken)} taken, "
        f"p50 {1_000 * statistics.median(taken):.0f} ms, p95 {1_000 * ordered[int(0.95 * (len(ordered) - 1))]:.0f} ms"
    )


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proofs", type=int, default=60)
    parser.add_argument("--verifications", type=int, default=600)
    parser.add_argument("--flood-per-s", type=float, default=1_000)
    parser.add_argument("--flood-for-s", type=float, default=10)
    asked = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench = _Bench(folder)
        ours, crate = bench.prove(asked.proofs)
        ratio = statistics.median(ours) / statistics.median(crate)
        print(
            f"proof p50: {1_000 * statistics.median(ours):.1f} ms, the crate alone "
            f"{1_000 * statistics.median(crate):.1f} ms in the same run: {ratio:.2f} x"
        )
        taken_s, cpu_s = bench.verify(asked.verifications)
        print(f"verification p50: {1_000 * taken_s:.2f} ms, {1 / cpu_s:.0f} a second of CPU")
        first, cpu_s = bench.first_proofs(5)
        print(f"first proof after start: {statistics.median(first):.2f} s, {cpu_s:.2f} s of CPU, of {len(first)}")
        _measure_gate(bench, asked.flood_per_s, asked.flood_for_s)
        bench.membership.close()


if __name__ == "__main__":
    main()
