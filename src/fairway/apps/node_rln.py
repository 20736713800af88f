"""How a node process takes part in a network with RLN: the group whose members may send, and its own membership."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fairway.errors import ConfigurationError
from fairway.nodes.discovery.network import Network
from fairway.rln.contract import ContractMembership
from fairway.rln.epochs import RlnNetwork
from fairway.rln.group import RlnGroup
from fairway.rln.membership import RlnMembership
from fairway.rln.membership_file import MembershipFile
from fairway.rln.slash_log import SlashLog
from fairway.service.proof_gate import ProofGate

CONTRACT: Final = "contract"
"""In place of a file: the contract of the network."""
RPC_VARIABLE: Final = "FAIRWAY_RLN_RPC"
"""The address of a node of the chain is no argument: it may have a key in it, and others see arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRln:
    """What the command line says about RLN."""

    group: str
    """Path of a group's file, or `CONTRACT`."""
    slash_log: Path | None = None
    """File for what double signals give away."""
    keystore: Path | None = None
    """The node's own membership."""
    password: str = field(default="", repr=False)
    """Of the keystore."""

    def gate(self, network: Network | None, exits: ExitStack) -> ProofGate:
        """Return what judges proofs.

        Raises `ConfigurationError` for a group that is not the network's, a `StorageError` for files that cannot be
        used, and `MissingExtraError` without fairway-rln.
        """
        record = None if self.slash_log is None else exits.enter_context(SlashLog(self.slash_log)).record
        return ProofGate(self._open(network), record=record)

    def membership(self, network: Network | None, exits: ExitStack) -> RlnMembership | None:
        """Return the node's own membership; raises as `gate` does, and `WrongPasswordError`."""
        if self.keystore is None:
            return None
        return exits.enter_context(RlnMembership.load(self.keystore, self.password, self._open(network)))

    def _open(self, network: Network | None) -> RlnGroup:
        asked = None if network is None else network.rln
        epoch_ms = None if asked is None else asked.epoch_s * 1_000
        if self.group != CONTRACT:
            kept = MembershipFile(self.group)
            if epoch_ms not in {None, kept.network.epoch_ms}:
                raise ConfigurationError(
                    f"the network has epochs of {epoch_ms} ms, the group in {self.group} has {kept.network.epoch_ms}: "
                    "give the network's own group"
                )
            return kept
        if asked is None or asked.contract is None:
            raise ConfigurationError(f"--rln {CONTRACT} needs --network with a network that names one, such as twn")
        rpc = os.environ.get(RPC_VARIABLE)
        if not rpc:
            raise ConfigurationError(f"--rln {CONTRACT} needs {RPC_VARIABLE}, the address of a node of its chain")
        return ContractMembership(
            rpc, asked.contract, chain_id=asked.chain_id, network=RlnNetwork(epoch_ms=asked.epoch_s * 1_000)
        )
