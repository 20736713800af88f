"""`Telemetry`: spans and metrics of a channel through the API of OpenTelemetry (extra ``otel``).

Names, kinds and attributes are those of OpenTelemetry's semantic conventions for messaging. The context of a span
travels in the header ``traceparent`` of an `Envelope` (W3C Trace Context). Payloads of bytes stay as they are. A
send with a request id of the application gets no header, because a repetition must have the same payload.

The tasks of a channel begin in the context of whatever started them. So a handler's span never takes its parent from
there: the parent is the span of the sender, or there is none.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, wraps
from time import perf_counter
from typing import Any, Final, Self, TypeVar
from weakref import WeakKeyDictionary

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, MeterProvider, Observation
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fairway.channel.listeners import Handler
from fairway.channel.receipt import EphemeralReceipt
from fairway.errors import FairwayError
from fairway.events import DeliveryError, Event, MessageDelivered, MessageReceived
from fairway.storage.channel_store import StoredRequest
from fairway.wire.envelope import Envelope, EnvelopeKind

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.43.0"
_W3C: Final = TraceContextTextMapPropagator()
_HEADER: Final = "traceparent"
_MAX_HEADER_CHARACTERS: Final = 512
"""A longer header of another participant is ignored."""
_OPERATION_S: Final = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
"""Bounds of the buckets that the conventions name."""
_DELIVERY_S: Final = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3_600, 86_400]

_ReceiptT = TypeVar("_ReceiptT", bound=EphemeralReceipt)
_T = TypeVar("_T")


class _Instruments:
    """The metrics of all channels of the program."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("fairway", _version(), schema_url=_SCHEMA)

        def count(name: str, description: str) -> Counter:
            return meter.create_counter(name, "{message}", description)

        def seconds(name: str, description: str, bounds: list[float]) -> Histogram:
            return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=bounds)

        consumed = count("messaging.client.consumed.messages", "Messages that a loop or a handler got.")
        operation = seconds(
            "messaging.client.operation.duration",
            "From a send to its commit, from a request to its reply.",
            _OPERATION_S,
        )
        self.counts = {
            "send": count("messaging.client.sent.messages", "Sends."),
            "receive": consumed,
            "process": consumed,
        }
        self.durations = {
            "send": operation,
            "request": operation,
            "process": seconds("messaging.process.duration", "Duration of a handler.", _OPERATION_S),
        }
        self.delivery = seconds("fairway.delivery.duration", "From a send to its delivery.", _DELIVERY_S)
        self.failures = count("fairway.delivery.failures", "Sends that failed.")
        meter.create_observable_gauge("fairway.queue.length", [_queue_lengths], "{item}", "Lengths of the queues.")


_instruments_of: Final = cache(_Instruments)

_CHANNELS: Final[WeakKeyDictionary[Telemetry, None]] = WeakKeyDictionary()
"""The channels whose queues are observed."""


def _queue_lengths(_: CallbackOptions) -> list[Observation]:
    return [
        Observation(length, {**telemetry.common, "messaging.client.id": telemetry.client_id, "fairway.queue": queue})
        for telemetry in [reference() for reference in _CHANNELS.keyrefs()]  # an exporter's thread reads it
        if telemetry is not None
        for queue, length in telemetry.queues().items()
    ]


class _Operation:
    """One operation: its span, its count and its duration."""

    def __init__(self, span: Span, instruments: _Instruments, about: dict[str, str]) -> None:
        self.span = span
        self._instruments, self._about = instruments, about
        self._begin_s = perf_counter()

    @contextmanager
    def current(self, *, ends: bool = True) -> Iterator[Self]:
        """Make the span the current one in a block; the block ends the operation if ``ends``, or if it raises."""
        try:
            with trace.use_span(self.span, record_exception=False, set_status_on_exception=False):
                yield self
        except BaseException as error:
            self.failed(error)
            self.end()
            raise
        if ends:
            self.end()

    def failed(self, error: BaseException) -> None:
        """Note that the operation failed."""
        self._about["error.type"] = type(error).__qualname__
        self.span.set_attribute("error.type", type(error).__qualname__)
        self.span.record_exception(error)
        self.span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")

    def end(self) -> None:
        """End the span, and count it."""
        self.span.end()
        name = self._about["messaging.operation.name"]
        if name in self._instruments.counts:
            self._instruments.counts[name].add(1, self._about)
        if name in self._instruments.durations:
            self._instruments.durations[name].record(perf_counter() - self._begin_s, self._about)


