"""A service node with its REST API in a thread of its own, because the browser blocks the test's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.service.proof_gate import ProofGate
from fairway.service.rest import RestOptions, RestServer
from loop_threads import LoopThread


class NodeInThread(LoopThread):
    """A context manager; `run` does something in the node's event loop."""

    node: ServiceNode
    server: RestServer

    def __init__(
        self, rest: RestOptions | None = None, *, gate: Callable[[], ProofGate] | None = None, **options: Any
    ) -> None:
        """``gate`` makes the verifier of RLN proofs; without it the node requires none."""
        super().__init__()
        given = {"cluster_id": 16, "shards": (0,), "shard_count": 1, **options}
        self._options = ServiceOptions(**given)
        self._rest = rest or RestOptions()
        self._gate = gate

    def stop_serving(self) -> None:
        """Close the REST API, and keep the node."""
        self.run(self.server.close)

    def serve_again(self) -> None:
        """Open the REST API at the same port."""
        self._serve(RestOptions(port=self.server.port))

    def __enter__(self) -> Self:
        super().__enter__()
        self.node = self.run(self._started)
        self._serve(self._rest)
        return self

    def __exit__(self, *error: object) -> None:
        self.stop_serving()
        self.run(self.node.close)
        super().__exit__(*error)

    async def _started(self) -> ServiceNode:
        return await ServiceNode.start(self._options, gate=None if self._gate is None else self._gate())

    def _serve(self, options: RestOptions) -> None:
        self.server = self.run(lambda: RestServer.start(self.node, options))
