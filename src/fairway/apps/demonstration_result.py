"""What a demonstration was asked to show, and what happened in it: values that a command prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairway.apps.demonstration_bookkeeping import DemonstrationFaults
from fairway.errors import ConfigurationError

NAMES: Final = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
MAX_FILE_BYTES: Final = 20_000_000
"""What 256 segments with parity hold, with room to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationPlan:
    """What is to be shown."""

    file: Path
    """What is sent beside the texts."""
    title: str
    """What the file is called on the screen."""
    loss: float = 0.3
    """Share of deliveries that the network loses."""
    participants: int = 3
    seed: int = 1
    """Of the network's dice. Processes in real time differ from run to run all the same."""
    kill: bool = True
    """Whether one participant is killed half-way and started again."""

    def __post_init__(self) -> None:
        if not 2 <= self.participants <= len(NAMES):
            raise ConfigurationError(f"a demo has 2 to {len(NAMES)} participants, not {self.participants}")
        if not 0 <= self.loss < 1:
            raise ConfigurationError(
                f"loss is the share of deliveries that never happen, 0 <= loss < 1, not {self.loss}"
            )
        try:
            size_bytes = self.file.stat().st_size
        except OSError as error:
            raise ConfigurationError(
                f"{self.file} cannot be read ({error.strerror}); give the path of a readable file"
            ) from error
        if not self.file.is_file():
            raise ConfigurationError(f"{self.file} is not a file; give the path of one")
        if not 1 <= size_bytes <= MAX_FILE_BYTES:
            raise ConfigurationError(
                f"the file has {size_bytes} bytes; a demo sends 1 to {MAX_FILE_BYTES}, choose another"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Who takes part; the first one sends the file."""
        return NAMES[: self.participants]

    @property
    def victim(self) -> str | None:
        """Who is killed: the last one, which receives the file."""
        return self.names[-1] if self.kill else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """One message of the demonstration and what became of it. Times are milliseconds since its beginning."""

    sender: str
    title: str
    is_file: bool
    message_id: str
    """SHA-256 of its payload, lower-case hex."""
    size_bytes: int
    sent_at_ms: int
    received_by: tuple[str, ...]
    delivered_to: tuple[str, ...]
    """Participants that acknowledged all of it."""
    delivered_at_ms: int | None
    """When the last acknowledgement that was asked for came."""
    failed: str | None
    """Why delivery is not known, if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Killing:
    """The story of the process that was killed."""

    name: str
    killed_at_ms: int
    segments_held: int
    """Segments of the file that it held when it was last asked."""
    back_at_ms: int | None = None
    redelivered: int = 0
    """Messages that it got again because it was killed before they were finished."""
    file_at_ms: int | None = None
    """When it had the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationResult:
    """What happened."""

    channel_id: str
    participants: tuple[str, ...]
    messages: tuple[SentMessage, ...]
    elapsed_ms: int
    """Time from the first command until all messages were delivered and acknowledged."""
    verdict: DemonstrationFaults
    faults: tuple[str, ...]
    """What came twice or out of order, a sentence each."""
    file_sha256: str
    saved: Mapping[str, str | None]
    """SHA-256 of the file as each receiver saved it; None if there is none."""
    segments: int
    """Data segments of the file."""
    recovered_by_parity: tuple[str, ...]
    """Receivers for which Reed-Solomon filled in lost segments of the file."""
    killing: Killing | None
    network: Mapping[str, int]
    """The network's own count: published, delivered, lost, and so on."""

    @property
    def copies_with_same_hash(self) -> int:
        """Receivers whose saved copy of the file has the hash of the original."""
        return sum(sha256 == self.file_sha256 for sha256 in self.saved.values())

    @property
    def succeeded(self) -> bool:
        """Whether all participants got all messages once, in order and unchanged, and all acknowledgements came."""
        return self.verdict.is_good and self.copies_with_same_hash == len(self.saved)
