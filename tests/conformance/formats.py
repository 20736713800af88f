"""The formats of known-answer files: which groups each has, which checker a group has, and what is only prose.

A file's format is recognised by its groups. Every key of a file must be in these tables; a new group needs a line here
and a checker in the module of its subject.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.conformance import (
    blooms,
    leopard,
    nim,
    repair,
    sds_wire,
    segmentation,
    waku_protocols,
    waku_wire,
)
from tests.conformance.cases import case_list, one_case, one_or_more
from tests.conformance.report import Checker

_NOTE: Final = "_note"


def _none(_name: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format of known-answer files."""

    name: str
    groups: Mapping[str, Checker]
    """Checkers by the name of the group."""
    prose: frozenset[str]
    """Keys that claim nothing about fairway."""
    parametrised: Callable[[str], Checker | None] = field(default=_none)
    """Finds the checker of a group whose name carries parameters."""

    def checker(self, key: str) -> Checker | None:
        """Return the checker of a group, or None if this format has no such group."""
        return self.groups.get(key) or self.parametrised(key)

    def is_prose(self, key: str) -> bool:
        """Return whether a key is only prose: listed as such, or a note on one of the groups."""
        return key in self.prose or (key.endswith(_NOTE) and key.removesuffix(_NOTE) in self.groups)


FORMATS: Final = (
    Format(
        name="js-waku",
        groups={
            "hashn": case_list(blooms.check_hash_n),
            "bloom": case_list(blooms.check_bloom),
            "bloom_errors": case_list(blooms.check_bloom_error),
            "nim_hash_test_vectors": one_case(blooms.check_nim_table, "table"),
            "message_ids": case_list(sds_wire.check_message_id),
            "sds_messages": case_list(sds_wire.check_message),
            "sds_decode_only": case_list(sds_wire.check_decode_only),
            "lamport_increment": case_list(sds_wire.check_lamport),
            "history_order": one_case(sds_wire.check_history_order, "order"),
            "repair": repair.check_repair,
            "waku_message_hash": case_list(waku_wire.check_message_hash),
            "waku_message": case_list(waku_wire.check_message),
            "encoder": one_or_more(waku_wire.check_encoder),
            "sharding": case_list(waku_wire.check_sharding),
            "relay_shard_codec": case_list(waku_wire.check_relay_shards),
            "lightpush": waku_protocols.check_lightpush,
            "filter": waku_protocols.check_filter,
            "store": waku_protocols.check_store,
            "metadata": waku_protocols.check_metadata,
        },
        # Traces record a whole channel of js-waku. The tests run the real one beside fairway instead (tests/interop).
        prose=frozenset({"meta", "traces", "traces_note"}),
    ),
    Format(
        name="leopard",
        groups={"vectors": leopard.check_leopard},
        prose=frozenset({"about", "input", "parity", "recoverable", "unrecoverable", "field_bits"}),
    ),
    Format(
        name="segmentation",
        groups={
            "upstream_wire_vectors": case_list(segmentation.check_wire),
            "undecodable": segmentation.check_undecodable,
            "parity_count": case_list(segmentation.check_parity_counts),
            "keccak256": case_list(segmentation.check_keccak),
            "segmentation": case_list(segmentation.check_segmentation),
            "leopard_parity_sha256": case_list(segmentation.check_parity_digest),
            # Files from before the first name was chosen have the second.
            **dict.fromkeys(("waku_segments", "seed003_v0"), one_or_more(segmentation.check_waku_segments)),
        },
        prose=frozenset({"about"}),
    ),
    Format(
        name="nim-sds",
        groups={
            "hash64": case_list(nim.check_hash),
            "t_req_ms": case_list(nim.check_request_time),
            "t_resp_ms": case_list(nim.check_response_time),
            "wire_examples_computed": one_or_more(nim.check_wire_example),
        },
        prose=frozenset({"about"}),
        parametrised=nim.bloom_positions_checker,
    ),
)
"""Every format that can be replayed."""
