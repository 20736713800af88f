"""The checks at the end of a world and of running channels; `fairway.simulation.history.Invariant` lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from fairway.channel.statistics import ChannelStatistics
from fairway.events import DeliveryError, MessageDelivered
from fairway.options import ReliableChannelOptions
from fairway.protocol.sds.dependencies import PARKED_BYTES
from fairway.protocol.sds.retained import MAX_RETAINED
from fairway.simulation.history import History, Invariant


def judge(history: History) -> None:
    """Add the violations at the end of a world to its history."""
    owed = {send.number: history.owed_to(send) for send in history.sends}
    for text in _undelivered(history, owed):
        history.violate(Invariant.DELIVERED, text)
    for text in _lost(history, owed):
        history.violate(Invariant.DELIVERED, text)
    for text in _out_of_order(history, owed):
        history.violate(Invariant.ORDER, text)
    for text in _not_ended(history):
        history.violate(Invariant.ENDED, text)


def _undelivered(history: History, owed: Mapping[int, frozenset[str]]) -> Iterator[str]:
    for send in history.sends:
        for name in sorted(owed[send.number] - send.received_ms.keys()):
            yield f"{name} never received {send}"


def _lost(history: History, owed: Mapping[int, frozenset[str]]) -> Iterator[str]:
    """No participant announces the loss of a message that it must receive."""
    for at_ms, name, event in history.losses:
        send = history.lost_send(event)
        if send is not None and name in owed[send.number]:
            yield f"{name} gave up {send} at {at_ms / 1_000:.1f} s ({event.reason.value})"


def _out_of_order(history: History, owed: Mapping[int, frozenset[str]]) -> Iterator[str]:
    """All messages that a sender had received or sent before a message are delivered before it.

    The ancestors of a lost message are unknown, so they need not precede its descendants. A sender does not cite a
    message whose deadline passed before a node accepted it; such a message may be delivered later.
    """
    cited = [send for send in history.sends if send.is_sent or not send.has_deadline]
    for name, order in history.order.items():
        due = sum(1 << send.number for send in cited if name in owed[send.number])
        lost = [(at_ms, history.lost_send(event)) for at_ms, loser, event in history.losses if loser == name]
        known = 0
        for number in order:
            send = history.sends[number]
            overtaken = send.knew & due & ~known
            for at_ms, gone in lost:
                if gone is not None and at_ms <= send.received_ms[name] and send.knew >> gone.number & 1:
                    overtaken &= ~gone.knew
            if overtaken:
                first = history.sends[(overtaken & -overtaken).bit_length() - 1]
                yield f"{name} got {send} before {first}, which its sender knew"
            known |= 1 << number


def _not_ended(history: History) -> Iterator[str]:
    for send in history.sends:
        if send.sender in history.left:
            continue
        # A send that failed may expire, and may be delivered late, each once.
        errors = [end.reason for end in send.ends if isinstance(end, DeliveryError)]
        successes = [end for end in send.ends if isinstance(end, MessageDelivered)]
        if len(set(errors)) < len(errors) or len(successes) > 1 or (errors and send.ends[0] in successes):
            yield f"{send} ended with {', '.join(type(end).__name__ for end in send.ends)}"
        if len(send.results) != 1:
            yield f"the receipt of {send} gave {len(send.results)} results"
        for number, end in enumerate(send.ends):
            if isinstance(end, MessageDelivered) and end.late != send.has_failed:
                yield f"{send} was delivered {'late, ' if end.late else 'in time, '}as event {number + 1} of its end"
            if isinstance(end, MessageDelivered) and not (end.delivered_to and send.by <= set(end.delivered_to)):
                yield f"{send} was delivered to {end.delivered_to}, and asked for {sorted(send.by)}"


def exceeded(statistics: ChannelStatistics, options: ReliableChannelOptions) -> Iterator[str]:
    """Yield the buffers of a channel that hold more than their bound."""
    protocol, sds = statistics.protocol, options.sds
    bounds = {
        "unfinished": (statistics.unfinished, options.max_unread_messages),
        "publishing": (statistics.publishing, options.advanced.max_concurrent_publishes),
        "missing": (protocol.missing, 2 * options.advanced.max_missing),
        "parked": (protocol.parked, 2 * sds.max_incoming_buffer),
        "parked_bytes": (protocol.parked_bytes, 2 * PARKED_BYTES * sds.max_incoming_buffer),
        "history": (protocol.history, sds.max_history + sds.max_history // 64),
        "retained": (protocol.retained, MAX_RETAINED),
        "queued": (protocol.queued, options.rate_limit.max_queued),
    }
    for name, (size, bound) in bounds.items():
        if size > bound:
            yield f"{size} in {name}, at most {bound} are allowed"


def unequal(logs: Mapping[str, Sequence[object]]) -> Iterator[str]:
    """Yield a text for each pair of participants whose logs differ."""
    for (one, first), (other, second) in pairwise(logs.items()):
        if list(first) != list(second):
            at = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), -1)
            yield f"the logs of {one} ({len(first)}) and {other} ({len(second)}) differ from entry {at} on"


def sizes(statistics: ChannelStatistics) -> dict[str, int]:
    """Return the figures that a restart must not change."""
    protocol = statistics.protocol
    names = ("history", "retained", "parked", "missing", "open_requests")
    return {name: getattr(protocol, name) for name in names} | {"unfinished": statistics.unfinished}
