"""`RunOptions`: the options of a run, beside its sources and keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fairway.errors import ConfigurationError
from fairway.options import Profile
from fairway.pipeline.channel_topics import check_channel_topics
from fairway.pipeline.sources.waku_messages import Selection
from fairway.pipeline.stages.ordered_logs import MAX_CHANNEL_BYTES
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run. Raises `ConfigurationError` for invalid values."""

    profile: Profile | None = None
    """The wire of all channels; None decides for each message, by its ``meta``."""
    blooms: bool = False
    """Whether bloom filters are evaluated as acknowledgements, which reads all payloads again."""
    epoch_ms: int = 600_000
    """Length of an epoch of the rate limit."""
    rate_limit: int | None = None
    """Transmissions allowed for a sender in an epoch; None if unknown."""
    parity_rate: float = ARCHIVE_SEGMENTATION.parity_rate
    """Parity segments per data segment in the options of the participants; it distinguishes lost parity segments from
    missing messages."""
    max_channel_bytes: int = MAX_CHANNEL_BYTES
    """Ids and citations that a worker orders at once; it orders larger channels in parts."""
    partitions: int | None = None
    """Parts into which each source and the tables are split, at most 2,048 of tables; None: from their sizes and the
    cores of the cluster."""
    selection: Selection = field(default_factory=Selection)
    """The wanted messages; see `fairway.pipeline.sources.options.selection_of`. With ``channels`` the tables have
    exactly these, and undecodable messages that claim one of them."""
    channel_topics: Mapping[str, str] = field(default_factory=dict)
    """Content topics of channels, by id. A message of such a channel on another topic goes to the quarantine. Other
    channels belong to the topic of nearly all of their messages (`fairway.pipeline.run.topics`)."""

    def __post_init__(self) -> None:
        """Raise `ConfigurationError` for invalid values."""
        for name in ("epoch_ms", "rate_limit", "max_channel_bytes", "partitions"):
            given = getattr(self, name)
            if given is not None and given <= 0:
                raise ConfigurationError(f"{name} must be positive, not {given}")
        check_channel_topics(self.channel_topics)

    def as_json(self) -> dict[str, Any]:
        """Return the options as values for JSON."""
        profile = None if self.profile is None else self.profile.value
        return asdict(self) | {"profile": profile, "selection": self.selection.as_json()}
