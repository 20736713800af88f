"""`ProofGate`: judges the RLN proofs of the messages that come to a node by relay, light push and the REST API.

17/WAKU2-RLN-RELAY. A verification takes 2 ms of a core and runs on a thread of its own. What needs no mathematics is
judged before, on the event loop: epoch, hash of the message, root, and whether the same signal was admitted. Messages
that wait for the thread are in a `ProofQueue`, which keeps a flood of invalid proofs from delaying other senders and
from taking a core: a sender whose proof did not hold gets one verification a second.

A message that was admitted passes again if it comes with the very same bytes: a light client sends each message through
two nodes, and both may reach this one. With other bytes around the same signal it is refused, for proofs can be changed
so that they still hold, and each variant would be relayed anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from fairway.environment import monotonic_s, time_ns
from fairway.foreign_code import ForeignCode, call_in_thread
from fairway.nodes.node import RoutedMessage
from fairway.owned_tasks import OwnedTasks
from fairway.rln.membership import RlnGroup
from fairway.rln.proof import SignalProof
from fairway.rln.proving import CircuitVerifier, Verifier
from fairway.rln.validation import DoubleSignal, NullifierLog, ProofFault, ProofRefusal, ProofValidator
from fairway.service.proof_queue import ProofQueue
from fairway.units import NS_PER_MS

MAX_WAITING: Final = 1_024
"""Messages that wait for verification, which takes the thread two seconds; as many may wait for a look at the group."""
MAX_WAITING_OF_SOURCE: Final = 256
"""Those of one sender."""
_BATCH: Final = 8
"""Proofs that the thread verifies between two looks at the queue."""
_REFRESH_S: Final = 10.0
"""Interval between two looks at the group."""
_HASTY_REFRESH_S: Final = 1.0
"""Shortest time between two looks, for proofs with an unknown root."""

_LOG: Final = logging.getLogger(__name__)
_OVERLOADED: Final = ProofRefusal(
    fault=ProofFault.NOT_VERIFIED,
    detail="more RLN proofs came than this node verifies for a sender, of whom fewer if some did not hold; send it "
    "again later",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStatistics:
    """What a gate judged since its start."""

    admitted: int
    """Messages that may pass."""
    repeated: int
    """Messages that were admitted before and came again with the same bytes."""
    refused: dict[ProofFault, int]
    """Messages that may not, by reason."""
    waiting: int
    """Messages that wait for verification."""
    nullifiers: int
    """Messages of the present epochs, by which double signals are noticed."""
    refreshes_failed: int
    """Looks at the group that failed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    message: RoutedMessage
    proof: SignalProof
    verified: asyncio.Future[ProofRefusal | None]


