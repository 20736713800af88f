"""An A2A agent whose transport is a channel, and a client that gives it tasks.

It has the types of A2A 1.0 (pip install a2a-sdk). A request of the channel carries `SendMessage` as JSON-RPC, and its
reply the completed task. The updates of the task are messages, each a `StreamResponse` as in push notifications.

Either may be killed at any moment and started again. The agent then begins an open task again, with the same ids; the
channel sends each update and the reply once.

Run them: python examples/programs/a2a_agent.py "$FAIRWAY_NODE" agent agent-state
          python examples/programs/a2a_agent.py "$FAIRWAY_NODE" client client-state "one two three" "four five"
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

from a2a import helpers, types
from google.protobuf.json_format import MessageToDict, ParseDict

import fairway

DAY_S = 86_400


def json_of(content: object) -> fairway.Envelope:
    """Return a JSON document, the same in every run."""
    text = json.dumps(content, sort_keys=True)
    return fairway.Envelope(text.encode(), content_type="application/json", headers={"A2A-Version": "1.0"})


async def work(channel: fairway.ReliableChannel, request: fairway.Request) -> fairway.Envelope:
    """Do a task: shout each word of the message."""
    call = json.loads(bytes(request))
    if call["method"] != "SendMessage":
        return json_of({"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32601, "message": "Method not found"}})
    message = ParseDict(call["params"], types.SendMessageRequest()).message
    task_id = str(uuid5(NAMESPACE_OID, request.correlation_id))
    task = helpers.new_task(task_id, message.context_id or task_id, types.TaskState.TASK_STATE_WORKING)
    context_id = task.context_id
    started = types.TaskStatusUpdateEvent(task_id=task_id, context_id=context_id, status=task.status)
    updates = [types.StreamResponse(status_update=started)]
    for number, word in enumerate(helpers.get_message_text(message).split()):
        artifact = helpers.new_text_artifact(f"word {number}", word.upper(), artifact_id=str(number))
        task.artifacts.append(artifact)
        made = types.TaskArtifactUpdateEvent(task_id=task_id, context_id=context_id, artifact=artifact)
        updates.append(types.StreamResponse(artifact_update=made))
    for number, update in enumerate(updates):
        await channel.send(json_of(MessageToDict(update)), request_id=f"{task_id} {number}")
        print("update", number, flush=True)
        await asyncio.sleep(0.3)
    task.status.state = types.TaskState.TASK_STATE_COMPLETED
    result = MessageToDict(types.SendMessageResponse(task=task))
    return json_of({"jsonrpc": "2.0", "id": call["id"], "result": result})


async def ask(channel: fairway.ReliableChannel, number: int, text: str) -> None:
    """Give the agent one task, and print the completed task."""
    parts = [helpers.new_text_part(text)]
    message = types.Message(message_id=f"task {number}", role=types.Role.ROLE_USER, parts=parts)
    params = MessageToDict(types.SendMessageRequest(message=message))
    call = json_of({"jsonrpc": "2.0", "id": number, "method": "SendMessage", "params": params})
    reply = await channel.request(call, to="agent", timeout=DAY_S, request_id=f"task {number}")
    task = ParseDict(json.loads(bytes(reply))["result"], types.SendMessageResponse()).task
    print(types.TaskState.Name(task.status.state), *map(helpers.get_artifact_text, task.artifacts), flush=True)


async def follow(channel: fairway.ReliableChannel) -> None:
    """Print the updates of the tasks."""
    async for received in channel:
        update = ParseDict(json.loads(fairway.Envelope.of(received.payload).content), types.StreamResponse())
        if update.HasField("artifact_update"):
            print("artifact", helpers.get_artifact_text(update.artifact_update.artifact), flush=True)
        else:
            print("status", types.TaskState.Name(update.status_update.status.state), flush=True)


async def main(address: str, name: str, folder: Path, tasks: list[str]) -> None:
    """Run the agent or the client."""
    topic, store = "/example/1/a2a/proto", folder / "a2a.db"
    async with (
        fairway.connect(address) as node,
        fairway.create_reliable_channel(node, "a2a", name, topic, store=store) as channel,
    ):
        if name == "agent":
            channel.on_request(lambda request: work(channel, request))
            await asyncio.Event().wait()
        following = asyncio.create_task(follow(channel))
        await asyncio.gather(*(ask(channel, number, task) for number, task in enumerate(tasks)))
        following.cancel()


Path(sys.argv[3]).mkdir(parents=True, exist_ok=True)
asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:]))
