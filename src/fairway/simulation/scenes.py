"""`Scenes`: what is played once a world is quiet, in the end of each run.

The faults end, programs are killed and started again, and people speak, come, leave and are away, so that what they
should then see can be told in advance.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from operator import gt
from typing import Final

from fairway.channel.creation import create_reliable_channel
from fairway.events import ChannelStatus, MessageDelivered, MessageSending, NodeStatusChanged, StatusChanged
from fairway.options import BloomPolicy, Delivery, Profile
from fairway.protocol.effects import Purpose
from fairway.protocol.incoming.delivering import logical_message_id
from fairway.protocol.incoming.undelivered import ARRIVALS, AWAITING
from fairway.protocol.outgoing.outbox import OUTBOX
from fairway.protocol.outgoing.requests import REQUESTS, SEGMENTS
from fairway.protocol.sds.acknowledgements import SUPPORTING
from fairway.protocol.sds.channel import HISTORY
from fairway.protocol.sds.dependencies import MISSING, PARKED
from fairway.protocol.sds.retained import RETAINED
from fairway.protocol.sds.vouching import DOUBTFUL_MS
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.protocol.stack import Stack
from fairway.simulation.clocks import Clocks
from fairway.simulation.hostile import Mallory
from fairway.simulation.invariants import Invariant, Violation
from fairway.simulation.ledger import SAME_PAGE, Ledger, SimulatedSend
from fairway.simulation.light.network import LightNetwork
from fairway.simulation.looks import AT_REST_MS, MOMENT_MS, Looks
from fairway.simulation.plan import FAST_DISK_MS, SimulationPlan
from fairway.simulation.program import Reading
from fairway.simulation.script import Deed, names_of
from fairway.simulation.wire_rules import RATE_EPOCH_MS
from fairway.simulation.world import World
from fairway.storage.memory_store import MemoryStore
from fairway.units import NS_PER_MS
from fairway.waku.light.options import LightOptions
from fairway.waku.local import NetworkFaults
from fairway.waku.node import RoutedMessage, StoreQuery
from fairway.wire.sds import Kind

_CALLED: Final = 6
"""How many participants say something in the end, and are asked for by name: in a world of a thousand not all."""
_CLOCKS_APART_MS: Final = 60_000
"""By so much the time that a store is asked for is longer than the time away."""
_SPEAKERS: Final = 2
_AWAY_MS: Final = 120_000
_CAUGHT_UP_MS: Final = 12_000
"""A store that has everything, and answers at once, is read within this time."""
_ASKED_AGAIN: Final = 3
"""So many sends of each participant."""
_PAUSED_MS: Final = 60_000
"""In this time an application finishes with the message that it has in hand."""
_GOODBYE_MS: Final = 8_000
"""Within this time, in which a program that stopped is not started again, its goodbye comes."""
_DISK_IN_TIME_MS: Final = 100
"""A program that ends has a second for its goodbye, in which several writes follow one another."""
_CIPHER_IN_TIME_MS: Final = 500
"""In that second its goodbye is encrypted, too."""
_HEALED: Final = NetworkFaults(min_delay_ms=20, max_delay_ms=100)
_FAR: Final = NetworkFaults(min_delay_ms=200, max_delay_ms=300)
"""Answers take so long that it matters whether others are awaited at the same time."""
_BUSY: Final = NetworkFaults(min_delay_ms=20, max_delay_ms=100, messages_per_second=4.0)
_PRESSED: Final = 40
_PRESSED_MS: Final = 30_000
"""Within this time so much leaves through a busy node, which would take it in 8 s from who knows its pace."""
_UNWANTED: Final = 0.1
"""Of what one says a node takes so much never."""
_PICKED: Final = 12
_MOST_UNWANTED: Final = 3
"""Of more than that each one has to be found out before the next one, which takes longer."""
_PICKED_MS: Final = 90_000
"""Within this time all is handed to a node that takes most of it: what it refuses must not hold up the rest."""
_TAKEN_MS: Final = 15_000
"""Within this time of that all leaves that the node refused: it waits for five seconds where it makes way."""
_PINGED_MS: Final = 70_000
"""Within this time a light client pings each of its service nodes."""
_DOUBTED_MS: Final = 10_000
"""Within this time of a ping without an answer it has asked again, and done without who was asked beside."""
_UNCONFIRMED_MS: Final = 8_000
"""In this time a light client asks stores once whether they have what it sent."""
_CONFIRMED_MS: Final = 30_000
"""Within this time of that it has asked again."""
_QUEUED: Final = 5
_REFUSED_MS: Final = 6_000
"""In this time a node refuses one so often that others are tried in its place."""
_SAID_ON: Final = 15
_NEXT_WORD_MS: Final = 200
_CROWD_SHARE: Final = 2
"""So many times as many messages as a buffer has room for are too many."""
_PAGES: Final = 4
_HALTINGLY_MS: Final = 240_000
"""Within this time a store is read of which every other page comes, a few messages each."""
_AHEAD_MS: Final = 600_000
_FAR_AHEAD_MS: Final = 1_200_000
"""By so much that who looks again at what came before a store was read looks at what is yet to come."""
_CLOCK_READ_MS: Final = 50_000
"""So often a channel in which nothing happens reads the clock at least."""
_BELIEVED_MS: Final = 10_000
"""After this time a program that looks at a clock again follows it, if it was set ahead."""
_ASKED_IN_VAIN: Final = 20
"""So often in five minutes a participant asks a store for what that does not have: ever less often."""
_LAG_MS: Final = 30_000
_LOOKED_AGAIN_MS: Final = 90_000
"""Within this time of its return somebody has looked at a store again."""
_MOST_SAID: Final = 40
_ACCEPTED_MS: Final = 10
_NOTICED_MS: Final = 3_000
"""Within this time of an epoch something of what waited for it leaves."""
_HEIR: Final = "heir"
_SHARED: Final = "shared"
_SHARED_MS: Final = 60_000
"""Within this time two channels have said what they may, one of them in two lives."""
_PASSER_BY: Final = "passer-by"
_SILENT_MS: Final = 45 * 60_000
"""After such a silence participants wait longest between two sync messages."""
_HEARD_ALONE_MS: Final = 20_000
_LEARNT_MS: Final = 150_000
"""Within this time of the first sync message after a silence, which got lost, the next one comes."""
_SPOKEN_MS: Final = 90_000
"""Within this time a participant has said something in which it can ask, and another one something that answers."""
_PAIR: Final = 2
_ROUNDS: Final = 4
"""How often a scene is played at most of which chance decides whether it tells anything."""
_LONG_SEGMENTS: Final = 12
_REMEMBERED_SEGMENTS: Final = 100
_REBUILT_MS: Final = 4_000
_AMID_ROUNDS: Final = 2
_AMID_READERS: Final = 2
_AMID_PER_SECOND: Final = 8
"""Segments that leave in a second: few enough to kill somebody between two of them."""
_AMID_LOSS: Final = 0.3
"""Within this time who heard enough segments has the message, and so has its application."""
_BROUGHT_MS: Final = 60_000
"""Within this time lost segments of a message that is whole mostly come from a store, or others repeat them."""
_HOP_MS: Final = 5
"""Within this time what is said comes that is hardly delayed."""
_HEARD_MS: Final = 500
"""Within this time what is said in a healed world is heard."""
_LATE_MS: Final = 60_000
_LOOKS_BEFORE: Final = 6
"""So many times a store is asked by a hint at first, and then by time."""
_LOOKED_BACK_MS: Final = 120_000
"""Within this time of that a few pages are read."""
_ASKED_BY_TIME_MS: Final = 60_000
"""So long it waits at least until it asks about another time."""
_NO_STORE_MS: Final = 90_000
_HOPED_MS: Final = 100_000
"""For so long who is back can hope for a store that has not answered yet."""
_ANSWERED_AGAIN_MS: Final = 60_000
"""Within this time what was asked for last before is no more waited for."""
_ANSWERED_LATE_MS: Final = 3_000
_QUOTA_ASKED_MS: Final = 25_000
"""In this time a program asks its membership at least twice what is left of an epoch."""
_LECTURE_MS: Final = 2_500
"""Between two things that somebody says who does not let others speak."""
_KEEP_FROM_ANSWERING: Final = (
    "rate_limit",
    "rln_limit",
    "refusals",
    "answer_loss",
    "silence",
    "node_rate",
    "slow_uplinks",
    "slow_readers",
    "clock_jumps_per_hour",
)
"""Troubles after which a program may have something else to wait for."""
_SAID_AT_ONCE: Final = 20
_TRIED_MS: Final = 10_000
_AT_ONCE_MS: Final = 4_000
"""Within this time so much leaves through a node that never asked for less."""
_ASKED_MS: Final = 15_000
"""Within this time of that a sync message leaves that waited for it, and its author answers."""
_ASKED_VAINLY: Final = 6
"""After so many answers whoever asks again would wait longer than for the next request."""
_RECOVERED_MS: Final = 90_000
"""Within this time nodes that take everything were handed so much: at a pace that busy nodes taught, if need be."""
_STILL_UNDER_WAY_MS: Final = 30_000
"""Within this time a retry leaves that was with a slow cipher or disk when it was needed no more, or that waited for
the node's answer to another one."""
GRACE_MS: Final = 90_000
"""How long a quiet world runs on: long enough for a sync message of every participant."""
_SYNCS_PER_INTERVAL: Final = 2.6
"""Sync messages that a participant sends in its shortest interval, with room for chance."""
_FEW: Final = 6
_PAGES_AT_REST: Final = 3
_OPEN_TABLES: Final = (REQUESTS, SEGMENTS, OUTBOX, PARKED, MISSING, ARRIVALS, AWAITING)
"""What is kept in these is under way: a channel at rest has nothing there."""


