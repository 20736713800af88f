"""A whole channel, `Stack`, that receives whatever a network brings, in either profile.

Promises: nothing is raised; no SDS message is delivered twice and none of one's own at all; what is kept stays within
the configured bounds; the changes that were persisted add up to the state; a new stack takes that state back; and what
is kept for something that never comes is given up in the end.

An input is a script, a sequence of fields. Beside the stack under test there is a peer, an honest one of the same kind.
What the peer publishes waits "on the wire" until the script hands it over, so that most of what is received is real and
consistent in ids, causal history, filters and hashes, and the fuzzer decides what of it is lost, repeated or forged.
`Step` tells the fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, Final

from msgspec.structs import replace

from fairway.errors import DecodeError, EmptyPayloadError, EncryptionError, MessageTooLargeError
from fairway.events import MessageReceived
from fairway.options import Profile
from fairway.protocol.effects import AwaitCipher, Change, Effect, Emit, NodeAnswer, Persist, Publish
from fairway.protocol.encryption import Encryption
from fairway.protocol.incoming.arrivals import ARRIVALS
from fairway.protocol.incoming.complete_messages import COMPLETE
from fairway.protocol.journal import Row
from fairway.protocol.outgoing.pending_segments import OUTBOX
from fairway.protocol.outgoing.transmission_queue import RATE_LIMIT
from fairway.protocol.sds.dependencies import FOR_PROGRESS, MISSING, PARKED
from fairway.protocol.sds.repair import REPAIR_REQUESTS, REPAIR_RESPONSES
from fairway.protocol.segmentation.open_sets import BECOMING_WHOLE_FACTOR
from fairway.protocol.stack import Stack
from fairway.protocol.stack_state import JITTER
from fairway.wire.segment import MAX_SEGMENTS
from fairway.wire.waku_message import WakuMessage, decode_waku_message
from fuzz.decoders import BrokenPromiseError
from fuzz.slow_cipher import SlowCipher, awaited
from fuzz.small_options import LONG_MS, small_options
from fuzz.wire_fields import Field, bytes_in, number_in, read_fields

CHANNEL: Final = "team"
SENDER: Final = "alice"
PEER: Final = "bob"
TOPIC: Final = "/fuzz/1/team/proto"
BEGIN_MS: Final = 1_700_000_000_000

_MAX_STEPS: Final = 64
_LONGEST_PAUSE_MS: Final = 1 << 20
_MAX_ON_THE_WIRE: Final = 256
_MAX_QUEUED_BESIDE: Final = 2_000
"""Retries and answers to repair requests that wait, at most 1,000 each."""
_PAUSES_TO_REST: Final = 4
_PASSING_TABLES: Final = frozenset({PARKED, MISSING, REPAIR_REQUESTS, REPAIR_RESPONSES, ARRIVALS, COMPLETE, OUTBOX})
"""Rows that wait for something. The rows of sends stay, because a send may be delivered late."""


class Step(IntEnum):
    """Fields of a script."""

    SDS = 1
    """Bytes: come as an SDS message."""
    MESSAGE = 2
    """Bytes: come as a WakuMessage."""
    ELAPSED = 3
    """Number: milliseconds pass."""
    SEND = 4
    """Bytes: are sent."""
    PEER_SENDS = 5
    """Bytes: are sent by the peer."""
    ARRIVES = 6
    """Number: so manieth of the peer's publications comes, as it is."""
    ARRIVES_FORGED = 7
    """`Forgery`: a publication of the peer comes with bytes appended, which in protobuf overrides fields."""
    PEER_RECEIVES = 8
    """Number: everything that was published comes to the peer."""
    PEER_WAITS = 9
    """Number: milliseconds pass at the peer, which sends what is due."""
    EPHEMERAL = 10
    """Bytes: are sent as an ephemeral message, by the peer."""
    ANSWERED = 11
    """Number: the node answers the oldest publication, in one of three ways."""
    CONNECTED = 12
    """Number: the node is online, or not."""
    RESTART = 13
    """Number: the process crashes and takes up what it had persisted."""
    QUOTA = 14
    """Number: the node tells a rate limit."""
    CIPHER = 15
    """Number: the encryption hook is done with so manieth of what it has, or fails. A script that never says so has no
    hook, so that everything passes at once."""


class Forgery(IntEnum):
    """Fields of a step that forges."""

    INDEX = 1
    APPENDED = 2


