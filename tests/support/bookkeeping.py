"""Who sent what and who got it, from the lines that participants print; and the verdict: lost, twice, order.

It only sees what processes said aloud, as any observer would, and trusts none of them. Invariants of its judgement:

* A delivery is one (participant, SDS ids of the message). A line marked ``redelivered`` in a later life of a process
  that told the same delivery in an earlier one repeats no message: a reader that died between reading and finishing
  gets it again, by design. Any further delivery of a message is counted as twice.
* A message's causal past is what its sender had been heard to receive, and to have accepted, before the command to
  send it was first given. That is a lower bound of the true past, so an order that is called broken is broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Happening(Enum):
    """What a line can tell about a message."""

    ACCEPTED = "accepted"
    ACKNOWLEDGED = "acknowledged"
    """A further segment."""
    RECEIVED = "received"
    RECEIVED_AGAIN = "received again"
    """Once more than it should be: a fault."""
    DELIVERED = "delivered"
    """Acknowledged as far as was asked for."""
    FAILED = "failed"


@dataclass(slots=True, kw_only=True)
class DemonstrationMessage:
    """One send and what is known of it."""

    sender: str
    title: str
    """What it is called on a screen: the text, or the name of the file."""
    request_id: str
    sha256: str
    size_bytes: int
    sent_at_ms: int
    """When the command was first given, by the clock of this process."""
    past: frozenset[str]
    """Request ids of its causal past, at least."""
    is_file: bool = False
    accepted_at_ms: int | None = None
    total_chunks: int = 1
    chunks_acknowledged: int = 0
    acknowledged_by: set[str] = field(default_factory=set)
    """Who acknowledged any segment."""
    received_at_ms: dict[str, int] = field(default_factory=dict)
    recovered_by: set[str] = field(default_factory=set)
    """For whom Reed-Solomon filled in lost segments."""
    delivered_to: tuple[str, ...] = ()
    """Who is known to hold all of it."""
    delivered_at_ms: int | None = None
    failed: str | None = None
    """Why its delivery is not known."""
    endings: int = 0
    """Terminal events heard; more than one is a fault."""

    @property
    def has_ended(self) -> bool:
        """Whether its terminal event was heard."""
        return self.delivered_at_ms is not None or self.failed is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationFaults:
    """What went wrong; all zero if nothing did."""

    lost: int
    """Pairs of a message and a participant that did not get it."""
    twice: int
    """Second deliveries of a message to a participant, and deliveries of messages that no participant sent."""
    out_of_order: int
    """Deliveries before something that the message's sender had known."""
    unacknowledged: int
    """Messages without the acknowledgements that were asked for."""
    ended_twice: int
    """Sends with more than one terminal event."""

    @property
    def is_good(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.lost or self.twice or self.out_of_order or self.unacknowledged or self.ended_twice)


