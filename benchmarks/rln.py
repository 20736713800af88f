"""RLN: how long a proof takes, how many a core verifies, and whom a flood of invalid proofs delays.

``python -m benchmarks.rln`` needs fairway-rln (``make rln``). The crate's own time is that of the calls into it, with
its partial proof made before; ours is what a channel waits for: the group is looked at, the message id is on the disk,
and the proof is encoded. Both take turns in one run. Seconds of CPU say what a core does where other programs run
beside, too.

There are three floods. In the first, proofs come straight to the gate of a node, as many as asked for. In the second, a
node (``fairway node --rln``), the flooding clients and an honest one are processes of their own; a client waits for
answers, so that how many proofs come depends on the machine. In the third, a relay peer floods such a node, and comes
again under another key whenever it is disconnected; honest are two relay peers that know each other through the node.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from fairway.libp2p.errors import Libp2pError
from fairway.libp2p.gossipsub.codec import Message, encode_message, publish_frame
from fairway.libp2p.host import Host
from fairway.libp2p.multiaddr import Multiaddr
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.nodes.protocols.relay import RELAY_PROTOCOL, Relay
from fairway.nodes.protocols.rules import MessageRules
from fairway.nodes.proving import with_proof
from fairway.rln.field import ELEMENT_BYTES, element, hash_to_field
from fairway.rln.identity import Identity
from fairway.rln.membership import RlnMembership
from fairway.rln.membership_file import MembershipFile
from fairway.rln.proof import SignalProof
from fairway.rln.proving import CircuitVerifier, RlnMember, circuit
from fairway.service.proof_gate import ProofGate
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LightPushRequest,
    decode_lightpush_response,
    encode_lightpush_request,
)
from fairway.wire.waku_message import WakuMessage, decode_waku_message

_CLUSTER = 16
_SHARD = f"/waku/2/rs/{_CLUSTER}/0"
_TOPIC = "/fairway-bench/1/rln/proto"
_MEMBERS = 20
_LIMIT = 60_000
_FLOODING_CLIENTS = 40
_UNDER_WAY = 30
"""Requests that a flooding client has under way at once."""
_HONEST_PER_S = 5
_PATIENCE_S = 60.0
_BREATH_S = 0.01

_FIRST = """
import sys, time
began = time.perf_counter()
from pathlib import Path
from fairway.rln.identity import Identity
from fairway.rln.membership import RlnMembership
identity = Identity.create(lambda size: (1).to_bytes(size, "big"))
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
            Identity.create(lambda size, number=number: number.to_bytes(size, "big"))  # type: ignore[misc]
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


