"""`ContractMembership`: a group in the contract WakuRlnV2 of a chain, read over JSON-RPC.

The called functions (https://github.com/logos-messaging/logos-messaging-rlnv2-contract):

================================  ================================================================================
``getRecentRoots()``              five roots, the newest first; 0 for a root that does not exist yet
``root()``                        the newest root, for contracts without ``getRecentRoots``
``isInMembershipSet(uint256)``    whether an identity commitment is a member
``getMembershipInfo(uint256)``    limit, index and rate commitment of a member
``getMerkleProof(uint40)``        the 20 nodes beside the path from an index to the root, from the leaf up
================================  ================================================================================

All values are 32 bytes, big-endian. Nothing here writes to the chain; register a membership with other tools.

The node of the chain is trusted for the roots, because no answer proves them: a lying node can accept proofs of another
group and reject those of the true one. Everything else is checked: a path must lead from the member's leaf to a known
root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from fairway.environment import monotonic_s
from fairway.errors import ConfigurationError, DecodeError, NodeUnavailableError, RlnError, RlnErrorKind
from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import ELEMENT_BYTES, ZERO, number_of, poseidon
from fairway.rln.identity import RlnIdentity, rate_commitment
from fairway.rln.json_rpc import CallRefusedError, JsonRpc
from fairway.rln.proving import RlnMember
from fairway.rln.tree import RECENT_ROOTS, TREE_DEPTH, TREE_PLACES, MerklePath, RootWindow
from fairway.wire.hashing import keccak256

CONTRACT_ROOTS: Final = 5
"""Roots that the contract keeps."""
FRESH_ROOTS: Final = 3
"""A path is used while its root is among the newest three; a validator that has just started knows five."""
REFRESH_S: Final = 1.0
"""Shortest time between two queries of `ContractMembership.refresh` for the newest roots."""
STALE_S: Final = 10.0
"""Age of the newest roots beyond which `ContractMembership.member` queries them again."""
PAUSE_S: Final = 5.0
"""Pause after a failed call, during which further calls fail at once."""
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")
_RESULT: Final = re.compile(r"0x([0-9a-fA-F]{2})*")


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
    ) -> None:
        """Keep the addresses of a node of the chain and of the contract, without a call yet.

        ``chain_id`` is compared with that of the node before any other call. A call waits ``timeout_s`` for an answer.
        Raises `ConfigurationError` for invalid values. Needs fairway-rln.
        """
        if not _ADDRESS.fullmatch(contract):
            raise ConfigurationError(f"a contract's address is 0x and 40 hex digits, not {contract!r}")
        self._rpc = JsonRpc(rpc, timeout_s=timeout_s)
        self._contract = contract.lower()
        self._network = network or RlnNetwork()
        self._chain_id = chain_id
        self._lock = Lock()
        self._chain_checked = chain_id is None
        self._roots = RootWindow()
        self._newest: tuple[bytes, ...] = ()
        self._asked_s: float | None = None
        self._failed = ""
        self._retry_s = 0.0
        self._members: dict[bytes, RlnMember] = {}

    def __repr__(self) -> str:
        return f"ContractMembership({self._rpc.name!r}, {self._contract!r})"

    @property
    def network(self) -> RlnNetwork:
        """The network of the group."""
        return self._network

    @property
    def roots(self) -> RootWindow:
        """The newest roots, at most 50; `refresh` changes this object."""
        return self._roots

    def refresh(self) -> bool:
        """Query the newest roots, at most once in `REFRESH_S`; return whether they have changed.

        Raises `NodeUnavailableError` while the node does not answer, `DecodeError` for an invalid answer, and
        `ConfigurationError` for a node of another chain. In these cases the roots stay.
        """
        with self._lock:
            return self._refresh(REFRESH_S)

    def member(self, identity: RlnIdentity) -> RlnMember:
        """Return the member with its path; the contract is queried only if the known path is too old.

        Raises `RlnError`: not ready if the identity is no member, transient without a valid answer of the node,
        permanent for a node of another chain.
        """
        with self._lock:
            try:
                self._refresh(STALE_S)
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
        if self._asked_s is not None and monotonic_s() - self._asked_s < younger_than_s:
            return False
        with self._attempt():
            return self._take_roots()

    def _take_roots(self) -> bool:
        """Query the newest roots, and accept all of them or none."""
        newest = self._ask_newest()
        new = [root for root in reversed(newest) if root not in self._roots]
        for root in new:
            self._roots.add(root)
        self._newest = newest
        self._asked_s = monotonic_s()
        return bool(new)

    def _ask_newest(self) -> tuple[bytes, ...]:
        try:
            known = tuple(root for root in self._ask("getRecentRoots()") if root != ZERO)
        except CallRefusedError:  # a contract that has no such function
            known = ()
        if len(known) > RECENT_ROOTS:
            raise DecodeError(f"{self._rpc.name}: getRecentRoots() gave {len(known)} roots, {CONTRACT_ROOTS} are usual")
        return known or tuple(self._ask("root()", count=1))

    def _ask_for(self, identity: RlnIdentity) -> RlnMember:
        commitment = identity.commitment
        if self._ask("isInMembershipSet(uint256)", number_of(commitment, "an identity commitment"), count=1) == [ZERO]:
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
            self._take_roots()  # the root after a later registration
        if path.root not in self._roots:
            raise DecodeError(f"{self._rpc.name}: the path of index {at} leads to a root that the contract has not")
        return RlnMember(identity=identity, limit=number_of(limit), path=path)

    def _ask(self, signature: str, *arguments: int, count: int | None = None) -> list[bytes]:
        """Return the elements that a function of the contract returns; ``count`` is their number, if it is known."""
        data = keccak256(signature.encode())[:4] + b"".join(each.to_bytes(ELEMENT_BYTES, "big") for each in arguments)
        self._check_chain()
        result = self._rpc.call("eth_call", [{"to": self._contract, "data": f"0x{data.hex()}"}, "latest"])
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

    def _check_chain(self) -> None:
        if self._chain_checked:
            return
        told = self._rpc.call("eth_chainId", [])
        if not isinstance(told, str) or not _QUANTITY.fullmatch(told):
            raise DecodeError(f"{self._rpc.name}: eth_chainId gave no number")
        if int(told, 16) != self._chain_id:
            raise ConfigurationError(f"{self._rpc.name} is a node of chain {int(told, 16)}, not {self._chain_id}")
        self._chain_checked = True

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        """Run the block, unless it failed less than `PAUSE_S` ago."""
        wait_s = self._retry_s - monotonic_s()
        if wait_s > 0:
            raise NodeUnavailableError(f"{self._failed}; asked again in {wait_s:.1f} s")
        try:
            yield
        except (NodeUnavailableError, DecodeError) as error:
            self._failed, self._retry_s = str(error), monotonic_s() + PAUSE_S
            raise


def _root(leaf: bytes, siblings: list[bytes], bits: bytes) -> bytes:
    """Return the root that a path leads to."""
    node = leaf
    for sibling, is_right in zip(siblings, bits, strict=True):
        node = poseidon(sibling, node) if is_right else poseidon(node, sibling)
    return node
