"""`to_do_of`: the actions for an operator, each with its reason, the most urgent first.

A channel without a possible action is only in the tables.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairway.pipeline.report.archive_report import ArchiveReport, ToDo
from fairway.pipeline.report.causes import LossCause
from fairway.pipeline.report.outages import Outage
from fairway.pipeline.report.stores import StoreReport
from fairway.pipeline.report.words import clock, percent, short_name
from fairway.pipeline.stages.decoding import Status
from fairway.units import NS_PER_MS, counted
from fairway.visible import visible

_NAMED: Final = 3
"""Items of one kind that a to-do names one by one."""
_LOST_SENDER: Final = 0.2
"""Least share of lost messages of a named sender."""
_LEAST_USUAL: Final = 0.02
"""Smallest ordinary share of lost messages of a sender."""
_CHANCE: Final = 0.01
"""Largest probability of naming a sender in an archive with evenly distributed losses."""
_READ_ONLY: Final = "lip76:"
"""Scheme of sources that a backfill cannot write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderLoss:
    """A sender with lost messages."""

    channel_id: str
    sender_id: str | None
    lost: int
    known: int
    cause: LossCause
    """The most frequent cause."""


def to_do_of(
    report: ArchiveReport, senders: Sequence[SenderLoss], *, adds_up: bool, run: str, uris: Mapping[str | None, str]
) -> tuple[ToDo, ...]:
    """Return the to-dos for a report, the most urgent first.

    ``senders`` are those with lost messages, the worst first. ``run`` is the folder of the run. ``uris`` has the
    sources of the run by the names of stores, valid in the current folder.
    """
    return (
        *_balance(adds_up=adds_up),
        *_outages(report.stores, uris),
        *_senders(report, senders),
        *_double_signals(report, run),
        *_over_limit(report),
        *_losses(report),
        *_lacking(report.stores, uris),
        *_repairable(report.stores, uris),
        *_nothing(report),
        *_unreadable(report),
        *_quarantine(report.quarantined),
        *_undetermined(report),
    )


def _is_lost(sender: SenderLoss, report: ArchiveReport) -> bool:
    """Return whether a sender lost more messages than the others, by more than chance explains.

    Losses without a known author belong to no sender.
    """
    if sender.sender_id is None or sender.lost < _LOST_SENDER * sender.known:
        return False
    of_others = (report.headline.lost - sender.lost) / max(report.headline.known - sender.known, 1)
    usual, share = max(of_others, _LEAST_USUAL), sender.lost / sender.known
    if share <= usual:
        return False
    # Chernoff's bound of the binomial distribution: so many losses by chance have at most the probability
    # exp(-known * divergence).
    divergence = share * math.log(share / usual)
    if share < 1:
        divergence += (1 - share) * math.log((1 - share) / (1 - usual))
    return report.senders * math.exp(-sender.known * divergence) <= _CHANCE


def _window(outage: Outage) -> str:
    amount = "everything" if outage.is_total else f"{percent(outage.lacked, outage.of)} of everything"
    return f"{amount} from {_between(outage)} UTC"


def _between(outage: Outage) -> str:
    first, last = clock(outage.begin_ns), clock(outage.last_ns)
    day = len("2026-01-01")
    return f"{first} to {last[day + 1 :] if first[:day] == last[:day] else last}"


def _balance(*, adds_up: bool) -> Iterator[ToDo]:
    if not adds_up:
        yield ToDo(
            what="Not every row of the input is accounted for.",
            action="Report this: it is a fault of fairway, and no figure here can be relied on.",
            section="rows",
        )


def _outages(stores: Sequence[StoreReport], uris: Mapping[str | None, str]) -> Iterator[ToDo]:
    for store in stores:
        if store.outages:
            found = sorted(store.outages, key=lambda told: -told.lacked)
            windows = [f"{_window(told)} ({told.lacked:,} that other stores had)" for told in found[:_NAMED]]
            yield ToDo(
                what=f"{short_name(store.source)} lacked {_listed(windows, len(found), 'outages')}.",
                action=f"Fill {short_name(store.source)} from another store, and see why it was out.",
                commands=tuple(command for told in found[:_NAMED] for command in _backfill(store, stores, uris, told)),
                section="stores",
            )


def _senders(report: ArchiveReport, senders: Sequence[SenderLoss]) -> Iterator[ToDo]:
    named = [sender for sender in senders if _is_lost(sender, report)]
    told = [
        f"{short_name(sender.sender_id)} in {short_name(sender.channel_id)} "
        f"({sender.lost:,} of {sender.known:,} lost, {_OF_SENDERS[sender.cause]})"
        for sender in named[:_NAMED]
    ]
    if told:
        yield ToDo(
            what=f"Much is lost of {_listed(told, len(named), 'senders')}.",
            action="See whether they reach the network. What others had, another store may have (--source).",
            section="senders",
        )


def _double_signals(report: ArchiveReport, run: str) -> Iterator[ToDo]:
    told = [
        f"{short_name(sender.sender_id)} in {short_name(sender.channel_id)} "
        f"({counted(sender.message_ids, 'message id')}, first in the epoch from {_epoch(sender.epoch_start_ms)})"
        for sender in report.double_signals[:_NAMED]
    ]
    if told:
        yield ToDo(
            what=f"Used RLN message ids twice: {_listed(told, report.double_signal_senders, 'senders')}.",
            action="See which memberships these are; --group names members. If they are, their secrets are out.",
            commands=(f"fairway pipeline violations {_quoted(run)}",),
            section="rate",
        )


