"""Spans and metrics of a channel, with the SDK of OpenTelemetry and its exporters in memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from functools import partial
from uuid import uuid4

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from fairway import blocking, connect
from fairway.channel.creation import create_reliable_channel
from fairway.errors import ConfigurationError, RequestFailedError, SendExpiredError
from fairway.nodes.local import LocalNetwork
from fairway.nodes.local.faults import NetworkFaults
from fairway.options import Receive, ReliableChannelOptions
from fairway.storage.memory_store import MemoryStore
from fairway.testing import virtual_time
from fairway.wire.envelope import Envelope
from listening import TOPIC, heard_by, join
from patience import PATIENCE_S

_STEP_S = 60


class Exported:
    """What the SDK has exported so far."""

    def __init__(self):
        self._spans = InMemorySpanExporter()
        self.tracing = TracerProvider(shutdown_on_exit=False)
        self.tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        self.tracer = self.tracing.get_tracer("program")
        self._reader = InMemoryMetricReader()
        self.metering = MeterProvider([self._reader], shutdown_on_exit=False)

    def spans(self, name, sender_id=None):
        """The ended spans with a name, of one participant or of all."""
        return [
            span
            for span in self._spans.get_finished_spans()
            if span.name == name and sender_id in {None, span.attributes.get("messaging.client.id")}
        ]

    def span(self, name, sender_id=None):
        """The only such span."""
        (span,) = self.spans(name, sender_id)
        return span

    def points(self, name, **attributes):
        """The data points of a metric whose attributes have the given values; ``_`` is for a dot."""
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}
        found = self._reader.get_metrics_data()
        return [
            point
            for resource in (found.resource_metrics if found else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
            if wanted.items() <= point.attributes.items()
        ]


@pytest.fixture
def exported(monkeypatch):
    """Set up the SDK for one test; the API allows it once in a process."""
    exported = Exported()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: exported.tracing)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: exported.metering)
    return exported


def parent_of(span):
    return None if span.parent is None else span.parent.span_id


def links_of(span):
    return [link.context.span_id for link in span.links]


def traceparent_of(span):
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@virtual_time()
async def test_a_request_is_one_trace_from_the_program_to_the_handler_and_back(exported):
    with LocalNetwork(NetworkFaults(loss=0.3)) as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:

            async def work(request):
                with exported.tracer.start_as_current_span("work"):
                    await asyncio.sleep(1)
                return b"done"

            bob.on_request(work)
            with exported.tracer.start_as_current_span("program"):
                reply = await alice.request(b"make tea", to="bob", timeout=3_600)
            await asyncio.sleep(_STEP_S)
    program, request = exported.span("program"), exported.span("request harbour")
    sent, process = exported.span("send harbour", "alice"), exported.span("process harbour")
    replied, work_span = exported.span("send harbour", "bob"), exported.span("work")
    chain = (program, request, process, work_span)
    assert [parent_of(span) for span in chain] == [None, *(span.context.span_id for span in chain[:-1])]
    assert parent_of(sent) == request.context.span_id == links_of(process)[0]
    assert parent_of(replied) == process.context.span_id
    assert len({span.context.trace_id for span in (*chain, sent, replied)}) == 1
    assert (request.kind, process.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
    assert reply.headers["traceparent"] == traceparent_of(process)
    ids = {span.attributes["messaging.message.conversation_id"] for span in (sent, process, replied)}
    assert len(ids) == 1
    assert process.attributes["messaging.message.id"] == sent.attributes["messaging.message.id"]
    assert process.attributes["messaging.client.id"] == "bob"


@virtual_time()
async def test_the_claims_of_workers_are_no_operations_of_the_program(exported):
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob, join(network, "carol") as carol:
            for worker in (bob, carol):
                worker.on_request(lambda _: b"done", group="workers")
            await alice.request(b"make tea", group="workers")
            await asyncio.sleep(_STEP_S)
    process = exported.span("process harbour")
    assert process.attributes["messaging.consumer.group.name"] == "workers"
    assert parent_of(process) == exported.span("request harbour").context.span_id
    assert len(exported.spans("send harbour")) == 2


@virtual_time()
async def test_a_send_is_the_parent_of_the_calls_of_all_handlers_and_linked_to_the_reads_of_loops(exported):
    seen = []

    async def handle(message):
        seen.append((message.payload, trace.get_current_span()))

    with LocalNetwork() as network:
        # The tasks of the channels begin in this span; nothing that they do later belongs to it.
        with exported.tracer.start_as_current_span("set up"):
            alice = await join(network, "alice")
            bob = await join(network, "bob", receive=handle)
            carol = await join(network, "carol")
            dora = await join(network, "dora", receive=Receive.EVENTS)
        events = dora.events()
        await (await alice.send(Envelope(b"fog", headers={"place": "Emden"}))).delivered()
        reading = exported.tracer.start_span("reading")
        with trace.use_span(reading, end_on_exit=True):
            message = await anext(aiter(carol))
            while getattr(await anext(events), "message_id", None) != message.message_id:
                pass
        for channel in (alice, bob, carol, dora):
            await channel.close()
    sent, process = exported.span("send harbour"), exported.span("process harbour")
    assert Envelope.of(message.payload).headers == {"place": "Emden", "traceparent": traceparent_of(sent)}
    assert (sent.parent, sent.kind, process.kind) == (None, SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parent_of(process) == sent.context.span_id
    assert links_of(process) == [sent.context.span_id]
    assert [(payload, span.get_span_context()) for payload, span in seen] == [(message.payload, process.context)]
    for name in ("carol", "dora"):
        received = exported.span("receive harbour", name)
        assert (received.kind, links_of(received)) == (SpanKind.CLIENT, [sent.context.span_id])
        assert parent_of(received) == reading.get_span_context().span_id
    assert sent.attributes == {
        "messaging.system": "waku",
        "messaging.destination.name": "harbour",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "alice",
        "messaging.message.id": message.message_id,
    }


@virtual_time()
async def test_raw_payloads_stay_as_they_are_and_their_spans_share_the_message_id(exported):
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            heard = heard_by(bob)
            await (await alice.send(b"raw")).delivered()
            await (await alice.send_ephemeral(b"typing")).sent()
            await asyncio.sleep(_STEP_S)
    assert heard == [b"raw", b"typing"]
    sent, received = exported.spans("send harbour"), exported.spans("receive harbour")
    assert [span.kind for span in sent] == [SpanKind.CLIENT] * 2
    assert [span.links for span in received] == [()] * 2
    assert [[span.attributes["messaging.message.id"] for span in spans] for spans in (sent, received)] == [
        [alice.get_message_id(payload) for payload in heard]
    ] * 2


@virtual_time()
async def test_a_context_of_the_program_and_a_repeated_send_keep_their_payloads(exported, monkeypatch):
    own = Envelope(b"own", headers={"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"})
    store = MemoryStore()
    with LocalNetwork() as network:
        async with join(network, "bob") as bob:
            heard = heard_by(bob)
            bob.on_request(lambda _: b"done")
            async with join(network, "alice", store=store) as alice:
                await alice.send(own)
                await alice.send(Envelope(b"1"), request_id="one")
                reply = await alice.request(Envelope(b"2"), to="bob", request_id="two")
            monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
            async with join(network, "alice", store=store) as alice:
                await (await alice.send(Envelope(b"1"), request_id="one")).delivered()
                assert await alice.request(Envelope(b"2"), to="bob", request_id="two") == reply
    assert heard == [own.encode(), Envelope(b"1").encode()]
    sent = next(span for span in exported.spans("send harbour", "alice") if span.links)
    assert links_of(sent) == [0xBBBBBBBBBBBBBBBB]
    assert sent.kind is SpanKind.CLIENT


@virtual_time()
async def test_failures_are_in_the_spans_and_in_the_metrics(exported, caplog):
    attempts = []

    def handle(message):
        attempts.append(message)
        if len(attempts) == 1:
            raise ValueError("not now")

    async def refuse(request):
        raise KeyError(bytes(request).decode())

    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob", receive=partial(handle)) as bob:
            bob.on_request(refuse)
            await alice.send(Envelope(b"fog"))
            with pytest.raises(RequestFailedError):
                await alice.request(b"tea", to="bob")
            with pytest.raises(SendExpiredError):
                await (await alice.send(b"late", by={"nobody"}, deadline=5)).delivered()
            await asyncio.sleep(_STEP_S)
    failed = {
        span.attributes["error.type"]: span
        for span in exported.spans("process harbour", "bob")
        if not span.status.is_ok
    }
    assert set(failed) == {"ValueError", "KeyError"}
    assert [event.name for event in failed["ValueError"].events] == ["exception"]
    assert len(attempts) == 3
    request = exported.span("request harbour")
    assert (request.status.status_code, request.attributes["error.type"]) == (StatusCode.ERROR, "RequestFailedError")
    (process,) = exported.points("messaging.process.duration", error_type="ValueError")
    assert process.count == 1
    assert any(message.startswith("handler functools.partial(") for message in caplog.messages)
    (failures,) = exported.points("fairway.delivery.failures", error_type="EXPIRED")
    assert failures.value == 1


@virtual_time()
async def test_metrics_count_the_messages_and_measure_deliveries_and_queues(exported):
    store = MemoryStore()
    with LocalNetwork() as network:
        async with join(network, "alice", store=store) as alice:
            for number in range(3):
                await alice.send(b"%d" % number)
            await asyncio.sleep(10)
        # The process ends; the sends are acknowledged in its next run.
        async with join(network, "alice", store=store) as alice, join(network, "bob") as bob:
            messages = aiter(bob)
            for _ in range(2):
                await anext(messages)
            await asyncio.sleep(_STEP_S)
            lengths = []
            # Exporters call from threads of their own.
            reader = threading.Thread(
                target=lambda: lengths.extend(
                    exported.points("fairway.queue.length", fairway_queue="unfinished", messaging_client_id="bob")
                )
            )
            reader.start()
            reader.join()
            assert [point.value for point in lengths] == [bob.statistics().unfinished] == [2]
    (sent,) = exported.points("messaging.client.sent.messages", messaging_destination_name="harbour")
    (consumed,) = exported.points("messaging.client.consumed.messages", messaging_operation_name="receive")
    (delivery,) = exported.points("fairway.delivery.duration")
    (duration,) = exported.points("messaging.client.operation.duration")
    assert (sent.value, consumed.value, delivery.count, duration.count) == (3, 2, 3, 3)
    assert delivery.min >= 10
    assert exported.points("fairway.queue.length") == []


@pytest.mark.parametrize("header", ["", "junk", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "0" * 100_000, "00-é"])
@virtual_time()
async def test_a_header_that_is_no_context_changes_nothing(exported, caplog, header):
    handled = []
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob", receive=handled.append) as bob:
            await (await alice.send(Envelope(b"x", headers={"traceparent": header}))).delivered()
            await bob.stop()
    assert len(handled) == 1
    process = exported.span("process harbour")
    assert (process.parent, process.links) == (None, ())
    assert caplog.messages == []


def test_a_channel_whose_event_loop_has_ended_has_no_queues(exported):
    async def leave_open():
        return await create_reliable_channel(await connect(f"local:{uuid4()}"), "team", "alice", TOPIC)

    channel = asyncio.run(leave_open())
    assert exported.points("fairway.queue.length") == []
    asyncio.run(channel.close())


@virtual_time()
async def test_a_wrong_payload_raises_the_same_error_as_without_telemetry(exported):
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            for call in (alice.send, alice.send_ephemeral, alice.request):
                with pytest.raises(ConfigurationError, match="headers"):
                    await call(Envelope(b"x", headers=None))
    assert exported.span("request harbour").attributes["error.type"] == "ConfigurationError"


def test_threads_of_a_program_without_asyncio_are_in_its_traces(exported):
    network = f"local:{uuid4()}"
    options = ReliableChannelOptions(sync_min_interval_ms=50)
    with blocking.connect(network) as node_a, blocking.connect(network) as node_b:
        topic = "/tests/1/telemetry/proto"
        with (
            blocking.create_reliable_channel(node_a, "team", "alice", topic, options=options) as alice,
            blocking.create_reliable_channel(node_b, "team", "bob", topic, options=options) as bob,
        ):
            within = []

            def work(_):
                within.append(trace.get_current_span().get_span_context())
                return b"done"

            bob.on_request(work)
            with exported.tracer.start_as_current_span("program") as program:
                alice.request(b"make tea", to="bob", timeout=PATIENCE_S)
    request, process = exported.span("request team"), exported.span("process team")
    assert parent_of(request) == program.get_span_context().span_id
    assert parent_of(process) == request.context.span_id
    assert within == [process.context]


_WITHOUT_AN_SDK = """
import asyncio, sys
import fairway
if {imports}:
    import opentelemetry.trace, opentelemetry.metrics

async def main():
    async with fairway.connect("local:a") as node:
        async with fairway.create_reliable_channel(node, "team", "alice", "/fairway/1/team/proto") as alice:
            await alice.send(fairway.Envelope(b"hello"))
            [message] = await alice.history()
            assert message.payload == fairway.Envelope(b"hello").encode()

asyncio.run(main())
print({{"opentelemetry.trace", "opentelemetry.sdk"}} & sys.modules.keys())
"""


@pytest.mark.parametrize(("imports", "loaded"), [(False, "set()"), (True, "{'opentelemetry.trace'}")])
def test_a_program_without_an_sdk_measures_nothing(imports, loaded):
    ended = subprocess.run(
        [sys.executable, "-c", _WITHOUT_AN_SDK.format(imports=imports)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert ended.stdout.strip() == loaded
