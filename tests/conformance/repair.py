"""Known answers about the arithmetic of SDS-R, as js-waku computes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.conformance.cases import Case, case_list, replay_tables, same
from tests.conformance.report import Check

from fairway.options import RepairConfig
from fairway.protocol.sds.repair import in_response_group, request_offset, response_groups_for
from fairway.wire.repair_hash import WAKU_REPAIR

_GROUPS: Final = "js-waku has max(1, n div 128) response groups; fairway follows SDS-R, n div 128 + 1"
_JS_DEFAULTS: Final = {"tMin": 30_000, "tMax": 120_000}


def check_repair(group: Any) -> Iterator[Check]:
    """Check hashes, times and groups of repair, one table each."""
    checkers = {
        "hashToInteger": _hash,
        "combined": _combined,
        "xor": _xor,
        "tReq": _request_time,
        "tResp": _response_time,
        "inGroup": _membership,
        "groups": _group_count,
    }
    yield from replay_tables("repair", group, {name: case_list(check, f"{name} ") for name, check in checkers.items()})


def _hash(case: Case) -> Iterator[Check]:
    text = case.text("s")
    yield same(repr(text), case.integer("v"), WAKU_REPAIR.hash(text))


def _combined(case: Case) -> Iterator[Check]:
    participant, message_id = case.text("participant"), case.text("messageId")
    yield same(f"{participant}, {message_id}", case.integer("v"), WAKU_REPAIR.pair(participant, message_id))


def _xor(case: Case) -> Iterator[Check]:
    one, other = case.text("a"), case.text("b")
    yield same(f"{one}, {other}", case.integer("v"), WAKU_REPAIR.distance(one, other))


def _config(case: Case) -> RepairConfig:
    given = case.child("cfg")
    t_min, t_max = (given.maybe_integer(key) for key in ("tMin", "tMax"))
    # These do not enter into the times.
    given.maybe_integer("numResponseGroups")
    given.prose("bufferSize", "enabled")
    return RepairConfig(
        t_min_ms=_JS_DEFAULTS["tMin"] if t_min is None else t_min,
        t_max_ms=_JS_DEFAULTS["tMax"] if t_max is None else t_max,
    )


def _request_time(case: Case) -> Iterator[Check]:
    participant, message_id, now_ms = case.text("participant"), case.text("messageId"), case.integer("now")
    at_ms = now_ms + request_offset(WAKU_REPAIR, participant, message_id, *_config(case).window())
    yield same(f"{participant}, {message_id}", case.integer("tReq"), at_ms)


def _response_time(case: Case) -> Iterator[Check]:
    participant, author, message_id = case.text("participant"), case.text("senderId"), case.text("messageId")
    t_max_ms = _config(case).window()[1]
    at_ms = case.integer("now") + WAKU_REPAIR.response_offset(participant, author, message_id, t_max_ms)
    yield same(f"{participant} for {author}, {message_id}", case.integer("tResp"), at_ms)


def _membership(case: Case) -> Iterator[Check]:
    participant, author, message_id = case.text("participant"), case.text("senderId"), case.text("messageId")
    groups = case.integer("numResponseGroups")
    # No participant answers a request that does not name the author.
    own = bool(author) and in_response_group(WAKU_REPAIR, participant, author, message_id, groups)
    yield same(f"{participant} for {author} of {groups}, {message_id}", case.flag("inGroup"), own)


def _group_count(case: Case) -> Iterator[Check]:
    participants = case.integer("numParticipants")
    own = response_groups_for(participants)
    yield same(f"{participants} by SDS-R", case.integer("spec_formula_n_div_128_plus_1"), own)
    recorded = case.integer("numResponseGroups")
    check = same(f"{participants} in js-waku", recorded, max(1, participants // 128))
    yield check if recorded == own or not check.ok else Check(check.name, ok=True, differs_on_purpose=_GROUPS)
