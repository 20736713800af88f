"""RLN-V2: a rate limit that every relay can check without knowing the sender (17/WAKU2-RLN-RELAY).

With each message a member proves that it is in the group and uses one of its message ids of the epoch. The proof shows
neither the member nor the id. Two messages under one id reveal the secret of the membership.

- `membership`: makes the proofs of a program; the interface of a group.
- `membership_file`, `contract`: a group in a file, and in a contract of a chain, read with `json_rpc`.
- `keystore`, `keyfile`: identities in a file, each encrypted with a password.
- `message_ids`: counts the used message ids on the disk.
- `proof`, `proving`, `validation`: a proof on the wire; makes and verifies it; validates messages.
- `slash_log`: records the secrets that double signals reveal.
- `field`, `epochs`, `identity`, `tree`: field elements, epochs, the secrets of a member, the Merkle tree of a group.
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
