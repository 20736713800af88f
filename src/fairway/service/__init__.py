"""A service node in this process: relay, light push, filter and store over one archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.lazy_names import lazy_names

if TYPE_CHECKING:
    from fairway.service.node import ServiceNode
    from fairway.service.options import ServiceOptions, StoreSyncOptions

__all__ = ["ServiceNode", "ServiceOptions", "StoreSyncOptions"]

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "fairway.service.node": ("ServiceNode",),
            "fairway.service.options": ("ServiceOptions", "StoreSyncOptions"),
        },
    )
