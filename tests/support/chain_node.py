"""A node of a chain with the contract WakuRlnV2, as far as members and validators ask it: JSON-RPC over HTTP.

It is written from the contract's interface, and shares no code with the client for the calls. The selectors are those
of the deployed contract.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fairway.rln.identity import rate_commitment
from fairway.rln.tree import MembershipTree

ADDRESS = "0x9aE0D4b4B8d2D1d1A5A5C7cF3E8b1cD9d7C4E5F6"
CHAIN_ID = 59_141

ROOT = "ebf0c717"
RECENT_ROOTS = "e63337c3"
IS_MEMBER = "686bb1cc"
MEMBERSHIP = "3a7592f0"
MERKLE_PROOF = "00ffef23"


def word(number: int) -> str:
    return f"{number:064x}"


def word_of(little_endian: bytes) -> str:
    return little_endian[::-1].hex()


class ChainNode:
    """The contract, the server, and its planted faults."""

    def __init__(self, *, remembers: bool = True) -> None:
        self.tree = MembershipTree()
        self.members: dict[int, tuple[int, int]] = {}
        """Limit and index by identity commitment."""
        self.recent: deque[str] = deque(maxlen=5)
        self.remembers = remembers
        """Whether the contract has `getRecentRoots`."""
        self.asked: list[str] = []
        """The selectors that were called, `eth_chainId` among them."""
        self.lies: dict[str, Callable[[], str | None]] = {}
        """False answers by selector; None for a revert."""
        self.raw: Callable[[BaseHTTPRequestHandler], None] | None = None
        """Writes the raw bytes of every answer, if set."""
        self.paths: list[str] = []
        self.before: Callable[[str], None] = lambda selector: None
        """Called before a call is answered."""
        self.stopping = threading.Event()
        self.url = ""

    def register(self, commitment: bytes, limit: int) -> int:
        index = self.tree.append(rate_commitment(commitment, limit))
        self.members[int.from_bytes(commitment, "little")] = (limit, index)
        self.recent.appendleft(word_of(self.tree.root))
        return index

    def result_of(self, selector: str, argument: int) -> str | None:
        """Return the words of an answer, without 0x; None for a revert."""
        if selector == ROOT:
            return word_of(self.tree.root)
        if selector == RECENT_ROOTS:
            return "".join([*self.recent, *[word(0)] * (5 - len(self.recent))]) if self.remembers else None
        if selector == IS_MEMBER:
            return word(argument in self.members)
        if selector == MEMBERSHIP:
            if argument not in self.members:
                return word(0) * 3
            limit, index = self.members[argument]
            return word(limit) + word(index) + word_of(self.tree.leaf(index))
        if selector == MERKLE_PROOF:
            return "".join(map(word_of, self.tree.path(argument).siblings))
        return None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] == "eth_chainId":
            self.asked.append("eth_chainId")
            return told | {"result": hex(CHAIN_ID)}
        call, block = request["params"]
        assert (request["method"], block) == ("eth_call", "latest")
        if call["to"].lower() != ADDRESS.lower():
            return told | {"result": "0x"}
        data = call["data"].removeprefix("0x")
        selector, argument = data[:8], int(data[8:] or "0", 16)
        self.asked.append(selector)
        self.before(selector)
        lie = self.lies.get(selector)
        result = self.result_of(selector, argument) if lie is None else lie()
        if result is None:
            return told | {"error": {"code": 3, "message": "execution reverted"}}
        return told | {"result": f"0x{result}"}


class _Handler(BaseHTTPRequestHandler):
    node: ChainNode

    def do_POST(self) -> None:
        self.node.paths.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with suppress(OSError):  # the client has closed the connection
            if self.node.raw is not None:
                self.node.raw(self)
                return
            data = json.dumps(self.node.answer(json.loads(body))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def serving(node: ChainNode) -> Iterator[ChainNode]:
    handler = type("Handler", (_Handler,), {"node": node})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    node.url = f"http://127.0.0.1:{server.server_port}/v3/a-secret-key"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield node
    finally:
        node.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()


def status(code: int, body: bytes = b"busy") -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def silent(node: ChainNode) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return a handler that does not answer until the server stops."""
    return lambda _: (node.stopping.wait(), None)[1]
