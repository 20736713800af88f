"""One participant at a time, with its clock and its effects in the test's hands."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

import pytest

from fairway.errors import RlnError
from fairway.events import MessageReceived
from fairway.options import RateLimitConfig, ReliableChannelOptions
from fairway.protocol.effects import AwaitCipher, Change, Emit, NodeAnswer, Persist, Prove, Publish, Purpose, QueryStore
from fairway.protocol.ratelimit import Quota
from fairway.protocol.stack import Stack

START_MS = 1_760_000_000_000
TOPIC = "/fairway/1/harbour/proto"


class Peer:
    """A stack, and everything that it wanted done so far."""

    def __init__(
        self,
        name="alice",
        options=None,
        *,
        encryption=None,
        rln=None,
        rows=None,
        now_ms=START_MS,
        life=0,
        channel_id="harbour",
        topic=TOPIC,
    ):
        # Unless a test is about just that, the node takes any number at once and answers when the test says so.
        options = options or ReliableChannelOptions()
        if options.advanced.max_concurrent_publishes == ReliableChannelOptions().advanced.max_concurrent_publishes:
            options = replace(options, advanced=replace(options.advanced, max_concurrent_publishes=100_000))
        self.name, self.options, self.encryption, self.rln = name, options, encryption, rln
        self.now_ms, self.life = now_ms, life
        self.effects = []
        self.unanswered = []
        self.unanswered_queries = deque()
        self.stack = Stack(
            channel_id,
            name,
            topic,
            options,
            now_ms=now_ms,
            seed=f"{name}/{life}".encode(),
            encryption=encryption,
            proves=rln is not None,
        )
        self.unproven = deque()
        self.proves_at_once = True
        """Whether each proof that is asked for is there at once; otherwise the test calls `prove`."""
        if rln is not None:
            self.stack.set_provider_quota(rln.epoch_quota(now_ms), now_ms)
        if rows is None:
            self.rows = {}
            self.keep(self.stack.snapshot())
            self.do(self.stack.tick(now_ms))
            self.effects.clear()
        else:
            self.rows = dict(rows)
            self.do(self.stack.restore(tuple(self.rows.values()), now_ms))

    def keep(self, changes):
        for change in changes:
            if change.row is None:
                self.rows.pop((change.table, change.key), None)
            else:
                self.rows[change.table, change.key] = change

    def do(self, effects):
        """Take effects: persist at once, remember the rest."""
        assert not any(isinstance(effect, Persist) for effect in effects[1:]), "Persist comes first, and once"
        for effect in effects:
            if isinstance(effect, Persist):
                self.keep(effect.changes)
            elif isinstance(effect, Prove):
                self.unproven.append(effect)
            elif isinstance(effect, Publish):
                self.unanswered.append(effect)
            elif isinstance(effect, QueryStore) and effect.message_hashes:
                self.unanswered_queries.append(effect)
        self.effects += effects
        if self.proves_at_once:
            while self.unproven:
                self.prove()
        return effects

    def prove(self):
        """Have the proof made that was asked for first, as a shell does."""
        wanted = self.unproven.popleft()
        try:
            proof = self.rln.generate_proof(wanted.signal, wanted.at_ms)
        except RlnError as error:
            proof = error
        return self.do(self.stack.proven(wanted.token, proof, self.now_ms))

    def send(self, payload=b"hello", **wanted):
        accepted = self.stack.send(payload, self.now_ms, **wanted)
        self.do(accepted.effects)
        return accepted

    def send_ephemeral(self, payload=b"typing"):
        accepted = self.stack.send_ephemeral(payload, self.now_ms)
        self.do(accepted.effects)
        return accepted

    def receive(self, *messages):
        effects = []
        for message in messages:
            effects += self.do(
                self.stack.receive(message.message if isinstance(message, Publish) else message, self.now_ms)
            )
        return effects

    def answer(self, *publications, accepted=True, **answer):
        """Let the node answer publications, or all that were not answered yet, and what leaves when it took those."""
        effects, chosen = [], deque(publications or self.unanswered)
        while chosen:
            publication = chosen.popleft()
            self.unanswered.remove(publication)
            said = NodeAnswer(accepted=accepted, **answer)
            effects += self.do(self.stack.published(publication.token, said, self.now_ms))
            if not chosen and accepted and not publications:
                chosen.extend(self.unanswered)
        return effects

    def answer_queries(self, *, lost=False):
        """Let the store answer each query by hash with nothing, or lose the answers."""
        end = self.stack.store_unanswered if lost else self.stack.store_answered
        while self.unanswered_queries:
            self.do(end(self.unanswered_queries.popleft(), self.now_ms))

    def tick(self):
        return self.do(self.stack.tick(self.now_ms))

    def pass_time(self, for_ms, *, answer=True):
        """Let time pass, ticking when the stack wants to; return the effects."""
        before, end_ms = len(self.effects), self.now_ms + for_ms
        if answer:
            self.answer()
        while True:
            deadline = self.stack.next_deadline()
            if deadline is None or deadline > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline)
            self.tick()
            later = self.stack.next_deadline()
            assert later is None or later > self.now_ms, "a tick leaves nothing due"
            if answer:
                self.answer()
                self.answer_queries()
        self.now_ms = end_ms
        return self.effects[before:]

    def connect(self, connected=True):
        return self.do(self.stack.set_connected(connected, self.now_ms))

    def restart(self, **changed):
        """Start again from what was made durable; the old stack is gone."""
        kept = {"options": self.options, "encryption": self.encryption, "rln": self.rln, **changed}
        kept |= {"channel_id": self.stack.sds.channel_id, "topic": self.stack.content_topic}
        return Peer(self.name, rows=self.rows, now_ms=self.now_ms, life=self.life + 1, **kept)

    def published(self, *purposes):
        return [e for e in self.effects if isinstance(e, Publish) and (not purposes or e.purpose in purposes)]

    def content(self):
        return self.published(Purpose.CONTENT)

    def queries(self):
        return [e for e in self.effects if isinstance(e, QueryStore)]

    def ciphers(self):
        return [e for e in self.effects if isinstance(e, AwaitCipher)]

    def events(self, *types):
        return [e.event for e in self.effects if isinstance(e, Emit) and (not types or isinstance(e.event, types))]

    def payloads(self):
        return [event.payload for event in self.events(MessageReceived)]

    def sds(self, publication):
        """Return the SDS message in a publication."""
        plaintext = publication.message.payload
        if self.encryption is not None:
            plaintext = self.encryption.decrypt(plaintext)
        return self.stack.sds.profile.codec.decode(plaintext)

    def check_rows(self):
        """Hold what was persisted against a snapshot, row by row."""
        snapshot = {(c.table, c.key): c for c in self.stack.snapshot()}
        kept = dict(self.rows)
        # Timers draw numbers without a write, and the clock of the rate limit moves by itself.
        drawn, drawn_kept = snapshot.pop(("jitter", "")).row, kept.pop(("jitter", "")).row
        assert drawn is not None
        assert drawn_kept is not None
        assert drawn_kept[0] <= drawn[0]
        limits = [self._limits(rows.pop(("rate_limit", ""))) for rows in (snapshot, kept)]
        assert limits[0] == limits[1]
        differing = {key for key in snapshot.keys() | kept.keys() if snapshot.get(key) != kept.get(key)}
        assert not differing, Counter(table for table, _ in differing)

    def _limits(self, change: Change):
        quota = Quota(self.stack.options.rate_limit if self.options else RateLimitConfig())
        quota.restore(change.row)
        quota.observe(self.now_ms)
        return quota.state()


class CitedOrder:
    """Knows what every message cites, and finds messages that were delivered before what they cite."""

    def __init__(self):
        self.waiting = []
        self.message_of = {}
        self.ending_with = {}
        self.cited_by = {}

    def note(self, stack, request_id, received):
        """Take a message that was just sent by somebody who had received so much.

        It depends on another if its sender had that one whole and cites its end. What somebody had only segments of
        is cited as well, but nobody can reply to it.
        """
        self.waiting.append((stack, request_id, tuple(received)))
        self.catch_up()

    def catch_up(self):
        """Take what has become messages since: a segment is made into one when it can leave."""
        waiting, self.waiting = self.waiting, []
        for stack, request_id, received in waiting:
            request = stack.requests.open.get(request_id)
            if request is not None and len(request.segments) == request.segment_count:
                self._take(stack, request_id, received)
            elif request is not None:
                self.waiting.append((stack, request_id, received))

    def _take(self, stack, request_id, received):
        own = (stack.sds.sender_id, request_id)
        whole = {self.message_of[event.sds_ids[0]] for event in received if event.sds_ids[0] in self.message_of}
        segments = stack.requests.open[request_id].segments
        self.message_of.update(dict.fromkeys(segments, own))
        for sds_id in segments:
            waiting = stack.sds.unacknowledged(sds_id)
            history = () if waiting is None else waiting.message.causal_history
            ends = {self.ending_with[entry.message_id] for entry in history if entry.message_id in self.ending_with}
            self.cited_by[sds_id] = {message for message in ends if message in whole or message[0] == own[0]}
        self.ending_with[segments[-1]] = own

    def violations(self, name, received):
        """Return (message, what it cites) for everything in the wrong order among one participant's deliveries."""
        self.catch_up()
        received = [event for event in received if event.sds_ids[0] in self.message_of]
        place = {self.message_of[event.sds_ids[0]]: index for index, event in enumerate(received)}
        assert len(place) == len(received)
        return [
            (message, cited)
            for event in received
            for sds_id in event.sds_ids
            for cited in self.cited_by.get(sds_id, ())
            if cited[0] != name and place.get(cited, len(place)) > place[message := self.message_of[sds_id]]
        ]


@pytest.fixture(scope="session")
def cited_order():
    return CitedOrder


@pytest.fixture(scope="session")
def peer():
    return Peer


@pytest.fixture(scope="session")
def start_ms():
    return START_MS


@pytest.fixture(scope="session")
def topic():
    return TOPIC