class ProofGate:
    """Judges messages while `run` runs; after `close` all are refused."""

    def __init__(
        self,
        group: RlnGroup,
        verifier: Verifier | None = None,
        *,
        record: Callable[[DoubleSignal, int], object] | None = None,
    ) -> None:
        """``record`` gets double signals with the time in Unix milliseconds, in a worker thread.

        Raises `MissingExtraError` without fairway-rln, unless a ``verifier`` is given.
        """
        self._group: Final = group
        self._log: Final = NullifierLog()
        verifier = CircuitVerifier(group.network) if verifier is None else verifier
        self._validator: Final = ProofValidator(group.network, group.roots, verifier, self._log)
        self._record: Final = record
        self._queue: ProofQueue[_Waiting] = ProofQueue(max_items=MAX_WAITING, max_items_of_source=MAX_WAITING_OF_SOURCE)
        self._arrived: Final = asyncio.Event()
        self._thread: Final = ThreadPoolExecutor(1, "rln-verifier")
        self._tasks: Final = OwnedTasks()
        self._closed = False
        self._refreshed_s = monotonic_s()
        self._refreshing: asyncio.Task[None] | None = None
        self._awaiting_look: Counter[str] = Counter()
        """Messages with an unknown root that wait for a look at the group, by sender."""
        self._looking: Final = asyncio.Lock()
        """One look at the group at a time, for groups do not expect threads."""
        self._bytes_of: dict[int, dict[bytes, bytes]] = {}
        """SHA-256 of each admitted message, by epoch and nullifier."""
        self._admitted = self._repeated = self._refreshes_failed = 0
        self._refused: Counter[ProofFault] = Counter()

    def start(self) -> None:
        """Begin to verify, and to look at the group."""
        self._tasks.spawn(self._verify())
        self._tasks.spawn(self._keep_fresh())

    async def close(self) -> None:
        """Refuse what waits, and end the thread. Can be called twice."""
        self._closed = True
        await self._tasks.close()
        for waiting in self._queue.clear():
            _settle(waiting, _OVERLOADED)
        await asyncio.to_thread(self._thread.shutdown)

    async def judge(self, source: str, message: RoutedMessage) -> ProofRefusal | None:
        """Return why a message may not pass, or None. ``source`` names who sent it, for equal shares of the thread."""
        refusal = await self._judge(source, message)
        if refusal is not None:
            self._refused[refusal.fault] += 1
        return refusal

    def statistics(self) -> GateStatistics:
        """Return the counts."""
        return GateStatistics(
            admitted=self._admitted,
            repeated=self._repeated,
            refused={fault: self._refused[fault] for fault in ProofFault},
            waiting=len(self._queue),
            nullifiers=len(self._log),
            refreshes_failed=self._refreshes_failed,
        )

    async def _judge(self, source: str, message: RoutedMessage) -> ProofRefusal | None:
        proof = self._validator.examine(message.message, _now_ms())
        if isinstance(proof, ProofRefusal) and proof.fault is ProofFault.UNKNOWN_ROOT and self._may_look_for(source):
            # The member may have joined after the last look.
            self._awaiting_look[source] += 1
            try:
                await self._refresh_soon()
            finally:
                self._awaiting_look[source] -= 1
                self._awaiting_look += Counter()  # without those at 0
            proof = self._validator.examine(message.message, _now_ms())
        if isinstance(proof, ProofRefusal):
            if proof.fault is ProofFault.INVALID:
                self._blame(source)
            return proof
        digest = hashlib.sha256(message.encoded).digest()
        if self._bytes_of.get(proof.epoch, {}).get(proof.nullifier) == digest:
            self._repeated += 1
            return None
        refusal = self._validator.repeated(proof) or await self._verified(source, message, proof)
        return self._admit(proof, digest) if refusal is None else refusal

    def _may_look_for(self, source: str) -> bool:
        """Return whether one more message of a sender may wait for a look at the group, which a chain may delay."""
        return self._awaiting_look[source] < MAX_WAITING_OF_SOURCE and self._awaiting_look.total() < MAX_WAITING

    async def _verified(self, source: str, message: RoutedMessage, proof: SignalProof) -> ProofRefusal | None:
        if self._closed:
            return _OVERLOADED
        waiting = _Waiting(message, proof, asyncio.get_running_loop().create_future())
        displaced = self._queue.put(source, waiting, monotonic_s())
        if displaced is waiting:
            return _OVERLOADED
        if displaced is not None:
            _settle(displaced, _OVERLOADED)
        self._arrived.set()
        return await waiting.verified

    def _admit(self, proof: SignalProof, digest: bytes) -> ProofRefusal | None:
        refusal = self._validator.admit(proof, _now_ms())
        if refusal is None:
            self._admitted += 1
            self._bytes_of.setdefault(proof.epoch, {})[proof.nullifier] = digest
        elif refusal.fault is ProofFault.DUPLICATE and self._bytes_of[proof.epoch].get(proof.nullifier) == digest:
            self._repeated += 1  # both were verified at once
            return None
        elif refusal.double_signal is not None and self._record is not None:
            self._tasks.spawn(self._pass_on(self._record, refusal.double_signal))
        return refusal

    async def _pass_on(self, record: Callable[[DoubleSignal, int], object], double: DoubleSignal) -> None:
        try:
            await call_in_thread(None, "the record of double signals", record, double, _now_ms())
        except Exception as error:  # noqa: BLE001 - what records may be anything
            _LOG.warning("a double signal could not be recorded: %s", str(error) or repr(error))

    async def _verify(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            batch = [taken for _ in range(_BATCH) if (taken := self._queue.take()) is not None]
            if not batch:
                self._arrived.clear()
                continue
            refusals: list[ProofRefusal | None] = [_OVERLOADED] * len(batch)
            try:
                refusals = await loop.run_in_executor(self._thread, self._verify_all, [waiting for _, waiting in batch])
            finally:
                for (source, waiting), refusal in zip(batch, refusals, strict=True):
                    if refusal is None:
                        self._queue.clear_of_blame(source)
                    else:
                        self._blame(source)
                    _settle(waiting, refusal)

    def _verify_all(self, batch: list[_Waiting]) -> list[ProofRefusal | None]:
        return [self._verify_one(waiting) for waiting in batch]

    def _verify_one(self, waiting: _Waiting) -> ProofRefusal | None:
        try:
            with ForeignCode("the verifier"):
                return self._validator.verify(waiting.message.message, waiting.proof)
        except Exception:  # noqa: BLE001 - a proof at which a verifier fails must not end the judgement of others
            _LOG.exception("the RLN verifier failed at a message, which is refused")
            return _OVERLOADED

    def _blame(self, source: str) -> None:
        for waiting in self._queue.blame(source, monotonic_s()):
            _settle(waiting, _OVERLOADED)

    async def _keep_fresh(self) -> None:
        while True:
            await self._refresh()
            oldest = self._group.network.epoch(_now_ms()) - self._group.network.max_epoch_gap
            self._log.keep_from(oldest)
            for epoch in [epoch for epoch in self._bytes_of if epoch < oldest]:
                del self._bytes_of[epoch]
            await asyncio.sleep(_REFRESH_S)

    async def _refresh_soon(self) -> None:
        """Look at the group now; if that was done a moment ago, do nothing, and if it is being done, wait for it."""
        if self._refreshing is None and monotonic_s() - self._refreshed_s >= _HASTY_REFRESH_S and not self._closed:
            self._refreshing = self._tasks.spawn(self._refresh())
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])
            self._refreshing = None

    async def _refresh(self) -> None:
        async with self._looking:
            try:
                await call_in_thread(None, "the RLN group", self._group.refresh)
            except Exception as error:  # noqa: BLE001 - whatever ails the group, the next look may find it well
                self._refreshes_failed += 1
                _LOG.warning("the RLN group stays as it was known: %s", str(error) or repr(error))
            self._refreshed_s = monotonic_s()


def _settle(waiting: _Waiting, refusal: ProofRefusal | None) -> None:
    if not waiting.verified.done():
        waiting.verified.set_result(refusal)


def _now_ms() -> int:
    return time_ns() // NS_PER_MS
