"""The status of a node, everybody who watches it, and what all nodes that have one share.

Invariant: a watcher sees every status once, in order, beginning with the one at the time of its call; a status that
does not differ from the one before is no change. Watchers are told in the order in which they came; one that is dropped
without being closed is forgotten.
"""

from __future__ import annotations

from itertools import count
from typing import Final
from weakref import WeakValueDictionary

from fairway.waku.node import NodeHealth, NodeQuota, NodeStatus, WakuNode
from fairway.waku.subscription import Subscription

AWAY: Final = NodeStatus(health=NodeHealth.UNHEALTHY)
"""How a node is before it is connected, and when it is closed."""


class StatusBoard:
    """Holds the present status, at first `AWAY`, and hands every change to every watcher."""

    def __init__(self) -> None:
        self._status = AWAY
        self._closed = False
        self._numbers = count()
        self._watchers: WeakValueDictionary[int, Subscription[NodeStatus]] = WeakValueDictionary()

    @property
    def status(self) -> NodeStatus:
        """The present status."""
        return self._status

    def show(self, status: NodeStatus) -> None:
        """Make this the present status; once the board is closed nothing changes any more."""
        if status != self._status and not self._closed:
            self._status = status
            for watcher in list(self._watchers.values()):
                watcher.put(status)

    def watch(self) -> Subscription[NodeStatus]:
        """Return the present status and all that follow, as an async iterator."""
        watcher: Subscription[NodeStatus] = Subscription()
        watcher.put(self._status)
        if self._closed:
            watcher.close()
        else:
            self._watchers[next(self._numbers)] = watcher
        return watcher

    def close(self) -> None:
        """Show `AWAY` at last and end every watcher's iteration. May be called twice."""
        self.show(AWAY)
        self._closed = True
        for watcher in list(self._watchers.values()):
            watcher.close()


class WatchedNode(WakuNode):
    """A node whose status stands on a board of its own, which `close` has to close, and that knows of no quota."""

    def __init__(self) -> None:
        self._board: Final = StatusBoard()

    @property
    def status(self) -> NodeStatus:
        """How the node is now."""
        return self._board.status

    def status_changes(self) -> Subscription[NodeStatus]:
        """Yield every status from now on, the present one first; ends when the node is closed."""
        return self._board.watch()

    @property
    def quota(self) -> NodeQuota | None:
        """None: the node is not told of a rate limit."""
        return None