@contextmanager
def _node(group: Path, folder: Path) -> Iterator[str]:
    """Run a node that asks for proofs; yield its address."""
    command = [sys.executable, "-m", "fairway", "node", "--json", "--until-stdin-closes", "--no-rest"]
    command += ["--cluster", str(_CLUSTER), "--shards", "1", "--requests-per-second", "0"]
    command += ["--state", str(folder / "node"), "--rln", str(group)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["multiaddrs"][0]
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(_PATIENCE_S)


def _message(payload: bytes) -> RoutedMessage:
    return RoutedMessage.of(_SHARD, WakuMessage(payload=payload, content_topic=_TOPIC, timestamp_ns=time.time_ns()))


async def _push(host: Host, peer: Multiaddr, encoded: bytes) -> int:
    """Push a message, and return the status code."""
    assert peer.peer_id is not None
    request = LightPushRequest(request_id="bench", pubsub_topic=_SHARD, message_bytes=encoded)
    answer = await PeerRequests(host).ask(
        peer.peer_id,
        LIGHTPUSH_PROTOCOL,
        encode_lightpush_request(request),
        max_response_bytes=1 << 16,
        timeout_s=_PATIENCE_S,
    )
    return decode_lightpush_response(answer).status_code


async def _flood(address: str, template: bytes, per_s: float, for_s: float) -> None:
    """Push forged messages; print how many got which status code."""
    honest = RoutedMessage.of(_SHARD, decode_waku_message(template))
    forged = [_forged(honest, number).encoded for number in range(1, round(per_s * for_s) + 1)]
    codes: Counter[int] = Counter()
    numbers = iter(range(len(forged)))
    hosts = [await Host.start() for _ in range(_FLOODING_CLIENTS)]
    peer = Multiaddr.parse(address)
    for host in hosts:
        await host.connect(peer)
    print("connected", flush=True)
    began_s = time.perf_counter()

    async def work(host: Host) -> None:
        for number in numbers:
            if (ahead_s := began_s + number / per_s - time.perf_counter()) > 0:
                await asyncio.sleep(ahead_s)
            if time.perf_counter() - began_s > for_s:
                return
            codes[await _push(host, peer, forged[number])] += 1

    await asyncio.gather(*(work(host) for host in hosts for _ in range(_UNDER_WAY)))
    taken_s = time.perf_counter() - began_s
    print(json.dumps({"per_s": sum(codes.values()) / taken_s, "codes": dict(codes)}))
    for host in hosts:
        await host.close()


async def _flood_relay(address: str, template: bytes, per_s: float, for_s: float) -> None:
    """Relay forged messages; print how many were sent, and under how many keys."""
    honest = RoutedMessage.of(_SHARD, decode_waku_message(template))
    frames = [
        publish_frame(encode_message(Message(topic=_SHARD, data=_forged(honest, number).encoded)))
        for number in range(1, round(per_s * for_s) + 1)
    ]
    peer = Multiaddr.parse(address)
    assert peer.peer_id is not None
    sent = keys = 0
    began_s = time.perf_counter()
    while sent < len(frames):
        async with await Host.start() as host:
            await host.connect(peer)
            keys += 1
            if keys == 1:
                print("connected", flush=True)
                began_s = time.perf_counter()
            try:
                stream = await host.open_stream(peer.peer_id, [RELAY_PROTOCOL])
                while sent < len(frames):
                    due = min(len(frames), round((time.perf_counter() - began_s) * per_s) + 1)
                    await stream.write(b"".join(frames[sent:due]))
                    sent = due
                    await asyncio.sleep(_BREATH_S)
            except Libp2pError:
                continue
    print(json.dumps({"per_s": sent / (time.perf_counter() - began_s), "keys": keys}))


async def _relayed(address: str, messages: list[RoutedMessage]) -> list[float]:
    """Relay messages through the node at a steady rate; return the seconds until each was at another relay peer."""
    peer = Multiaddr.parse(address)
    rules = MessageRules.of_network(_CLUSTER, (_SHARD,))
    taken = []
    async with AsyncExitStack() as exits:
        ends = []
        for seed in (1, 2):
            host = await exits.enter_async_context(await Host.start())
            relay = await exits.enter_async_context(Relay(host, rules, rng=random.Random(seed)))
            ends.append((relay, relay.subscribe(_SHARD)))
            await host.connect(peer)
        (alice, _), (bob, heard) = ends
        while not (alice.mesh_size(_SHARD) and bob.mesh_size(_SHARD)):
            await asyncio.sleep(_BREATH_S)
        for message in messages:
            began_s = time.perf_counter()
            await alice.publish(_SHARD, message.encoded)
            async with asyncio.timeout(_PATIENCE_S):
                came = (await anext(heard)).message.data
            taken.append(time.perf_counter() - began_s)
            if came != message.encoded:
                raise SystemExit("a forged message was relayed")
            await asyncio.sleep(max(0, 1 / _HONEST_PER_S - taken[-1]))
    return taken


async def _honest(address: str, messages: list[RoutedMessage]) -> list[float]:
    """Push messages at a steady rate; return the seconds that each took."""
    peer = Multiaddr.parse(address)
    taken = []
    async with await Host.start() as host:
        await host.connect(peer)
        for message in messages:
            began_s = time.perf_counter()
            code = await _push(host, peer, message.encoded)
            taken.append(time.perf_counter() - began_s)
            if code != 200:
                raise SystemExit(f"an honest message was refused: {code}")
            await asyncio.sleep(max(0, 1 / _HONEST_PER_S - taken[-1]))
    return taken


def _proven(bench: _Bench, count: int) -> list[RoutedMessage]:
    async def work() -> list[RoutedMessage]:
        made = [await with_proof(bench.membership, _message(b"%d" % number)) for number in range(count)]
        return [message for message in made if isinstance(message, RoutedMessage)]

    return asyncio.run(work())


def _forged(template: RoutedMessage, number: int) -> RoutedMessage:
    """Return a message of which all is right that can be seen without mathematics."""
    proof = SignalProof.decode(template.message.rate_limit_proof or b"")
    changed = dataclasses.replace(proof, nullifier=number.to_bytes(ELEMENT_BYTES, "little")).encode()
    return RoutedMessage.of(_SHARD, dataclasses.replace(template.message, rate_limit_proof=changed))


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
    print(f"gate: {per_s:.0f} forged proofs a second, refused {dict(refused)}")
    _print_honest("amid it", taken)


def _print_honest(what: str, taken: list[float]) -> None:
    ordered = sorted(taken)
    print(
        f"  honest messages {what}: all {len(taken)} taken, p50 {1_000 * statistics.median(taken):.0f} ms, "
        f"p95 {1_000 * ordered[int(0.95 * (len(ordered) - 1))]:.0f} ms"
    )


def _measure_flood(
    bench: _Bench,
    folder: Path,
    per_s: float,
    for_s: float,
    *,
    way: str,
    honest: Callable[[str, list[RoutedMessage]], Coroutine[Any, Any, list[float]]],
) -> None:
    """Flood a node by ``--push`` or ``--relay``; measure what honest messages take without it and amid it."""
    count = round(for_s * _HONEST_PER_S)
    messages = _proven(bench, 2 * count + 1)
    template = messages.pop()
    with _node(bench.group, folder) as address:
        calm = asyncio.run(honest(address, messages[:count]))
        command = [sys.executable, "-m", "benchmarks.rln", way, address, template.encoded.hex()]
        flooding = subprocess.Popen(
            [*command, str(per_s), str(for_s + 2)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
        )
        assert flooding.stdout is not None
        flooding.stdout.readline()  # the flood begins
        time.sleep(1)
        amid = asyncio.run(honest(address, messages[count:]))
        told, _ = flooding.communicate(timeout=_PATIENCE_S)
    flood = json.loads(told)
    rate = flood.pop("per_s")
    print(f"node: {rate:.0f} forged proofs a second by {way.removeprefix('--')}, {flood}")
    _print_honest("without it", calm)
    _print_honest("amid it", amid)


_FLOODS: Final = {"--push": _flood, "--relay": _flood_relay}
"""What runs in the process of a flood, by the argument that asks for it."""


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proofs", type=int, default=60)
    parser.add_argument("--verifications", type=int, default=600)
    parser.add_argument("--flood-per-s", type=float, default=1_000)
    parser.add_argument("--flood-for-s", type=float, default=10)
    for way in _FLOODS:
        parser.add_argument(way, nargs=4, metavar=("ADDRESS", "MESSAGE", "PER_S", "FOR_S"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    for way, flood in _FLOODS.items():
        if given := getattr(asked, way.removeprefix("--")):
            address, template, per_s, for_s = given
            asyncio.run(flood(address, bytes.fromhex(template), float(per_s), float(for_s)))
            return
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
        _measure_flood(bench, folder, asked.flood_per_s, asked.flood_for_s, way="--push", honest=_honest)
        _measure_flood(bench, folder, asked.flood_per_s, asked.flood_for_s, way="--relay", honest=_relayed)
        bench.membership.close()


if __name__ == "__main__":
    main()