class Bookkeeping:
    """The books of a group of participants."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.messages: dict[str, DemonstrationMessage] = {}
        """By request id, in the order of the commands."""
        self.redelivered = 0
        """Lines that a restarted process printed again, as it should."""
        self.irretrievable: list[tuple[str, str]] = []
        """Losses that a participant announced: its name and the id of what it lacks."""
        self.faults: list[str] = []
        """What was delivered twice or out of order, a sentence each."""
        self._twice = 0
        self._out_of_order = 0
        self._lives: dict[tuple[str, tuple[str, ...]], int] = {}
        self._known: dict[str, set[str]] = {name: set() for name in names}
        self._same: dict[tuple[str, str], list[DemonstrationMessage]] = {}

    def command(
        self,
        sender: str,
        request_id: str,
        *,
        title: str,
        sha256: str,
        size_bytes: int,
        at_ms: int,
        is_file: bool = False,
    ) -> DemonstrationMessage:
        """Note a command to send that a participant is about to get; a repeated command changes nothing."""
        known = self.messages.get(request_id)
        if known is not None:
            return known
        message = DemonstrationMessage(
            sender=sender,
            title=title,
            request_id=request_id,
            sha256=sha256,
            size_bytes=size_bytes,
            sent_at_ms=at_ms,
            past=frozenset(self._known[sender]),
            is_file=is_file,
        )
        self.messages[request_id] = message
        self._same.setdefault((sender, sha256), []).append(message)
        return message

    def others(self, name: str) -> tuple[str, ...]:
        """Return all participants except one."""
        return tuple(other for other in self.names if other != name)

    def line(
        self, name: str, line: Mapping[str, Any], *, life: int, at_ms: int
    ) -> tuple[Happening, DemonstrationMessage] | None:
        """Take in what a participant printed in one of its lives; return what it says about a message, if anything."""
        if line.get("type") == "MessageReceived":
            return self._received(name, line, life, at_ms)
        if line.get("type") == "IrretrievableMessage":
            self.irretrievable.append((name, line["message_id"]))
            return None
        message = self.messages.get(line.get("request_id") or "")
        if message is None or message.sender != name:
            return None
        match line:
            case {"event": "accepted", "outcome": outcome}:
                return self._accepted(message, outcome, at_ms)
            case {"type": "MessageSending" | "MessageSent", "chunk_info": {"total_chunks": total}}:
                message.total_chunks = total
            case {"type": "MessageAcknowledged", "chunks_acknowledged": chunks, "total_chunks": total}:
                message.total_chunks, message.chunks_acknowledged = total, len(chunks)
                message.acknowledged_by |= set(line["acknowledged_by"])
                return Happening.ACKNOWLEDGED, message
            case {"type": "MessageDelivered", "delivered_to": names}:
                message.endings += 1
                return _conclude(message, at_ms, delivered_to=names)
            case {"type": "DeliveryError", "detail": detail}:
                message.endings += 1
                return _conclude(message, at_ms, failed=detail)
        return None

    def lacking(self) -> Iterator[tuple[DemonstrationMessage, str]]:
        """Yield who has not received which message."""
        for message in self.messages.values():
            for name in self.others(message.sender):
                if name not in message.received_at_ms:
                    yield message, name

    def verdict(self) -> DemonstrationFaults:
        """Return the result of the lines so far, as if there were no more."""
        messages = self.messages.values()
        return DemonstrationFaults(
            lost=sum(1 for _ in self.lacking()),
            twice=self._twice,
            out_of_order=self._out_of_order,
            unacknowledged=sum(message.delivered_at_ms is None for message in messages),
            ended_twice=sum(message.endings > 1 for message in messages),
        )

    def _accepted(
        self, message: DemonstrationMessage, outcome: Mapping[str, Any] | None, at_ms: int
    ) -> tuple[Happening, DemonstrationMessage] | None:
        """Note that a send is durable; the answer to a repeated one also says how it ended, if it did."""
        is_first = message.accepted_at_ms is None
        if is_first:
            message.accepted_at_ms = at_ms
            self._known[message.sender].add(message.request_id)
        if outcome is not None and not message.has_ended:
            names = outcome.get("delivered_to", ())
            failed = None if outcome["delivered"] else outcome.get("detail", "")
            return _conclude(message, at_ms, delivered_to=names, failed=failed)
        return (Happening.ACCEPTED, message) if is_first else None

    def _received(
        self, name: str, line: Mapping[str, Any], life: int, at_ms: int
    ) -> tuple[Happening, DemonstrationMessage] | None:
        delivery = (name, tuple(line["sds_ids"]))
        earlier = self._lives.get(delivery)
        self._lives[delivery] = life
        if earlier is not None and line["redelivered"] and earlier < life:
            self.redelivered += 1
            return None
        same = self._same.get((line["sender_id"], line["sha256"]), [])
        # The same words said twice are two messages: a further delivery is that of the one that is lacking.
        lacking = next((message for message in same if name not in message.received_at_ms), None)
        if lacking is None or earlier is not None:
            self._twice += 1
            what = same[0].title if same else f"{line['size']} bytes that nobody sent"
            self.faults.append(f"{name} got {what!r} of {line['sender_id']} once too often (life {life})")
            return (Happening.RECEIVED_AGAIN, same[0]) if same else None
        missing = [
            self.messages[request_id]
            for request_id in lacking.past
            if self.messages[request_id].sender != name and name not in self.messages[request_id].received_at_ms
        ]
        if missing:
            self._out_of_order += 1
            before = ", ".join(sorted(repr(message.title) for message in missing))
            self.faults.append(f"{name} got {lacking.title!r} of {lacking.sender} before {before}")
        lacking.received_at_ms[name] = at_ms
        if line.get("recovered"):
            lacking.recovered_by.add(name)
        self._known[name].add(lacking.request_id)
        return Happening.RECEIVED, lacking


def _conclude(
    message: DemonstrationMessage, at_ms: int, *, delivered_to: Sequence[str] = (), failed: str | None = None
) -> tuple[Happening, DemonstrationMessage]:
    """Note how a send ended."""
    if failed is not None:
        message.failed = failed
        return Happening.FAILED, message
    message.delivered_to = tuple(sorted({*message.delivered_to, *delivered_to}))
    message.delivered_at_ms = at_ms if message.delivered_at_ms is None else message.delivered_at_ms
    message.chunks_acknowledged = message.total_chunks
    return Happening.DELIVERED, message
