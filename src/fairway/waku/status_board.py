"""The status of a node, and everybody who watches it.

Invariant: a watcher sees every status once, in order, beginning with the one at the time of its call; a status that
does not differ from the one before is no change. A watcher that is dropped without being closed is forgotten.
"""

from __future__ import annotations

from weakref import WeakSet

from fairway.waku.node import NodeStatus
from fairway.waku.subscription import Subscription


class StatusBoard:
    """Holds the present status and hands every change to every watcher."""

    def __init__(self, status: NodeStatus) -> None:
        self._status = status
        self._closed = False
        self._watchers: WeakSet[Subscription[NodeStatus]] = WeakSet()

    @property
    def status(self) -> NodeStatus:
        """The present status."""
        return self._status

    def show(self, status: NodeStatus) -> None:
        """Make this the present status."""
        if status != self._status:
            self._status = status
            for watcher in list(self._watchers):
                watcher.put(status)

    def watch(self) -> Subscription[NodeStatus]:
        """Return the present status and all that follow, as an async iterator."""
        watcher: Subscription[NodeStatus] = Subscription()
        watcher.put(self._status)
        if self._closed:
            watcher.close()
        else:
            self._watchers.add(watcher)
        return watcher

    def close(self, last: NodeStatus) -> None:
        """Show a last status and end every watcher's iteration. May be called twice."""
        self.show(last)
        self._closed = True
        for watcher in list(self._watchers):
            watcher.close()
