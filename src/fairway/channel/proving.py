"""`ProofMaker`: makes the RLN proofs that the protocol requests, one after the other, on the thread of the provider.

Other messages are sent while one is being proven. Proofs are made in the order of the requests, so messages keep their
order. If the provider has no proof for the moment, all waiting requests fail. Otherwise a later message would be sent
first, and use the last message ids of an epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from fairway.channel.clock import Clock
from fairway.errors import RlnError, RlnErrorKind
from fairway.nodes.proving import proof_of, quota_of
from fairway.protocol.effects import Prove
from fairway.protocol.ratelimit import EpochQuota, RlnProofProvider

QUOTA_S: Final = 10.0
"""Interval between two queries of the quota, which other programs with the same membership share."""

_FOR_THE_MOMENT: Final = (RlnErrorKind.NOT_READY, RlnErrorKind.TRANSIENT)
_LOG: Final = logging.getLogger("fairway.channel.rln")


class ProofMaker:
    """Makes the proofs of one channel while `run` runs, and asks for the quota while `watch_quota` runs."""

    def __init__(
        self,
        provider: RlnProofProvider,
        clock: Clock,
        *,
        proven: Callable[[int, bytes | RlnError | None], None],
        learned: Callable[[EpochQuota | None], None],
    ) -> None:
        """``proven`` gets the token of a `Prove` with its proof, or why there is none; ``learned`` gets each quota."""
        self._provider = provider
        self._clock = clock
        self._proven = proven
        self._learned = learned
        self._waiting: deque[Prove] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, wanted: Prove) -> None:
        """Queue a request for a proof."""
        self._waiting.append(wanted)
        self._idle.clear()
        self._arrived.set()

    async def idle(self) -> None:
        """Wait until all proofs are made."""
        await self._idle.wait()

    async def run(self) -> None:
        """Make proofs until cancelled. The message id of the proof in progress is then lost."""
        while True:
            while self._waiting:
                wanted = self._waiting.popleft()
                proof = await self._made(wanted)
                behind = self._take_all() if isinstance(proof, RlnError) and proof.kind in _FOR_THE_MOMENT else ()
                for each in (wanted, *behind):
                    self._proven(each.token, proof)
            self._arrived.clear()
            self._idle.set()
            await self._arrived.wait()

    async def watch_quota(self) -> None:
        """Query the quota every `QUOTA_S`, until cancelled."""
        logged = ""
        while True:
            try:
                self._learned(await quota_of(self._provider, self._clock()))
                logged = ""
            except RlnError as error:
                # The last known quota stays in force.
                if str(error) != logged:
                    logged = str(error)
                    _LOG.warning("no RLN quota is known now: %s", logged)
            await asyncio.sleep(QUOTA_S)

    def _take_all(self) -> tuple[Prove, ...]:
        waiting = tuple(self._waiting)
        self._waiting.clear()
        return waiting

    async def _made(self, wanted: Prove) -> bytes | RlnError | None:
        try:
            return await proof_of(self._provider, wanted.signal, wanted.at_ms)
        except RlnError as error:
            return error
