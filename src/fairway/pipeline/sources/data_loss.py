"""Checks whether an archive may have removed messages before they were read (Kafka's ``failOnDataLoss``).

Stores remove the oldest messages first. So while the archive has a message at or before the cursor of a reader, it has
all messages after it. If it has none, messages may be lost; this cannot be decided, so it may be a false alarm.
"""

from __future__ import annotations

import logging
from typing import Final

from fairway.errors import StoreQueryError
from fairway.pipeline.sources.options import offset_of
from fairway.storage.archive import LARGEST_HASH, ArchiveCursor, ReadableArchive, time_slice

_LOG: Final = logging.getLogger(__name__)


def check_for_data_loss(archive: ReadableArchive, reached: ArchiveCursor, source: str, *, fail: bool) -> None:
    """Raise `StoreQueryError`, or warn, if messages after ``reached`` may have been removed.

    A cursor that is none of a message, such as the beginning of a time range, is not checked.
    """
    if reached.message_hash in {b"", LARGEST_HASH}:
        return
    first = archive.nth(1, time_slice())
    if first is not None and first <= reached:
        return
    text = (
        f"{source}: nothing up to the offset {offset_of(reached)} is left in the archive, so messages behind it may "
        "have been dropped unread"
    )
    if fail:
        raise StoreQueryError(f"{text}; the option failOnDataLoss=false goes on with what is there")
    _LOG.warning(text)
