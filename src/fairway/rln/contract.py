"""`ContractMembership`: a group in the contract WakuRlnV2 of a chain, read over JSON-RPC.

What is called (https://github.com/logos-messaging/logos-messaging-rlnv2-contract):

================================  ================================================================================
``getRecentRoots()``              five roots, the newest first; 0 for one that there never was
``root()``                        the newest root, of contracts that know no others
``isInMembershipSet(uint256)``    whether an identity commitment is a member
``getMembershipInfo(uint256)``    limit, index and rate commitment of a member
``getMerkleProof(uint40)``        the 20 nodes beside the path from an index to the root, from the leaf up
================================  ================================================================================

All values are 32 bytes, big-endian. Nothing here writes to the chain: who pays for a membership does so elsewhere.

The node of the chain is believed as to which roots there are, since nothing in an answer proves it: whoever answers in
its place can let proofs of a group of his own pass, and keep out those of the true one. All else is checked: a path
must lead from the member's leaf to a root that is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from fairway.environment import monotonic_s
from fairway.errors import ConfigurationError, DecodeError, NodeUnavailableError, RlnError, RlnErrorKind
from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import ELEMENT_BYTES, ZERO, number_of
from fairway.rln.identity import Identity, rate_commitment
from fairway.rln.json_rpc import CallRefusedError, JsonRpc
from fairway.rln.native import poseidon
from fairway.rln.proving import RlnMember
from fairway.rln.tree import RECENT_ROOTS, TREE_DEPTH, TREE_PLACES, MerklePath, RootWindow
from fairway.wire.hashing import keccak256

CONTRACT_ROOTS: Final = 5
"""Roots that the contract remembers."""
FRESH_ROOTS: Final = 3
"""A path is used as long as its root is among so many newest ones: a validator that has just started knows five."""
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")
_RESULT: Final = re.compile(r"0x([0-9a-fA-F]{2})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractStatistics:
    """What became of the calls."""

    calls: int
    """Calls that were made."""
    unavailable: int
    """Calls that had no whole answer in time."""
    wrong: int
    """Answers that cannot be: no JSON-RPC, of a wrong length, no field elements, a path to an unknown root."""
    refused: int
    """Errors of JSON-RPC, such as a reverted call."""
    root_changes: int
    """How often there were new roots."""


class ContractMembership:
    """The group in a contract, and the roots that validators accept. Threads may share one."""

    def __init__(
        self,
        rpc: str,
        contract: str,
        *,
        network: RlnNetwork | None = None,
        chain_id: int | None = None,
        timeout_s: float = 10.0,
        refresh_s: float = 1.0,
        stale_s: float = 10.0,
        first_backoff_s: float = 1.0,
        max_backoff_s: float = 60.0,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """Take the address of a node of the chain and of the contract; nothing is asked yet.

        ``chain_id`` is compared with what the node says, before anything else is asked. A call ends after
        ``timeout_s``. `refresh` asks for roots every ``refresh_s`` seconds at most, and `member` if they are older than
        ``stale_s``. After a call that failed nothing is asked for ``first_backoff_s``, then twice as long each time, to
        ``max_backoff_s``. ``clock`` returns seconds.

        Raises `ConfigurationError` for values that cannot be. Needs fairway-rln.
        """
        if not _ADDRESS.fullmatch(contract):
            raise ConfigurationError(f"a contract's address is 0x and 40 hex digits, not {contract!r}")
        if refresh_s < 0 or stale_s < 0:
            raise ConfigurationError(f"refresh_s and stale_s must not be negative, not {refresh_s} and {stale_s}")
        if not 0 < first_backoff_s <= max_backoff_s:
            raise ConfigurationError(
                "first_backoff_s must be positive and not above max_backoff_s, not "
                f"{first_backoff_s} and {max_backoff_s}"
            )
        self._rpc = JsonRpc(rpc, timeout_s=timeout_s)
        self._contract = contract.lower()
        self._network = network or RlnNetwork()
        self._chain_id = chain_id
        self._refresh_s, self._stale_s = refresh_s, stale_s
        self._first_backoff_s, self._max_backoff_s = first_backoff_s, max_backoff_s
        self._clock = clock
        self._lock = Lock()
        self._chain_checked = chain_id is None
        self._roots = RootWindow()
        self._newest: tuple[bytes, ...] = ()
        self._asked_s: float | None = None
        self._failed = ""
        self._retry_s = 0.0
        self._backoff_s = first_backoff_s
        self._members: dict[bytes, RlnMember] = {}
        self._calls = self._unavailable = self._wrong = self._refused = self._root_changes = 0

    def __repr__(self) -> str:
        return f"ContractMembership({self._rpc.name!r}, {self._contract!r})"

    @property
    def network(self) -> RlnNetwork:
        """What all members and validators have in common."""
        return self._network

    @property
    def roots(self) -> RootWindow:
        """The roots that were seen, at most 50; `refresh` changes this very object."""
        return self._roots

    def statistics(self) -> ContractStatistics:
        """Return what became of the calls."""
        return ContractStatistics(
            calls=self._calls,
            unavailable=self._unavailable,
            wrong=self._wrong,
            refused=self._refused,
            root_changes=self._root_changes,
        )

    def refresh(self) -> bool:
        """Ask for the newest roots unless that was just done; return whether there are new ones.

        Raises `NodeUnavailableError` if the node does not answer, or did not a moment ago, `DecodeError` for an answer
        that cannot be, `ConfigurationError` for a node of another chain. The roots stay then.
        """
        with self._lock:
            return self._refresh(self._refresh_s)

    def is_member(self, commitment: bytes) -> bool:
        """Return whether the contract has a member with this commitment. Raises as `refresh` does."""
        with self._lock, self._attempt():
            return self._is_member(commitment)

    def member(self, identity: Identity) -> RlnMember:
        """Return what an identity needs for its proofs; the contract is asked only if its path is too old.

        Raises `RlnError`: not ready if the identity is no member, transient if the contract cannot be asked or says
        what cannot be, permanent for a node of another chain.
        """
        with self._lock:
            try:
                self._refresh(self._stale_s)
                known = self._members.get(identity.commitment)
                if known is not None and known.path.root in self._newest[:FRESH_ROOTS]:
                    return known
                with self._attempt():
                    found = self._ask_for(identity)
            except (NodeUnavailableError, DecodeError) as error:
                raise RlnError(RlnErrorKind.TRANSIENT, str(error)) from error
            except ConfigurationError as error:
                raise RlnError(RlnErrorKind.PERMANENT, str(error)) from error
            self._members[identity.commitment] = found
            return found

    def _refresh(self, younger_than_s: float) -> bool:
        if self._asked_s is not None and self._clock() - self._asked_s < younger_than_s:
            return False
        with self._attempt():
            return self._take_roots()

    def _take_roots(self) -> bool:
        """Ask for the newest roots and accept them; all or none."""
        newest = self._ask_newest()
        new = [root for root in reversed(newest) if root not in self._roots]
        for root in new:
            self._roots.add(root)
        self._newest = newest
        self._asked_s = self._clock()
        self._root_changes += bool(new)
        return bool(new)

    def _ask_newest(self) -> tuple[bytes, ...]:
        try:
            known = tuple(root for root in self._ask("getRecentRoots()") if root != ZERO)
        except CallRefusedError:  # a contract that has no such function
            known = ()
        if len(known) > RECENT_ROOTS:
            raise DecodeError(f"{self._rpc.name}: getRecentRoots() gave {len(known)} roots, {CONTRACT_ROOTS} are usual")
        return known or tuple(self._ask("root()", count=1))

    def _is_member(self, commitment: bytes) -> bool:
        (told,) = self._ask("isInMembershipSet(uint256)", number_of(commitment, "an identity commitment"), count=1)
        if number_of(told) > 1:
            raise DecodeError(f"{self._rpc.name}: isInMembershipSet(uint256) gave {number_of(told)}, neither 0 nor 1")
        return told != ZERO

    def _ask_for(self, identity: Identity) -> RlnMember:
        commitment = identity.commitment
        if not self._is_member(commitment):
            text = f"{commitment.hex()} is no member of {self._contract}: register it first"
            raise RlnError(RlnErrorKind.NOT_READY, text)
        limit, index, leaf = self._ask("getMembershipInfo(uint256)", number_of(commitment), count=3)
        if number_of(limit) == 0 or rate_commitment(commitment, number_of(limit)) != leaf:
            raise DecodeError(f"{self._rpc.name}: the member's limit and rate commitment do not belong together")
        at = number_of(index)
        if at >= TREE_PLACES:
            raise DecodeError(f"{self._rpc.name}: the member is at index {at}, a group has {TREE_PLACES} places")
        siblings = self._ask("getMerkleProof(uint40)", at, count=TREE_DEPTH)
        bits = bytes(at >> level & 1 for level in range(TREE_DEPTH))
        path = MerklePath(root=_root(leaf, siblings, bits), siblings=tuple(siblings), bits=bits)
        if path.root not in self._roots:
            self._take_roots()  # of a member that has joined since
        if path.root not in self._roots:
            raise DecodeError(f"{self._rpc.name}: the path of index {at} leads to a root that the contract has not")
        return RlnMember(identity=identity, limit=number_of(limit), path=path)

    def _ask(self, signature: str, *arguments: int, count: int | None = None) -> list[bytes]:
        """Return the elements that a function of the contract gives, ``count`` of them if that is known."""
        data = keccak256(signature.encode())[:4] + b"".join(each.to_bytes(ELEMENT_BYTES, "big") for each in arguments)
        result = self._call("eth_call", [{"to": self._contract, "data": f"0x{data.hex()}"}, "latest"])
        if not isinstance(result, str) or not _RESULT.fullmatch(result):
            raise DecodeError(f"{self._rpc.name}: {signature} gave no bytes in hex digits")
        raw = bytes.fromhex(result[2:])
        if not raw and count is not None:
            raise DecodeError(f"{self._rpc.name}: {signature} gave nothing: is there a contract at {self._contract}?")
        if len(raw) % ELEMENT_BYTES or (count is not None and len(raw) != count * ELEMENT_BYTES):
            wanted = "whole words of 32 bytes" if count is None else f"{count * ELEMENT_BYTES} bytes"
            raise DecodeError(f"{self._rpc.name}: {signature} gave {len(raw)} bytes, not {wanted}")
        words = [raw[at : at + ELEMENT_BYTES][::-1] for at in range(0, len(raw), ELEMENT_BYTES)]
        for word in words:
            number_of(word, f"{self._rpc.name}: what {signature} gave")
        return words

    def _call(self, method: str, parameters: list[Any]) -> Any:
        self._check_chain(method)
        self._calls += 1
        try:
            return self._rpc.call(method, parameters)
        except CallRefusedError:
            self._refused += 1
            raise
        except NodeUnavailableError:
            self._unavailable += 1
            raise

    def _check_chain(self, method: str) -> None:
        if self._chain_checked or method == "eth_chainId":
            return
        told = self._call("eth_chainId", [])
        if not isinstance(told, str) or not _QUANTITY.fullmatch(told):
            raise DecodeError(f"{self._rpc.name}: eth_chainId gave no number")
        if int(told, 16) != self._chain_id:
            raise ConfigurationError(f"{self._rpc.name} is a node of chain {int(told, 16)}, not {self._chain_id}")
        self._chain_checked = True

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        """Let the block ask unless the last attempt failed a moment ago; if it fails, wait longer than before."""
        wait_s = self._retry_s - self._clock()
        if self._failed and wait_s > 0:
            raise NodeUnavailableError(f"{self._failed}; asked again in {wait_s:.1f} s")
        try:
            yield
        except (NodeUnavailableError, DecodeError) as error:
            self._wrong += isinstance(error, DecodeError)
            self._failed = str(error)
            self._retry_s = self._clock() + self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, self._max_backoff_s)
            raise
        self._failed, self._backoff_s = "", self._first_backoff_s


def _root(leaf: bytes, siblings: list[bytes], bits: bytes) -> bytes:
    """Return the root that a path leads to."""
    node = leaf
    for sibling, is_right in zip(siblings, bits, strict=True):
        node = poseidon(sibling, node) if is_right else poseidon(node, sibling)
    return node
