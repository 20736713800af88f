"""The rate limit membership of each node, which all its channels share (`fairway.protocol.ratelimit.membership`)."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from fairway.protocol.ratelimit import Membership
from fairway.waku.node import WakuNode

_MEMBERSHIPS: Final[WeakKeyDictionary[WakuNode, Membership]] = WeakKeyDictionary()


def membership_of(node: WakuNode) -> Membership:
    """Return the membership that all channels on a node share."""
    return _MEMBERSHIPS.setdefault(node, Membership())
