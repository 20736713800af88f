"""Which channels SQL orders, which Python, and that nobody can tell by the rows; in a real Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from fairway.errors import ConfigurationError
from fairway.pipeline import stages
from fairway.pipeline.stages.reassembled import REASSEMBLED
from fairway.pipeline.tables import table_named

pytestmark = [pytest.mark.spark, pytest.mark.full]

COMPLETE, WAITING, CIRCULAR, UNKNOWN = "complete", "waiting", "circular", "not-computed"


@pytest.fixture
def unique(spark):
    """Return a function that makes ``sds_messages`` of (channel, id, Lamport timestamp, cited ids)."""
    table = table_named("sds_messages")

    def make(*given):
        defaults = dict.fromkeys(table.columns) | {"kind": "content", "sender_id": "alice"}
        rows = [
            defaults
            | {
                "message_hash": b"%d" % number,
                "channel_id": channel_id,
                "message_id": message_id,
                "lamport": lamport,
                "timestamp_ns": number,
                "causal_history": [(cited, None, None) for cited in history],
                "kind": "sync" if message_id.startswith("sync-") else "content",
            }
            for number, (channel_id, message_id, lamport, history) in enumerate(given)
        ]
        return spark.createDataFrame([tuple(row[name] for name in table.columns) for row in rows], table.schema)

    return make


CLEAN = [("clean", "b", 1, []), ("clean", "a", 2, ["b"]), ("clean", "c", 2, ["b"])]
GAPPY = [("gappy", "a", 1, []), ("gappy", "b", 2, ["a", "gone"]), ("gappy", "c", 3, ["b"]), ("gappy", "d", 4, ["a"])]
BROKEN = [("broken", "z", 5, []), ("broken", "slow", 1, ["z"]), ("broken", "x", 6, ["slow"])]
TIED = [("tied", "z", 5, []), ("tied", "a", 5, ["z"])]
CIRCLE = [("circle", "chicken", 1, ["egg"]), ("circle", "egg", 2, ["chicken"]), ("circle", "self", 3, ["self"])]
UNHEARD = [("unheard", "a", 1, []), ("unheard", "sync-1", 2, ["a", "lost", "", "sync-0"])]
EVERYTHING = [*CLEAN, *GAPPY, *BROKEN, *TIED, *CIRCLE, *UNHEARD]


def rows_of(ordered):
    """Return (id, status, what it waits for, missing parents) of each channel, in the order of the log."""
    logs = {}
    rows = ordered.collect()
    for row in sorted(rows, key=lambda row: (row.channel_id, row.position)):
        log = logs.setdefault(row.channel_id, [])
        log.append((row.message_id, row.status, row.waits_for, row.missing_parents))
        assert row.position == len(log)
    return logs


def test_every_channel_gets_its_order_and_every_message_its_status(unique):
    messages = unique(*EVERYTHING)
    ordered = stages.sds_ordered(messages, stages.missing_messages(messages))
    assert tuple(ordered.columns) == table_named("sds_ordered").columns
    assert rows_of(ordered) == {
        "clean": [("b", COMPLETE, None, 0), ("a", COMPLETE, None, 0), ("c", COMPLETE, None, 0)],
        "gappy": [
            ("a", COMPLETE, None, 0),
            ("b", WAITING, "gone", 1),
            ("c", WAITING, "gone", 0),
            ("d", COMPLETE, None, 0),
        ],
        "broken": [("z", COMPLETE, None, 0), ("slow", COMPLETE, None, 0), ("x", COMPLETE, None, 0)],
        "tied": [("z", COMPLETE, None, 0), ("a", COMPLETE, None, 0)],
        "circle": [("chicken", CIRCULAR, None, 0), ("egg", CIRCULAR, None, 0), ("self", COMPLETE, None, 0)],
        # What a sync message alone tells of is missing, and no content message waits for it.
        "unheard": [("a", COMPLETE, None, 0)],
    }


def test_a_channel_too_large_for_a_worker_says_so_and_ends_nothing(unique):
    messages = unique(*EVERYTHING)
    logs = rows_of(stages.sds_ordered(messages, stages.missing_messages(messages), max_channel_bytes=1))
    assert {status for row in logs.pop("clean") for status in row[1:2]} == {COMPLETE}
    assert logs == {
        "gappy": [(name, UNKNOWN, None, int(name == "b")) for name in "abcd"],
        "broken": [("slow", UNKNOWN, None, 0), ("z", UNKNOWN, None, 0), ("x", UNKNOWN, None, 0)],
        "tied": [("a", UNKNOWN, None, 0), ("z", UNKNOWN, None, 0)],
        "circle": [(name, UNKNOWN, None, 0) for name in ("chicken", "egg", "self")],
        "unheard": [("a", UNKNOWN, None, 0)],
    }


def test_the_limit_is_of_one_channel_and_not_of_all(unique):
    messages = unique(*GAPPY, *(("large", f"{number:03}", number, ["gone"]) for number in range(100)))
    logs = rows_of(stages.sds_ordered(messages, stages.missing_messages(messages), max_channel_bytes=10_000))
    assert {row[1] for row in logs["gappy"]} == {COMPLETE, WAITING}
    assert {row[1] for row in logs["large"]} == {UNKNOWN}
    assert [row[3] for row in logs["large"]] == [1] * 100


def test_a_segment_that_was_computed_stands_for_the_first_that_came(spark, unique):
    messages = unique(
        ("team", "first", 1, ["gone"]), ("team", "third", 3, ["second"]), ("team", "other", 4, ["guessed"])
    )
    missing = stages.missing_messages(messages).where("message_id <> 'second'")
    names = [part.split()[0] for part in REASSEMBLED.split(", ")]
    sent = dict.fromkeys(names) | {
        "channel_id": "team",
        "sds_ids": ["first", "third"],
        "rebuilt_ids": ["second"],
        "guessed_ids": ["guessed"],
    }
    reassembled = spark.createDataFrame([tuple(sent[name] for name in names)], REASSEMBLED)
    assert rows_of(stages.sds_ordered(messages, missing, reassembled))["team"] == [
        ("first", WAITING, "gone", 1),
        ("third", WAITING, "gone", 0),
        # Its id is a guess: that message is still missing, and nobody waits for it.
        ("other", WAITING, "gone", 1),
    ]
    assert rows_of(stages.sds_ordered(messages, missing))["team"] == [
        ("first", WAITING, "gone", 1),
        ("third", COMPLETE, None, 0),
        ("other", WAITING, "guessed", 1),
    ]


def test_a_limit_that_lets_nothing_through_is_refused(unique):
    messages = unique(*CLEAN)
    with pytest.raises(ConfigurationError, match="max_channel_bytes must be positive, not 0"):
        stages.sds_ordered(messages, stages.missing_messages(messages), max_channel_bytes=0)