def _epoch(start_ms: int) -> str:
    return f"{clock(start_ms * NS_PER_MS, '%Y-%m-%d %H:%M')} UTC"


def _over_limit(report: ArchiveReport) -> Iterator[ToDo]:
    senders = report.over_limit
    told = [
        f"{short_name(sender.sender_id)} in {short_name(sender.channel_id)} "
        f"({sender.messages:,} in the epoch from {_epoch(sender.epoch_start_ms)})"
        for sender in senders[:_NAMED]
    ]
    if told:
        yield ToDo(
            what=f"Over the rate limit of {senders[0].limit:,}: {_listed(told, report.over_limit_senders, 'senders')}.",
            action="Slow them down: relays drop what is over the limit.",
            section="rate",
        )


def _listed(told: Sequence[str], total: int, what: str) -> str:
    """Return a list in words, with the number of items that it leaves out."""
    if total > len(told):
        return f"{', '.join(told)} and {total - len(told):,} more {what}"
    return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)


def _losses(report: ArchiveReport) -> Iterator[ToDo]:
    lost = report.headline.lost
    for cause, action in _FOR_LOSSES.items():
        number = sum(each.count for each in report.causes if each.cause == cause.value)
        if number:
            what = f"{number:,} of {counted(lost, 'lost message')}: {_LOST[cause]}."
            yield ToDo(what=what, action=action, section="gaps")


def _lacking(stores: Sequence[StoreReport], uris: Mapping[str | None, str]) -> Iterator[ToDo]:
    lacking = [store for store in stores if _rest(store)]
    told = [f"{short_name(store.source)} lacked {_rest(store):,} of {store.of:,}" for store in lacking]
    if told:
        yield ToDo(
            what=f"Spread over time, {_listed(told[:_NAMED], len(told), 'stores lacked some')}.",
            action="Fill each store from the others.",
            commands=tuple(command for store in lacking[:_NAMED] for command in _backfill(store, stores, uris)),
            section="stores",
        )


def _repairable(stores: Sequence[StoreReport], uris: Mapping[str | None, str]) -> Iterator[ToDo]:
    named = [store for store in stores if store.repairable]
    told = [f"{short_name(store.source)} has {store.repairable:,}" for store in named[:_NAMED]]
    if told:
        yield ToDo(
            what=f"Messages damaged that another store has intact: {_listed(told, len(named), 'stores have some')}.",
            action="Replace them by the intact ones, and check the disks of these stores.",
            commands=tuple(
                f"{command} --repair" for store in named[:_NAMED] for command in _backfill(store, stores, uris)
            ),
            section="stores",
        )


def _rest(store: StoreReport) -> int:
    """Return the number of messages that a store missed outside of its outages."""
    return store.lacked - sum(outage.lacked for outage in store.outages)


def _backfill(
    store: StoreReport, stores: Sequence[StoreReport], uris: Mapping[str | None, str], outage: Outage | None = None
) -> Iterator[str]:
    """Yield the command that fills a store from the most complete other store, if one exists.

    A table that names several stores is the source of none of them.
    """
    donor = next((uris.get(other.source) for other in reversed(stores) if other is not store), None)
    target = uris.get(store.source)
    if donor is None or target is None or target.startswith(_READ_ONLY):
        return
    words = ["fairway pipeline backfill --from", _quoted(donor), "--to", _quoted(target)]
    if outage is not None:
        words += ["--since", _iso(outage.begin_ns), "--until", _iso(outage.last_ns)]
    yield " ".join(words)


def _quoted(text: str) -> str:
    return shlex.quote(visible(text))


def _iso(timestamp_ns: int) -> str:
    return clock(timestamp_ns, "%Y-%m-%dT%H:%M:%SZ")


def _nothing(report: ArchiveReport) -> Iterator[ToDo]:
    if not (report.messages or report.headline.known or report.quarantined):
        selected = "No message of the sources is selected by the given times, channels and topics."
        yield ToDo(
            what=selected if report.selection is not None else "The sources have no messages at all.",
            action="Select others." if report.selection is not None else "See whether these are the right archives.",
            section="rows",
        )


def _unreadable(report: ArchiveReport) -> Iterator[ToDo]:
    if report.messages and not report.headline.known and report.quarantined:
        yield ToDo(
            what=f"Of {counted(report.messages, 'Waku message')} none could be read as a message of a channel.",
            action="If the channels are encrypted, give their keys (--keys). See whether this is the right archive.",
            section="quarantine",
        )


def _quarantine(counts: dict[str, int]) -> Iterator[ToDo]:
    for status, action in _FOR_QUARANTINE.items():
        if counts.get(status):
            yield ToDo(
                what=f"{counted(counts[status], 'message')} in quarantine as {status}.",
                action=action,
                section="quarantine",
            )


def _undetermined(report: ArchiveReport) -> Iterator[ToDo]:
    counts = {channel.channel_id: channel.messages.undetermined for channel in report.channels}
    channels = sorted((-number, name) for name, number in counts.items() if number)
    told = [f"{-number:,} messages in {short_name(name)}" for number, name in channels[:_NAMED]]
    if told:
        yield ToDo(
            what=f"The causal order is not computed of {_listed(told, len(channels), 'channels')}: they cite each "
            "other in a circle, or against their timestamps, too far for the memory of one worker.",
            action="Run again with a larger --max-channel-bytes, and workers with three times as much memory.",
            section="messages",
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
