"""`to_do_of`: the actions for an operator, each with its reason, the most urgent first.

A channel without a possible action is only in the tables.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fairway.pipeline.report.causes import LossCause
from fairway.pipeline.report.headline import Headline
from fairway.pipeline.report.outages import Outage
from fairway.pipeline.report.rates import DoubleSignals, OverLimit
from fairway.pipeline.report.words import clock, percent
from fairway.pipeline.stages.decoding import Status
from fairway.units import NS_PER_MS, counted
from fairway.visible import visible

MOST_OF_A_KIND: Final = 3
"""Items of one kind that a to-do names one by one."""
_LOST_SENDER: Final = 0.2
"""Least share of lost messages of a named sender."""
_LEAST_USUAL: Final = 0.02
"""Smallest ordinary share of lost messages of a sender."""
_CHANCE: Final = 0.01
"""Largest probability of naming a sender in an archive with evenly distributed losses."""
_NAME: Final = 40
_READ_ONLY: Final = "lip76:"
"""Scheme of sources that a backfill cannot write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToDo:
    """An action for the operator."""

    what: str
    """The reason; names are made visible, but not escaped for HTML."""
    action: str
    commands: tuple[str, ...] = ()
    """Commands that carry out the action."""
    section: str
    """Id of the page's section with details."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderLoss:
    """A sender with lost messages."""

    channel_id: str
    sender_id: str | None
    lost: int
    known: int
    cause: LossCause
    """The most frequent cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreShare:
    """A store, and the number of messages of other stores that it missed."""

    source: str
    uri: str | None
    """Its source in the run, valid in the current folder; None if unknown, such as for one table that names several
    stores."""
    lacked: int
    repairable: int
    """Messages of which its copy is damaged and another store's copy is intact."""
    of: int
    outages: tuple[Outage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The figures from which `to_do_of` makes the to-dos."""

    adds_up: bool
    headline: Headline
    stores: Sequence[StoreShare]
    """All stores, the least complete first."""
    senders: Sequence[SenderLoss]
    """Senders with lost messages, the worst first."""
    senders_in_all: int
    over_limit: Sequence[OverLimit]
    double_signals: Sequence[DoubleSignals]
    run: str
    """The folder of the run."""
    messages: int
    """WakuMessages."""
    is_selection: bool
    """Whether the run selected only some of the messages of the sources."""
    causes: dict[LossCause, int]
    quarantined: dict[str, int]


def to_do_of(found: Found) -> tuple[ToDo, ...]:
    """Return the to-dos, the most urgent first."""
    return (
        *_balance(found),
        *_outages(found.stores),
        *_senders(found),
        *_double_signals(found),
        *_over_limit(found.over_limit),
        *_losses(found),
        *_lacking(found.stores),
        *_repairable(found.stores),
        *_nothing(found),
        *_unreadable(found),
        *_quarantine(found.quarantined),
    )


def _is_lost(sender: SenderLoss, found: Found) -> bool:
    """Return whether a sender lost more messages than the others, by more than chance explains.

    Losses without a known author belong to no sender.
    """
    if sender.sender_id is None or sender.lost < _LOST_SENDER * sender.known:
        return False
    of_others = (found.headline.lost - sender.lost) / max(found.headline.known - sender.known, 1)
    usual, share = max(of_others, _LEAST_USUAL), sender.lost / sender.known
    if share <= usual:
        return False
    # Chernoff's bound of the binomial distribution: so many losses by chance have at most the probability
    # exp(-known * divergence).
    divergence = share * math.log(share / usual)
    if share < 1:
        divergence += (1 - share) * math.log((1 - share) / (1 - usual))
    return found.senders_in_all * math.exp(-sender.known * divergence) <= _CHANCE


def outage_text(outage: Outage) -> str:
    """Return an outage as a sentence without a full stop."""
    return f"{_name(outage.source)} lacked {_window(outage)}"


def _window(outage: Outage) -> str:
    amount = "everything" if outage.is_total else f"{percent(outage.lacked, outage.of)} of everything"
    return f"{amount} from {_between(outage)} UTC"


def _between(outage: Outage) -> str:
    first, last = clock(outage.begin_ns), clock(outage.last_ns)
    day = len("2026-01-01")
    return f"{first} to {last[day + 1 :] if first[:day] == last[:day] else last}"


def _name(told: str | None) -> str:
    whole = "unknown" if told is None else visible(told)
    return whole if len(whole) <= _NAME else f"{whole[: _NAME - 1]}…"


def _balance(found: Found) -> Iterator[ToDo]:
    if not found.adds_up:
        yield ToDo(
            what="Not every row of the input is accounted for.",
            action="Report this: it is a fault of fairway, and no figure here can be relied on.",
            section="rows",
        )


def _outages(stores: Sequence[StoreShare]) -> Iterator[ToDo]:
    for store in stores:
        if store.outages:
            found = sorted(store.outages, key=lambda told: -told.lacked)
            windows = [f"{_window(told)} ({told.lacked:,} that other stores had)" for told in found[:MOST_OF_A_KIND]]
            yield ToDo(
                what=f"{_name(store.source)} lacked {_listed(windows, len(found), 'outages')}.",
                action=f"Fill {_name(store.source)} from another store, and see why it was out.",
                commands=tuple(
                    command for told in found[:MOST_OF_A_KIND] for command in _backfill(store, stores, told)
                ),
                section="stores",
            )


def _senders(found: Found) -> Iterator[ToDo]:
    named = [sender for sender in found.senders if _is_lost(sender, found)]
    told = [
        f"{_name(sender.sender_id)} in {_name(sender.channel_id)} "
        f"({sender.lost:,} of {sender.known:,} lost, {_OF_SENDERS[sender.cause]})"
        for sender in named[:MOST_OF_A_KIND]
    ]
    if told:
        yield ToDo(
            what=f"Much is lost of {_listed(told, len(named), 'senders')}.",
            action="See whether they reach the network. What others had, another store may have (--source).",
            section="senders",
        )


def _double_signals(found: Found) -> Iterator[ToDo]:
    told = [
        f"{_name(sender.sender_id)} in {_name(sender.channel_id)} ({counted(sender.message_ids, 'message id')}, "
        f"first in the epoch from {_epoch(sender.epoch_start_ms)})"
        for sender in found.double_signals[:MOST_OF_A_KIND]
    ]
    if told:
        yield ToDo(
            what=f"Used RLN message ids twice: {_listed(told, len(found.double_signals), 'senders')}.",
            action="See which memberships these are; --group names members. If they are, their secrets are out.",
            commands=(f"fairway pipeline violations {_quoted(found.run)}",),
            section="rate",
        )


def _epoch(start_ms: int) -> str:
    return f"{clock(start_ms * NS_PER_MS, '%Y-%m-%d %H:%M')} UTC"


def _over_limit(senders: Sequence[OverLimit]) -> Iterator[ToDo]:
    told = [
        f"{_name(sender.sender_id)} in {_name(sender.channel_id)} "
        f"({sender.messages:,} in the epoch from {_epoch(sender.epoch_start_ms)})"
        for sender in senders[:MOST_OF_A_KIND]
    ]
    if told:
        yield ToDo(
            what=f"Over the rate limit of {senders[0].limit:,}: {_listed(told, len(senders), 'senders')}.",
            action="Slow them down: relays drop what is over the limit.",
            section="rate",
        )


def _listed(told: Sequence[str], total: int, what: str) -> str:
    """Return a list in words, with the number of items that it leaves out."""
    if total > len(told):
        return f"{', '.join(told)} and {total - len(told):,} more {what}"
    return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)


def _losses(found: Found) -> Iterator[ToDo]:
    lost = found.headline.lost
    for cause, action in _FOR_LOSSES.items():
        number = found.causes.get(cause, 0)
        if number:
            yield ToDo(what=f"{number:,} of {lost:,} lost messages: {_LOST[cause]}.", action=action, section="gaps")


def _lacking(stores: Sequence[StoreShare]) -> Iterator[ToDo]:
    lacking = [store for store in stores if _rest(store)]
    told = [f"{_name(store.source)} lacked {_rest(store):,} of {store.of:,}" for store in lacking]
    if told:
        yield ToDo(
            what=f"Spread over time, {_listed(told[:MOST_OF_A_KIND], len(told), 'stores lacked some')}.",
            action="Fill each store from the others.",
            commands=tuple(command for store in lacking[:MOST_OF_A_KIND] for command in _backfill(store, stores)),
            section="stores",
        )


def _repairable(stores: Sequence[StoreShare]) -> Iterator[ToDo]:
    named = [store for store in stores if store.repairable]
    told = [f"{_name(store.source)} has {store.repairable:,}" for store in named[:MOST_OF_A_KIND]]
    if told:
        yield ToDo(
            what=f"Messages damaged that another store has intact: {_listed(told, len(named), 'stores have some')}.",
            action="Replace them by the intact ones, and check the disks of these stores.",
            commands=tuple(
                f"{command} --repair" for store in named[:MOST_OF_A_KIND] for command in _backfill(store, stores)
            ),
            section="stores",
        )


def _rest(store: StoreShare) -> int:
    """Return the number of messages that a store missed outside of its outages."""
    return store.lacked - sum(outage.lacked for outage in store.outages)


def _backfill(store: StoreShare, stores: Sequence[StoreShare], outage: Outage | None = None) -> Iterator[str]:
    """Yield the command that fills a store from the most complete other store, if one exists."""
    donor = next((other.uri for other in reversed(stores) if other is not store), None)
    if donor is None or store.uri is None or store.uri.startswith(_READ_ONLY):
        return
    words = ["fairway pipeline backfill --from", _quoted(donor), "--to", _quoted(store.uri)]
    if outage is not None:
        words += ["--since", _iso(outage.begin_ns), "--until", _iso(outage.last_ns)]
    yield " ".join(words)


def _quoted(text: str) -> str:
    return shlex.quote(visible(text))


def _iso(timestamp_ns: int) -> str:
    return clock(timestamp_ns, "%Y-%m-%dT%H:%M:%SZ")


def _nothing(found: Found) -> Iterator[ToDo]:
    if not (found.messages or found.headline.known or found.quarantined):
        selected = "No message of the sources is selected by the given times, channels and topics."
        yield ToDo(
            what=selected if found.is_selection else "The sources have no messages at all.",
            action="Select others." if found.is_selection else "See whether these are the right archives.",
            section="rows",
        )


def _unreadable(found: Found) -> Iterator[ToDo]:
    if found.messages and not found.headline.known and found.quarantined:
        yield ToDo(
            what=f"Of {counted(found.messages, 'Waku message')} none could be read as a message of a channel.",
            action="If the channels are encrypted, give their keys (--keys). See whether this is the right archive.",
            section="quarantine",
        )


def _quarantine(counts: dict[str, int]) -> Iterator[ToDo]:
    for status, action in _FOR_QUARANTINE.items():
        if counts.get(status):
            yield ToDo(
                what=f"{counts[status]:,} messages are in quarantine as {status}.", action=action, section="quarantine"
            )


_LOST: Final = {
    LossCause.QUARANTINED: "they are in quarantine",
    LossCause.NO_STORE: "other participants had them, no store has them",
    LossCause.SENDER_ONLY: "only their sender cites them",
}
_FOR_LOSSES: Final = {
    LossCause.NO_STORE: "Read another store as well (--source), or let a participant send them again.",
    LossCause.SENDER_ONLY: "Let their senders send them again: they probably never left.",
    LossCause.QUARANTINED: "Take them from another store, or give the keys they need (--keys).",
}
_OF_SENDERS: Final = {
    LossCause.DAMAGED: "damaged in the stores",
    LossCause.QUARANTINED: "in quarantine",
    LossCause.NO_STORE: "though others had them",
    LossCause.SENDER_ONLY: "nobody else cites them",
    LossCause.UNKNOWN: "of unknown cause",
}
_FOR_QUARANTINE: Final = {
    Status.NOT_FOR_US.value: "Give the keys of their channels (--keys), if they are yours.",
    Status.WRONG_TOPIC.value: "See who sent them on another topic, or say which is the channel's (--channel-topic).",
    Status.HASH_MISMATCH.value: "Take them from another store (--source): no store that was read has them intact.",
    "forged": "See who sent them: two messages have one id, and the other one was taken.",
}
