"""`Lip76Scan`: a read of a LIP-76 folder; a task reads one or several whole archives, because these are not sorted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from fairway.pipeline import machine
from fairway.pipeline.sources.waku_messages import MessageScan, Selection, arrow_batches, even_runs
from fairway.storage.archive import ArchivedMessage
from fairway.storage.lip76 import Lip76Archive, StoredArchive

_PARTITIONS_PER_CORE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lip76Scan(MessageScan):
    """A read of a LIP-76 folder. Archives that the index places outside the wanted time are not opened."""

    archive: Lip76Archive
    source: str
    selection: Selection = field(default_factory=Selection)

    def plan(self, partitions: int | None = None, cores: int | None = None) -> list[tuple[StoredArchive, ...]]:
        """Return runs of archives of about equally many bytes, at least one run."""
        wanted = self.selection.part
        times = (wanted.after.timestamp_ns, wanted.through.timestamp_ns)
        archives = [archive for archive in self.archive.archives() if archive.may_hold(*times)]
        sizes = [archive.end - archive.offset for archive in archives]
        return even_runs(archives, sizes, partitions or _PARTITIONS_PER_CORE * (cores or machine.cores()))

    def read(self, part: tuple[StoredArchive, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of some archives."""
        for archive in part:
            yield from self.batches(self.archive.messages(archive))

    def batches(self, messages: Iterable[ArchivedMessage]) -> Iterator[pa.RecordBatch]:
        """Yield those of some messages that are wanted."""
        return arrow_batches(self.selection.chosen(filter(self.selection.wants, messages)), self.source)
