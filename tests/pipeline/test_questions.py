"""The statements of docs/questions.md run as they stand, and answer what is known of a small archive."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark")

from fairway.pipeline.run import run
from fairway.storage.nwaku_archive import NwakuArchive

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"
SHARDS = ("/waku/2/rs/1/0", "/waku/2/rs/1/1")
(BEGIN,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
QUESTIONS = re.findall(r"## \d+\. (.*?)\n.*?```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def answers(spark, log, tmp_path_factory):
    """Return the rows that answer each question.

    Alice says hello, which Bob cites; then nine turns, of which the fifth is lost. Alice sends her first message again.
    Store a lacks the last turn and has garbage, b lacks the first.
    """
    folder = tmp_path_factory.mktemp("questions")
    team = log("team")
    for turn, content in enumerate([b"hello", *(b"turn %d" % number for number in range(9))]):
        team.message(("alice", "bob")[turn % 2], content)
    messages = [waku for _, waku in team.sent]
    lost = messages.pop(5)
    again = replace(messages[0], timestamp_ns=messages[0].timestamp_ns + 1)
    held = {"a": [*messages[:-1], again, team.wrapped(b"\xff garbage")], "b": [*messages[1:], again]}
    for name, part in held.items():
        with NwakuArchive(folder / f"{name}.db") as archive:
            for message in part:
                archive.append(SHARDS[0], message)
    with NwakuArchive(folder / "b.db") as archive:
        archive.append(SHARDS[1], again)
    run([f"{name}=sqlite:{folder / name}.db" for name in held], folder / "run", rate_limit=6, spark=spark)
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(BEGIN, "the first block", "exec"), {})
    found = [[row.asDict() for row in spark.sql(statement).collect()] for _, statement in QUESTIONS]
    spark.catalog.clearCache()
    assert lost not in messages
    return found


def test_there_are_ten_questions_and_each_has_an_answer(answers):
    assert len(QUESTIONS) == 10
    assert all(title.endswith("?") for title, _ in QUESTIONS)
    assert all(answers)


def test_the_answers_are_those_of_the_archive(answers):
    noisy, stores, latency, reached, blooms, lost, channels, near, shards, unread = answers
    sent = [(row["sender_id"], row["transmissions"], row["repeats"]) for row in noisy]
    assert sent == [("alice", 6, 1), ("bob", 4, 0)]
    assert {row["source"]: (row["messages"], row["alone"]) for row in stores} == {"a": (10, 2), "b": (10, 2)}
    assert sum(row["acknowledged"] for row in latency) == 7
    assert {row["p99_ms"] for row in latency} == {1_000}
    assert [(row["acknowledged_by"], row["carriers"], row["of_all"]) for row in reached] == [("bob", 1, 1)]
    assert [(row["channel_id"], 0 < row["saved_pct"] < 90) for row in blooms] == [("team", True)]
    assert [(row["sender_id"], row["held_up"]) for row in lost] == [("bob", 4)]
    assert [(row["channel_id"], row["missing"], row["lost_pct"]) for row in channels] == [("team", 1, 10.0)]
    assert [(row["sender_id"], row["charged"], row["pct"]) for row in near] == [("alice", 6, 100.0)]
    assert [(row["pubsub_topic"], row["transmissions"], row["again"]) for row in shards] == [(SHARDS[0], 10, 1)]
    assert [(row["status"], row["source"], row["messages"]) for row in unread] == [("not-sds", "a", 1)]