class Scenes:
    """Plays scenes in a world that is quiet."""

    def __init__(
        self,
        world: World,
        plan: SimulationPlan,
        ledger: Ledger,
        looks: Looks,
        clocks: Clocks,
        dice: random.Random,
        holds: Callable[[str, str], bool],
        keyless: set[str],
    ) -> None:
        """Play in a world; ``holds`` says whether a participant has an SDS message.

        The cipher of who is in ``keyless`` encrypts nothing.
        """
        self._clocks = clocks
        self._world, self._plan, self._ledger, self._looks, self._dice = world, plan, ledger, looks, dice
        self._holds = holds
        self._keyless = keyless

    def _run(self, for_ms: int) -> None:
        self._world.run(for_ms)
        self._looks.look()

    def _say(self, name: str, text: str, by: Collection[str] = ()) -> SimulatedSend:
        """Let a participant send a text."""
        payload = text.encode()
        request_id = self._world.send(name, payload, by=by)
        self._ledger.tried(self._world.now_ms, name, request_id, payload, by)
        return self._ledger.request(request_id)

    def _say_at_length(
        self, name: str, by: Collection[str] = (), *, less_bytes: int = 0, segments: int = _LONG_SEGMENTS
    ) -> SimulatedSend:
        """Let a participant send a long text, which fills its last segment unless it is shorter by some bytes.

        It has fewer segments where so many are more than a message may have bytes.
        """
        options = self._world.participants[name].options
        segmenter = Segmenter(options.segmentation, options.profile.segments)
        segment_bytes = segmenter.segment_payload_bytes
        size_bytes = min(segments, segmenter.limit_bytes // segment_bytes) * segment_bytes
        return self._say(name, self._dice.randbytes(size_bytes).hex()[: size_bytes - less_bytes], by)

    def recover(self) -> Iterator[Violation]:
        """Heal the network only, and let some say much at once: programs that live on must make use of it."""
        plan, world = self._plan, self._world
        world.network.faults = _HEALED
        world.heal_services()
        for name in world.participants:
            world.network.limit_uplink(name, None)
        if plan.is_limited or plan.encrypted or plan.storage_faults_per_hour:
            return
        if self._recovered_ms < _RECOVERED_MS:
            # After a refusal one message at a time is tried, until one is taken.
            for name in list(world.participants)[:_SPEAKERS]:
                if world.participants[name].channel is not None:
                    self._say(name, f"{name} tries again", world.participants.keys() - {name})
            self._run(_TRIED_MS)
            world.network.faults = _FAR
        said: list[SimulatedSend] = []
        # Who had a slow uplink has learned to wait.
        speakers = sorted(world.participants.keys() - set(names_of(plan)[: plan.slow_uplinks]))[:_SPEAKERS]
        for name in speakers:
            if world.participants[name].channel is None:
                continue
            said += [self._say(name, f"{name} can be heard again {number}") for number in range(_SAID_AT_ONCE)]
        world.run(self._recovered_ms, lambda: not _not_left(said))
        world.network.faults = _HEALED
        for name in sorted(world.participants):
            late = [sent for sent in _not_left(said) if sent.sender == name and sent.accepted_ms]
            if late and not any(sent.refused for sent in late):
                within_s = self._recovered_ms // 1_000
                text = f"{len(late)} of {_SAID_AT_ONCE} messages of {name} had not left {within_s} s later"
                yield self._looks.violation(Invariant.WAKES, name, f"when nodes took everything again, {text}")

    @property
    def _recovered_ms(self) -> int:
        """Within what time much that is said at once leaves, where nothing goes wrong any more."""
        plan = self._plan
        was_told_to_slow_down = plan.refusals or plan.node_rate is not None or plan.slow_uplinks
        return _RECOVERED_MS if was_told_to_slow_down or plan.silence or self._hands_over_slowly else _AT_ONCE_MS

    @property
    def _hands_over_slowly(self) -> bool:
        """Whether something but the network keeps participants from handing much over at once."""
        plan = self._plan
        is_slow = plan.disk_ms > FAST_DISK_MS or plan.slow_readers or plan.tiny_quotas
        # Who hands over one message at a time waits for each answer.
        return bool(is_slow or plan.mixed_options or plan.option_changes)

    def start_all_again(self) -> list[Violation]:
        """End all faults, kill and restart every program; return the differences between stored and true state."""
        self._looks.is_healed = True
        self._ledger.most_often_by_hash = _ASKED_IN_VAIN
        self._world.network.faults = _HEALED
        for participant in self._world.participants.values():
            participant.habits = replace(participant.habits, raises=0.0)
        for name in self._world.participants:
            self._world.network.limit_uplink(name, None)
        return [violation for name in list(self._world.participants) for violation in self._start_again(name)]

    def _start_again(self, name: str) -> list[Violation]:
        channel = self._world.participants[name].channel
        if channel is None or not self._world.run(AT_REST_MS, lambda: channel.statistics().uncommitted == 0):
            return []
        self._ledger.note(self._world.now_ms, name, Deed.CRASH.value)
        self._ledger.troubled(self._world.now_ms, name)
        return self._looks.crash(name)

    def ask_again(self) -> list[Violation]:
        """Ask each restarted program for the results of its latest sends."""
        asked: list[tuple[SimulatedSend, list[tuple[str, ...] | None]]] = []
        for name in self._world.participants:
            ended = [sent for sent in self._ledger.sent if sent.sender == name and sent.ends and not sent.refused]
            asked += [(sent, self._world.ask_again(name, sent.request_id)) for sent in ended[-_ASKED_AGAIN:]]
        self._run(MOMENT_MS)
        found = []
        for sent, answers in asked:
            # What was delivered stays so when more was asked of it in vain.
            is_delivered = any(isinstance(event, MessageDelivered) for _, event in sent.ends)
            if len(answers) != 1 or bool(answers[0]) != is_delivered:
                told = "nothing" if not answers else "failure" if answers[0] is None else f"delivery to {answers[0]}"
                text = (
                    f"the receipt of {sent.request_id} of {sent.sender}, asked again after a restart, says {told}, "
                    f"while the event was {type(sent.ends[-1][1]).__name__}"
                )
                found.append(self._looks.violation(Invariant.WORD, sent.sender, text, sent.request_id))
        return found

    def call_the_roll(self) -> list[str]:
        """Let some participants send a last message to some others by name; return the request ids."""
        names = sorted(self._world.participants)
        some = self._dice.sample(names, min(_CALLED, len(names)))
        called = []
        for name in some:
            sent = self._say(name, f"{name} is here", frozenset(some) - {name})
            if self._is_patient(name, frozenset(some) - {name}):
                called.append(sent.request_id)
        # Where the rate limit holds acknowledgements back for an epoch, retries may be over before.
        return [] if self._plan.is_limited else called

    def _is_patient(self, name: str, others: Collection[str]) -> bool:
        """Return whether a sender repeats for as long as others, with their own options, take to acknowledge a copy."""
        options = self._world.participants[name].options
        longest_ms = max((self._world.participants[other].options.sync_min_interval_ms for other in others), default=0)
        return options.max_retry_attempts * options.retry_interval_ms > longest_ms // 2 + _ANSWERED_LATE_MS

    def part(self) -> Iterator[Violation]:
        """Let somebody end its program in order, right after it read a message: its goodbye acknowledges that."""
        world = self._world
        speaker, *_, reader = sorted(world.participants)
        is_late = self._plan.disk_ms > _DISK_IN_TIME_MS or self._plan.cipher_delay_ms > _CIPHER_IN_TIME_MS
        is_slow = is_late or world.participants[reader].habits.slow_ms
        if self._plan.is_limited or is_slow or world.participants[reader].channel is None:
            return
        sent = self._say(speaker, f"until soon, {reader}", (reader,))
        self._run(MOMENT_MS)
        # Where encrypting and opening take a while.
        world.run(MOMENT_MS * 4, lambda: reader in sent.deliveries)
        world.stop(reader)
        self._ledger.troubled(world.now_ms, reader)
        world.run(_GOODBYE_MS, lambda: bool(sent.ends))
        if not sent.ends:
            text = f"{reader} stopped after it was sent {sent.request_id} and never told {speaker} that it has it"
            yield self._looks.violation(Invariant.HEALED, reader, text, sent.request_id)

    def away(self) -> Iterator[Violation]:
        """Let somebody be away while others speak: who comes back to a healed world has it all at once, and says so."""
        world = self._world
        *speakers, absent = sorted(world.participants)[: _SPEAKERS + 1]
        participant = world.participants[absent]
        if participant.habits.slow_ms or participant.channel is None or self._plan.is_limited:
            return
        if 2 * self._plan.clock_skew_ms > _CLOCKS_APART_MS or self._plan.clock_jumps_per_hour:
            # A store is asked for a time by one clock, and keeps what others stamped by theirs.
            return
        self._leave_for_a_while(absent)
        said = [self._say(name, f"{name} speaks while {absent} is away") for name in speakers]
        self._run(_AWAY_MS)
        self._come_back(absent)
        seen = len(participant.events)
        world.run(_CAUGHT_UP_MS, lambda: all(absent in sent.deliveries for sent in said))
        synced = [
            at_ms
            for at_ms, event in participant.events[seen:]
            if isinstance(event, StatusChanged) and event.status is ChannelStatus.SYNCED
        ]
        for sent in said:
            if sent.accepted_ms is None or sent.refused:
                continue
            times = sent.deliveries.get(absent)
            text = None
            if times is None:
                text = (
                    f"{absent} was back for {_CAUGHT_UP_MS // 1_000} s and had not got {sent.request_id} from the store"
                )
            elif synced and synced[0] < times[0]:
                text = f"{absent} said that it is synced before it had got {sent.request_id}"
            if text is not None:
                yield self._looks.violation(Invariant.HEALED, absent, text, sent.request_id)

    @property
    def _may_read_a_store(self) -> bool:
        """Whether who comes back finds in a store what was said meanwhile, and nothing else keeps it from reading."""
        plan = self._plan
        return not (
            plan.service_nodes
            or plan.is_limited
            or plan.encrypted
            or plan.slow_readers
            or plan.clock_skew_ms
            or plan.clock_jumps_per_hour
            or len(self._world.participants) > _FEW
        )

    def _leave_for_a_while(self, absent: str) -> None:
        self._world.go_offline(absent)
        self._ledger.troubled(self._world.now_ms, absent)

    def _come_back(self, absent: str) -> None:
        self._world.go_online(absent)
        self._ledger.troubled(self._world.now_ms, absent)

    def crowd(self) -> None:
        """Let more be said in somebody's absence than it has room for while it lacks the first, which no store has.

        What it has no room for on a page does not count as read (RELIABLE-CHANNEL-API, "Query on connect").
        """
        world = self._world
        speaker, *_, absent = sorted(world.participants)
        if not (self._plan.tiny_quotas and self._plan.repairs and self._may_read_a_store):
            return
        self._leave_for_a_while(absent)
        world.network.faults = replace(_HEALED, store_loss=1.0)
        self._say(speaker, "no store has this")
        self._run(MOMENT_MS)
        world.network.faults = _HEALED
        for number in range(_CROWD_SHARE * world.participants[absent].options.sds.max_incoming_buffer):
            self._say(speaker, f"{absent} has no room for all of this {number}")
            self._run(MOMENT_MS)
        self._come_back(absent)
        self._run(_AWAY_MS)

    def press(self) -> Iterator[Violation]:
        """Let somebody say much at once to a node that takes four messages a second: it must find that pace."""
        plan, world = self._plan, self._world
        is_slow = plan.cipher_delay_ms or self._hands_over_slowly
        if plan.node_rate is None or plan.is_limited or plan.service_nodes or is_slow:
            return
        # Who had a slow uplink has learned to wait.
        name = max(world.participants.keys() - set(names_of(plan)[: plan.slow_uplinks]), default=None)
        if name is None or world.participants[name].channel is None:
            return
        world.network.faults = _BUSY
        said = [self._say(name, f"{name} says much at once {number}") for number in range(_PRESSED)]
        world.run(_PRESSED_MS, lambda: not _not_left(said))
        world.network.faults = _HEALED
        late = [sent for sent in _not_left(said) if sent.accepted_ms]
        if late:
            text = f"{len(late)} of {_PRESSED} messages of {name} had not left {_PRESSED_MS // 1_000} s later"
            yield self._looks.violation(Invariant.WAKES, name, f"at a node that takes four a second, {text}")

    def halt(self) -> Iterator[Violation]:
        """Let every other page of a store get lost while somebody reads what was said in its absence.

        It must come to the end, and not begin anew each time.
        """
        world, plan = self._world, self._plan
        *speakers, absent = sorted(world.participants)[: _SPEAKERS + 1]
        is_small = plan.tight_quotas or plan.tiny_quotas
        if plan.store_page is None or is_small or not self._may_read_a_store:
            return
        if world.participants[absent].channel is None:
            return
        self._leave_for_a_while(absent)
        for number in range(_PAGES):
            for name in speakers:
                self._say(name, f"{name} fills page {number}")
            self._run(MOMENT_MS)
        comes = cycle((True, False))

        def lose_every_other(name: str, query: StoreQuery, _: bytes | None) -> None:
            is_reading = name == absent and not (query.message_hashes or query.newest_first)
            is_lost = is_reading and not next(comes)
            world.network.faults = replace(_HEALED, store_page=_SPEAKERS, query_loss=float(is_lost))

        world.network.query_observers.append(lose_every_other)
        self._come_back(absent)
        is_read = world.run(_HALTINGLY_MS, lambda: world.participants[absent].stack.status is ChannelStatus.SYNCED)
        world.network.query_observers.remove(lose_every_other)
        world.network.faults = _HEALED
        if not is_read:
            text = f"{absent} has not read the store for {_HALTINGLY_MS // 1_000} s, of which every other page came"
            yield self._looks.violation(Invariant.HEALED, absent, text)

    def arrive_late(self) -> Iterator[Violation]:
        """Let a store get something only after it was read for the time away, while nobody else is there to cite it.

        Who has read it looks at that time again, a minute later at first.
        """
        world = self._world
        speaker, *_, reader = names = sorted(world.participants)
        is_small = self._plan.tight_quotas or self._plan.tiny_quotas
        if is_small or not self._may_read_a_store or any(each.channel is None for each in world.participants.values()):
            return
        for name in names[1:]:
            self._leave_for_a_while(name)
        world.network.faults = replace(_HEALED, store_lag_ms=_LAG_MS)
        sent = self._say(speaker, f"{reader} is to read this later")
        self._run(MOMENT_MS)
        self._leave_for_a_while(speaker)
        world.network.faults = _HEALED
        self._come_back(reader)
        is_there = world.run(_LOOKED_AGAIN_MS, lambda: all(self._holds(reader, each) for each in sent.sds_ids))
        if sent.sds_ids and not is_there:
            text = f"{reader} did not look again for {sent.request_id}, which a store got {_LAG_MS} ms late"
            yield self._looks.violation(Invariant.HEALED, reader, text, sent.request_id)
        for name in names[:-1]:
            self._come_back(name)
        self._run(MOMENT_MS)

    def exhaust(self) -> Iterator[Violation]:
        """Let somebody say more than an epoch lets out: the rest leaves in the next one, though nothing happens then.

        LIP-173, "Rate Limit Manager". What is said in passing meanwhile takes nothing of what content needs
        (RELIABLE-CHANNEL-API, "Rate Limit Management").
        """
        world, speaker = self._world, min(self._world.participants)
        limit = self._ledger.rules.allowed(speaker)
        if limit is None or limit > _MOST_SAID or len(world.participants) > _FEW:
            return
        if self._plan.clock_jumps_per_hour or world.participants[speaker].channel is None:
            return
        self._run(RATE_EPOCH_MS - world.now_ms % RATE_EPOCH_MS + MOMENT_MS)
        for number in range(limit + _SPEAKERS):
            if number == limit // 2 and self._plan.rln_limit is not None:
                # Meanwhile the membership says what is left of it.
                self._run(_QUOTA_ASKED_MS)
            self._say(speaker, f"{speaker} says more than an epoch holds {number}")
        # All of it is accepted, and of none an answer has come yet.
        world.run(_ACCEPTED_MS)
        in_passing = [f"{speaker} says in passing {number}".encode() for number in range(limit)]
        for payload in in_passing:
            self._ledger.ephemeral_sent += 1
            world.send_ephemeral(speaker, payload)
        yield from self._set_back(speaker, limit)
        self._run(RATE_EPOCH_MS - world.now_ms % RATE_EPOCH_MS - MOMENT_MS)
        before = self._handed_over_by(speaker)
        held = world.participants[speaker].stack.statistics().queued
        left = self._ledger.rules.left(speaker, world.now_ms // RATE_EPOCH_MS) or 0
        if held and left > 0:
            text = f"{speaker} left {left} of the {limit} messages of an epoch unused, while {held} wait"
            yield self._looks.violation(Invariant.WAKES, speaker, text)
        is_released = world.run(MOMENT_MS + _NOTICED_MS, lambda: self._handed_over_by(speaker) > before)
        if held and not is_released:
            text = f"{speaker} let nothing out of what waited for an epoch for {_NOTICED_MS} ms"
            yield self._looks.violation(Invariant.WAKES, speaker, text)
        heard = {message_id for _, message_id in self._ledger.ephemeral_heard}
        if not heard.isdisjoint(map(logical_message_id, in_passing)):
            text = f"{speaker} let out what it said in passing while content waited for which the epoch had no room"
            yield self._looks.violation(Invariant.RATE, speaker, text)
        self._run(GRACE_MS)
        yield from self._speak_in_passing(speaker, limit)

    def _speak_in_passing(self, speaker: str, limit: int) -> Iterator[Violation]:
        """Let somebody say something in passing who has most of an epoch left, and for whom nothing waits."""
        world, participant = self._world, self._world.participants[speaker]
        left = self._ledger.rules.left(speaker, world.now_ms // RATE_EPOCH_MS) or 0
        waits = participant.channel is None or participant.stack.statistics().queued
        if waits or left <= limit // 2 or self._plan.rln_limit is not None or self._plan.encrypted:
            return
        before = self._handed_over_by(speaker)
        self._ledger.ephemeral_sent += 1
        world.send_ephemeral(speaker, f"{speaker} says this in passing".encode())
        if not world.run(_TRIED_MS, lambda: self._handed_over_by(speaker) > before):
            text = f"{speaker} dropped what it said in passing with {left} of the {limit} messages of an epoch left"
            yield self._looks.violation(Invariant.WAKES, speaker, text)

    def share_a_node(self) -> Iterator[Violation]:
        """Let two channels of one more node say more than an epoch holds, one of which starts again amid it.

        They have one membership, and so one count (`Membership`). Nobody else is in these channels.
        """
        plan, world = self._plan, self._world
        limit = plan.rate_limit
        if limit is None or limit > _MOST_SAID or plan.service_nodes:
            return
        left: Counter[int] = Counter()

        def count(name: str, message: RoutedMessage) -> None:
            left[(message.message.timestamp_ns or 0) // NS_PER_MS // RATE_EPOCH_MS] += name == _SHARED

        async def speak() -> None:
            options, stores = plan.options(), (MemoryStore(), MemoryStore())
            node = world.network.node(_SHARED)

            async def say(number: int, times: int) -> None:
                channel_id = f"{_SHARED} {number}"
                topic = f"/fairway/1/{_SHARED}-{number}/proto"
                opening = create_reliable_channel(
                    node, channel_id, _SHARED, topic, options=options, store=stores[number]
                )
                async with opening as channel:
                    for time in range(times):
                        await channel.send(f"{channel_id} says more than an epoch holds {time}".encode())
                    await asyncio.sleep(_TRIED_MS / 1_000)

            await asyncio.gather(say(0, limit), say(1, limit // 4))
            await asyncio.gather(say(0, 0), say(1, limit))
            await node.close()

        self._run(RATE_EPOCH_MS - world.now_ms % RATE_EPOCH_MS + MOMENT_MS)
        epoch = world.now_ms // RATE_EPOCH_MS
        world.network.sending_observers.append(count)
        world.spawn(speak())
        self._run(_SHARED_MS)
        world.network.sending_observers.remove(count)
        if not limit // 2 <= left[epoch] <= limit:
            text = f"two channels of one node handed over {left[epoch]} messages in an epoch of {limit}"
            yield self._looks.violation(Invariant.RATE, _SHARED, text)

    def _set_back(self, speaker: str, limit: int) -> Iterator[Violation]:
        """Set the clock of somebody who used an epoch up back into the one before, and right again.

        That gives no second budget (`EpochCounter`).
        """
        world = self._world
        self._run(_ANSWERED_LATE_MS)
        epoch = world.now_ms // RATE_EPOCH_MS
        # Where encrypting takes a while.
        if not world.run(_TRIED_MS, lambda: not self._ledger.rules.left(speaker, epoch)):
            return
        used = self._ledger.rules.epochs[speaker, epoch]
        self._clocks.set(speaker, -RATE_EPOCH_MS)
        before = self._handed_over_by(speaker)
        self._run(_TRIED_MS)
        self._clocks.set(speaker, 0)
        more = self._handed_over_by(speaker) - before
        if more > limit - used:
            text = f"{speaker} handed over {used} of {limit} messages, and {more} more when its clock was set back"
            yield self._looks.violation(Invariant.RATE, speaker, text)

    def rebuild(self) -> Iterator[Violation]:
        """Let everybody lose some segments of a long message: who heard as many as it has data has the message.

        SEGMENTATION, "Receiving": parity stands for what is lacking, long before that is sent again.
        """
        world, plan = self._world, self._plan
        speaker, *others = sorted(world.participants)
        options = world.participants[speaker].options
        parity_rate = options.segmentation.parity_rate
        amiss = self._is_beset or plan.clock_skew_ms
        # What a log has forgotten and others cite is looked for.
        amiss = amiss or min(plan.max_history, plan.bloom_capacity) < _ROUNDS * _REMEMBERED_SEGMENTS
        if not parity_rate or amiss or not self.all_answer:
            return
        lossy = replace(_HEALED, loss=min(0.3, parity_rate / 2))
        for number in range(_ROUNDS):
            world.network.faults = lossy
            # Every other one fills its last segment.
            sent = self._say_at_length(speaker, less_bytes=number % 2)
            self._run(_REBUILT_MS)
            for other in others:
                heard = sum((other, sds_id) in self._ledger.came for sds_id in sent.sds_ids)
                if heard >= sent.data_count > 0 and other not in sent.deliveries:
                    text = f"{other} heard {heard} segments of a message, which has {sent.data_count}, and lacks it"
                    yield self._looks.violation(Invariant.HEALED, other, text, sent.request_id)
            # The next one waits for this one, and for what only its first segment may have cited.
            first_id = next(iter(sent.sds_ids), "")
            came = self._ledger.came
            others = [other for other in others if other in sent.deliveries and (other, first_id) in came]
            world.network.faults = _HEALED
            if not self._ledger.lost_ids_follow:
                others = self._who_gets_all(others, sent)

    def start_again_amid(self) -> Iterator[Violation]:
        """Kill who sends a long message, and who has heard a part of it: each goes on with what it kept.

        Some of its parity has left, and stands for what is lacking also after that.
        """
        world = self._world
        speaker, *others = sorted(world.participants)
        options = world.participants[speaker].options
        parity = Segmenter(options.segmentation, options.profile.segments).parity_count(_LONG_SEGMENTS)
        if not parity or self._is_beset or self._plan.is_limited:
            return
        for _ in range(_AMID_ROUNDS):
            world.network.faults = replace(_HEALED, loss=_AMID_LOSS)
            world.network.limit_uplink(speaker, _AMID_PER_SECOND)
            sent = self._say_at_length(speaker)
            for left, names in ((parity // 2, others[:_AMID_READERS]), (parity, [speaker])):
                world.run(_REBUILT_MS, partial(self._has_left, sent, left))
                self._run(MOMENT_MS)
                for name in names:
                    if name not in sent.deliveries and not sent.ends:
                        yield from self._start_again(name)
            world.network.faults = _HEALED
            world.network.limit_uplink(speaker, None)
            self._run(GRACE_MS)

    @staticmethod
    def _has_left(sent: SimulatedSend, parity: int) -> bool:
        """Return whether all data of a message has left, and so many of its parity segments."""
        return len(sent.sds_ids) >= sent.data_count + parity > parity

    def _who_gets_all(self, names: Collection[str], sent: SimulatedSend) -> list[str]:
        """Return who soon has each segment of a message as it was sent, also those that it rebuilt without knowing ids.

        Until these come, what cites them waits for them.
        """

        def have_all() -> list[str]:
            gives = self._ledger.can_give
            return [name for name in names if all(gives(name, sds_id) for sds_id in sent.sds_ids)]

        self._world.run(_BROUGHT_MS, lambda: len(have_all()) == len(names))
        return have_all()

    def turn_down(self) -> Iterator[Violation]:
        """Let a node take most of what one says, and the rest never: that makes way for what else there is.

        It leaves once a node takes it, though its message may be delivered without it.
        """
        world = self._world
        speaker = max(world.participants)
        if self._is_beset or not self.all_answer:
            return
        self._ledger.rules.syncs_are_prompt = False
        world.network.faults = replace(_HEALED, unwanted=_UNWANTED)
        said = [self._say_at_length(speaker)]
        # From then on it knows what the node refuses, and hands over less at a time.
        self._run(MOMENT_MS)
        said += [self._say(speaker, f"{speaker} says what not every node takes {number}") for number in range(_PICKED)]

        def held_up() -> int:
            return sum(not (sent.sds_ids or sent.turned_down) for sent in said)

        def lacking() -> int:
            return sum(len(sent.turned_down - sent.sds_ids.keys()) for sent in said)

        is_tried = world.run(_PICKED_MS, lambda: not held_up())
        if not is_tried and sum(len(sent.turned_down) for sent in said) <= _MOST_UNWANTED:
            text = f"{held_up()} messages of {speaker} had not left {_PICKED_MS // 1_000} s later"
            yield self._looks.violation(Invariant.WAKES, speaker, f"when a node refused some each time, {text}")
        self._run(MOMENT_MS)
        world.network.faults = _HEALED
        if not world.run(_TAKEN_MS, lambda: not lacking()):
            text = f"{lacking()} messages of {speaker} had not left {_TAKEN_MS // 1_000} s later"
            yield self._looks.violation(Invariant.WAKES, speaker, f"when a node took what it had refused, {text}")
        self._run(GRACE_MS)
        self._ledger.rules.syncs_are_prompt = True

    def overtake(self) -> Iterator[Violation]:
        """Let somebody hear a long message and not what it cites: where messages may overtake, it has that at once."""
        world = self._world
        author, *_, reader = sorted(world.participants)
        if self._plan.delivery is not Delivery.ARRIVAL or not (self.all_answer and self._may_be_left_with_a_store):
            return
        world.network.faults = replace(_HEALED, store_loss=1.0)
        world.sever((reader,))
        self._say(author, f"{reader} does not hear this before the next")
        self._run(MOMENT_MS)
        world.mend()
        self._ledger.troubled(world.now_ms, reader)
        sent = self._say_at_length(author)
        if not world.run(_REBUILT_MS, lambda: reader in sent.deliveries):
            text = f"{reader} waits with {sent.request_id} of {author} for what it cites, though messages may overtake"
            yield self._looks.violation(Invariant.HEALED, reader, text, sent.request_id)
        world.network.faults = _HEALED
        self._run(GRACE_MS)

    def stand_aside(self) -> Iterator[Violation]:
        """Let a node refuse everything for a while, and then take all that one says on and on.

        What was refused so often that others were tried in its place goes once one of them is taken, and not only when
        nothing else is left to be said.
        """
        world = self._world
        speaker = max(world.participants)
        if self._is_beset or not self.all_answer:
            return
        self._ledger.rules.syncs_are_prompt = False
        world.network.faults = replace(_HEALED, no_peers_to_relay=1.0)
        first = self._say(speaker, "no node takes this for a while")
        self._run(MOMENT_MS)
        said = [self._say(speaker, f"{speaker} says this, too {number}") for number in range(_QUEUED)]
        self._run(_REFUSED_MS)
        # While one is answered, another one is said.
        world.network.faults = _FAR
        is_taken = world.run(_PICKED_MS, lambda: any(sent.times_sent for sent in said))
        for number in range(_SAID_ON):
            if first.times_sent:
                break
            self._say(speaker, f"{speaker} says more {number}")
            self._run(_NEXT_WORD_MS)
        if is_taken and not (first.times_sent or first.ends):
            text = f"{speaker} said on and on, and {first.request_id}, which no node had taken before, did not leave"
            yield self._looks.violation(Invariant.WAKES, speaker, text, first.request_id)
        world.network.faults = _HEALED
        self._run(GRACE_MS)
        self._ledger.rules.syncs_are_prompt = True

    def keep_nothing(self) -> Iterator[Violation]:
        """Let service nodes relay what one says and keep nothing of it, while no store answers whether it has that.

        Once stores answer, its light client learns that none has it, and pushes it again (WAKU-P2P-RELIABILITY,
        "Store-based reliability").
        """
        world, network = self._world, self._world.network
        speaker = max(world.participants)
        if not isinstance(network, LightNetwork) or world.participants[speaker].channel is None:
            return
        said: list[bytes] = []

        def note(name: str, message: RoutedMessage) -> None:
            if name == speaker and not message.message.ephemeral:
                said.append(message.message_hash)

        network.faults = replace(_HEALED, store_loss=1.0, query_loss=1.0)
        network.observers.append(note)
        self._say(speaker, "no store gets this")
        self._run(_HEARD_MS)
        network.observers.remove(note)
        self._run(_UNCONFIRMED_MS)
        network.faults = _HEALED
        before = [network.pushes[each] for each in said]
        if not world.run(_CONFIRMED_MS, lambda: all(map(gt, (network.pushes[each] for each in said), before))):
            text = f"{speaker} did not send again in {_CONFIRMED_MS // 1_000} s what no store has, since none answered"
            yield self._looks.violation(Invariant.SERVED, speaker, text)
        self._run(GRACE_MS)

    def miss_a_ping(self) -> Iterator[Violation]:
        """Let a service node leave one ping without an answer: once it answers again, no other one pushes beside it."""
        world, network = self._world, self._world.network
        if not isinstance(network, LightNetwork):
            return
        enough = LightOptions().peers_to_use
        running = [name for name, each in world.participants.items() if each.channel is not None]
        names = [name for name in sorted(running) if len(network.subscribed_at(name)) == enough]
        if not names:
            return
        network.miss_a_ping(network.subscribed_at(names[0])[0])
        world.run(_PINGED_MS, lambda: not network.is_ping_awaited)
        self._run(_DOUBTED_MS)
        for name in names:
            pushing = len(network.subscribed_at(name))
            if pushing > enough:
                text = f"{pushing} service nodes push to {name}, though each answers, and {enough} are enough"
                yield self._looks.violation(Invariant.SERVED, name, text)

    def repeat(self) -> Iterator[Violation]:
        """Let a program repeat a send, and ask for its receipt, while the disk writes how it ended."""
        world = self._world
        for name in sorted(world.participants)[: _SPEAKERS if self._plan.disk_ms > FAST_DISK_MS else 0]:
            participant, request_id, payload = world.participants[name], f"{name} once", f"{name}: once".encode()
            if participant.channel is None:
                continue
            self._ledger.tried(world.now_ms, name, request_id, payload)
            sent = self._ledger.request(request_id)
            world.send_again(name, request_id, payload)
            has_ended = partial(self._has_ended, name, sent)
            if not world.run(GRACE_MS, has_ended):
                continue
            answers = world.ask_again(name, request_id)
            world.send_again(name, request_id, payload)
            world.run(1)
            if answers and not sent.ends:
                text = f"the receipt of {request_id} says how it ended while the disk writes that"
                yield self._looks.violation(Invariant.WORD, name, text, request_id)
            self._run(_STILL_UNDER_WAY_MS)

    def fall_offline_amid(self) -> Iterator[Violation]:
        """Let somebody fall offline while the disk writes what it heard: it is told of that after those messages.

        An event that rests on nothing new waits for all writes before it all the same.
        """
        world = self._world
        *speakers, reader = sorted(world.participants)[: _SPEAKERS + 1]
        participant = world.participants[reader]
        is_slow = self._plan.disk_ms <= FAST_DISK_MS or participant.habits.slow_ms or self._plan.service_nodes
        if is_slow or participant.channel is None:
            return
        for number in range(_ROUNDS):
            said = [self._say(name, f"{reader} hears this and falls offline {number}") for name in speakers]

            def unread(said: list[SimulatedSend] = said) -> list[SimulatedSend]:
                return [sent for sent in said if sent.sds_ids and reader not in sent.deliveries]

            def is_amid(said: list[SimulatedSend] = said) -> bool:
                return self._holds_all(reader, said) and len(unread(said)) == len(said)

            is_heard = world.run(_STILL_UNDER_WAY_MS, is_amid)
            seen = len(participant.events)
            self._leave_for_a_while(reader)
            self._run(_STILL_UNDER_WAY_MS)
            told = [at_ms for at_ms, event in participant.events[seen:] if isinstance(event, NodeStatusChanged)]
            for sent in said if is_heard and told and participant.channel is not None else ():
                if min(sent.deliveries.get(reader, [world.now_ms])) > told[0]:
                    text = f"{reader} was told that it is offline before it had {sent.request_id}, which came before"
                    yield self._looks.violation(Invariant.WORD, reader, text, sent.request_id)
            self._come_back(reader)
            self._run(_STILL_UNDER_WAY_MS)

    def put_down(self) -> None:
        """Let somebody who is offline stop its channel while the disk writes: what it finished before is kept.

        There is no goodbye then, which would be written, too. Only if two messages come together is the disk still
        busy with one of them when it has finished with the other.
        """
        *speakers, reader = sorted(self._world.participants)[: _SPEAKERS + 1]
        is_slow = self._world.participants[reader].habits.slow_ms
        if self._plan.disk_ms <= FAST_DISK_MS or is_slow or len(speakers) < _SPEAKERS:
            return
        for number in range(_ROUNDS):
            self._put_down(reader, speakers, number)

    def _put_down(self, reader: str, speakers: Collection[str], number: int) -> None:
        """Play one round of it."""
        world = self._world
        said = [self._say(name, f"{reader} puts this down {number}") for name in speakers]
        world.run(GRACE_MS, lambda: any(reader in sent.deliveries for sent in said))
        self._leave_for_a_while(reader)
        world.run(1)
        world.stop(reader)
        self._run(_GOODBYE_MS)
        self._come_back(reader)
        self._run(_STILL_UNDER_WAY_MS)

    def finish_amid_a_pause(self) -> None:
        """Let slow applications finish with messages while their channels are stopped: that is kept all the same."""
        world = self._world
        readers = [name for name, each in sorted(world.participants.items()) if each.habits.slow_ms][:_SPEAKERS]
        for reader in [] if self._plan.service_nodes else readers:
            speaker = min(world.participants.keys() - {reader})
            said = [self._say(speaker, f"{reader} takes its time for this {number}") for number in range(_SPEAKERS)]
            world.run(GRACE_MS, partial(_has_any, reader, said))
            world.pause(reader, _PAUSED_MS)
            self._run(_PAUSED_MS + _STILL_UNDER_WAY_MS)

    def put_away(self) -> None:
        """Let somebody end its loop amid several messages, and the program with it: the others come in the next life.

        For each message the promises are looked at in the end, as for all that was said.
        """
        world = self._world
        slow = [each for each in world.participants.values() if each.habits.slow_ms]
        reader = next((each.name for each in slow if each.habits.reading is Reading.MESSAGES), None)
        if reader is None or self._plan.service_nodes:
            return
        world.quit_amid(reader)
        for name in sorted(world.participants.keys() - {reader})[:_SPEAKERS]:
            for number in range(_ROUNDS):
                self._say(name, f"{reader} leaves this for later {number}")
        self._run(_STILL_UNDER_WAY_MS)

    def _has_ended(self, name: str, sent: SimulatedSend) -> bool:
        participant = self._world.participants[name]
        is_running = participant.channel is not None
        return is_running and bool(sent.sds_ids) and sent.request_id not in participant.stack.requests.open

    @property
    def has_heirs(self) -> bool:
        """Whether what somebody said who left is looked for: where nothing else is amiss, and a loss is soon told."""
        plan, timeout_ms = self._plan, self._plan.lost_timeout_ms
        amiss = (
            plan.service_nodes
            or plan.is_limited
            or plan.hostile
            or plan.encrypted
            or plan.clock_skew_ms
            or plan.clock_jumps_per_hour
        )
        is_sound = all(each.channel is not None for each in self._world.participants.values())
        return not amiss and plan.repairs and is_sound and 2 * self._inherited_ms > timeout_ms > self._inherited_ms

    @property
    def _inherited_ms(self) -> int:
        """Within this time a participant that lacks a message has asked for it, and another one has answered.

        SDS-R: either waits at most T_max. If nobody of a response group is left, the first request has no answer.
        """
        waits = 2 + (self._plan.response_groups > 1)
        return waits * self._plan.options().sds.repair.t_max_ms + _SPOKEN_MS

    def inherit(self) -> Iterator[Violation]:
        """Let somebody speak and leave, of whom each other one heard a part: they must have it from one another.

        No other participant receives the first message, one receives the second, which waits for the first, and another
        one the third; the store has none. In the end the first is declared lost, and all have the others.
        """
        world, plan = self._world, self._plan
        one, other, *_ = sorted(world.participants)
        world.network.faults = replace(_HEALED, store_loss=1.0)
        self._ledger.joined(_HEIR)
        world.join(_HEIR)
        self._run(MOMENT_MS * 5)
        said = []
        for hearers in ((), (one,), (other,)):
            world.sever((_HEIR, *hearers))
            said.append(self._say(_HEIR, f"for {hearers} alone"))
            self._run(MOMENT_MS)
        world.leave(_HEIR)
        self._ledger.left(world.now_ms, _HEIR)
        world.mend()

        def is_inherited() -> bool:
            return all(self._holds(other, sds_id) for sds_id in said[1].sds_ids)

        if said[1].sds_ids and not world.run(self._inherited_ms, is_inherited):
            text = f"{other} lacks for {self._inherited_ms // 1_000} s what {one} has, whose sender has left"
            yield self._looks.violation(Invariant.HEALED, other, text)
        self._run(plan.lost_timeout_ms + self._inherited_ms)

    def cite_amid(self) -> Iterator[Violation]:
        """Let only one segment of a long message cite what somebody said who has left, and let that get lost.

        Parity stands for the segment, but not for what it cites: so its author cites that again in its next message.
        """
        world, heir = self._world, f"{_HEIR} amid"
        author, *others, reader = sorted(world.participants)
        options = world.participants[author].options
        if not (options.segmentation.parity_rate and self.all_answer and self._may_be_left_with_a_store):
            return
        far = replace(_FAR, store_loss=1.0)
        handed: dict[str, list[str]] = {author: [], heir: []}
        lost_ids: set[str] = set()

        def lose(name: str, message: RoutedMessage) -> None:
            world.network.faults = far
            opened = self._ledger.rules.codec.decode(self._ledger.opened(message.message.payload))
            if name in handed and opened.kind is Kind.CONTENT:
                if name == author and any(entry.message_id in handed[heir] for entry in opened.causal_history):
                    lost_ids.add(opened.message_id)
                    world.network.faults = replace(far, loss=1.0)
                handed[name].append(opened.message_id)

        self._ledger.joined(heir)
        world.join(heir)
        self._run(_HEARD_MS)
        for name in others:
            self._leave_for_a_while(name)
        world.network.faults = far
        world.network.sending_observers.append(lose)
        long = self._say_at_length(author, segments=2 * options.max_concurrent_publishes)
        world.run(MOMENT_MS, lambda: bool(handed[author]))
        world.run(1)
        world.sever((reader,))
        said = self._say(heir, f"{author} cites this amid a long message")
        world.run(MOMENT_MS, lambda: bool(handed[heir]))
        world.run(1)
        world.mend()
        world.leave(heir)
        self._ledger.left(world.now_ms, heir)
        self._run(_REBUILT_MS)
        world.network.sending_observers.remove(lose)
        world.network.faults = replace(_HEALED, store_loss=1.0)
        if lost_ids and reader in long.deliveries and author in said.deliveries:
            self._say(author, f"{author} says this after a long message")
            if not world.run(self._inherited_ms, lambda: self._holds_all(reader, [said])):
                text = (
                    f"{reader} lacks for {self._inherited_ms // 1_000} s what {author} cited in a segment that got lost"
                )
                yield self._looks.violation(Invariant.HEALED, reader, text)
        self._all_come_back()
        self._run(self._plan.lost_timeout_ms + self._inherited_ms)

    def break_silence(self) -> Iterator[Violation]:
        """Let somebody speak after a long silence and leave: who alone heard it must not wait long to tell the others.

        The first that he says of it gets lost.
        """
        world = self._world
        one, *others = sorted(world.participants)
        name = f"{_HEIR} of silence"
        self._ledger.joined(name)
        world.join(name)
        self._run(_SILENT_MS)
        world.sever((name, one))
        sent = self._say(name, "is anybody there?")
        self._run(MOMENT_MS)
        world.leave(name)
        self._ledger.left(world.now_ms, name)
        world.sever((one,))
        self._run(_HEARD_ALONE_MS)
        world.mend()

        def is_known() -> bool:
            # Some learn of it first, and tell the rest.
            stacks = (world.participants[other].stack.sds for other in others)
            return any(sds.has(sds_id) or sds_id in sds.missing for sds in stacks for sds_id in sent.sds_ids)

        if sent.sds_ids and not world.run(_LEARNT_MS, is_known):
            text = f"after a silence {one} heard something and did not tell of it again for {_LEARNT_MS // 1_000} s"
            yield self._looks.violation(Invariant.HEALED, one, text)
        self._run(self._inherited_ms)
        world.network.faults = _HEALED

    def fall_behind(self) -> Iterator[Violation]:
        """Let somebody be cut off without noticing, and the channel fall silent: who hears that he is behind tells him.

        RELIABLE-CHANNEL-API, "Synchronization messages". Whoever speaks by himself would tell him, too, but in a silent
        channel that takes many minutes. He comes back when another one has just spoken; if one speaks before him all
        the same, the scene is played again.
        """
        if len(self._world.participants) > _PAIR:
            rounds = (self._fall_behind(number) for number in range(_ROUNDS))
            yield from next((found for found in rounds if found is not None), ())
        self._run(self._inherited_ms)

    def _fall_behind(self, number: int) -> list[Violation] | None:
        """Play one round; return None if nothing can be told of it."""
        world = self._world
        speaker, *others, behind = sorted(world.participants)
        world.sever((behind,))
        self._ledger.troubled(world.now_ms, behind)
        sent = self._say(speaker, f"{behind} does not hear this, number {number}")
        self._run(_SILENT_MS)
        before = self._handed_over_by(*others)
        world.run(_SILENT_MS, lambda: self._handed_over_by(*others) > before)
        world.mend()
        self._ledger.troubled(world.now_ms, behind)
        before = self._handed_over_by(behind)

        def is_known() -> bool:
            sds = world.participants[behind].stack.sds
            return any(sds.has(sds_id) or sds_id in sds.missing for sds_id in sent.sds_ids)

        world.run(_SILENT_MS, lambda: is_known() or self._handed_over_by(behind) > before)
        if is_known() or not sent.sds_ids:
            return None
        within_ms = max(each.options.sync_min_interval_ms for each in world.participants.values()) + _ANSWERED_LATE_MS
        if world.run(within_ms, is_known):
            return []
        text = f"{behind} was heard, and nobody told him for {within_ms // 1_000} s of what he lacks"
        return [self._looks.violation(Invariant.HEALED, behind, text, sent.request_id)]

    def come_back_late(self) -> None:
        """Let somebody be away for longer than missing messages are waited for, who lacks one.

        It can come only once its reader is back, and so nobody may give it up before.
        """
        world = self._world
        speaker, *_, absent = sorted(world.participants)
        world.network.faults = replace(_HEALED, loss=1.0)
        self._say(speaker, "nobody hears this at first")
        self._run(_HEARD_MS)
        world.network.faults = _HEALED
        self._say(speaker, "but what was said before")
        self._run(_HEARD_MS)
        self._leave_for_a_while(absent)
        self._run(self._plan.lost_timeout_ms + _LATE_MS)
        self._come_back(absent)
        self._run(_LATE_MS)

    def answer(self) -> Iterator[Violation]:
        """Let somebody speak amid the rest: another one acknowledges that before half of its interval is over.

        RELIABLE-CHANNEL-API, "Synchronization messages": sooner than those for which no sender waits. What others say
        puts off what one would have said, so that nobody in particular answers, and perhaps nobody if the speaker goes
        on.
        """
        world, within_ms = self._world, self._answered_ms
        speaker = min(world.participants)
        before = self._handed_over_by(speaker)
        sent = self._say(speaker, "who is still there?")
        is_answered = world.run(within_ms, lambda: sent.first_acknowledged_ms is not None)
        if not is_answered and self._handed_over_by(speaker) == before + 1:
            text = f"nobody told {speaker} for {within_ms // 1_000} s that it has {sent.request_id}"
            yield self._looks.violation(Invariant.HEALED, speaker, text, sent.request_id)
        self._run(GRACE_MS)

    @property
    def _is_beset(self) -> bool:
        """Whether service nodes, forgers or small buffers may keep apart what is said and what comes of it."""
        plan = self._plan
        return bool(plan.service_nodes or plan.hostile or plan.tight_quotas or plan.tiny_quotas)

    @property
    def all_answer(self) -> bool:
        """Whether nothing keeps participants from acknowledging soon what they hear."""
        plan = self._plan
        is_late = plan.disk_ms > FAST_DISK_MS or plan.cipher_delay_ms
        is_there = all(each.channel is not None for each in self._world.participants.values())
        return is_there and not is_late and not any(getattr(plan, name) for name in _KEEP_FROM_ANSWERING)

    @property
    def _answered_ms(self) -> int:
        """Within this time one of those who hear something acknowledges it."""
        _, *others = sorted(self._world.participants)
        interval_ms = min(self._world.participants[other].options.sync_min_interval_ms for other in others)
        return interval_ms // 2 + _ANSWERED_LATE_MS

    @property
    def _only_citations_tell(self) -> bool:
        """Whether messages acknowledge only what they cite, and some cite few.

        With a filter on each message nobody vouches, and filters that often err are not believed.
        """
        plan = self._plan
        is_short = plan.mixed_options or plan.option_changes
        return bool(is_short and plan.bloom_policy is BloomPolicy.ALWAYS and plan.bloom_error_rate > SUPPORTING)

    def lecture(self) -> Iterator[Violation]:
        """Let one speak on and on: who only listens must not wait for the end to acknowledge what it heard.

        Where only citations tell (`_only_citations_tell`), a listener cites the last of what it heard. What came before
        that is acknowledged when it comes again.
        """
        world, within_ms = self._world, self._answered_ms
        speaker, said = min(world.participants), []
        for number in range(2 * within_ms // _LECTURE_MS):
            said.append(self._say(speaker, f"and this is number {number}"))
            self._run(_LECTURE_MS)
        late = [each for each in said if each.at_ms + within_ms < world.now_ms and each.first_acknowledged_ms is None]
        if self._only_citations_tell:
            late = [each for each in late if not any(_tells_of(other, each, within_ms) for other in said)]
        if late:
            text = f"{speaker} spoke on and on, and nobody told it for {within_ms // 1_000} s that {len(late)} came"
            yield self._looks.violation(Invariant.HEALED, speaker, text, late[0].request_id)
        self._run(GRACE_MS)

    def last_word(self) -> Iterator[Violation]:
        """Let nobody hear what one says in a channel that is silent then: its author sees to it that all learn of it.

        That is long before it is sent again (`fairway.protocol.outgoing.sync_timer`). In profile `logos` all that he
        says of it would get lost in the same moment.
        """
        world, plan = self._world, self._plan
        if plan.bloom_policy is BloomPolicy.ALWAYS or plan.mixed_options or plan.option_changes:
            return
        if plan.profile is Profile.LOGOS:
            return
        speaker, *others = sorted(world.participants)
        world.sever((speaker,))
        sent = self._say(speaker, "nobody heard this")
        self._run(_HEARD_MS)
        world.mend()
        within_ms = world.participants[speaker].options.sync_min_interval_ms // 4 + _ANSWERED_LATE_MS

        def is_known() -> bool:
            stacks = (world.participants[other].stack.sds for other in others)
            return all(any(sds.has(each) or each in sds.missing for each in sent.sds_ids) for sds in stacks)

        if sent.sds_ids and not world.run(within_ms, is_known):
            text = f"nobody heard {sent.request_id} of {speaker}, and somebody did not learn of it in {within_ms} ms"
            yield self._looks.violation(Invariant.HEALED, speaker, text, sent.request_id)
        self._run(GRACE_MS)

    def _set_ahead(self, name: str, ahead_ms: int) -> None:
        """Set a clock ahead, and let its program read it often enough to follow it.

        First what it waits for comes, which by that clock would be waited for no longer.
        """
        participant = self._world.participants[name]
        self._world.run(GRACE_MS, lambda: participant.channel is None or _waits_for_nothing(participant.stack))
        self._clocks.set(name, ahead_ms)
        for _ in range(_PAIR):
            self._say(name, f"{name} looks at the clock")
            self._run(_BELIEVED_MS)

    def set_right(self) -> Iterator[Violation]:
        """Let somebody whose clock is ahead learn that it lacks something, and then have the clock set right.

        It must not ask for that only when it is as late as it seemed (SDS-R: T_req counts from when it learned of it).
        """
        world = self._world
        speaker, *_, behind = sorted(world.participants)
        participant = world.participants[behind]
        self._set_ahead(behind, _AHEAD_MS)
        world.network.faults = replace(_HEALED, store_loss=1.0)
        world.sever((behind,))
        sent = self._say(speaker, f"{behind} is to ask for this")
        self._run(MOMENT_MS)
        world.mend()
        self._ledger.troubled(world.now_ms, behind)
        world.run(_SILENT_MS, lambda: any(sds_id in participant.stack.sds.missing for sds_id in sent.sds_ids))
        self._clocks.set(behind, 0)
        is_here = world.run(self._inherited_ms, lambda: all(self._holds(behind, each) for each in sent.sds_ids))
        if sent.sds_ids and not is_here:
            text = f"{behind} lacks {sent.request_id} {self._inherited_ms // 1_000} s after its clock was set right"
            yield self._looks.violation(Invariant.HEALED, behind, text, sent.request_id)
        world.network.faults = _HEALED
        self._run(GRACE_MS)

    def set_right_unheard(self) -> Iterator[Violation]:
        """Let nobody hear what one says whose clock is ahead and then set right: it is sent again in time.

        So it is if that clock is set between two lives of its program, which never sees it go back.
        """
        yield from self._set_right_unheard(is_killed=False)
        yield from self._set_right_unheard(is_killed=True)

    def _set_right_unheard(self, *, is_killed: bool) -> Iterator[Violation]:
        world = self._world
        speaker = max(world.participants)
        interval_ms = world.participants[speaker].options.retry_interval_ms
        self._set_ahead(speaker, _AHEAD_MS)
        # Nobody asks for it, either.
        world.sever((speaker,))
        sent = self._say(speaker, "nobody hears what I say at this time")
        self._run(MOMENT_MS)
        self._clocks.set(speaker, 0)
        if is_killed:
            yield from self._start_again(speaker)
        before = sent.times_sent.total()
        within_ms = _CLOCK_READ_MS + 2 * interval_ms + _ANSWERED_LATE_MS
        is_repeated = world.run(within_ms, lambda: sent.times_sent.total() > before)
        if before and not is_repeated:
            text = f"{speaker}, whose clock was set right, did not send {sent.request_id} again for {within_ms} ms"
            yield self._looks.violation(Invariant.REPEATED, speaker, text, sent.request_id)
        world.mend()
        self._ledger.troubled(world.now_ms, speaker)
        self._run(GRACE_MS)

    def set_right_refused(self) -> Iterator[Violation]:
        """Let nodes refuse what one says whose clock is ahead and then set right: what it says then leaves in time.

        It must not pause until a time that its clock no longer comes to for long.
        """
        world, plan = self._world, self._plan
        speaker = max(world.participants)
        if plan.service_nodes or plan.hostile or plan.clock_skew_ms or not self.all_answer:
            return
        self._ledger.rules.syncs_are_prompt = False
        self._set_ahead(speaker, _AHEAD_MS)
        world.network.faults = replace(_HEALED, no_peers_to_relay=1.0)
        said = [self._say(speaker, "no node takes this")]
        self._run(MOMENT_MS)
        self._clocks.set(speaker, 0)
        world.network.faults = _HEALED
        said.append(self._say(speaker, "now nodes take everything"))
        if not world.run(_CLOCK_READ_MS + _RECOVERED_MS, lambda: not _not_left(said)):
            text = f"{speaker}, whose clock was set right when nodes refused what it said, says nothing"
            yield self._looks.violation(Invariant.WAKES, speaker, text)
        self._run(GRACE_MS)
        self._ledger.rules.syncs_are_prompt = True

    def set_right_amid_two_lives(self) -> Iterator[Violation]:
        """Let somebody read a store by a clock that is ahead, which is set right before its channel starts anew.

        What was said after it had stopped is then before the time up to which it noted that it had read.
        """
        world = self._world
        speaker, *_, reader = sorted(world.participants)
        if self._plan.disk_ms > FAST_DISK_MS or not self._may_be_left_with_a_store:
            return
        participant = world.participants[reader]
        # What counts as read by such a clock may be yet to come.
        is_whole, self._ledger.store_is_whole = self._ledger.store_is_whole, False
        self._set_ahead(reader, _FAR_AHEAD_MS)
        self._leave_for_a_while(reader)
        self._run(MOMENT_MS)
        self._come_back(reader)
        self._run(_CAUGHT_UP_MS)
        world.pause(reader, _AWAY_MS)
        self._ledger.troubled(world.now_ms, reader)
        self._run(_GOODBYE_MS)
        self._clocks.set(reader, 0)
        said = [self._say(speaker, f"{reader} does not run when this is said")]
        self._run(MOMENT_MS)
        for name in sorted(world.participants.keys() - {reader}):
            self._leave_for_a_while(name)
        world.run(_AWAY_MS, lambda: participant.channel is not None)
        if not world.run(_CAUGHT_UP_MS, lambda: participant.channel is not None and self._holds_all(reader, said)):
            text = f"{reader}, whose clock was set right, did not find in a store what was said while it did not run"
            yield self._looks.violation(Invariant.HEALED, reader, text, said[0].request_id)
        self._all_come_back()
        self._ledger.store_is_whole = is_whole

    def look_back(self) -> Iterator[Violation]:
        """Let somebody hear only the last of what one says who then leaves, of whose messages a hint leads nowhere.

        Only a look back brings the first of it, page by page, through a store that stamped all of it anew. Every other
        further page leads back to itself.
        """
        world, plan = self._world, self._plan
        reader = max(world.participants)
        options = world.participants[reader].options
        within_ms = _LOOKS_BEFORE * options.retrieve_frequency_ms + _LOOKED_BACK_MS
        # What it looks at again meanwhile, of a time that it has read, comes first, and in pages as small.
        pages = sum(1 for _ in world.network.stored()) // _SPEAKERS
        looking_ms = 60_000 * pages // options.max_store_queries_per_minute
        if not self._may_be_left_with_a_store or plan.lost_timeout_ms < within_ms + max(within_ms, looking_ms):
            return
        world.network.faults = replace(_HEALED, restamped=1.0, store_page=_SPEAKERS, store_circles=1.0)
        self._ledger.hints_are_checked = False
        said = self._leave_lacking(reader, [f"page {number // _SPEAKERS}" for number in range(_SPEAKERS * _PAGES)])
        within_ms += looking_ms
        is_there = world.run(within_ms, lambda: self._holds_all(reader, said))
        if not is_there and world.participants[reader].stack.sds.missing:
            text = f"{reader} did not find in {within_ms // 1_000} s what lies {_PAGES} pages back in a store"
            yield self._looks.violation(Invariant.HEALED, reader, text)
        self._all_come_back()

    def look_back_twice(self) -> Iterator[Violation]:
        """Let a store not tell for a while what was said at a time of which somebody lacks something, and then more.

        Once it does, both times are read: they overlap, and one question is enough. By hints it finds nothing.
        """
        world, plan = self._world, self._plan
        _, *others, reader = sorted(world.participants)
        frequency_ms = world.participants[reader].options.retrieve_frequency_ms
        passed_ms = _LOOKS_BEFORE * frequency_ms + _ASKED_BY_TIME_MS
        is_there = self.all_answer and self._may_be_left_with_a_store
        if not (others and is_there) or plan.lost_timeout_ms < 4 * passed_ms or frequency_ms > _CAUGHT_UP_MS:
            return
        forgetful = replace(_HEALED, restamped=1.0)
        asked_by_time: list[int] = []

        def tell_no_time(name: str, query: StoreQuery, _: bytes | None) -> None:
            is_lost = name == reader and query.newest_first
            world.network.faults = replace(forgetful, query_loss=float(is_lost))
            if is_lost:
                asked_by_time.append(world.now_ms)

        world.network.faults = forgetful
        self._ledger.hints_are_checked = False
        for name in others:
            # Who heard it knows what a store has it by.
            self._leave_for_a_while(name)
        said = self._leave_lacking(reader, ["of this time a store does not tell at first"])
        world.network.query_observers.append(tell_no_time)
        is_asked = world.run(passed_ms, lambda: bool(asked_by_time))
        world.sever((reader,))
        self._come_back(others[0])
        self._run(_CAUGHT_UP_MS)
        said.append(self._say(others[0], "nor of this time"))
        self._run(MOMENT_MS)
        world.mend()
        self._ledger.troubled(world.now_ms, reader)
        self._say(others[0], f"{reader} hears this, too")
        self._run(_HEARD_MS)
        self._leave_for_a_while(others[0])
        self._run(passed_ms)
        world.network.query_observers.remove(tell_no_time)
        world.network.faults = forgetful
        if is_asked and not world.run(_ANSWERED_AGAIN_MS, lambda: self._holds_all(reader, said)):
            text = f"{reader} did not read in {_ANSWERED_AGAIN_MS // 1_000} s of all times in which it lacks something"
            yield self._looks.violation(Invariant.SOUGHT, reader, text)
        self._all_come_back()

    def correct_a_hint(self) -> Iterator[Violation]:
        """Let somebody hear of what it lacks from its author, whose hint leads nowhere, and then from another one.

        The store stamps all of it anew, so that only who heard a message knows what the store has it by. The later hint
        is followed at once, and not only when the first one was asked about in vain several times. All others leave.
        """
        world = self._world
        author, *others, reader = sorted(world.participants)
        if not others or self._plan.disk_ms > FAST_DISK_MS or not self._may_be_left_with_a_store:
            return
        are_checked, self._ledger.hints_are_checked = self._ledger.hints_are_checked, False
        world.network.faults = replace(_HEALED, restamped=1.0)
        world.sever((reader,))
        said = [self._say(author, f"{reader} does not hear this")]
        self._run(MOMENT_MS)
        world.mend()
        self._say(author, f"{author} cites it by what it sent")
        self._run(_HEARD_MS)
        # Nothing that it says by itself comes after what others say, nor what is on its way.
        self._leave_for_a_while(author)
        self._run(_HEARD_MS)
        self._say(others[0], f"{others[0]} cites it by what it heard")
        self._run(_HEARD_MS)
        for name in others:
            self._leave_for_a_while(name)
        within_ms = 2 * world.participants[reader].options.retrieve_frequency_ms
        if not world.run(within_ms, lambda: self._holds_all(reader, said)):
            text = f"{reader} did not ask a store within {within_ms // 1_000} s by the hint that came last"
            yield self._looks.violation(Invariant.SOUGHT, reader, text, said[0].request_id)
        self._all_come_back()
        self._ledger.hints_are_checked = are_checked

    def ask_for_many(self) -> Iterator[Violation]:
        """Let somebody hear only every other message of one who then leaves: it asks a store for all others at once.

        Also for the one of which it cannot ask with the first query, since that has no room for its hash.
        """
        world, plan = self._world, self._plan
        speaker, *others, reader = sorted(world.participants)
        options = world.participants[reader].options
        is_small = min(options.sds.max_history, plan.bloom_capacity) < _SPEAKERS * options.max_hashes_per_query
        if is_small or not (plan.mixed_options and self.all_answer and self._may_be_left_with_a_store):
            return
        # All of it is said before the first look.
        world.network.faults = replace(_HEALED, min_delay_ms=1, max_delay_ms=1)
        said = []
        for number in range(options.max_hashes_per_query + 1):
            world.sever((reader,))
            said.append(self._say(speaker, f"{reader} finds this in a store {number}"))
            world.run(_HOP_MS)
            world.mend()
            self._say(speaker, f"{reader} hears this {number}")
            world.run(_HOP_MS)
        self._ledger.troubled(world.now_ms, reader)
        for name in (speaker, *others):
            self._leave_for_a_while(name)
        within_ms = options.retrieve_frequency_ms + _ANSWERED_LATE_MS
        if not world.run(within_ms, lambda: self._holds_all(reader, said)):
            text = f"{reader} did not ask a store at once for all of {len(said)} messages that it lacks"
            yield self._looks.violation(Invariant.SOUGHT, reader, text)
        self._all_come_back()

    def ask_a_silent_store(self) -> Iterator[Violation]:
        """Let a store give no answer for a while to somebody who lacks something: then it is asked as soon as at first.

        Only what was answered in vain is asked for less often (RELIABLE-CHANNEL-API, "Missing message retrieval").
        """
        world = self._world
        reader = max(world.participants)
        within_ms = 2 * world.participants[reader].options.retrieve_frequency_ms + _ANSWERED_AGAIN_MS
        if not self._may_be_left_with_a_store or self._plan.lost_timeout_ms < 2 * (_NO_STORE_MS + within_ms):
            return
        said = self._leave_lacking(reader, ["of this no store tells for a while"])
        world.network.faults = replace(_HEALED, query_loss=1.0)
        self._run(_NO_STORE_MS)
        world.network.faults = _HEALED
        is_there = world.run(within_ms, lambda: self._holds_all(reader, said))
        if not is_there and world.participants[reader].stack.sds.missing:
            text = f"{reader} did not ask a store within {within_ms // 1_000} s of its first answer for what it lacks"
            yield self._looks.violation(Invariant.SOUGHT, reader, text)
        self._all_come_back()

    def lose_the_key(self) -> Iterator[Violation]:
        """Let somebody's cipher break for good when nobody has heard yet what it said: that ends all the same.

        Each time that it is to be sent again counts, though it does not leave; what is new ends at once.
        """
        world, plan = self._world, self._plan
        speaker = max(world.participants)
        options = world.participants[speaker].options
        is_there = world.participants[speaker].channel is not None
        amiss = plan.is_limited or plan.service_nodes or plan.clock_jumps_per_hour or plan.disk_ms > FAST_DISK_MS
        if amiss or not (plan.encrypted and is_there):
            return
        self._ledger.tries_are_counted = False
        world.sever((speaker,))
        said = [self._say(speaker, "nobody hears this")]
        world.run(GRACE_MS, lambda: bool(said[0].times_sent or said[0].ends))
        self._keyless.add(speaker)
        said.append(self._say(speaker, "and this cannot be said at all"))
        tries_ms = (options.max_retry_attempts + 1) * (options.retry_interval_ms + plan.cipher_delay_ms)
        for sent, within_ms in zip(said[::-1], (MOMENT_MS + plan.cipher_delay_ms, tries_ms + GRACE_MS), strict=True):
            world.run(within_ms, partial(_is_over, sent))
            if sent.accepted_ms and not sent.ends:
                text = (
                    f"{sent.request_id} of {speaker}, whose cipher is broken, has no end after {within_ms // 1_000} s"
                )
                yield self._looks.violation(Invariant.ENDED, speaker, text, sent.request_id)
        self._keyless.clear()
        world.mend()
        self._ledger.troubled(world.now_ms, speaker)
        self._run(GRACE_MS)

    def hear_another(self) -> Iterator[Violation]:
        """Let one miss a long message while somebody else has fallen silent: it is sent again for who is there.

        First only the last of its segments is, and all others once its author hears whom they are for
        (`fairway.protocol.outgoing.last_heard`), which is a quarter of an interval later. Nothing else can bring them.
        The silent one is who came last.
        """
        world, plan = self._world, self._plan
        speaker, *_, other = sorted(world.participants)
        options = world.participants[speaker].options
        # He is heard when he acknowledges the last one.
        heard_ms = world.participants[other].options.sync_min_interval_ms + _ANSWERED_LATE_MS
        within_ms = 2 * options.retry_interval_ms + heard_ms
        amiss = plan.repairs or self._is_beset
        is_short = min(plan.lost_timeout_ms, plan.reassembly_timeout_ms) < 2 * within_ms
        if amiss or is_short or not self.all_answer:
            return
        self._ledger.joined(_PASSER_BY)
        world.join(_PASSER_BY)
        self._run(MOMENT_MS * 5)
        self._say(_PASSER_BY, "only passing by")
        self._run(MOMENT_MS)
        world.leave(_PASSER_BY)
        self._ledger.left(world.now_ms, _PASSER_BY)
        self._run(2 * options.retry_interval_ms)
        world.network.faults = replace(_HEALED, store_loss=1.0)
        world.sever((speaker,))
        sent = self._say_at_length(speaker, (other,))
        self._run(MOMENT_MS)
        world.mend()
        self._ledger.troubled(world.now_ms, speaker)
        before, mended_ms = self._handed_over_by(other), world.now_ms
        world.run(within_ms, lambda: self._handed_over_by(other) > before)
        # If that is before the first retry, all leaves with it.
        put_off_ms = max(world.now_ms, sent.at_ms + options.retry_interval_ms) - world.now_ms
        soon_ms = put_off_ms + options.retry_interval_ms // 4 + _ANSWERED_LATE_MS
        if not world.run(soon_ms, lambda: other in sent.deliveries) and sent.sds_ids:
            within_ms = world.now_ms - mended_ms
            text = f"{speaker} did not send all of {sent.request_id} again in {within_ms} ms, which {other} lacks"
            yield self._looks.violation(Invariant.REPEATED, speaker, text, sent.request_id)
        world.network.faults = _HEALED
        self._run(GRACE_MS)

    def ask_more(self) -> Iterator[Violation]:
        """Let one ask more of a delivered send: somebody who hears only the last copies of it.

        It is then sent as often as though it had left just now (`fairway.protocol.outgoing.want_more`).
        """
        world = self._world
        speaker, *others, absent = sorted(world.participants)
        options = world.participants[speaker].options
        interval_ms, acknowledged_ms = options.retry_interval_ms, self._answered_ms
        amiss = self._is_beset or len(others) > _FEW
        if amiss or not (others and self.all_answer and 2 * interval_ms > acknowledged_ms):
            return
        # It does not know that it lacks anything, and asks no store for it.
        world.sever((absent,))
        self._ledger.troubled(world.now_ms, absent)
        payload = f"{absent} is not here".encode()
        request_id = world.send(speaker, payload, by=others, more=(absent,))
        self._ledger.tried(world.now_ms, speaker, request_id, payload, others)
        sent = self._ledger.request(request_id)
        world.run(_AWAY_MS + GRACE_MS, lambda: bool(sent.asked_more))
        is_opened_again = bool(sent.asked_more and sent.ends)
        self._run((options.max_retry_attempts - 2) * interval_ms)
        world.mend()
        self._ledger.troubled(world.now_ms, absent)
        world.run(2 * interval_ms + acknowledged_ms, lambda: len(sent.ends) > 1)
        # Of what is not retained nothing more can be asked.
        if is_opened_again and absent in sent.wanted(world.now_ms) and absent not in sent.deliveries:
            text = f"{request_id} of {speaker}, of which more was asked, was not sent again until {absent} was there"
            yield self._looks.violation(Invariant.REPEATED, speaker, text, request_id)

    def hold_up(self) -> None:
        """Let one fall offline amid a long message for so long that its readers give up what came, and say the rest.

        They take that in no more, or else its author would believe that they have the whole.
        """
        world, plan = self._world, self._plan
        speaker = min(world.participants)
        timeout_ms, at_once = plan.reassembly_timeout_ms, world.participants[speaker].options.max_concurrent_publishes
        amiss = self._is_beset or not self.all_answer
        if amiss or timeout_ms > _AWAY_MS or plan.mixed_options or plan.option_changes:
            return
        sent = self._say_at_length(speaker, segments=at_once + at_once // 2)
        world.run(MOMENT_MS, lambda: bool(sent.times_sent))
        self._leave_for_a_while(speaker)
        self._run(timeout_ms + _ANSWERED_LATE_MS)
        self._come_back(speaker)
        self._run(GRACE_MS)

    def ask_unheard(self) -> Iterator[Violation]:
        """Let a node take nothing of what one says who asks for what it lacks, until a later word replaces the request.

        Once the node takes everything, it must have asked: that it made the request does not count.
        """
        world, plan = self._world, self._plan
        speaker, *others, reader = sorted(world.participants)
        amiss = self._is_beset or plan.clock_skew_ms
        if amiss or not (0 < len(others) <= _FEW and plan.repairs and self.all_answer):
            return
        lossy = replace(_HEALED, store_loss=1.0)
        refusing = replace(lossy, no_peers_to_relay=1.0)

        def refuse(name: str, _: RoutedMessage) -> None:
            world.network.faults = refusing if name == reader else lossy

        self._ledger.rules.syncs_are_prompt = False
        world.network.faults = lossy
        world.sever((reader,))
        sent = self._say(speaker, f"{reader} is to ask for this soon")
        self._run(MOMENT_MS)
        world.mend()
        self._ledger.troubled(world.now_ms, reader)
        world.network.sending_observers.append(refuse)
        self._say(speaker, f"{reader} hears this")

        def has_asked() -> bool:
            requests = world.participants[reader].stack.sds.repair.requests
            return any(scheduled.asked for scheduled in requests)

        is_asked = world.run(self._inherited_ms, has_asked)
        self._say(speaker, f"{reader} hears this, too")
        self._run(self._answered_ms)
        world.network.sending_observers.remove(refuse)
        world.network.faults = lossy
        if is_asked and not world.run(_ASKED_MS, lambda: self._holds_all(reader, [sent])):
            text = f"{reader} did not ask for {sent.request_id} within {_ASKED_MS // 1_000} s of its node's refusals"
            yield self._looks.violation(Invariant.ASKED, reader, text, sent.request_id)
        world.network.faults = _HEALED
        self._run(GRACE_MS)
        self._ledger.rules.syncs_are_prompt = True

    def queue_up(self) -> Iterator[Violation]:
        """Let a node take nothing of what one says for long, of whom another one asks something again and again.

        One answer waits then, and not one for each request. In a tiny queue there is no room for it, for content waits.
        That keeps its place: the node is asked to take the first of it each time. And the answers for which there was
        no room count for nothing: once the node takes everything, the next request has its answer.
        """
        world, plan = self._world, self._plan
        reader, *others, speaker = sorted(world.participants)
        times = _ASKED_VAINLY if plan.tiny_quotas else _SPEAKERS + 1
        asked_ms = times * plan.options().sds.repair.t_max_ms
        is_small = 0 < len(others) <= _FEW
        amiss = plan.service_nodes or plan.hostile or plan.clock_skew_ms or not (is_small and self.all_answer)
        if amiss or plan.tight_quotas or not plan.repairs or plan.lost_timeout_ms < 2 * asked_ms:
            return
        # What is handed over is back at once, and leaves no room meanwhile.
        copies = 0
        lossy = replace(_HEALED, store_loss=1.0, min_delay_ms=1, max_delay_ms=1)
        refusing = replace(lossy, too_many_requests=1.0)

        def refuse(name: str, _: RoutedMessage) -> None:
            world.network.faults = refusing if name == speaker else lossy

        def count(name: str, message: RoutedMessage) -> None:
            nonlocal copies
            opened = self._ledger.rules.codec.decode(self._ledger.opened(message.message.payload))
            copies += name == speaker and opened.message_id in sent.sds_ids

        world.network.faults = lossy
        world.sever((reader,))
        sent = self._say(speaker, f"{reader} is to ask for this again and again")
        world.run(GRACE_MS, partial(_is_over, sent))
        for name in others:
            self._leave_for_a_while(name)
        world.mend()
        self._ledger.troubled(world.now_ms, reader)
        self._say(speaker, f"{reader} hears this")
        self._run(MOMENT_MS)
        world.network.sending_observers.append(refuse)
        fills = range(world.participants[speaker].options.rate_limit.max_queued if plan.tiny_quotas else 0)
        waiting = [self._say(speaker, f"{speaker} cannot say this for long {number}").request_id for number in fills]
        requests = world.participants[reader].stack.sds.repair.requests
        has_asked = world.run(2 * asked_ms, lambda: any(each.asked >= times for each in requests))
        self._run(_ANSWERED_LATE_MS)
        events = (event for _, event in world.participants[speaker].events if isinstance(event, MessageSending))
        tried = Counter(event.request_id for event in events if event.request_id in waiting)
        if len(again := [request_id for request_id, times in tried.items() if times > 1]) > 1:
            text = f"{speaker} had a node that took nothing try {', '.join(again)} in turn, and not the first of them"
            yield self._looks.violation(Invariant.WIRE, speaker, text)
        world.network.sending_observers.remove(refuse)
        world.network.sending_observers.append(count)
        world.network.faults = lossy
        within_ms = max((each.at_ms for each in requests), default=world.now_ms) - world.now_ms + _ASKED_MS
        if has_asked and not world.run(within_ms, lambda: self._holds_all(reader, [sent])):
            text = f"{speaker} did not answer {reader} within {within_ms // 1_000} s of its node's refusals"
            yield self._looks.violation(Invariant.ASKED, speaker, text, sent.request_id)
        self._run(_STILL_UNDER_WAY_MS)
        world.network.sending_observers.remove(count)
        if copies > 1:
            text = f"{speaker} answered {copies} times when its node took that at last"
            yield self._looks.violation(Invariant.WIRE, speaker, text, sent.request_id)
        self._all_come_back()

    def forget_a_doubt(self) -> None:
        """Let one say what nobody hears, and be away until its reader has long given that up and has no doubt any more.

        What the reader says by then descends from that message, and tells its author nothing of it. The author leaves
        for good before anybody hears that.
        """
        world, author = self._world, f"{_HEIR} of doubt"
        *others, reader = sorted(world.participants)
        if not (self.has_heirs and self.all_answer and self._may_be_left_with_a_store):
            return
        self._ledger.joined(author)
        world.join(author)
        self._run(MOMENT_MS * 5)
        world.network.faults = replace(_HEALED, loss=1.0, store_loss=1.0)
        self._say(author, f"{reader} gives this up", (reader,))
        self._run(_HEARD_MS)
        world.network.faults = _HEALED
        self._say(author, f"{reader} hears this")
        self._run(_HEARD_MS)
        for name in (author, *others):
            self._leave_for_a_while(name)
        self._run(self._plan.lost_timeout_ms + _LATE_MS + DOUBTFUL_MS)
        self._say(reader, "of whatever I lack I have no doubt")
        self._run(MOMENT_MS)
        self._leave_for_a_while(reader)
        world.network.faults = replace(_HEALED, store_loss=1.0)
        self._come_back(author)
        self._run(_CAUGHT_UP_MS)
        world.leave(author)
        self._ledger.left(world.now_ms, author)
        self._all_come_back()
        self._run(self._plan.lost_timeout_ms + self._inherited_ms)

    def contradict(self, mallory: Mallory) -> Iterator[Violation]:
        """Let somebody believe a segment that all others set aside, and speak: they must not wait for that segment.

        `fairway.protocol.incoming.passed_over`.
        """
        world, plan = self._world, self._plan
        believer, *others = sorted(world.participants)
        amiss = plan.encrypted or plan.service_nodes or plan.tight_quotas or plan.tiny_quotas
        if amiss or not (plan.hostile and self.all_answer):
            return
        mallory.contradict(believer)
        self._run(MOMENT_MS)
        sent = self._say(believer, f"{believer} was made to believe something")
        world.run(_REBUILT_MS, lambda: sent.deliveries.keys() >= set(others))
        for other in others:
            if sent.sds_ids and other not in sent.deliveries:
                text = f"{other} waits with {sent.request_id} of {believer} for a segment that it has set aside"
                yield self._looks.violation(Invariant.HEALED, other, text, sent.request_id)

    def ask_a_silent_store_again(self) -> Iterator[Violation]:
        """Let a store be silent for longer than is waited for what somebody lacks, who comes back again and again.

        Each time it may bring that, and so nobody may give it up before the store was read. However often it gave no
        answer, it is asked for that as often as at first: only what was answered in vain is asked for less often.
        """
        world, timeout_ms = self._world, self._plan.lost_timeout_ms
        reader = max(world.participants)
        if not (self.has_heirs and self._may_be_left_with_a_store):
            return
        most_often, self._ledger.most_often_by_hash = self._ledger.most_often_by_hash, SAME_PAGE
        self._leave_lacking(reader, ["of this no store tells for long"])
        world.network.faults = replace(_HEALED, query_loss=1.0)
        asked: list[StoreQuery] = []

        def note(_: str, query: StoreQuery, __: bytes | None) -> None:
            asked.append(query)

        world.network.query_observers.append(note)
        for _ in range(timeout_ms // _HOPED_MS + 2):
            self._leave_for_a_while(reader)
            self._run(MOMENT_MS)
            self._come_back(reader)
            asked.clear()
            self._run(_HOPED_MS)
        world.network.query_observers.remove(note)
        times = sum(bool(query.message_hashes) for query in asked)
        few = _HOPED_MS // (2 * world.participants[reader].options.retrieve_frequency_ms)
        if times < few and world.participants[reader].stack.sds.missing:
            text = f"{reader}, who lacks something, asked a silent store {times} times in {_HOPED_MS // 1_000} s"
            yield self._looks.violation(Invariant.SOUGHT, reader, text)
        self._all_come_back()
        self._ledger.most_often_by_hash = most_often

    @property
    def _may_be_left_with_a_store(self) -> bool:
        """Whether one participant can lack something that then a store alone can give it."""
        plan, is_sound = self._plan, all(each.channel is not None for each in self._world.participants.values())
        return is_sound and not (plan.hostile or plan.tight_quotas or plan.tiny_quotas) and self._may_read_a_store

    def _leave_lacking(self, reader: str, texts: Collection[str]) -> list[SimulatedSend]:
        """Let one say something that a reader does not hear, and then something that it does; then all others leave."""
        world = self._world
        speaker, *_ = names = sorted(world.participants)
        world.sever((reader,))
        said = [self._say(speaker, text) for text in texts]
        self._run(MOMENT_MS)
        world.mend()
        self._say(speaker, f"{reader} hears this")
        world.run(MOMENT_MS)
        for name in names:
            if name != reader:
                self._leave_for_a_while(name)
        return said

    def _all_come_back(self) -> None:
        self._world.network.faults = _HEALED
        for name in sorted(self._world.participants):
            self._come_back(name)
        self._run(GRACE_MS)

    def _holds_all(self, name: str, said: Collection[SimulatedSend]) -> bool:
        return all(self._holds(name, sds_id) for sent in said for sds_id in sent.sds_ids)

    def _handed_over_by(self, *names: str) -> int:
        return sum(count for (who, *_), count in self._ledger.offered.items() if who in names)

    def rest(self) -> Iterator[Violation]:
        """Go on for a while in which nothing is left to do; yield what was done all the same, or not."""
        if self._plan.disk_ms > FAST_DISK_MS or self._plan.cipher_delay_ms:
            self._run(_STILL_UNDER_WAY_MS)
        before = TrafficSoFar.until_now(self._ledger, self._world)
        names = sorted(self._world.participants)[:_CALLED]
        # Where a limit holds, ephemeral messages are the first that are dropped.
        said = [] if self._plan.is_limited or self._plan.tight_quotas or self._plan.tiny_quotas else names
        for name in said:
            self._ledger.ephemeral_sent += 1
            self._world.send_ephemeral(name, f"{name} says in passing".encode())
        self._run(GRACE_MS)
        yield from unrest(before, self._ledger, self._world)
        for name in said:
            message_id = logical_message_id(f"{name} says in passing".encode())
            for other in self._world.participants:
                habits = self._world.participants[other].habits
                if other != name and not habits.slow_ms and (other, message_id) not in self._ledger.ephemeral_heard:
                    yield Violation(
                        invariant=Invariant.HEALED,
                        at_ms=None,
                        participant=other,
                        request_id=None,
                        sentence=f"{other} never heard the ephemeral message that {name} sent in a healed world",
                    )


def _tells_of(later: SimulatedSend, each: SimulatedSend, within_ms: int) -> bool:
    """Return whether a message, or one that its sender sent later, was acknowledged within a time."""
    acknowledged_ms = later.first_acknowledged_ms
    return later.at_ms >= each.at_ms and acknowledged_ms is not None and acknowledged_ms <= each.at_ms + within_ms


def _has_any(name: str, said: list[SimulatedSend]) -> bool:
    return any(name in sent.deliveries for sent in said)


def _waits_for_nothing(stack: Stack) -> bool:
    statistics = stack.statistics()
    return not (stack.sds.missing or statistics.reassembly.open_segments)


def _is_over(sent: SimulatedSend) -> bool:
    return bool(sent.ends)


def _not_left(said: list[SimulatedSend]) -> list[SimulatedSend]:
    """Return of what was said what has neither left nor ended."""
    return [sent for sent in said if not (sent.times_sent or sent.ends)]


@dataclass(frozen=True, slots=True)
class TrafficSoFar:
    """The transmissions and queries up to a time."""

    at_ms: int
    transmissions: Counter[Purpose]
    queries: Counter[str]
    answers_planned: int
    """Messages that somebody asked for, and that others will send when it is their turn."""

    @classmethod
    def until_now(cls, ledger: Ledger, world: World) -> TrafficSoFar:
        """Count what there was so far."""
        running = [each for each in world.participants.values() if each.channel is not None]
        planned = sum(len(each.stack.sds.repair.responses) for each in running)
        return cls(world.now_ms, Counter(ledger.transmissions), Counter(ledger.queries), planned)


def unrest(before: TrafficSoFar, ledger: Ledger, world: World) -> Iterator[Violation]:
    """Yield a violation for each transmission, query or row since ``before`` that has no reason."""
    passed_ms = world.now_ms - before.at_ms
    sent = ledger.transmissions - before.transmissions
    sync = sent.pop(Purpose.SYNC, 0)
    sent.pop(Purpose.EPHEMERAL, 0)
    if sent[Purpose.REPAIR] <= _FEW + before.answers_planned:
        # Somebody asked for it before it came from somewhere else.
        del sent[Purpose.REPAIR]
    intervals = [passed_ms / participant.options.sync_min_interval_ms for participant in world.participants.values()]
    most = int(_SYNCS_PER_INTERVAL * sum(intervals)) + _FEW
    told = []
    if sent:
        told.append(f"{', '.join(f'{count} {purpose.value}' for purpose, count in sent.items())} messages were sent")
    if sync > most:
        told.append(f"{sync} sync messages were sent, of which {most} are enough")
    for name, pages in sorted((ledger.queries - before.queries).items()):
        if pages > _PAGES_AT_REST:
            told.append(f"{name} asked the store for {pages} pages")
    for name, participant in world.participants.items():
        if participant.channel is None:
            continue
        tables = Counter(row.table for row in participant.stack.snapshot())
        # Of a message whose sender left, or of which somebody forged segments, the rest is waited for.
        reassembly = participant.stack.statistics().reassembly
        tables[ARRIVALS] -= reassembly.open_segments
        # What came late of a whole message, whose sender was held up amid it, is kept until it expires.
        waiting = reassembly.open_sets - reassembly.late_sets
        # So is a late segment of one that was forgotten, since so many others became whole after it.
        has_forgotten = reassembly.ended_sets >= participant.options.segmentation.max_completed_sets
        has_reason = ledger.forged or world.departed or ledger.losses or ledger.any_failed or has_forgotten
        if waiting and not has_reason:
            told.append(f"{name} waits for the rest of {waiting} messages, which are over")
        left = {table: tables[table] for table in _OPEN_TABLES if tables[table] > 0}
        if left:
            told.append(f"{name} keeps {', '.join(f'{count} rows of {table}' for table, count in left.items())}")
        options = participant.options.sds
        # The oldest are forgotten some at a time.
        longest = options.max_history + options.max_history // 64
        for what, count, bound in (
            ("messages of its history", tables[HISTORY], longest),
            ("messages to repair others", tables[RETAINED], options.repair.retained_messages),
        ):
            if count > bound:
                told.append(f"{name} keeps {count:,} {what}, of which {bound:,} are allowed")
    for text in told:
        yield Violation(
            invariant=Invariant.REST,
            at_ms=None,
            participant=None,
            request_id=None,
            sentence=f"in {passed_ms // 1_000} s of rest: {text}",
        )
