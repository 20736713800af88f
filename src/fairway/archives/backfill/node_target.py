"""`NodeTarget`: a node as a target. It receives messages by relay or light push; its store confirms them.

The node runs in its own thread, so that its connections stay alive while the source is read. Invariant: a message
counts as written only if a query of the node's store returns it.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from fairway.archives.backfill.target import Offered, Settled, Target
from fairway.errors import NetworkError, NodeUnavailableError, StoreQueryError
from fairway.nodes.connecting import connect
from fairway.nodes.message_store import MAX_PAGE_SIZE
from fairway.nodes.node import NodeQuota, StoreQuery, WakuNode
from fairway.storage.postgres_session import place_without_credentials

READY_S: Final = 30.0
"""Longest wait for a node to be connected and to have a store."""
ATTEMPTS: Final = 5
"""Attempts at a message, or at a query of the store; refusals for the node's rate limit do not count."""
FIRST_PAUSE_S: Final = 1.0
"""Pause before the second attempt; each further pause is twice as long."""
LONGEST_PAUSE_S: Final = 60.0
LONGEST_WAIT_S: Final = 3_600.0
"""Longest wait for the rate limit of the node at one message."""
_LOOK_AGAIN_S: Final = 0.1
_REFUSED_AT_FIRST: Final = 20
"""Number of refused messages that ends a backfill of which no message was kept."""
_UNKEPT_AT_FIRST: Final = 3
"""Number of accepted but unkept messages that ends a backfill of which no message was kept."""
_ELSEWHERE: Final = (
    "give --since, or write into the archive of the store node itself (--to sqlite:... or postgresql://...)"
)
_NUMBER: Final = re.compile(r"-?\d[\d.,]*")
_NOT_KEPT: Final = "the node accepted it, and its store does not keep it"

_T = TypeVar("_T")