class Telemetry:
    """The spans and metrics of one channel."""

    def __init__(
        self,
        channel_id: str,
        sender_id: str,
        stored: Callable[[str], StoredRequest | None],
        queues: Callable[[], Mapping[str, int]],
    ) -> None:
        """Measure a channel; ``stored`` finds a send by its request id, and any thread may call ``queues``."""
        self.common = {"messaging.system": "waku", "messaging.destination.name": channel_id}
        self.client_id = sender_id
        self.queues = queues
        self._stored = stored
        self._tracer = trace.get_tracer("fairway", _version(), schema_url=_SCHEMA)
        self._instruments = _instruments_of(metrics.get_meter_provider())
        _CHANNELS[self] = None

    @staticmethod
    def is_wanted() -> bool:
        """Return whether the program has set up an SDK; the providers of the API itself discard everything."""
        providers = (trace.get_tracer_provider(), metrics.get_meter_provider())
        return not all(
            type(each).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics")) for each in providers
        )

    @staticmethod
    def with_context(envelope: Envelope) -> Envelope:
        """Return the envelope with the context of the current span, unless it has a context."""
        headers: dict[str, str] = {}
        if isinstance(envelope.headers, Mapping) and _HEADER not in envelope.headers:
            _W3C.inject(headers)
        if _HEADER not in headers:
            return envelope
        return replace(envelope, headers={**envelope.headers, _HEADER: headers[_HEADER]})

    async def send(
        self, send: Callable[[Envelope | bytes], Awaitable[_ReceiptT]], payload: Envelope | bytes, *, is_carrier: bool
    ) -> _ReceiptT:
        """Send in a span that ends when the message is durable; a carrier has the context of the span as a header."""
        envelope = payload if isinstance(payload, Envelope) else None
        if envelope is not None and envelope.kind is EnvelopeKind.CLAIM:
            return await send(payload)  # the channel's own, not a call of the program
        is_carrier = is_carrier and envelope is not None and not _carried_by(envelope).is_valid
        with self._begin("send", SpanKind.PRODUCER if is_carrier else SpanKind.CLIENT, envelope).current() as operation:
            receipt = await send(self.with_context(envelope) if is_carrier and envelope is not None else payload)
            operation.span.set_attribute("messaging.message.id", receipt.message_id)
            return receipt

    async def request(
        self, request: Callable[[Envelope], Awaitable[_T]], envelope: Envelope, *, is_carrier: bool
    ) -> _T:
        """Make a request in a span that ends with the reply; a carrier has the context of the span as a header."""
        with self._begin("request", SpanKind.CLIENT, envelope).current():
            return await request(self.with_context(envelope) if is_carrier else envelope)

    def received(self, message: MessageReceived) -> None:
        """Note that a loop of the application got a message."""
        with self._begin("receive", SpanKind.CLIENT, message).current():
            pass

    def processing(self, handler: Handler) -> Handler:
        """Return a handler of messages whose calls have spans."""

        @wraps(handler)
        def process(message: MessageReceived) -> Any:
            operation = self._begin("process", SpanKind.CONSUMER, message)
            with operation.current(ends=False):
                result = handler(message)
            if inspect.isawaitable(result):
                return _awaited(result, operation)
            operation.end()
            return result

        process.__qualname__ = getattr(handler, "__qualname__", repr(handler))
        return process

    async def serve(
        self, message: MessageReceived, handle: Callable[[Callable[[BaseException], None]], Awaitable[None]]
    ) -> None:
        """Handle a request and send its reply in one span; ``handle`` gets a function that notes a failure."""
        with self._begin("process", SpanKind.SERVER, message).current() as operation:
            await handle(operation.failed)

    def observe(self, event: Event) -> None:
        """Measure the deliveries and failures of sends."""
        match event:
            case MessageDelivered(request_id=request_id, at_ms=at_ms):
                with suppress(FairwayError):  # the store is closed: the channel is stopping
                    stored = self._stored(request_id)
                    if stored is not None:
                        self._instruments.delivery.record(max(0, at_ms - stored.accepted_at_ms) / 1_000, self.common)
            case DeliveryError(reason=reason):
                self._instruments.failures.add(1, {**self.common, "error.type": reason.name})

    def _begin(self, name: str, kind: SpanKind, about: MessageReceived | Envelope | None) -> _Operation:
        """Begin an operation on a message. Its span has a link to the context in the headers of the message."""
        envelope = Envelope.decode(about.payload) if isinstance(about, MessageReceived) else about
        common = {
            **self.common,
            "messaging.operation.name": name,
            "messaging.operation.type": "send" if name == "request" else name,
        }
        attributes = {**common, "messaging.client.id": self.client_id}
        if isinstance(about, MessageReceived):
            attributes["messaging.message.id"] = about.message_id
        if envelope is not None and envelope.correlation_id:
            attributes["messaging.message.conversation_id"] = envelope.correlation_id
        if envelope is not None and envelope.group:
            attributes["messaging.consumer.group.name"] = envelope.group
        carried = _carried_by(envelope)
        parent = None
        if name == "process":
            parent = trace.set_span_in_context(trace.NonRecordingSpan(carried), Context())
        span = self._tracer.start_span(
            f"{name} {self.common['messaging.destination.name']}",
            parent,
            kind,
            attributes,
            [Link(carried)] if carried.is_valid else [],
        )
        return _Operation(span, self._instruments, common)


def _version() -> str:
    return str(sys.modules["fairway"].__version__)


def _carried_by(envelope: Envelope | None) -> SpanContext:
    """Return the context in the headers of a message; an invalid one if it has none."""
    headers = None if envelope is None else envelope.headers
    value = headers.get(_HEADER) if isinstance(headers, Mapping) else None
    if not isinstance(value, str) or len(value) > _MAX_HEADER_CHARACTERS:
        return trace.INVALID_SPAN_CONTEXT
    return trace.get_current_span(_W3C.extract({_HEADER: value}, Context())).get_span_context()


async def _awaited(result: Awaitable[_T], operation: _Operation) -> _T:
    with operation.current():
        return await result
