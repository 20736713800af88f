"""A service node with its REST API in a thread of its own, because the browser blocks the test's thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.service.proof_gate import ProofGate
from fairway.service.rest import RestOptions, RestServer
from patience import PATIENCE_S

_T = TypeVar("_T")


class NodeInThread:
    """A context manager; `run` does something in the node's event loop."""

    node: ServiceNode
    server: RestServer

    def __init__(
        self, rest: RestOptions | None = None, *, gate: Callable[[], ProofGate] | None = None, **options: Any
    ) -> None:
        """``gate`` makes the verifier of RLN proofs; without it the node requires none."""
        given = {"cluster_id": 16, "shards": (0,), "shard_count": 1, **options}
        self._options = ServiceOptions(**given)
        self._rest = rest or RestOptions()
        self._gate = gate
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def run(self, work: Callable[[], Awaitable[_T]]) -> _T:
        async def awaited() -> _T:
            return await work()

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(PATIENCE_S)

    def stop_serving(self) -> None:
        """Close the REST API, and keep the node."""
        self.run(self.server.close)

    def serve_again(self) -> None:
        """Open the REST API at the same port."""
        self._serve(RestOptions(port=self.server.port))

    def __enter__(self) -> Self:
        self._thread.start()
        self.node = self.run(self._started)
        self._serve(self._rest)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_serving()
        self.run(self.node.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _started(self) -> ServiceNode:
        return await ServiceNode.start(self._options, gate=None if self._gate is None else self._gate())

    def _serve(self, options: RestOptions) -> None:
        self.server = self.run(lambda: RestServer.start(self.node, options))
