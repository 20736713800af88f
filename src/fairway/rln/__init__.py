"""RLN-V2: a rate limit that every relay can check, without knowing who sends (17/WAKU2-RLN-RELAY).

A member proves with each message that it is in the group and uses one of its message ids of the epoch. It shows
neither who it is nor which id it uses. Two messages under one id give the secret of the membership away.

- `native` loads the compiled package fairway-rln: the circuit and the Poseidon hash. All else is Python.
- `field` has the numbers that RLN computes with, `epochs` what binds a proof to an epoch of a network.
- `identity` has the secrets of a member.
- `tree` is the Merkle tree of a group and the roots that are accepted.
- `group` is what is asked of a group; `membership_file` has one in a file, `contract` one in a contract of a chain,
  which it asks by `json_rpc`.
- `keystore` keeps identities in a file, each encrypted as `keyfile` says.
- `proof` is a proof on the wire, `proving` makes and verifies it.
- `message_ids` sees to it that no id proves two signals, `signing` proves the signals of a membership.
- `membership` is what a program gives to its node, so that what it sends has proofs.
- `nullifiers` notices double signals, `slash_log` writes down what they give away, `validation` judges messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.lazy_names import lazy_names

if TYPE_CHECKING:
    from fairway.protocol.ratelimit import RlnProofProvider
    from fairway.rln.membership import RlnMembership

__all__ = ["RlnMembership", "RlnProofProvider"]

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "fairway.rln.membership": ("RlnMembership",),
            "fairway.protocol.ratelimit": ("RlnProofProvider",),
        },
    )
