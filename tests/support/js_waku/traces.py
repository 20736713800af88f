"""Scripted traces of js-waku's MessageChannel, replayed step by step.

A trace has participants with their options, a frozen clock and a list of steps; after each step stand the bytes that
went out, all events in their order, what was returned and the whole state of the participant. All of it must come out
of `js_waku.JsWakuChannel`, byte for byte. Beside it fairway's own channel does the same steps, and each one that it
takes otherwise on purpose is named with the reason. Steps are counted from 0, as they stand in the file.
"""

from __future__ import annotations

import binascii
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.conformance.cases import Case, MalformedCaseError, replay_case, replay_cases, same, shown
from tests.conformance.report import Check

from fairway.wire.sds import MAX_SDS_BYTES, WAKU_SDS, SdsMessage
from js_waku.actions import read_action, sends
from js_waku.options import JsWakuOptions
from js_waku.participant import Participant
from js_waku.vocabulary import NOTHING, Observed, message_in_words, state_in_words

_CLOCK: Final = "clock"
_ZLIB: Final = "encoded_zlib_b64"
_DIGEST: Final = "encoded_sha256"


def check_traces(group: Any, _document: Mapping[str, Any]) -> Iterator[Check]:
    """Check scripted traces of whole channels."""
    yield from replay_cases(group, _trace)


def _trace(case: Case) -> Iterator[Check]:
    trace = _Trace(case)
    steps = case.items("steps")
    for index, step in enumerate(steps):
        label = _label(index, step)
        trace.performed = False
        yield from replay_case(label, step, trace.check_step)
        if not trace.performed:
            left = len(steps) - index - 1
            yield Check(f"after {label}", ok=False, detail=f"{left} further steps were not replayed")
            return


def _label(index: int, step: object) -> str:
    """Name a step for a person: where it stands, what is done to what, and by whom."""
    fields = step if isinstance(step, Mapping) else {}
    words = [fields.get("op"), fields.get("msg", fields.get("as", fields.get("payload")))]
    label = " ".join([f"step {index}", *(shown(word).strip("'") for word in words if isinstance(word, str))])
    return f"{label} by {fields['who']}" if isinstance(fields.get("who"), str) else label


class _Trace:
    """The participants of one trace between two steps."""

    def __init__(self, case: Case) -> None:
        self.performed = False
        """Whether the step that is replayed was performed, so that the next one can be."""
        self._now_ms = case.integer("start_ms")
        channels = case.child("channels")
        self._participants = {
            name: Participant(JsWakuOptions.read(name, channels.child(name)), self._now_ms) for name in channels
        }
        self._messages: dict[str, bytes] = {}

    def check_step(self, case: Case) -> Iterator[Check]:
        """Perform a step and check everything that stands beside it."""
        operation = case.text("op")
        if operation == _CLOCK:
            self._now_ms += case.integer("ms")
            self.performed = True
            yield same("now", case.integer("now"), self._now_ms)
            yield _same_value("events", case.value("events"), {})
            return
        who = case.text("who")
        if who not in self._participants:
            raise MalformedCaseError(f"{who!r} is no participant; there are {', '.join(self._participants) or 'none'}")
        action = read_action(operation, case, self._messages)
        seen, departures = self._participants[who].perform(action, self._now_ms)
        self._keep(operation, case, seen)
        self.performed = True
        reproduced = True
        for check in self._claims(case, who, seen):
            reproduced &= check.ok
            yield check
        if reproduced:
            # Otherwise the model is not js-waku, and what fairway does beside it says nothing.
            yield from departures

    def _claims(self, case: Case, who: str, seen: Observed) -> Iterator[Check]:
        participant = self._participants[who]
        yield same("now", case.integer("now"), self._now_ms)
        yield from _check_out(case, seen, participant)
        yield _same_value("events", case.value("events"), {who: seen.events} if seen.events else {})
        yield from _check_returned(case, seen, participant)
        yield from _check_state(case, participant)

    def _keep(self, operation: str, case: Case, seen: Observed) -> None:
        """Keep what was sent under the name that the record gives it; a sync message may not have been sent at all."""
        if not sends(operation):
            return
        name = case.maybe_text("as")
        if name is not None and seen.out:
            self._messages[name] = WAKU_SDS.encode(seen.out[0])


def _check_out(case: Case, seen: Observed, participant: Participant) -> Iterator[Check]:
    recorded = case.maybe_child("out")
    if recorded is not None and seen.out:
        yield from _check_message("out", recorded, seen.out[0], participant)
    elif recorded is not None or seen.out:
        yield same("out: whether a message was sent", recorded is not None, bool(seen.out))


def _check_message(name: str, recorded: Case, message: SdsMessage, participant: Participant) -> Iterator[Check]:
    """Check what a record tells of a message, which may be less than all but never without its digest."""
    if _DIGEST not in recorded:
        raise MalformedCaseError(f"the field {_DIGEST!r} is missing")
    words = message_in_words(message, participant.model.bloom_parameters)
    for key in recorded:
        if key == _ZLIB:
            yield same(f"{name}: bytes", _inflated(recorded.text(_ZLIB)), WAKU_SDS.encode(message))
        elif key in words:
            yield _same_value(f"{name}: {key}", recorded.value(key), words[key])


def _inflated(text: str) -> bytes:
    try:
        return zlib.decompressobj().decompress(b64decode(text, validate=True), MAX_SDS_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise MalformedCaseError(f"the field {_ZLIB!r} is not compressed data in base 64: {error}") from error


def _check_returned(case: Case, seen: Observed, participant: Participant) -> Iterator[Check]:
    if seen.resent is not None:
        recorded = case.children("returned")
        yield same("returned: number of messages", len(recorded), len(seen.resent))
        for index, (one, message) in enumerate(zip(recorded, seen.resent, strict=False)):
            yield from _check_message(f"returned[{index}]", one, message, participant)
    elif seen.returned is not NOTHING:
        yield _same_value("returned", case.value("returned"), seen.returned)


def _check_state(case: Case, participant: Participant) -> Iterator[Check]:
    recorded = case.child("state")
    for key, value in state_in_words(participant.model).items():
        absent = key not in recorded or recorded.value(key) is None
        if not (absent and key.startswith("repair") and not participant.repairs):
            yield _same_value(f"state: {key}", recorded.value(key), value)


def _same_value(claim: str, expected: Any, got: Any) -> Check:
    """Return a check that two plain values are equal, that says where they begin to differ."""
    path, expected, got = _first_difference("", expected, got)
    check = same(claim, expected, got)
    return Check(claim, ok=False, detail=f"at {path}: {check.detail}") if path and not check.ok else check


def _first_difference(path: str, expected: Any, got: Any) -> tuple[str, Any, Any]:
    if isinstance(expected, Mapping) and isinstance(got, Mapping) and expected.keys() == got.keys():
        pairs = [(f"{path}.{key}".lstrip("."), value, got[key]) for key, value in expected.items()]
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = [(f"{path}[{index}]", one, got[index]) for index, one in enumerate(expected)]
    else:
        return path, expected, got
    differing = ((key, one, other) for key, one, other in pairs if one != other)
    return next((_first_difference(*pair) for pair in differing), (path, expected, got))
