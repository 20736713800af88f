"""`ProofGate`: verifies the RLN proofs of the messages that arrive by relay, light push and the REST API.

17/WAKU2-RLN-RELAY. A verification takes 2 ms of a core and runs on a thread of its own. The cheap checks come first, on
the event loop: epoch, hash of the message, root, and whether the same signal was admitted. Messages for the thread wait
in a `ProofQueue`, so that a flood of invalid proofs neither delays other senders nor takes a core.

An admitted message passes again with the same bytes: a light client sends each message through two nodes, and both
copies may arrive here. With other bytes around the same signal it is refused, because a valid proof can be altered and
stay valid, and each variant would be relayed.
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
from fairway.rln.proving import CircuitVerifier, Verifier
from fairway.rln.validation import DoubleSignal, NullifierLog, ProofFault, ProofRefusal, ProofValidator
from fairway.units import NS_PER_MS

MAX_WAITING: Final = 1_024
"""Most messages that wait for verification, two seconds of work; as many may wait for a refresh of the group."""
MAX_WAITING_OF_SOURCE: Final = 256
"""Most of them from one sender."""
_BATCH: Final = 8
"""Proofs that the thread verifies at a time."""
_REFRESH_S: Final = 10.0
"""Interval between two refreshes of the group."""
_HASTY_REFRESH_S: Final = 1.0
"""Shortest interval of refreshes for proofs with an unknown root."""

_BLAMED_S: Final = 60.0
_MAX_BLAMED: Final = 100_000
"""Most blamed sources; the oldest are evicted first."""
_SUSPECT_PER_S: Final = 1.0
_SUSPECT_BURST: Final = 4.0

_Item = TypeVar("_Item")
_LOG: Final = logging.getLogger(__name__)
_OVERLOADED: Final = ProofRefusal(
    fault=ProofFault.NOT_VERIFIED,
    detail="this node verifies a limited number of RLN proofs for a sender, fewer after an invalid one; send the "
    "message again later",
)


@dataclass(slots=True)
class _Blame:
    """The allowance of a blamed source."""

    until_s: float
    allowed: float
    counted_s: float

    def allows(self, now_s: float) -> bool:
        """Return whether the source may put an item now, and count it."""
        self.allowed = min(_SUSPECT_BURST, self.allowed + max(0.0, now_s - self.counted_s) * _SUSPECT_PER_S)
        self.counted_s = now_s
        if self.allowed < 1:
            return False
        self.allowed -= 1
        return True

    def renew(self, now_s: float) -> None:
        """Blame the source for `_BLAMED_S` from now on."""
        self.until_s = now_s + _BLAMED_S

    def restore(self) -> None:
        """Return one item to the allowance."""
        self.allowed = min(_SUSPECT_BURST, self.allowed + 1)


class ProofQueue(Generic[_Item]):
    """The items that wait for verification, one queue for each source. Times are seconds of a steady clock.

    Sources are served in turns, one item each. A source with an invalid proof is *blamed* for `_BLAMED_S`: it is served
    only if no other source waits, and may put only `_SUSPECT_BURST` items and `_SUSPECT_PER_S` a second. Items with a
    valid proof do not count, so that an honest program behind the proxy of a forger is still served. A flood thus costs
    the other sources one verification, whatever its size.

    The queue of a source and all queues together are bounded. If all are full, a new item displaces the last one of a
    blamed source, or else of the source with the most items.
    """

    def __init__(self, *, max_items: int, max_items_of_source: int) -> None:
        self._max_items: Final = max_items
        self._max_items_of_source: Final = max_items_of_source
        self._waiting: Final[OrderedDict[str, deque[_Item]]] = OrderedDict()
        self._suspect: Final[OrderedDict[str, deque[_Item]]] = OrderedDict()
        self._blamed: Final[OrderedDict[str, _Blame]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._size

    def put(self, source: str, item: _Item, now_s: float) -> _Item | None:
        """Append an item to the queue of its source; return the item that has no room: another one, or this."""
        blame = self._blame_of(source, now_s)
        sources = self._waiting if blame is None else self._suspect
        own = sources.get(source)
        if own is not None and len(own) >= self._max_items_of_source:
            return item
        if blame is not None and not blame.allows(now_s):
            return item
        displaced: _Item | None = None
        if self._size >= self._max_items:
            displaced = self._displaced_by(sources, 0 if own is None else len(own))
            if displaced is None:
                return item
        sources.setdefault(source, deque()).append(item)
        self._size += 1
        return displaced

    def take(self) -> tuple[str, _Item] | None:
        """Remove and return the next item with its source; None if none waits."""
        sources = self._waiting or self._suspect
        if not sources:
            return None
        source, items = sources.popitem(last=False)
        if len(items) > 1:
            sources[source] = items  # at the end: it is served again after all others
        self._size -= 1
        return source, items.popleft()

    def blame(self, source: str, now_s: float) -> list[_Item]:
        """Note an invalid proof; remove and return the waiting items beyond the allowance of the source."""
        blame = self._blame_of(source, now_s)
        if blame is None:
            blame = _Blame(until_s=now_s, allowed=_SUSPECT_BURST, counted_s=now_s)
            self._blamed[source] = blame
        blame.renew(now_s)
        self._blamed.move_to_end(source)
        if len(self._blamed) > _MAX_BLAMED:
            self._blamed.popitem(last=False)
        items = self._waiting.pop(source, deque())
        while items and blame.allows(now_s):
            self._suspect.setdefault(source, deque()).append(items.popleft())
        self._size -= len(items)
        return list(items)

    def clear_of_blame(self, source: str) -> None:
        """Note a valid proof: the item does not count towards the allowance."""
        blame = self._blamed.get(source)
        if blame is not None:
            blame.restore()

    def clear(self) -> list[_Item]:
        """Remove and return all items."""
        items = [item for sources in (self._waiting, self._suspect) for own in sources.values() for item in own]
        self._waiting.clear()
        self._suspect.clear()
        self._size = 0
        return items

    def _blame_of(self, source: str, now_s: float) -> _Blame | None:
        blame = self._blamed.get(source)
        if blame is not None and blame.until_s <= now_s:
            del self._blamed[source]
            return None
        return blame

    def _displaced_by(self, sources: OrderedDict[str, deque[_Item]], own: int) -> _Item | None:
        """Remove an item to make room for a source with ``own`` items; None if no source has more."""
        if sources is self._waiting and self._suspect:
            victims, victim = self._suspect, next(reversed(self._suspect))
        else:
            victims = sources
            victim = max(victims, key=lambda source: len(victims[source]), default="")
            if not victim or len(victims[victim]) <= own + 1:
                return None
        items = victims[victim]
        displaced = items.pop()
        if not items:
            del victims[victim]
        self._size -= 1
        return displaced


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStatistics:
    """The verdicts of a gate since its start."""

    admitted: int
    """Messages that may pass."""
    repeated: int
    """Admitted messages that arrived again with the same bytes."""
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
        self._awaiting_refresh: Counter[str] = Counter()
        """Messages with an unknown root that wait for a refresh of the group, by sender."""
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
        for waiting in self._queue.clear():
            _settle(waiting, _OVERLOADED)
        await asyncio.to_thread(self._thread.shutdown)

    async def judge(self, source: str, message: RoutedMessage) -> ProofRefusal | None:
        """Return why a message may not pass, or None. ``source`` is the sender; sources share the thread equally."""
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
        if (
            isinstance(proof, ProofRefusal)
            and proof.fault is ProofFault.UNKNOWN_ROOT
            and self._may_await_refresh(source)
        ):
            # The member may have joined after the last refresh.
            self._awaiting_refresh[source] += 1
            try:
                await self._refresh_soon()
            finally:
                self._awaiting_refresh[source] -= 1
                self._awaiting_refresh += Counter()  # without those at 0
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

    def _may_await_refresh(self, source: str) -> bool:
        """Return whether one more message of a sender may wait for a refresh, which a chain may delay."""
        return self._awaiting_refresh[source] < MAX_WAITING_OF_SOURCE and self._awaiting_refresh.total() < MAX_WAITING

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
        except Exception as error:  # noqa: BLE001 - a record may raise anything
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
