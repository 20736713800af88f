"""`ProofGate`: verifies the RLN proofs of the messages that arrive by relay, light push and the REST API.

17/WAKU2-RLN-RELAY. A verification takes 2 ms of a core and runs on a thread of its own. The cheap checks come first, on
the event loop: epoch, hash of the message, root, and whether the same signal was admitted. Messages for the thread wait
in a `ProofQueue`, whose senders take turns.

An admitted message passes again with the same bytes: a light client sends each message through two nodes, and both
copies may arrive here. The same signal in other bytes is refused. A valid proof can be altered and stay valid, so each
variant would otherwise be relayed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from fairway.environment import monotonic_s, time_ns
from fairway.foreign_code import ForeignCode, call_in_thread
from fairway.nodes.node import RoutedMessage
from fairway.owned_tasks import OwnedTasks
from fairway.rln.membership import RlnGroup
from fairway.rln.proof import SignalProof
from fairway.rln.proving import CircuitVerifier
from fairway.rln.validation import DoubleSignal, ProofFault, ProofRefusal, ProofValidator
from fairway.units import NS_PER_MS

MAX_WAITING: Final = 1_024
"""Most messages that wait for verification, two seconds of work; as many may wait for a refresh of the group."""
MAX_WAITING_OF_SOURCE: Final = 256
"""Most of them from one sender."""
SUSPECTED_S: Final = 60.0
"""Time after an invalid proof for which the other senders are served first."""
_REFRESH_S: Final = 10.0
"""Interval between two refreshes of the group."""
_HASTY_REFRESH_S: Final = 1.0
"""Shortest interval of refreshes for proofs with an unknown root."""

_Item = TypeVar("_Item")
_LOG: Final = logging.getLogger(__name__)
_OVERLOADED: Final = ProofRefusal(
    fault=ProofFault.NOT_VERIFIED,
    detail="this node verifies a limited number of RLN proofs for a sender; send the message again later",
)


class ProofQueue(Generic[_Item]):
    """The items that wait for verification. Sources take turns, one item each; suspects are served after all others.

    If the queue is full, a new item displaces the last one of a suspect, or else of the source with the most items.
    """

    def __init__(self) -> None:
        self._waiting: Final[OrderedDict[str, deque[_Item]]] = OrderedDict()
        self._suspects: Final[OrderedDict[str, deque[_Item]]] = OrderedDict()
        self._suspected_until_s: dict[str, float] = {}
        self._size = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._size

    def put(self, source: str, item: _Item) -> _Item | None:
        """Append an item to the queue of its source; return the item that has no room: another one, or this."""
        sources = self._suspects if source in self._suspected_until_s else self._waiting
        own = len(sources.get(source, ()))
        displaced: _Item | None = None
        if own >= MAX_WAITING_OF_SOURCE:
            return item
        if self._size >= MAX_WAITING:
            others = sources if sources is self._suspects else self._suspects or self._waiting
            longest = max(others, key=lambda name: len(others[name]), default=None)
            if longest is None or (others is sources and len(others[longest]) <= own + 1):
                return item
            displaced = self._pop(others, longest)
        sources.setdefault(source, deque()).append(item)
        self._size += 1
        return displaced

    def take(self) -> _Item | None:
        """Remove and return the next item; None if none waits."""
        sources = self._waiting or self._suspects
        if not sources:
            return None
        source, items = sources.popitem(last=False)
        if len(items) > 1:
            sources[source] = items  # at the end: it is served again after all others
        self._size -= 1
        return items.popleft()

    def suspect(self, source: str, until_s: float) -> None:
        """Serve a source after all others until `forgive` is called with a later time."""
        self._suspected_until_s[source] = until_s
        if source in self._waiting:
            self._suspects[source] = self._waiting.pop(source)

    def forgive(self, now_s: float) -> None:
        """Forget the suspects whose time is over."""
        for source in [source for source, until_s in self._suspected_until_s.items() if until_s <= now_s]:
            del self._suspected_until_s[source]
            if source in self._suspects:
                self._waiting[source] = self._suspects.pop(source)

    def _pop(self, sources: OrderedDict[str, deque[_Item]], source: str) -> _Item:
        item = sources[source].pop()
        if not sources[source]:
            del sources[source]
        self._size -= 1
        return item


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStatistics:
    """The verdicts of a gate since its start."""

    admitted: int
    """Admitted messages."""
    repeated: int
    """Admitted messages that arrived again with the same bytes."""
    refused: dict[ProofFault, int]
    """Refused messages, by reason."""
    waiting: int
    """Messages that wait for verification."""
    nullifiers: int
    """Messages of the present epochs, by which double signals are noticed."""
    refreshes_failed: int
    """Failed refreshes of the group."""


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
        verifier: CircuitVerifier | None = None,
        *,
        record: Callable[[DoubleSignal, int], object] | None = None,
    ) -> None:
        """``record`` gets double signals with the time in Unix milliseconds, in a worker thread.

        Raises `MissingExtraError` without fairway-rln, unless a ``verifier`` is given.
        """
        self._group: Final = group
        verifier = CircuitVerifier(group.network) if verifier is None else verifier
        self._validator: Final = ProofValidator(group.network, group.roots, verifier)
        self._record: Final = record
        self._queue: ProofQueue[_Waiting] = ProofQueue()
        self._arrived: Final = asyncio.Event()
        self._thread: Final = ThreadPoolExecutor(1, "rln-verifier")
        self._tasks: Final = OwnedTasks()
        self._closed = False
        self._refreshed_s = monotonic_s()
        self._refreshing: asyncio.Task[None] | None = None
        self._awaiting_refresh = 0
        """Messages with an unknown root that wait for a refresh of the group."""
        self._refresh_lock: Final = asyncio.Lock()
        """One refresh at a time, because groups are not made for threads."""
        self._bytes_of: dict[int, dict[bytes, bytes]] = {}
        """SHA-256 of each admitted message, by epoch and nullifier."""
        self._admitted = self._repeated = self._refreshes_failed = 0
        self._refused: Counter[ProofFault] = Counter()

    def start(self) -> None:
        """Begin to verify, and to refresh the group."""
        self._tasks.spawn(self._verify())
        self._tasks.spawn(self._keep_fresh())

    async def close(self) -> None:
        """Refuse the waiting messages, and end the thread. Can be called twice."""
        self._closed = True
        await self._tasks.close()
        while (waiting := self._queue.take()) is not None:
            _settle(waiting, _OVERLOADED)
        await asyncio.to_thread(self._thread.shutdown)

    async def judge(self, source: str, message: RoutedMessage) -> ProofRefusal | None:
        """Return the refusal of a message, or None. ``source`` is the sender; sources share the thread equally."""
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
            nullifiers=len(self._validator.log),
            refreshes_failed=self._refreshes_failed,
        )

    async def _judge(self, source: str, message: RoutedMessage) -> ProofRefusal | None:
        proof = self._validator.examine(message.message, _now_ms())
        if isinstance(proof, ProofRefusal) and proof.fault is ProofFault.UNKNOWN_ROOT:
            # The member may have joined after the last refresh, which a chain may delay.
            if self._awaiting_refresh < MAX_WAITING:
                self._awaiting_refresh += 1
                try:
                    await self._refresh_soon()
                finally:
                    self._awaiting_refresh -= 1
            proof = self._validator.examine(message.message, _now_ms())
        if isinstance(proof, ProofRefusal):
            if proof.fault is ProofFault.INVALID:
                self._queue.suspect(source, monotonic_s() + SUSPECTED_S)
            return proof
        digest = hashlib.sha256(message.encoded).digest()
        if self._bytes_of.get(proof.epoch, {}).get(proof.nullifier) == digest:
            self._repeated += 1
            return None
        refusal = self._validator.repeated(proof) or await self._verified(source, message, proof)
        return self._admit(proof, digest) if refusal is None else refusal

    async def _verified(self, source: str, message: RoutedMessage, proof: SignalProof) -> ProofRefusal | None:
        if self._closed:
            return _OVERLOADED
        waiting = _Waiting(message, proof, asyncio.get_running_loop().create_future())
        displaced = self._queue.put(source, waiting)
        if displaced is waiting:
            return _OVERLOADED
        if displaced is not None:
            _settle(displaced, _OVERLOADED)
        self._arrived.set()
        refusal = await waiting.verified
        if refusal is not None and refusal.fault is ProofFault.INVALID:
            self._queue.suspect(source, monotonic_s() + SUSPECTED_S)
        return refusal

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
        except Exception as error:  # noqa: BLE001 - a record may raise anything
            _LOG.warning("a double signal could not be recorded: %s", str(error) or repr(error))

    async def _verify(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            waiting = self._queue.take()
            if waiting is None:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            refusal: ProofRefusal | None = _OVERLOADED
            try:
                refusal = await loop.run_in_executor(self._thread, self._verify_one, waiting)
            finally:
                _settle(waiting, refusal)

    def _verify_one(self, waiting: _Waiting) -> ProofRefusal | None:
        try:
            with ForeignCode("the verifier"):
                return self._validator.verify(waiting.message.message, waiting.proof)
        except Exception:  # noqa: BLE001 - a proof at which a verifier fails must not end the judgement of others
            _LOG.exception("the RLN verifier failed at a message, which is refused")
            return _OVERLOADED

    async def _keep_fresh(self) -> None:
        while True:
            await self._refresh()
            self._queue.forgive(monotonic_s())
            oldest = self._group.network.epoch(_now_ms()) - self._group.network.max_epoch_gap
            self._validator.log.keep_from(oldest)
            for epoch in [epoch for epoch in self._bytes_of if epoch < oldest]:
                del self._bytes_of[epoch]
            await asyncio.sleep(_REFRESH_S)

    async def _refresh_soon(self) -> None:
        """Refresh the group unless that was just done; wait for a refresh that is running."""
        if self._refreshing is None and monotonic_s() - self._refreshed_s >= _HASTY_REFRESH_S and not self._closed:
            self._refreshing = self._tasks.spawn(self._refresh())
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])
            self._refreshing = None

    async def _refresh(self) -> None:
        async with self._refresh_lock:
            try:
                await call_in_thread(None, "the RLN group", self._group.refresh)
            except Exception as error:  # noqa: BLE001 - the next refresh may succeed after any error
                self._refreshes_failed += 1
                _LOG.warning("the RLN group stays as it was known: %s", str(error) or repr(error))
            self._refreshed_s = monotonic_s()


def _settle(waiting: _Waiting, refusal: ProofRefusal | None) -> None:
    if not waiting.verified.done():
        waiting.verified.set_result(refusal)


def _now_ms() -> int:
    return time_ns() // NS_PER_MS
