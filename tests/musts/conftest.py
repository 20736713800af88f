"""A room of participants in virtual time, and the rule that a test in this folder runs: docs/musts.md relies on it.

A test here sees what a user sees (sends, events) and what a peer sees (messages on the wire), and nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import pytest

from fairway.errors import RlnError
from fairway.events import MessageReceived
from fairway.options import Profile, ReliableChannelOptions
from fairway.protocol.effects import Effect, Emit, NodeAnswer, Persist, Prove, Publish, Purpose, QueryStore
from fairway.protocol.encryption import Encryption
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.protocol.stack import Stack
from fairway.wire.sds import NIM_SDS, WAKU_SDS, SdsMessage
from fairway.wire.waku_message import WakuMessage
from patience import run as run_in_bounded_time

START_MS = 1_760_000_400_000
"""The beginning of an epoch of ten minutes."""
TOPIC = "/fairway/1/harbour/proto"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """Fail what is skipped, or expected to fail: a MUST is not shown by it."""
    report = yield
    if report.skipped:
        report.outcome, report.longrepr = "failed", f"{item.nodeid} shows what must be, and so must run and pass"
    return report


class Member:
    """A participant: what it was told to do, what it transmitted, what it was told."""

    def __init__(self, room: Room, name: str, options: ReliableChannelOptions | None, **more: Any) -> None:
        self.room, self.name, self.options, self.more = room, name, options or ReliableChannelOptions(), more
        self.encryption: Encryption | None = more.get("encryption")
        self.rln: RlnProofProvider | None = self.more.pop("rln", None)
        self.online = True
        self.effects: list[Effect] = []
        self.rows: dict[tuple[str, str], Any] = {}
        self._begin()
        self._keep(self.stack.snapshot())

    def _begin(self) -> None:
        seed = f"{self.name}/{next(self.room.lives)}".encode().ljust(16, b".")
        self.stack = Stack(
            "harbour",
            self.name,
            TOPIC,
            self.options,
            now_ms=self.room.now_ms,
            seed=seed,
            proves=self.rln is not None,
            **self.more,
        )

    def restart(self, **changed: Any) -> None:
        """End, and begin again with what is durable."""
        self.more |= changed
        self.room.forget(self)
        self._begin()
        self._do(self.stack.restore(tuple(self.rows.values()), self.room.now_ms))

    # -- what it does ------------------------------------------------------------------------------

    def send(self, payload: bytes, **wanted: Any) -> str:
        """Send, and return the request id."""
        accepted = self.stack.send(payload, self.room.now_ms, **wanted)
        self._do(accepted.effects)
        return accepted.request_id

    def send_ephemeral(self, payload: bytes) -> str:
        accepted = self.stack.send_ephemeral(payload, self.room.now_ms)
        self._do(accepted.effects)
        return accepted.request_id

    def hear(self, *messages: WakuMessage | SdsMessage | Publish) -> None:
        for message in messages:
            if isinstance(message, Publish):
                message = message.message  # noqa: PLW2901 - the same, unwrapped
            elif isinstance(message, SdsMessage):
                message = self.room.carrying(message, self.codec)  # noqa: PLW2901 - the same, wrapped
            self._do(self.stack.receive(message, self.room.now_ms))

    def connect(self, connected: bool = True) -> None:
        self.online = connected
        self._do(self.stack.set_connected(connected, self.room.now_ms))

    def find_store(self) -> None:
        self._do(self.stack.store_connected(self.room.now_ms))

    def tick(self) -> None:
        self._do(self.stack.tick(self.room.now_ms))

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self.effects.append(effect)
            if isinstance(effect, Persist):
                self._keep(effect.changes)
            elif isinstance(effect, Prove):
                self._prove(effect)
            elif isinstance(effect, Publish):
                self.room.published(self, effect)

    def _prove(self, wanted: Prove) -> None:
        assert self.rln is not None
        try:
            proof: bytes | RlnError | None = self.rln.generate_proof(wanted.signal, wanted.at_ms)
        except RlnError as error:
            proof = error
        self._do(self.stack.proven(wanted.token, proof, self.room.now_ms))

    def answer(self, publication: Publish, **answer: Any) -> None:
        self._do(self.stack.published(publication.token, NodeAnswer(**answer), self.room.now_ms))

    def _keep(self, changes: Iterable[Any]) -> None:
        for change in changes:
            if change.row is None:
                self.rows.pop((change.table, change.key), None)
            else:
                self.rows[change.table, change.key] = change

    # -- what came of it ---------------------------------------------------------------------------

    @property
    def codec(self) -> Any:
        return NIM_SDS if self.options.profile is Profile.LOGOS else WAKU_SDS

    def published(self, *purposes: Purpose) -> list[Publish]:
        return [e for e in self.effects if isinstance(e, Publish) and (not purposes or e.purpose in purposes)]

    def sds(self, publication: Publish) -> SdsMessage:
        payload = publication.message.payload
        return self.codec.decode(payload if self.encryption is None else self.encryption.decrypt(payload))

    def said(self, *purposes: Purpose) -> list[SdsMessage]:
        """The SDS messages that it transmitted."""
        return [self.sds(publication) for publication in self.published(*purposes)]

    def events(self, *kinds: type) -> list[Any]:
        return [e.event for e in self.effects if isinstance(e, Emit) and (not kinds or isinstance(e.event, kinds))]

    @property
    def heard(self) -> list[tuple[str, bytes]]:
        """What it delivered to its user: who, and what."""
        return [(event.sender_id, bytes(event.payload)) for event in self.events(MessageReceived)]

    def queries(self) -> list[QueryStore]:
        return [e for e in self.effects if isinstance(e, QueryStore)]


class Room:
    """Participants who hear each other, a clock that stands still, and a node that takes everything by default."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.lives = itertools.count()
        self.members: dict[str, Member] = {}
        self.carries: Callable[[Publish, str], bool] = lambda publication, to: True
        """Whether the network carries a publication to somebody."""
        self.answers: Callable[[Publish], dict[str, Any] | None] = lambda publication: {"accepted": True}
        """What the node says; None lets the one who publishes wait."""
        self._under_way: list[tuple[Member, Publish]] = []

    def member(self, name: str, options: ReliableChannelOptions | None = None, **more: Any) -> Member:
        """Let somebody come in."""
        self.members[name] = Member(self, name, options, **more)
        return self.members[name]

    def silent(self) -> None:
        """Let the network lose everything from now on."""
        self.carries = lambda publication, to: False

    def published(self, member: Member, publication: Publish) -> None:
        self._under_way.append((member, publication))

    def forget(self, member: Member) -> None:
        """Let no answer come to what somebody published."""
        self._under_way = [(who, publication) for who, publication in self._under_way if who is not member]

    def settle(self) -> None:
        """Let the node answer what was published, and the others hear it, until nobody has more to say."""
        while self._under_way:
            member, publication = self._under_way.pop(0)
            answer = self.answers(publication)
            if answer is None:
                continue
            member.answer(publication, **answer)
            for name, other in self.members.items():
                if answer["accepted"] and other is not member and other.online and self.carries(publication, name):
                    other.hear(publication)

    def wait(self, for_ms: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + for_ms
        self.settle()
        while True:
            deadlines = [member.stack.next_deadline() for member in self.members.values()]
            due_ms = min((at_ms for at_ms in deadlines if at_ms is not None), default=end_ms + 1)
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            for member in self.members.values():
                at_ms = member.stack.next_deadline()
                if at_ms is not None and at_ms <= self.now_ms:
                    member.tick()
            self.settle()
        self.now_ms = end_ms

    def carrying(self, message: SdsMessage, codec: Any = WAKU_SDS, **more: Any) -> WakuMessage:
        """Return an SDS message as it comes from the network now."""
        told = {"payload": codec.encode(message), "content_topic": TOPIC, "timestamp_ns": self.now_ms * 1_000_000}
        return WakuMessage(**told | more)

    def said(self, message_id: str, content: bytes | None = b"hello", **more: Any) -> SdsMessage:
        """Return an SDS message of somebody who is not here: content of bob's, unless told otherwise."""
        told = {"sender_id": "bob", "channel_id": "harbour", "lamport_timestamp": self.now_ms, "content": content}
        return SdsMessage(message_id=message_id, **told | more)


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run something in an event loop, with an end if it hangs."""
    return run_in_bounded_time
