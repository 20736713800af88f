"""Files of any size over a reliable channel: `send_file` sends them, and `FileReceiver` saves received ones.

A small file is one message. A larger one is a manifest and parts, each a message of its own
(`fairway.wire.file_message`). Both sides hold a few parts in memory, and continue after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.lazy_names import lazy_names

if TYPE_CHECKING:
    from fairway.files.outcomes import (
        FileArriving,
        FileLimits,
        FileOutcome,
        FileReceived,
        FileRefusalReason,
        FileRefused,
    )
    from fairway.files.receiving import FileReceiver
    from fairway.files.sending import FileDelivery, FileProgress, Wait, send_file

__all__ = [
    "FileArriving",
    "FileDelivery",
    "FileLimits",
    "FileOutcome",
    "FileProgress",
    "FileReceived",
    "FileReceiver",
    "FileRefusalReason",
    "FileRefused",
    "Wait",
    "send_file",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "fairway.files.outcomes": (
                "FileArriving",
                "FileLimits",
                "FileOutcome",
                "FileReceived",
                "FileRefusalReason",
                "FileRefused",
            ),
            "fairway.files.receiving": ("FileReceiver",),
            "fairway.files.sending": (
                "FileDelivery",
                "FileProgress",
                "Wait",
                "send_file",
            ),
        },
    )