class _Play:
    """One script, one profile."""

    def __init__(self, profile: Profile, encryption: Encryption | None) -> None:
        self._options = small_options(profile)
        self._encryption = encryption
        self._meta = Profile.LOGOS.marker if profile is Profile.LOGOS else None
        self._now_ms = BEGIN_MS
        self._stack = self._new(SENDER, encryption)
        self._peer = self._new(PEER, None)
        self._peer_now_ms = BEGIN_MS
        self._peers: list[WakuMessage] = []
        self._published: list[Publish] = []
        self._unanswered: list[int] = []
        self._ciphering: list[AwaitCipher] = []
        self._rows = _keyed(self._stack.snapshot())
        self._delivered: Counter[str] = Counter()
        self._steps: dict[int, Callable[[Any], None]] = {
            Step.SDS: self._sds,
            Step.MESSAGE: self._message,
            Step.ELAPSED: self._elapsed,
            Step.SEND: self._send,
            Step.PEER_SENDS: lambda payload: self._peer_does(self._peer.send, payload),
            Step.ARRIVES: self._arrives,
            Step.ARRIVES_FORGED: self._arrives_forged,
            Step.PEER_RECEIVES: self._peer_receives,
            Step.PEER_WAITS: self._peer_waits,
            Step.EPHEMERAL: lambda payload: self._peer_does(self._peer.send_ephemeral, payload),
            Step.ANSWERED: self._answered,
            Step.CONNECTED: lambda online: self._happened(self._stack.set_connected(bool(online & 1), self._now_ms)),
            Step.RESTART: self._restart,
            Step.CIPHER: self._cipher,
            Step.QUOTA: lambda limit: self._happened(self._stack.set_node_quota(limit % 64, self._now_ms)),
        }

    def step(self, field: Field) -> None:
        """Do what one field says; a field of the wrong type says nothing."""
        act = self._steps.get(field.number)
        wants_bytes = field.number in _WITH_BYTES
        if act is not None and isinstance(field.value, bytes) is wants_bytes:
            act(field.value)
            self._check_bounds()

    def finish(self) -> None:
        """Compare the state with what was persisted of it."""
        state, persisted = _comparable(self._stack.snapshot()), _comparable(self._rows.values())
        if state != persisted:
            wrong = sorted(key for key in state.keys() | persisted.keys() if state.get(key) != persisted.get(key))
            raise BrokenPromiseError(f"these rows of the state were not persisted as they are: {wrong}")
        self._restart(0)
        self._come_to_rest()
        left = sorted(key for key in _keyed(self._stack.snapshot()) if key[0] in _PASSING_TABLES)
        if left:
            raise BrokenPromiseError(f"long after the last message these rows are still kept: {left}")
        open_requests = self._stack.statistics().open_requests
        if open_requests:
            raise BrokenPromiseError(f"long after the last message {open_requests} sends have not ended")

    def _come_to_rest(self) -> None:
        """Let everything end that time, a node and a hook can bring to its end."""
        self._happened(self._stack.set_connected(connected=True, now_ms=self._now_ms))
        self._happened(self._stack.set_node_quota(None, self._now_ms))
        for _ in range(_PAUSES_TO_REST):
            while self._ciphering:
                self._cipher(0)
            while self._unanswered:
                self._answered(0)
            self._now_ms += LONG_MS
            self._happened(self._stack.tick(self._now_ms))
        self._forget_ciphering()

    def _new(self, sender_id: str, encryption: Encryption | None) -> Stack:
        return Stack(
            CHANNEL,
            sender_id,
            TOPIC,
            self._options,
            now_ms=self._now_ms,
            seed=sender_id.encode().ljust(16),
            encryption=encryption,
        )

    def _sds(self, encoded: bytes) -> None:
        stamp_ns = self._now_ms * 1_000_000
        message = WakuMessage(payload=encoded, content_topic=TOPIC, timestamp_ns=stamp_ns, meta=self._meta)
        self._happened(self._stack.receive(message, self._now_ms))

    def _message(self, encoded: bytes) -> None:
        try:
            message = decode_waku_message(encoded)
        except DecodeError:
            return
        self._happened(self._stack.receive(message, self._now_ms))

    def _elapsed(self, elapsed_ms: int) -> None:
        deadline_ms = self._stack.next_deadline()
        # Zero leads to the next deadline, which a script can hardly guess.
        elapsed_ms = elapsed_ms % _LONGEST_PAUSE_MS or max(0, (deadline_ms or 0) - self._now_ms)
        self._now_ms += elapsed_ms
        self._happened(self._stack.tick(self._now_ms))

    def _send(self, payload: bytes) -> None:
        if self._stack.backlog >= self._options.rate_limit.max_queued:
            return  # as the shell makes its application wait
        try:
            accepted = self._stack.send(payload, self._now_ms)
        except (EmptyPayloadError, MessageTooLargeError):
            return
        self._happened(accepted.effects)

    def _arrives(self, index: int) -> None:
        if self._peers:
            self._happened(self._stack.receive(self._peers[index % len(self._peers)], self._now_ms))

    def _arrives_forged(self, encoded: bytes) -> None:
        forgery, _ = read_fields(encoded)
        if self._peers:
            original = self._peers[number_in(forgery, Forgery.INDEX) % len(self._peers)]
            forged = replace(original, payload=original.payload + bytes_in(forgery, Forgery.APPENDED))
            self._happened(self._stack.receive(forged, self._now_ms))

    def _answered(self, answer: int) -> None:
        if self._unanswered:
            token = self._unanswered.pop(0)
            accepted, permanent = answer % 3 == 0, answer % 3 == 1
            self._happened(
                self._stack.published(token, NodeAnswer(accepted=accepted, permanent=permanent), self._now_ms)
            )

    def _cipher(self, choice: int) -> None:
        if not self._ciphering:
            return
        waiting = self._ciphering.pop(choice // 2 % len(self._ciphering))
        result: bytes | Exception = awaited(waiting.awaitable)
        if choice % 2:
            result = EncryptionError("the script says so")
        self._happened(self._stack.cipher_done(waiting.token, result, self._now_ms))

    def _forget_ciphering(self) -> None:
        for waiting in self._ciphering:
            awaited(waiting.awaitable)
        self._ciphering.clear()

    def _restart(self, _: int) -> None:
        self._forget_ciphering()
        self._stack = self._new(SENDER, self._encryption)
        self._unanswered.clear()
        self._happened(self._stack.restore(list(self._rows.values()), self._now_ms))

    def _peer_does(self, act: Callable[[bytes, int], Any], payload: bytes) -> None:
        try:
            accepted = act(payload, self._peer_now_ms)
        except (EmptyPayloadError, MessageTooLargeError):
            return
        self._on_the_wire(accepted.effects)

    def _peer_receives(self, _: int) -> None:
        for publication in self._published:
            self._on_the_wire(self._peer.receive(publication.message, self._peer_now_ms))
        self._published.clear()

    def _peer_waits(self, elapsed_ms: int) -> None:
        self._peer_now_ms += elapsed_ms % _LONGEST_PAUSE_MS
        self._on_the_wire(self._peer.tick(self._peer_now_ms))

    def _on_the_wire(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Publish):
                self._peer.published(effect.token, NodeAnswer(accepted=True), self._peer_now_ms)
                self._peers.append(effect.message)
        del self._peers[:-_MAX_ON_THE_WIRE]

    def _happened(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Persist(changes=changes):
                    self._persist(changes)
                case Publish():
                    self._published.append(effect)
                    self._unanswered.append(effect.token)
                case AwaitCipher():
                    self._ciphering.append(effect)
                case Emit(event=MessageReceived() as received):
                    self._received(received)
                case _:
                    repr(effect)

    def _persist(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if not _can_be_stored(change.row):
                raise BrokenPromiseError(f"no store could hold {change}")
            if change.row is None:
                self._rows.pop((change.table, change.key), None)
            else:
                self._rows[change.table, change.key] = change

    def _received(self, received: MessageReceived) -> None:
        if received.sender_id == SENDER:
            raise BrokenPromiseError(f"an own message was delivered: {received}")
        if received.ephemeral:
            return
        self._delivered.update(received.sds_ids)
        twice = [sds_id for sds_id in received.sds_ids if self._delivered[sds_id] > 1]
        if twice:
            raise BrokenPromiseError(f"{twice} were delivered twice, now with {received}")

    def _check_bounds(self) -> None:
        held, limits = self._stack.statistics(), self._options
        self._stack.next_deadline()
        if (
            held.parked > FOR_PROGRESS * limits.sds.max_incoming_buffer
            or held.reassembly.buffered_bytes > BECOMING_WHOLE_FACTOR * limits.segmentation.max_buffered_bytes
            # The last message that was accepted may have as many segments.
            or held.queued > limits.rate_limit.max_queued + MAX_SEGMENTS + _MAX_QUEUED_BESIDE
        ):
            raise BrokenPromiseError(f"more is held than allowed: {held}")


def _can_be_stored(value: object) -> bool:
    """Return whether a row has only the values that rows may have, with numbers of 64 bits as MessagePack has them."""
    match value:
        case None | bool() | str() | bytes() | float():
            return True
        case int():
            return -(1 << 63) <= value < 1 << 64
        case tuple():
            return all(map(_can_be_stored, value))
        case _:
            return False


def _keyed(changes: Iterable[Change]) -> dict[tuple[str, str], Change]:
    return {(change.table, change.key): change for change in changes}


def _comparable(changes: Iterable[Change]) -> dict[tuple[str, str], Row | None]:
    """Return rows without what is not persisted at once on purpose.

    Timers that were drawn and epochs that passed by themselves come out right after a restart without being written.
    """
    return {key: change.row for key, change in _keyed(changes).items() if key[0] not in {JITTER, RATE_LIMIT}}


_WITH_BYTES: Final = frozenset(
    {Step.SDS, Step.MESSAGE, Step.SEND, Step.PEER_SENDS, Step.ARRIVES_FORGED, Step.EPHEMERAL}
)


def _check(data: bytes, profile: Profile) -> None:
    fields, _ = read_fields(data)
    hooked = any(field.number == Step.CIPHER for field in fields)
    play = _Play(profile, SlowCipher() if hooked else None)
    for field in fields[:_MAX_STEPS]:
        play.step(field)
    play.finish()


def check_waku_stack(data: bytes) -> None:
    """Play a script to a stack that speaks as js-waku does."""
    _check(data, Profile.WAKU)


def check_logos_stack(data: bytes) -> None:
    """Play a script to a stack that speaks as nim-sds does."""
    _check(data, Profile.LOGOS)
