"""The invariants of every run, for any faults of the network and the machines, and the checks of what the ledger has.

Each function compares the events of channels with the `Ledger`, and returns a `Violation` with a sentence for every
difference. What is looked at in running channels stands in `looks`, what healed ones must do in `scenes`, and what they
may hand to a node in `wire_rules`. A message is owed to all participants that were present when it was sent and are
present at the end, even if they were offline or crashed in between. A message whose sender left for good is owed only
if a participant that stayed got it, because otherwise none can know of it. Participants that join are owed no earlier
messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from fairway.events import MessageDelivered
from fairway.options import Delivery
from fairway.simulation.ledger import EXPIRED, Ledger, Loss, Presence, SimulatedSend
from fairway.simulation.world import World
from fairway.storage.channel_store import SendOutcome

_SHOWN: Final = 3
_KNOWN_WITHIN_MS: Final = 180_000
"""Without losses, every participant acknowledges a message within this time."""


_HEALED_WITHIN_MS: Final = 45_000
"""Where nothing is lost or late, and the application reads at once, a message is there within this time, although it
may cite what its reader has forgotten and looks for in vain: then with the first retry."""
_REFUSED: Final = 100
_REFUSED_SLOWLY: Final = 200
"""Through a slow uplink all that leaves side by side is handed over again each time that no answer comes."""
_REFUSED_SHARE: Final = 2
"""Of so many messages in a minute, and so much more than a node took, it need not be told that it takes no more."""


class Invariant(Enum):
    """The name of an invariant."""

    DELIVERED = "everybody gets everything"
    ONCE = "nothing comes twice"
    SENT = "nothing comes that nobody sent"
    ORDER = "causal order"
    LOSS = "no loss is announced of what can be had"
    ENDED = "every send ends in exactly one event"
    ACKNOWLEDGED = "no false delivery report"
    LOGS = "equal logs"
    BOUNDS = "bounded buffers"
    QUIET = "the channel comes to rest"
    RUNS = "no program fails"
    RATE = "the rate limit holds"
    PROVEN = "each message is proven, and no membership gives its secret away"
    WORD = "no false word to the sender"
    HEALED = "what is sent in a healed world is delivered"
    KEPT = "what is kept is what is so"
    WIRE = "what leaves is what the wire allows"
    BUDGET = "nodes are asked no more than they bear"
    REST = "a channel at rest is idle"
    REPEATED = "what nobody acknowledged is sent again"
    ASKED = "what is missing is asked for"
    WAKES = "what waits leaves when it may"
    READ = "what counts as read is kept"
    SOUGHT = "what a store may have is asked for"
    SERVED = "a light client serves its program"
    STAMPS = "messages are stamped by the clock, and later than what they cite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One fault."""

    invariant: Invariant
    at_ms: int | None
    """The time in milliseconds since the world began; None for a fault in the final state."""
    participant: str | None
    request_id: str | None
    sentence: str


