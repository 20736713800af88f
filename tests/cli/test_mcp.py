"""`fairway mcp`: agents that take part in a channel, through a client of the Model Context Protocol."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import fairway
from fairway.service import ServiceNode
from patience import PATIENCE_S, run

mcp = pytest.importorskip("mcp", reason="needs the extra 'mcp'")


@asynccontextmanager
async def agent(address, name, folder):
    """An MCP session with the server of one participant."""
    from mcp.client.stdio import stdio_client

    command = ["-c", "from fairway.cli import main; main()", "mcp", "--node", address, "--channel", "team"]
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=[*command, "--sender", name, "--store", str(folder / f"{name}.db")],
        env=dict(os.environ),
    )
    async with stdio_client(server) as streams, mcp.ClientSession(*streams) as session:
        await session.initialize()

        async def call(tool, **arguments):
            result = await session.call_tool(tool, arguments)
            text = "\n".join(part.text for part in result.content)
            assert not result.is_error, text
            return result.structured_content.get("result", result.structured_content)

        yield call


def test_agents_send_receive_ask_and_answer(tmp_path):
    async def work():
        async with await ServiceNode.start() as node, AsyncExitStack() as exits:
            address = str(node.addresses[0])
            alice = await exits.enter_async_context(agent(address, "alice", tmp_path))
            bob = await exits.enter_async_context(agent(address, "bob", tmp_path))
            sent = await alice("send", text="who is on watch?", to=["bob"], wait_s=PATIENCE_S)
            assert (sent["acknowledged_by"], sent["is_delivered"]) == (["bob"], True)
            message = await bob("receive", wait_s=PATIENCE_S)
            assert (message["sender"], message["text"]) == ("alice", "who is on watch?")
            assert message["message_id"] == sent["message_id"]
            assert await bob("receive", wait_s=0.01) is None
            answer = asyncio.ensure_future(alice("request", text="tea?", to="bob", wait_s=PATIENCE_S))
            asked = await bob("next_request", wait_s=PATIENCE_S)
            assert (asked["sender"], asked["text"]) == ("alice", "tea?")
            assert await bob("reply", request_id=asked["request_id"], text="yes")
            assert await answer == "yes"
            assert not await bob("reply", request_id=asked["request_id"], text="yes")
            with pytest.raises(AssertionError, match="next_request"):
                await bob("reply", request_id="unknown", text="yes")
            assert [each["text"] for each in await alice("history", limit=3)] == ["who is on watch?", "tea?", "yes"]
            assert [(each["name"], each["is_present"]) for each in await alice("members")] == [("bob", True)]

    run(work())


def test_an_agent_answers_requests_of_two_participants_with_one_correlation_id(tmp_path):
    async def work():
        async with await ServiceNode.start() as node, AsyncExitStack() as exits:
            address = str(node.addresses[0])
            bob = await exits.enter_async_context(agent(address, "bob", tmp_path))
            answers = []
            for name in ("alice", "carol"):
                own = await exits.enter_async_context(await fairway.connect(address))
                channel = await exits.enter_async_context(
                    fairway.create_reliable_channel(own, "team", name, "/fairway/1/team/proto")
                )
                question = channel.request(b"tea?", to="bob", timeout=PATIENCE_S, request_id="job 7")
                answers.append(asyncio.ensure_future(question))
            asked = [await bob("next_request", wait_s=PATIENCE_S) for _ in answers]
            for each in asked:
                assert await bob("reply", request_id=each["request_id"], text=f"yes, {each['sender']}")
            assert [bytes(await answer) for answer in answers] == [b"yes, alice", b"yes, carol"]

    run(work())


@pytest.mark.full
def test_a_reply_to_a_request_that_is_over_returns_false(tmp_path):
    async def work():
        async with await ServiceNode.start() as node, AsyncExitStack() as exits:
            alice = await exits.enter_async_context(agent(str(node.addresses[0]), "alice", tmp_path))
            bob = await exits.enter_async_context(agent(str(node.addresses[0]), "bob", tmp_path))
            asking = asyncio.ensure_future(alice("request", text="now?", to="bob", wait_s=10))
            late = await bob("next_request", wait_s=PATIENCE_S)
            with pytest.raises(AssertionError, match="no reply came within 10 s"):
                await asking
            assert await bob("next_request", wait_s=1) is None
            assert not await bob("reply", request_id=late["request_id"], text="too late")

    run(work())


@pytest.mark.full
def test_what_an_agent_had_not_done_comes_again(tmp_path):
    async def work():
        async with await ServiceNode.start() as node:
            address = str(node.addresses[0])
            async with agent(address, "alice", tmp_path) as alice:
                async with agent(address, "bob", tmp_path) as bob:
                    for text in ("first", "second"):
                        await alice("send", text=text, to=["bob"], wait_s=PATIENCE_S)
                    received = [(await bob("receive", wait_s=PATIENCE_S))["text"] for _ in range(2)]
                    assert received == ["first", "second"]
                async with agent(address, "bob", tmp_path) as bob:
                    assert (await bob("receive", wait_s=PATIENCE_S))["text"] == "second"
                    assert await bob("receive", wait_s=0.01) is None
                async with agent(address, "bob", tmp_path) as bob:
                    assert await bob("receive", wait_s=0.5) is None

    run(work())
