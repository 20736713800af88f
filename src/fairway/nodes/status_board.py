"""`StatusBoard`: the status of a node and its watchers; `WatchedNode`: a node that has one.

A watcher gets the status at the time of its call, then every change once, in order. An equal status is no change.
Watchers are served in the order of their calls; one that the program drops without closing it is removed.
"""

from __future__ import annotations

from itertools import count
from typing import Final
from weakref import WeakValueDictionary

from fairway.loop_binding import LoopBinding
from fairway.nodes.node import NodeHealth, NodeQuota, NodeStatus, WakuNode
from fairway.subscription import Subscription

AWAY: Final = NodeStatus(health=NodeHealth.UNHEALTHY)
"""The status of a node before it is connected, and after it is closed."""


class StatusBoard:
    """Holds the present status, at first `AWAY`, and passes every change to all watchers."""

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
        """Set the present status; a closed board does not change."""
        if status != self._status and not self._closed:
            self._status = status
            for watcher in list(self._watchers.values()):
                watcher.put(status)

    def watch(self) -> Subscription[NodeStatus]:
        """Return an async iterator over the present status and all changes."""
        watcher: Subscription[NodeStatus] = Subscription()
        watcher.put(self._status)
        if self._closed:
            watcher.close()
        else:
            self._watchers[next(self._numbers)] = watcher
        return watcher

    def close(self) -> None:
        """Show `AWAY`, and end the iteration of every watcher. Can be called twice."""
        self.show(AWAY)
        self._closed = True
        for watcher in list(self._watchers.values()):
            watcher.close()


class WatchedNode(WakuNode):
    """A node with a status board, which its `close` must close, that works on one event loop and has no rate limit."""

    def __init__(self) -> None:
        self._board: Final = StatusBoard()
        self._binding: Final = LoopBinding("the node")

    @property
    def status(self) -> NodeStatus:
        """The present status."""
        return self._board.status

    def status_changes(self) -> Subscription[NodeStatus]:
        """Yield the present status, then every change; ends when the node is closed."""
        self._binding.check()
        return self._board.watch()

    @property
    def quota(self) -> NodeQuota | None:
        """None: the node does not know a rate limit."""
        return None
