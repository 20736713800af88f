"""What distinguishes the two profiles: codecs, segments, arithmetic of repair, unit of time, marker.

The protocol behind them is one: it asks the dialect of its channel, never which profile that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.options import Profile
from fairway.protocol.sds.repair_times import NIM_REPAIR, WAKU_REPAIR, RepairHash
from fairway.wire.sds import NIM_SDS, WAKU_SDS, SdsCodec
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, SegmentFormat

LOGOS_MARKER: Final = b"RELIABLE-CHANNEL-API/1"
"""WakuMessage.meta of a channel that speaks the Logos profile (LIP-173)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SdsDialect:
    """The choices of one family of implementations."""

    codec: SdsCodec
    segments: SegmentFormat
    repair: RepairHash
    lamport_unit_ms: int
    """Milliseconds in one unit of a Lamport timestamp."""
    lamport_lead: int
    """Units by which a message may always lead the receiver's clock, whatever the wall clock says.

    Where a unit is a second, a channel with more than one message a second counts messages and not time: for good, and
    ever further from the wall clock. Where it is a millisecond, that does not happen."""
    marker: bytes | None
    """WakuMessage.meta of everything in a channel; None for none."""
    ephemeral_is_content: bool
    """Whether ephemeral messages are wrapped, logged and cited like any others."""


WAKU_DIALECT: Final = SdsDialect(
    codec=WAKU_SDS,
    segments=WAKU_SEGMENTS,
    repair=WAKU_REPAIR,
    lamport_unit_ms=1,
    lamport_lead=0,
    marker=None,
    ephemeral_is_content=False,
)
"""SDS as specified, and js-waku."""
LOGOS_DIALECT: Final = SdsDialect(
    codec=NIM_SDS,
    segments=LIP_243,
    repair=NIM_REPAIR,
    lamport_unit_ms=1_000,
    lamport_lead=1_000,
    marker=LOGOS_MARKER,
    ephemeral_is_content=True,
)
"""nim-sds."""
DIALECTS: Final = {Profile.WAKU: WAKU_DIALECT, Profile.LOGOS: LOGOS_DIALECT}
