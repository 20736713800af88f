"""The programs of examples/programs over a `fairway node`, each killed in the middle."""

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

import fairway
from fairway.wire.envelope import EnvelopeKind
from programs import Program, fairway_node

PROGRAMS = Path(__file__).parents[2] / "examples" / "programs"

pytestmark = pytest.mark.full


@pytest.fixture
def program(tmp_path):
    """Make programs that share a node; each member has a folder of its own."""
    with fairway_node() as address:
        yield lambda name, member, *words: Program(PROGRAMS / name, address, member, tmp_path / member, *words)


def test_a_chat_loses_no_line_when_its_members_are_killed(program):
    with program("chat.py", "alice") as alice, program("chat.py", "bob") as bob:
        alice.type("who is on watch?")
        bob.wait_for("alice: who is on watch?")
        alice.wait_for("✓ bob")
        bob.kill()
        alice.type("fog is coming")
        alice.wait_for("alice: fog is coming")
        alice.start_again()
        alice.wait_for("  alice: fog is coming")
        bob.start_again()
        bob.wait_for("alice: fog is coming")
        bob.type("I am")
        alice.wait_for("bob: I am")
        assert sum(line == "alice: fog is coming" for line in bob.lines) == 1


def test_a_collector_has_each_reading_once(program, tmp_path):
    with program("sensors.py", "collector") as collector, program("sensors.py", "cellar") as cellar:
        collector.wait_for("cellar 5 ")
        collector.start_again()
        cellar.start_again()
        collector.wait_for("cellar 20 ")
    with sqlite3.connect(tmp_path / "collector" / "readings.db") as database:
        numbers = [number for (number,) in database.execute("SELECT number FROM reading ORDER BY number")]
    # A sensor that is killed may leave out the number that it was about to send.
    assert len(numbers) == len(set(numbers))
    assert set(range(21)) - set(numbers) <= {max(set(range(21)) - set(numbers), default=0)}


def test_tasks_get_their_results_when_the_planner_and_a_worker_are_killed(program):
    tasks = [f"task {number}" for number in range(12)]
    agents = program("tasks.py", "anna"), program("tasks.py", "ben"), program("tasks.py", "planner", *tasks)
    with agents[0] as anna, agents[1] as ben, agents[2] as planner:
        anna.wait_for("begin: ")
        anna.start_again()
        planner.wait_for("done: ")
        planner.start_again()
        results = [planner.wait_for("done: ") for _ in tasks]
    assert {result.split(" by ")[0] for result in results} == {f"done: {task}" for task in tasks}
    begun = Counter(anna.lines + ben.lines)
    # A task in hand at the kill begins again.
    assert set(begun) == {f"begin: {task}" for task in tasks}
    assert begun.total() <= len(tasks) + 2


def test_a_file_arrives_when_both_sides_are_killed(program, tmp_path):
    content = bytes(range(256)) * 40_000
    with program("file_drop.py", "alice") as alice, program("file_drop.py", "bob") as bob:
        alice.kill()
        (tmp_path / "alice" / "outbox").mkdir(parents=True, exist_ok=True)
        (tmp_path / "alice" / "outbox" / "chart.bin").write_bytes(content)
        alice.start_again()
        bob.wait_for("parts of chart.bin")
        alice.start_again()
        bob.start_again()
        bob.wait_for("chart.bin came from alice")
        alice.wait_for("chart.bin is with bob")
    assert (tmp_path / "bob" / "inbox" / "chart.bin").read_bytes() == content


async def _kinds_from_the_agent(store):
    """Return the kinds of the envelopes that a client of the agent has received."""
    async with (
        fairway.connect("local:nobody") as node,
        fairway.create_reliable_channel(node, "a2a", "client", "/example/1/a2a/proto", store=store) as channel,
    ):
        messages = await channel.history(1_000)
    return Counter(fairway.Envelope.of(each.payload).kind for each in messages if each.sender_id == "agent")


def test_an_a2a_agent_completes_its_tasks_when_agent_and_client_are_killed(program, tmp_path):
    tasks = ["one two three", "four five six"]
    with program("a2a_agent.py", "client", *tasks) as client, program("a2a_agent.py", "agent") as agent:
        agent.wait_for("update 1")
        agent.start_again()
        client.wait_for("artifact")
        client.start_again()
        completed = {client.wait_for("COMPLETED") for _ in tasks}
        agent.start_again()
    assert completed == {f"TASK_STATE_COMPLETED {task.upper()}" for task in tasks}
    updates = {line for line in client.lines if line.startswith(("artifact", "status"))}
    words = [word for task in tasks for word in task.upper().split()]
    assert updates == {"status TASK_STATE_WORKING", *(f"artifact {word}" for word in words)}
    kinds = asyncio.run(_kinds_from_the_agent(tmp_path / "client" / "a2a.db"))
    assert kinds == {EnvelopeKind.MESSAGE: len(tasks) + len(words), EnvelopeKind.REPLY: len(tasks)}
