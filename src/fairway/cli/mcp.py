"""``fairway mcp``: a participant whose tools an agent calls over the Model Context Protocol, on stdin and stdout.

A received message is finished when the agent asks for the next one, and a request when it is answered. With a store, a
restart hands unfinished ones over again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Annotated, Any, Final, ParamSpec, TypeVar

from fairway.channel.history import HistoryMessage
from fairway.channel.reliable_channel import ReliableChannel
from fairway.channel.requests import Request
from fairway.cli._channel_options import with_settings
from fairway.cli._settings import ChannelSettings
from fairway.errors import ChannelClosedError, ConfigurationError, DeliveryFailedError, FairwayError
from fairway.events import MessageReceived
from fairway.extras import needing
from fairway.units import NS_PER_S
from fairway.wire.envelope import Envelope

with needing("mcp", "fairway mcp"):
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from pydantic import BaseModel, Field

P = ParamSpec("P")
T = TypeVar("T")

_MAX_OVER: Final = 1_000
"""Requests that are over and that the server still knows."""

Seconds = Annotated[float, Field(description="How long to wait at most, in seconds.", gt=0, le=3_600)]


class Sent(BaseModel):
    """What became of a message."""

    message_id: str
    acknowledged_by: list[str]
    is_delivered: bool


class Text(BaseModel):
    """A message of the channel."""

    sender: str
    text: str
    message_id: str
    at: float
    """Unix seconds."""


class Attendance(BaseModel):
    """Whether another participant is present."""

    name: str
    is_present: bool
    since: float | None
    """When it became present or away, in Unix seconds; null if nothing was heard of it since this server started."""
    last_heard_at: float | None
    """Unix seconds."""


class Question(BaseModel):
    """A request of another participant, which waits for a reply."""

    request_id: str
    sender: str
    text: str


@with_settings
def command(settings: ChannelSettings) -> None:
    """Give an agent a channel: an MCP server on stdin and stdout, with tools to send, receive, ask and answer.

    An MCP client starts it, with a configuration such as {"command": "fairway", "args": ["mcp", "--channel", "team",
    "--sender", "agent", "--store", "agent.db"], "env": {"FAIRWAY_NODE": "/ip4/127.0.0.1/tcp/60000"}}.

    Example: [bold]fairway mcp --channel team --sender agent --store agent.db[/bold]
    """
    asyncio.run(_serve(settings))


async def _serve(settings: ChannelSettings) -> None:
    async with settings.open(needs_node=False) as (_, channel):
        server = _server(channel)
        await channel.start()
        await server.run_stdio_async()


async def _in_time(wait: Awaitable[T], seconds: float) -> T | None:
    """Return the result of a wait, or None if it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await wait
    except TimeoutError:
        return None


def _server(channel: ReliableChannel) -> MCPServer[Any]:
    """Return the server of one participant."""
    server: MCPServer[Any] = MCPServer(
        "fairway",
        instructions=f"You are {channel.sender_id!r} in the channel {channel.channel_id!r}, where messages reach all "
        "participants, also those that are away for a while. Call receive again and again to follow the channel, and "
        "next_request to serve the requests of others.",
        log_level="WARNING",
    )

    def tool(function: Callable[P, Awaitable[T]]) -> None:
        """Offer a function to the agent, which gets our errors as text."""

        @wraps(function)
        async def called(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return await function(*args, **kwargs)
            except FairwayError as error:
                raise ToolError(str(error)) from error

        server.tool()(called)

    events, requests = channel.events(), channel.requests()
    questions: dict[str, Request] = {}

    async def next_message() -> MessageReceived:
        async for event in events:
            if isinstance(event, MessageReceived):
                return event
        raise ChannelClosedError("the channel is closed: start fairway mcp again")

    @tool
    async def send(text: str, to: list[str] | None = None, wait_s: Seconds = 30) -> Sent:
        """Send a message to the channel, and wait until others have it: those named in `to`, or anybody.

        If is_delivered is false, the channel tries again; do not send the message again.
        """
        receipt = await channel.send(text.encode(), by=to or ())
        try:
            delivered = await _in_time(receipt.delivered(), wait_s)
        except DeliveryFailedError:
            delivered = None
        return Sent(
            message_id=receipt.message_id,
            acknowledged_by=list(receipt.progress.delivered_to),
            is_delivered=delivered is not None,
        )

    @tool
    async def receive(wait_s: Seconds = 50) -> Text | None:
        """Return the next message of another participant, or null if none comes in time.

        This marks the message before it as done. If you stop before that, it comes again when you return.
        """
        message = await _in_time(next_message(), wait_s)
        return None if message is None else _text(message)

    @tool
    async def history(limit: Annotated[int, Field(ge=1, le=1_000)] = 20) -> list[Text]:
        """Return the last messages of the channel, oldest first, your own included."""
        return [_text(each) for each in await channel.history(limit)]

    @tool
    async def members() -> list[Attendance]:
        """Return the other participants, and who of them is present. Messages also reach absent ones when they return.

        After a start of this server a participant is present as soon as it is heard.
        """
        return [
            Attendance(
                name=member.sender_id,
                is_present=member.is_present,
                since=_seconds(member.since_ms),
                last_heard_at=_seconds(member.last_heard_ms),
            )
            for member in channel.members()
        ]

    @tool
    async def request(text: str, to: str, wait_s: Seconds = 50) -> str:
        """Ask one participant, and return its reply; an error says why there is none."""
        return bytes(await channel.request(text.encode(), to=to, timeout=wait_s)).decode(errors="replace")

    @tool
    async def next_request(wait_s: Seconds = 50) -> Question | None:
        """Return the next request of another participant, or null if none comes in time; answer it with reply."""
        asked = await _in_time(anext(requests), wait_s)
        if asked is None:
            return None
        for over in [each for each, question in questions.items() if not question.is_open][:-_MAX_OVER]:
            del questions[over]
        # Two participants may choose the same correlation id.
        request_id = f"{asked.sender_id}/{asked.correlation_id}"
        questions[request_id] = asked
        return Question(request_id=request_id, sender=asked.sender_id, text=bytes(asked).decode(errors="replace"))

    @tool
    async def reply(request_id: str, text: str) -> bool:
        """Answer a request; false if nobody waits for the reply any more."""
        if request_id not in questions:
            raise ConfigurationError(f"there is no request {request_id!r} to answer: take one with next_request")
        return await questions[request_id].reply(text.encode())

    return server


def _seconds(at_ms: int | None) -> float | None:
    return None if at_ms is None else at_ms / 1_000


def _text(message: MessageReceived | HistoryMessage) -> Text:
    return Text(
        sender=message.sender_id,
        text=Envelope.of(message.payload).content.decode(errors="replace"),
        message_id=message.message_id,
        at=message.timestamp_ns / NS_PER_S,
    )
