"""Whether an archive dropped messages that a reader has not yet seen (Kafka's ``failOnDataLoss``).

Stores drop the oldest messages first. So while anything at or before the place that a reader reached is still there,
nothing behind it is gone; when nothing is, messages may be, and nobody can tell (so it may be a false alarm).
"""

from __future__ import annotations

import logging
from typing import Final

from fairway.errors import StoreQueryError
from fairway.pipeline.sources.options import offset_of
from fairway.storage.archive import LARGEST_HASH, ArchiveCursor, ReadableArchive, time_slice

_LOG: Final = logging.getLogger(__name__)


def check_for_data_loss(archive: ReadableArchive, reached: ArchiveCursor, source: str, *, fail: bool) -> None:
    """Raise `StoreQueryError`, or warn, if messages behind ``reached`` may have been dropped.

    A place that is no message, such as the beginning of a time range, says nothing.
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
