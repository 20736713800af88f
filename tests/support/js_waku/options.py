"""The options of js-waku's MessageChannel, as fairway's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.conformance.cases import Case, MalformedCaseError

from fairway.options import BloomPolicy, IdRule, RepairConfig, SdsConfig

_CHANNEL_ID: Final = "trace-channel"
"""The channel of every participant for which a record names no other."""
_CAUSAL_HISTORY_SIZE: Final = 200
_POSSIBLE_ACKS_THRESHOLD: Final = 2
_T_MIN_MS: Final = 30_000
_T_MAX_MS: Final = 120_000
_RESPONSE_GROUPS: Final = 1
_REPAIR_BUFFER_SIZE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JsWakuOptions:
    """Everything that a record tells about a participant."""

    channel_id: str
    sender_id: str
    config: SdsConfig

    @classmethod
    def read(cls, name: str, case: Case) -> JsWakuOptions:
        """Read the options of the participant of a name; what is absent has js-waku's default."""
        history = _integer(case, "causalHistorySize", _CAUSAL_HISTORY_SIZE)
        if history < 0:
            raise MalformedCaseError(f"causalHistorySize must not be negative, not {history}")
        enabled = case.maybe_flag("enableRepair")
        return cls(
            channel_id=case.maybe_text("channelId") or _CHANNEL_ID,
            sender_id=case.maybe_text("senderId") or name,
            config=SdsConfig(
                bloom_policy=BloomPolicy.ALWAYS,
                causal_history_size=history,
                # The first possible acknowledgement is one too many for any threshold below 2.
                possible_acks_threshold=max(1, _integer(case, "possibleAcksThreshold", _POSSIBLE_ACKS_THRESHOLD)),
                lost_timeout_ms=_integer(case, "timeoutForLostMessagesMs", 0),
                id_rule=IdRule.PAYLOAD,
                repair=_repair(case.maybe_child("repairConfig") or Case({}), enabled=enabled is not False),
            ),
        )


def _repair(case: Case, *, enabled: bool) -> RepairConfig:
    # js-waku has no such option here and does not look at it; `enableRepair` is the switch.
    case.prose("enabled")
    t_min, t_max = _integer(case, "tMin", _T_MIN_MS), _integer(case, "tMax", _T_MAX_MS)
    size = _integer(case, "bufferSize", _REPAIR_BUFFER_SIZE)
    if not t_min < t_max or size < 1:
        raise MalformedCaseError(
            f"tMin {t_min}, tMax {t_max} and bufferSize {size} make js-waku throw; "
            "only tMin < tMax and a bufferSize of 1 or more can be replayed"
        )
    return RepairConfig(
        enabled=enabled,
        t_min_ms=t_min,
        t_max_ms=t_max,
        # With one group, or fewer, everybody is in it.
        response_groups=max(1, _integer(case, "numResponseGroups", _RESPONSE_GROUPS)),
        max_tracked=size,
    )


def _integer(case: Case, key: str, default: int) -> int:
    value = case.maybe_integer(key)
    return default if value is None else value
