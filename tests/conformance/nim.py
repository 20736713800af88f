"""Known answers about the Logos wire: the string hash of Nim, bloom positions, repair times and SDS bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tests.conformance.cases import Case, MalformedCaseError, replay_cases, same
from tests.conformance.report import Check, Checker

from fairway.options import RepairConfig
from fairway.protocol.sds.repair import request_offset
from fairway.wire.bloom import NIM_BLOOM, BloomParameters
from fairway.wire.hashing import farmhash64
from fairway.wire.repair_hash import NIM_REPAIR
from fairway.wire.sds import NIM_SDS, WAKU_SDS, HistoryEntry, SdsMessage

_POSITIONS: Final = re.compile(r"bloom_positions_m([1-9]\d*)_k([1-9]\d*)")
_EMPTY_OR_ABSENT: Final = "nim: present but empty; js: absent"
"""How the examples describe their bloom field."""


def check_hash(case: Case) -> Iterator[Check]:
    """Check FarmHash Fingerprint64, unsigned and as Nim's signed integer."""
    text = case.text("s")
    value = farmhash64(text.encode())
    yield same(f"u64 of {text!r}", case.integer("u64"), value)
    signed = value - (1 << 64) if value >> 63 else value
    yield same(f"i64 of {text!r}", case.integer("i64"), signed)


def bloom_positions_checker(name: str) -> Checker | None:
    """Return the checker of a group whose name tells the size of the filter, or None for another name."""
    match = _POSITIONS.fullmatch(name)
    if match is None:
        return None
    # Positions follow from the two sizes alone; capacity and error rate are what led to them.
    parameters = BloomParameters(capacity=1, error_rate=0.5, bit_count=int(match[1]), hash_count=int(match[2]))

    def check(case: Case) -> Iterator[Check]:
        message_id = case.text("id")
        yield same(message_id, case.integers("bits"), NIM_BLOOM.positions(message_id, parameters))

    return lambda group: replay_cases(group, check)


def check_request_time(case: Case) -> Iterator[Check]:
    """Check when a participant asks for a repair, counted from when it noticed the gap."""
    participant, message_id = case.text("participant"), case.text("message")
    config = RepairConfig(t_min_ms=case.integer("t_min"), t_max_ms=case.integer("t_max"))
    own = request_offset(NIM_REPAIR, participant, message_id, *config.window())
    yield same(f"{participant}, {message_id}", case.integer("value"), own)


def check_response_time(case: Case) -> Iterator[Check]:
    """Check when a participant answers a request for a repair."""
    participant, author, message_id = case.text("participant"), case.text("sender"), case.text("message")
    own = NIM_REPAIR.response_offset(participant, author, message_id, case.integer("t_max"))
    yield same(f"{participant} for {author}, {message_id}", case.integer("value"), own)


def check_wire_example(case: Case) -> Iterator[Check]:
    """Check one message on both wires."""
    fields = case.child("fields")
    if (bloom := fields.text("bloom")) != _EMPTY_OR_ABSENT:
        raise MalformedCaseError(f"the bloom field {bloom!r} is not understood")
    common: dict[str, Any] = {
        "message_id": fields.text("message_id"),
        "sender_id": fields.text("sender_id"),
        "channel_id": fields.text("channel_id"),
        "content": fields.text("content").encode(),
        "causal_history": _entries(fields, "causal_history"),
        "repair_request": _entries(fields, "repair_request"),
    }
    nim = SdsMessage(**common, lamport_timestamp=fields.integer("lamport_nim_seconds"), bloom_filter=b"")
    spec = SdsMessage(**common, lamport_timestamp=fields.integer("lamport_js_ms"))
    for name, codec, message in (("nim_sds", NIM_SDS, nim), ("spec_js", WAKU_SDS, spec)):
        encoded = case.octets(name)
        yield same(f"{name} encoded", encoded, codec.encode(message))
        yield same(f"{name} decoded", message, codec.decode(encoded))


def _entries(case: Case, key: str) -> tuple[HistoryEntry, ...]:
    return tuple(
        HistoryEntry(entry.text("message_id"), entry.maybe_octets("retrieval_hint_hex"), entry.maybe_text("sender_id"))
        for entry in case.children(key)
    )