class Checks:
    """All invariants of one run."""

    def __init__(self, ledger: Ledger, world: World, start_ms: int) -> None:
        self._ledger = ledger
        self._world = world
        self._start_ms = start_ms
        self._stayed = {name for name, presence in ledger.presences.items() if presence.left_ms is None}
        self.owed: list[set[str]] = [self._owed_to(sent) for sent in ledger.sent]
        """The participants that are owed each message."""

    def everything(self) -> Iterator[Violation]:
        """Yield every violation."""
        yield from self._deliveries()
        yield from self._order()
        yield from self._losses()
        yield from self._ends()
        yield from self._claims()
        yield from self._logs()
        yield from self._words()
        yield from self._answers()
        yield from self._stamps()
        yield from self._rates()
        for at_ms, name, fault in self._ledger.misproven:
            text = f"{name} handed its node what no network relays: {fault}"
            yield self._violation(Invariant.PROVEN, at_ms, name, None, text)
        for at_ms, name, fault in self._ledger.misformed:
            yield self._violation(Invariant.WIRE, at_ms, name, None, f"{name} published what must not be: {fault}")
        for at_ms, name, fault in self._ledger.miskept_by:
            yield self._violation(Invariant.KEPT, at_ms, name, None, f"the store of {name}: {fault}")
        for at_ms, name, sds_id in self._ledger.passed_over:
            text = f"{name} counts the time as read in which the store has {sds_id[:12]}, and did not keep that"
            yield self._violation(Invariant.READ, at_ms, name, self._ledger.message_of(sds_id), text)
        for at_ms, name, count in self._ledger.overasked:
            text = f"{name} asked the store for {count} pages in a minute"
            yield self._violation(Invariant.BUDGET, at_ms, name, None, text)
        for at_ms, name in self._ledger.asked_twice:
            text = f"{name} asked the store for the same page of messages that it named twice at once"
            yield self._violation(Invariant.BUDGET, at_ms, name, None, text)
        for at_ms, name, count in self._ledger.reread:
            text = f"{name} asked the store for the same page more than {count} times in five minutes"
            yield self._violation(Invariant.BUDGET, at_ms, name, None, text)
        for (name, life, minute), offered in self._ledger.offered.items():
            if name not in self._ledger.presences:
                # A forger keeps to nothing.
                continue
            taken = self._ledger.taken_from[name, life, minute]
            most = _REFUSED_SLOWLY if name in self._ledger.slow_uplinks else _REFUSED
            if offered - taken > max(most, _REFUSED_SHARE * taken):
                text = f"{name} handed {offered} messages in a minute to a node that took {taken} of them"
                yield self._violation(Invariant.BUDGET, minute * 60_000, name, None, text)
        for at_ms, name, error in self._ledger.failures:
            yield self._violation(Invariant.RUNS, at_ms, name, None, f"the program of {name} ended with {error!r}")

    def healed(self, request_ids: Iterable[str]) -> Iterator[Violation]:
        """Yield a violation for each send without faults that was not delivered."""
        for sent in map(self._ledger.request, request_ids):
            if not any(isinstance(end, MessageDelivered) for _, end in sent.ends):
                ends = ", ".join(repr(end) for _, end in sent.ends) or "nothing"
                text = f"{_title(sent)} was sent in a healed world and ended with {ends}"
                yield self._violation(Invariant.HEALED, None, sent.sender, sent, text)
            elif late := [name for name in sorted(sent.deliveries) if self._took_ms(sent, name) > _HEALED_WITHIN_MS]:
                took_s = max(self._took_ms(sent, name) for name in late) // 1_000
                text = f"{_title(sent)}, sent in a healed world, came to {', '.join(late)} after {took_s} s"
                yield self._violation(Invariant.HEALED, None, sent.sender, sent, text)
            elif sent.ends[0][0] - sent.at_ms > _KNOWN_WITHIN_MS:
                text = f"{_title(sent)}, sent in a healed world, was known as delivered after {_seconds(sent)} s"
                yield self._violation(Invariant.HEALED, sent.ends[0][0], sent.sender, sent, text)

    def _took_ms(self, sent: SimulatedSend, name: str) -> int:
        is_slow = self._world.participants[name].habits.slow_ms if name in self._world.participants else 1
        return 0 if is_slow else sent.deliveries[name][0] - sent.at_ms

    def lacking(self) -> int:
        """Return the number of owed deliveries that did not happen."""
        return sum(
            len(names - sent.deliveries.keys()) for sent, names in zip(self._ledger.sent, self.owed, strict=True)
        )

    def _owed_to(self, sent: SimulatedSend) -> set[str]:
        stayed = self._stayed
        is_sure = sent.sender in stayed and sent.accepted_ms is not None and not sent.refused
        if not is_sure and not stayed & sent.deliveries.keys():
            return set()
        return {name for name in stayed & sent.present if (name, sent.number) not in self._ledger.expired}

    def _deliveries(self) -> Iterator[Violation]:
        for sent, owed in zip(self._ledger.sent, self.owed, strict=True):
            for name in sorted(owed - sent.deliveries.keys()):
                yield self._violation(Invariant.DELIVERED, None, name, sent, f"{name} never got {_title(sent)}")
            for name, times in sent.deliveries.items():
                if len(times) > 1:
                    text = f"{name} got {_title(sent)} {len(times)} times"
                    yield self._violation(Invariant.ONCE, times[1], name, sent, text)
        for at_ms, name, number in self._ledger.repeated:
            sent = self._ledger.sent[number]
            text = f"{name} was handed {_title(sent)} again, with which it had finished long before"
            yield self._violation(Invariant.ONCE, at_ms, name, sent, text)
        for (life, sender, sds_id), count in self._ledger.ephemeral_deliveries.items():
            if count > 1:
                name = life.partition("/")[0]
                text = f"{name} got the ephemeral message {sds_id[:12]} of {sender} {count} times in one life"
                yield self._violation(Invariant.ONCE, None, name, None, text)
        for name, sds_ids in self._ledger.dropped():
            if name in self._stayed and self._ledger.forged.isdisjoint(sds_ids):
                text = f"{name} was killed amid a message ({sds_ids[0][:12]}), which did not come again"
                yield self._violation(Invariant.DELIVERED, None, name, self._ledger.message_of(sds_ids[0]), text)
        for at_ms, name, sender, message_id in self._ledger.unexplained:
            text = f"{name} got {message_id[:12]} from {sender}, who never sent it"
            yield self._violation(Invariant.SENT, at_ms, name, None, text)

    def _order(self) -> Iterator[Violation]:
        for at_ms, name, number, other in self._ledger.lacking:
            message, lacks = self._ledger.sent[number], self._ledger.sent[other]
            text = f"{name} got {_title(message)} as one that lacks nothing, and lacked {_title(lacks)}, which it cites"
            # Of what was refused a part may be there, which is all that there is.
            if not lacks.refused:
                yield self._violation(Invariant.ORDER, at_ms, name, message, text)
        options = self._world.options
        if options.delivery is Delivery.ARRIVAL or options.sds.gap_timeout_ms:
            return
        for at_ms, name, number in self._ledger.unmet:
            message = self._ledger.sent[number]
            text = f"{name} got {_title(message)} as one that lacks something, without being told of a loss"
            yield self._violation(Invariant.LOSS, at_ms, name, message, text)
        for name, presence in self._ledger.presences.items():
            yield from self._order_at(name, presence)

    def _order_at(self, name: str, presence: Presence) -> Iterator[Violation]:
        """Check that whatever a sender knew had been delivered, or declared lost, before its message was."""
        sent = self._ledger.sent
        due = 0
        said: Counter[str] = Counter()
        for message in sent:
            due |= (name in message.present and not self._never_went_out(message)) << message.number
            said[message.sender] |= 1 << message.number

        def before(message: SimulatedSend) -> int:
            """Return what stands before a message in its sender's log: also what the disk was still writing."""
            return message.known | said[message.sender] & ((1 << message.number) - 1)

        given_up = [
            (loss.place, loss.number, loss.reason in EXPIRED)
            for loss in self._ledger.losses
            if loss.participant == name and loss.number is not None
        ]
        expired = [sent[number] for who, number in self._ledger.expired if who == name]
        known = said[name]
        for place, number in enumerate(presence.order):
            message = sent[number]
            # Of one message several segments may be given up, at several times.
            lost = sum(1 << n for n in {n for at, n, _ in given_up if at <= place})
            # What comes before one that was rightly given up its receiver cannot know to come before what follows that.
            never_came = [sent[n] for n in {n for at, n, has_expired in given_up if at <= place and not has_expired}]
            for gone in [*expired, *never_came]:
                lost |= before(gone) if before(message) >> gone.number & 1 else 0
            overtaken = message.known & due & ~(known | lost)
            known |= 1 << number
            if overtaken:
                first = sent[(overtaken & -overtaken).bit_length() - 1]
                text = (
                    f"{name} got {_title(message)} before {_title(first)}, which its sender knew when speaking "
                    f"({overtaken.bit_count()} in all)"
                )
                yield self._violation(Invariant.ORDER, message.deliveries[name][0], name, message, text)

    def _never_went_out(self, message: SimulatedSend) -> bool:
        """Return whether a message could not be sent as a whole, so that no participant waits for the rest of it."""
        if message.refused:
            return True
        gone = message.sender not in self._stayed and not message.deliveries
        return gone and len(message.data_sent) < max(1, message.data_count)

    def _losses(self) -> Iterator[Violation]:
        for loss in self._ledger.losses:
            name = loss.participant
            sent = None if loss.number is None else self._ledger.sent[loss.number]
            if name not in self._stayed or loss.what in self._ledger.ephemeral_ids | self._ledger.forged:
                continue
            # Of a send that its cipher refused amid it, a part may have left, and nobody is told which.
            is_refused = any(other.refused for other in self._ledger.sent if other.sender == loss.sender)
            unknown = sent is None and loss.sender in self._stayed | {None} and not is_refused
            if unknown or (sent is not None and name in self.owed[sent.number] and not self._cannot_be_had(loss)):
                what = f"{loss.what[:12]}" if sent is None else f"a segment of {_title(sent)}"
                also = ", which it got" if sent is not None and name in sent.deliveries else ""
                text = f"{name} gave up {what} ({loss.reason.value}){also}"
                yield self._violation(Invariant.LOSS, loss.at_ms, name, sent, text)

    def _cannot_be_had(self, loss: Loss) -> bool:
        """Return whether a lost segment is of a message that is rebuilt without it, which the participant cannot know.

        The id of such a segment follows from the time at which it was sent, which no receiver knows, or from what the
        sender cuts its messages into. The message was rebuilt by then, and perhaps waits for others; or nobody can give
        that segment. Perhaps its sender has left, and those who have the message rebuilt it, too; perhaps nobody
        retains it, and the store missed it. Then the segment is lost, and the message comes.
        """
        return not (self._ledger.lost_ids_follow if loss.is_rebuilt else loss.is_with_others)

    def _ends(self) -> Iterator[Violation]:
        for sent in self._ledger.sent:
            stored = None
            if sent.accepted_ms is not None and sent.sender in self._stayed and not sent.refused:
                stored = self._world.participants[sent.sender].ending_of(sent.request_id)
            if stored is SendOutcome.OPEN:
                text = f"{_title(sent)} has no end"
                yield self._violation(Invariant.ENDED, None, sent.sender, sent, text)
            if sent.in_vain:
                had = ", ".join(sent.in_vain)
                text = f"{_title(sent)} counts as undelivered, and {had} had it long before, with nobody away"
                yield self._violation(Invariant.ENDED, sent.ends[0][0], sent.sender, sent, text)
            tries = self._world.options.max_retry_attempts + 1
            if sent.too_soon is not None and not sent.refused and sent.too_soon < tries:
                text = f"{_title(sent)} was given up after {sent.too_soon} tries of {tries}"
                yield self._violation(Invariant.ENDED, sent.ends[0][0], sent.sender, sent, text)
            ends: int = len(sent.ends)
            if self._ledger.events_come_late:
                ends = len({(at_ms, type(event), event.request_id) for at_ms, event in sent.ends})
            if ends > 1 + len(sent.asked_more):
                kinds = ", ".join(type(event).__name__ for _, event in sent.ends) or "none"
                text = f"{_title(sent)} has {len(sent.ends)} terminal events ({kinds})"
                yield self._violation(Invariant.ENDED, None, sent.sender, sent, text)

    def _claims(self) -> Iterator[Violation]:
        for claim in self._ledger.claims:
            sent = self._ledger.sent[claim.number]
            came = claim.participant in sent.deliveries
            if claim.whole and not (claim.true and (came or claim.participant not in self._stayed)):
                when = "which it never got" if not came else "which it had not at that time"
                text = f"{sent.sender} was told that {claim.participant} has {_title(sent)}, {when}"
                yield self._violation(Invariant.ACKNOWLEDGED, claim.at_ms, sent.sender, sent, text)
            elif not claim.whole and not came and not claim.true:
                text = (
                    f"{sent.sender} was told that {claim.participant} has a segment of {_title(sent)}, and it had none"
                )
                yield self._violation(Invariant.ACKNOWLEDGED, claim.at_ms, sent.sender, sent, text)
        for sent in self._ledger.sent:
            for at_ms, end in sent.ends:
                if not isinstance(end, MessageDelivered):
                    continue
                unheard = sorted(sent.wanted(at_ms) - set(end.delivered_to))
                if unheard or len(end.delivered_to) < sent.count:
                    whom = f"{', '.join(unheard)}, who were asked for" if unheard else f"{sent.count} who have it"
                    text = f"{_title(sent)} counts as delivered without {whom}"
                    yield self._violation(Invariant.ACKNOWLEDGED, at_ms, sent.sender, sent, text)

    def _words(self) -> Iterator[Violation]:
        for at_ms, name, request_id, what in self._ledger.false_words:
            sent = None if request_id is None else self._ledger.request(request_id)
            text = f"{name}: {what}" if sent is None else f"{_title(sent)}: {what}"
            yield self._violation(Invariant.WORD, at_ms, name, sent, text)

    def _answers(self) -> Iterator[Violation]:
        """Hold receipts against the events that their sends ended with."""
        for sent in self._ledger.sent:
            for at_ms, names in sent.answers:
                if names is not None and not (
                    len(names) >= sent.count and sent.wanted(at_ms, heeded_ms=0) <= set(names)
                ):
                    text = f"the receipt of {_title(sent)} says that {', '.join(names) or 'nobody'} has it"
                    yield self._violation(Invariant.ACKNOWLEDGED, None, sent.sender, sent, text)
            if sent.sender not in self._stayed or sent.accepted_ms is None or not sent.ends:
                continue
            end, last = sent.ends[-1][1], sent.answers[-1][1] if sent.answers else None
            if not sent.answers or (last is not None) != isinstance(end, MessageDelivered):
                told = "nothing" if not sent.answers else "failure" if last is None else "delivery"
                kind = type(end).__name__
                text = f"the receipt of {_title(sent)} says {told}, while the event was {kind}"
                yield self._violation(Invariant.ENDED, None, sent.sender, sent, text)

    def _stamps(self) -> Iterator[Violation]:
        for at_ms, name, ahead_ms in self._ledger.misdated:
            text = f"{name} stamped a message {ahead_ms / 1_000:.0f} s ahead of its clock"
            yield self._violation(Invariant.STAMPS, at_ms, name, None, text)
        for at_ms, name, sds_id in self._ledger.ahead:
            text = f"{name} stamped {sds_id[:12]} with a time that does not come for half a day"
            yield self._violation(Invariant.STAMPS, at_ms, name, None, text)
        if self._ledger.forged:
            # No participant follows a forged clock beyond a bound; messages of those that followed it are cited all the
            # same.
            return
        for at_ms, name, sds_id in self._ledger.unordered:
            text = f"{name} stamped {sds_id[:12]} no later than a message that it cites"
            yield self._violation(Invariant.STAMPS, at_ms, name, None, text)

    def _rates(self) -> Iterator[Violation]:
        limit = self._world.options.rate_limit
        configured = limit.messages_per_epoch if limit.enabled else None
        for (name, epoch), count in self._ledger.rules.epochs.items():
            allowed = self._ledger.rules.allowed(name) or configured
            if name in self._ledger.presences and allowed is not None and count > allowed:
                text = f"{name} transmitted {count} messages in epoch {epoch}, {allowed} are allowed"
                yield self._violation(Invariant.RATE, None, name, None, text)

    def _logs(self) -> Iterator[Violation]:
        """Compare the SDS histories of the participants that stayed.

        They are equal but for what one may lack: what its log has no room for any more, and segments of messages that
        it got all the same, or is not owed.
        """
        logs = {
            name: self._world.participants[name].stack.sds.log()
            for name in sorted(self._stayed)
            if self._world.participants[name].channel is not None
        }
        agreed: dict[str, int] = {}
        for name, log in logs.items():
            pairs = [(record.lamport, record.message_id) for record in log]
            wrong = [sds_id for lamport, sds_id in pairs if agreed.setdefault(sds_id, lamport) != lamport]
            if wrong or pairs != sorted(pairs):
                text = f"the log of {name} has {_some(wrong)} at another place than the logs of others"
                yield self._violation(Invariant.LOGS, None, name, None, text)
        for name, log in logs.items():
            absent = agreed.keys() - {record.message_id for record in log}
            if log and len(log) >= self._world.participants[name].options.sds.max_history:
                # Participants forget the oldest messages a few at a time, and not all at the same moment.
                oldest = log[0].lamport, log[0].message_id
                absent = {sds_id for sds_id in absent if (agreed[sds_id], sds_id) > oldest}
            wrong = sorted(sds_id for sds_id in absent if not self._may_lack(name, sds_id))
            if wrong:
                text = f"the log of {name} lacks {_some(wrong)}, which are in the logs of others"
                yield self._violation(Invariant.LOGS, None, name, None, text)

    def _may_lack(self, name: str, sds_id: str) -> bool:
        sent = self._ledger.message_of(sds_id)
        if sent is None:
            if sds_id in self._ledger.ephemeral_ids | self._ledger.forged:
                return True
            # What left of a send that its cipher refused amid it is owed to who was there. What did not leave, because
            # its sender's program ended, is owed to nobody.
            is_owed = name in self._ledger.strays.get(sds_id, ())
            return not is_owed or self._world.participants[name].stack.sds.is_settled(sds_id)
        if name == sent.sender:
            # What left was durable before.
            return False
        return name in sent.deliveries or name not in self.owed[sent.number]

    def _violation(
        self, invariant: Invariant, at_ms: int | None, name: str | None, sent: SimulatedSend | None, sentence: str
    ) -> Violation:
        return Violation(
            invariant=invariant,
            at_ms=None if at_ms is None else at_ms - self._start_ms,
            participant=name,
            request_id=None if sent is None else sent.request_id,
            sentence=sentence,
        )


def _seconds(sent: SimulatedSend) -> int:
    return (sent.ends[0][0] - sent.at_ms) // 1_000


def _title(sent: SimulatedSend) -> str:
    return f"message {sent.number} of {sent.sender} (request {sent.request_id}, {sent.size_bytes:,} bytes)"


def _some(sds_ids: list[str]) -> str:
    shown = ", ".join(sds_id[:12] for sds_id in sds_ids[:_SHOWN])
    return f"{shown} and {len(sds_ids) - _SHOWN} more" if len(sds_ids) > _SHOWN else shown