class NodeTarget(Target):
    """A node with a store that can be queried."""

    rows_at_once = 1

    def __init__(
        self,
        address: str,
        *,
        kept_s: float,
        ready_s: float = READY_S,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = place_without_credentials(address) if "://" in address else address
        self._kept_s: Final = kept_s
        self._pause: Final = pause
        self._sent: list[bytes] = []
        self._settled = Settled()
        self._ever_kept = False
        self._refused = self._unkept = 0
        self._reasons: dict[str, str] = {}
        """The first detail of all details that differ only in numbers, by their text without numbers."""
        self._node: WakuNode | None = None
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, name="backfill node", daemon=True)
        self._thread.start()
        try:
            self._node = self._run(_connected(address))
            self._run(self._ready(self._node, ready_s))
        except BaseException:
            self.close()
            raise

    @property
    def quota(self) -> NodeQuota | None:
        """The rate limit that the node reports."""
        return self._open_node.quota

    def known(self, hashes: Collection[bytes]) -> set[bytes]:
        """Return the hashes that the node's store has; raise `StoreQueryError`."""
        found: set[bytes] = set()
        left = iter(hashes)
        while part := tuple(islice(left, MAX_PAGE_SIZE)):
            found |= self._answer(part)
        return found

    def damaged(self, hashes: Collection[bytes]) -> set[bytes]:  # noqa: ARG002 - see below
        """Return an empty set, because a node cannot replace a message."""
        return set()

    def write(self, messages: Sequence[Offered]) -> None:
        """Send messages, one after the other; raise `NetworkError` if the node accepts no more."""
        for each in messages:
            refused = self._send(each)
            if refused is None:
                self._sent.append(each.message.message_hash)
                # The first messages show whether the node's store keeps messages at all.
                if not self._ever_kept:
                    self._look()
            else:
                self._refuse(refused)

    def settle(self, *, last: bool) -> Settled:  # noqa: ARG002 - each batch is certain at once
        """Query the store for the messages since the last call; raise `NetworkError` if it keeps none at all."""
        self._look()
        settled, self._settled = self._settled, Settled()
        return settled

    def close(self) -> None:
        """Close the node and its thread."""
        if not self._thread.is_alive():
            return
        node, self._node = self._node, None
        try:
            if node is not None:
                self._run(node.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def _open_node(self) -> WakuNode:
        if self._node is None:
            raise NodeUnavailableError(f"{self.name}: is closed")
        return self._node

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C ends the wait, and must end the work too
            raise

    def _refuse(self, detail: str) -> None:
        """Count a refused message; raise `NetworkError` if the node has refused many and kept none."""
        # Details contain sizes and ages, which differ from message to message.
        reason = self._reasons.setdefault(_NUMBER.sub("", detail), detail)
        self._settled.refused[reason] += 1
        self._refused += 1
        if self._refused >= _REFUSED_AT_FIRST and not self._ever_kept:
            raise NetworkError(f"{self.name}: refuses all messages, {self._refused} so far: {reason}; {_ELSEWHERE}")

    async def _ready(self, node: WakuNode, ready_s: float) -> None:
        status = node.status
        try:
            async with asyncio.timeout(ready_s):
                async for status in node.status_changes():
                    if status.connected and status.store:
                        return
        except TimeoutError:
            raise NodeUnavailableError(
                f"{self.name}: {'has no store that can be queried' if status.connected else 'is not connected'}"
                f"{f' ({status.detail})' if status.detail else ''}; without that nothing says which messages it lacks"
            ) from None

    def _send(self, each: Offered) -> str | None:
        """Send one message; return None, or the reason of a refusal that a further attempt does not change."""
        failed, waited_s, pause_s = 0, 0.0, FIRST_PAUSE_S
        while True:
            result = self._run(self._open_node.send(each.message))
            if result.accepted:
                return None
            if result.permanent or result.unserved:
                return result.detail or "the node gives no reason"
            # A refusal for the rate limit is no failure of the message: the node accepts it later.
            failed += not result.too_many
            if failed >= ATTEMPTS or waited_s >= LONGEST_WAIT_S:
                then = "run the same command again later: it continues from here" if self._ever_kept else _ELSEWHERE
                raise NetworkError(f"{self.name}: takes no messages: {result.detail}; {then}")
            self._pause(pause_s)
            waited_s += pause_s
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _found(self, hashes: tuple[bytes, ...]) -> set[bytes]:
        found: set[bytes] = set()
        cursor: bytes | None = None
        for _ in hashes:  # a page has at least one message
            page = await self._open_node.query(StoreQuery(message_hashes=hashes, page_size=MAX_PAGE_SIZE), cursor)
            found.update(message.message_hash for message in page.messages)
            cursor = page.cursor
            if cursor is None:
                break
        return found & set(hashes)

    def _answer(self, hashes: tuple[bytes, ...]) -> set[bytes]:
        """Return the hashes of a page that the store has; repeat the query if it does not answer."""
        pause_s = FIRST_PAUSE_S
        for _ in range(ATTEMPTS - 1):
            try:
                return self._run(self._found(hashes))
            except StoreQueryError:
                self._pause(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return self._run(self._found(hashes))

    def _look(self) -> None:
        """Query the store for the sent messages, until it has all of them or `_kept_s` have passed."""
        sent, self._sent = self._sent, []
        left = set(sent)
        until_s = time.monotonic() + self._kept_s
        while left:
            left -= self.known(left)
            if not left or time.monotonic() > until_s:
                break
            self._pause(_LOOK_AGAIN_S)
        kept = len(sent) - len(left)
        self._ever_kept = self._ever_kept or kept > 0
        self._unkept += len(left)
        if self._unkept >= _UNKEPT_AT_FIRST and not self._ever_kept:
            raise NetworkError(
                f"{self.name}: accepts messages, and its store keeps none of them; relays and stores drop messages "
                f"that are too old for them; {_ELSEWHERE}"
            )
        self._settled.add(Settled(written=kept, refused=Counter({_NOT_KEPT: len(left)} if left else {})))


async def _connected(address: str) -> WakuNode:
    return await connect(address)
