"""Reads the sent and received messages from the lines that participants print, and describes every fault.

* A delivery is one (participant, SDS ids of the message). After a crash a process gets unfinished messages again, in
  lines with ``redelivered``. Any other second delivery is a fault.
* The past of a message is what its sender had printed as received or accepted before its command was first given. The
  true past may be larger, so a fault of order is always a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class SentMessage:
    """One send and its known results."""

    sender: str
    past: frozenset[str]
    """Request ids of its causal past, at least."""
    is_accepted: bool = False
    received_by: set[str] = field(default_factory=set)
    is_delivered: bool = False
    """Whether it was acknowledged as asked for."""
    has_failed: bool = False
    endings: int = 0
    """Lines that ended it."""

    @property
    def has_ended(self) -> bool:
        """Whether its sender printed its outcome."""
        return self.is_delivered or self.has_failed


class Bookkeeping:
    """The books of a group of participants."""

    def __init__(self, names: Sequence[str]) -> None:
        self.messages: dict[str, SentMessage] = {}
        """By request id, in the order of the commands."""
        self.redeliveries = 0
        """Messages that a restarted process printed again, as it should."""
        self._faults: list[str] = []
        self._names = tuple(names)
        self._lives: dict[tuple[str, tuple[str, ...]], int] = {}
        self._known: dict[str, set[str]] = {name: set() for name in names}
        self._by_content: dict[tuple[str, str], str] = {}

    def command(self, sender: str, request_id: str, sha256: str) -> None:
        """Note a command to send, before it is first given. Every payload is different."""
        self.messages[request_id] = SentMessage(sender=sender, past=frozenset(self._known[sender]))
        self._by_content[sender, sha256] = request_id

    def others(self, name: str) -> list[str]:
        """Return all participants except one."""
        return [other for other in self._names if other != name]

    def line(self, name: str, line: Mapping[str, Any], *, life: int) -> None:
        """Note the lines that a participant printed in one of its lives."""
        match line:
            case {"type": "MessageReceived"}:
                self._receive(name, line, life)
                return
            case {"type": "IrretrievableMessage", "message_id": message_id}:
                self._faults.append(f"{name} gave {message_id} up")
                return
        request_id = line.get("request_id") or ""
        message = self.messages.get(request_id)
        if message is None or message.sender != name:
            return
        match line:
            case {"event": "accepted", "outcome": outcome}:
                message.is_accepted = True
                self._known[name].add(request_id)
                if outcome is not None:
                    message.is_delivered |= outcome["delivered"]
                    message.has_failed |= not outcome["delivered"]
            case {"type": "MessageDelivered"}:
                message.endings += 1
                message.is_delivered = True
            case {"type": "DeliveryError"}:
                message.endings += 1
                message.has_failed = True

    def unfinished(self) -> list[str]:
        """Return the expected events that are still missing, a sentence each."""
        found = [
            f"{name} lacks {request_id}"
            for request_id, message in self.messages.items()
            for name in self.others(message.sender)
            if name not in message.received_by
        ]
        found += [f"{request_id} was not accepted" for request_id, one in self.messages.items() if not one.is_accepted]
        return found + [f"{request_id} has not ended" for request_id, one in self.messages.items() if not one.has_ended]

    def faults(self) -> list[str]:
        """Return the faults so far, a sentence each."""
        found = [f"{request_id} was given up" for request_id, one in self.messages.items() if one.has_failed]
        found += [f"{request_id} ended twice" for request_id, one in self.messages.items() if one.endings > 1]
        return self._faults + found

    def _receive(self, name: str, line: Mapping[str, Any], life: int) -> None:
        delivery = (name, tuple(line["sds_ids"]))
        earlier = self._lives.get(delivery)
        self._lives[delivery] = life
        if earlier is not None and line["redelivered"] and earlier < life:
            self.redeliveries += 1
            return
        request_id = self._by_content.get((line["sender_id"], line["sha256"]))
        if request_id is None or name in self.messages[request_id].received_by:
            self._faults.append(f"{name} got {request_id} of {line['sender_id']} once too often (life {life})")
            return
        message = self.messages[request_id]
        self._faults += [
            f"{name} got {request_id} before {before}"
            for before in sorted(message.past - self._known[name])
            if self.messages[before].sender != name
        ]
        message.received_by.add(name)
        self._known[name].add(request_id)
