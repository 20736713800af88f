"""One participant of a record, twice: as the model of js-waku, and as fairway itself.

Both do the same steps and receive the same bytes, those of js-waku. Where fairway does otherwise, the faults of js-waku
that the model noticed say why; a step whose own faults do not differ may still follow from those of earlier steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.report import Check

from fairway.protocol.sds.channel import MessageChannel
from js_waku.actions import Action
from js_waku.channel import JsWakuChannel
from js_waku.faults import PASSING, Fault
from js_waku.options import JsWakuOptions
from js_waku.vocabulary import Observed, state_in_words, told_by_both


class Participant:
    """Runs every step on js-waku's model and on fairway's own channel."""

    def __init__(self, options: JsWakuOptions, now_ms: int) -> None:
        """Make both channels; ``now_ms`` is where their Lamport clocks start."""
        channel_id, sender_id, config = options.channel_id, options.sender_id, options.config
        self.model = JsWakuChannel(channel_id, sender_id, config, now_ms=now_ms)
        self.repairs = config.repair.enabled
        self._own = MessageChannel(channel_id, sender_id, config, now_ms=now_ms)
        self._known: dict[str, object] = {}
        """How the states differ already, by the field of the state."""
        self._earlier: dict[Fault, None] = {}

    def perform(self, action: Action, now_ms: int) -> tuple[Observed, list[Check]]:
        """Perform a step on both; return what js-waku's model did, and how fairway departs from it, if it does."""
        model = action(self.model, now_ms)
        departures = self._departures(model, action(self._own, now_ms))
        return model, departures

    def _departures(self, model: Observed, own: Observed) -> list[Check]:
        faults = self.model.take_faults()
        earlier = list(self._earlier)
        self._earlier.update(dict.fromkeys(fault for fault in faults if fault not in PASSING))
        differing = [*_differing(model, own), *self._news()]
        if not differing:
            return []
        name = f"fairway itself differs in {', '.join(differing)}"
        if faults:
            return [Check(name, ok=True, differs_on_purpose=_sentence(faults))]
        if earlier:
            names = ", ".join(fault.label for fault in earlier)
            return [Check(name, ok=True, differs_on_purpose=f"follows from an earlier step: {names}")]
        return [Check(name, ok=False, detail="no known fault of js-waku explains why")]

    def _news(self) -> Iterator[str]:
        """Yield the fields of the state in which there is another difference than before this step."""
        own = state_in_words(self._own)
        for key, value in state_in_words(self.model).items():
            difference = _difference(value, own[key])
            if difference is None:
                self._known.pop(key, None)
            elif self._known.get(key) != difference:
                self._known[key] = difference
                yield key


def _sentence(faults: list[Fault]) -> str:
    return "; also: ".join(fault.value for fault in faults)


def _differing(model: Observed, own: Observed) -> Iterator[str]:
    if model.out != own.out:
        yield "the message"
    if told_by_both(model.events) != told_by_both(own.events):
        yield "events"
    if (model.returned, model.resent) != (own.returned, own.resent):
        yield "what is returned"


def _difference(model: Any, own: Any) -> object:
    """Return in what two values differ, the same for the same difference; None if they are equal."""
    if model == own:
        return None
    if isinstance(model, list):
        here, there = Counter(map(repr, model)), Counter(map(repr, own))
        return here - there, there - here
    if isinstance(model, Mapping):
        return _difference(list(model.items()), list(own.items()))
    return int(model) - int(own)
