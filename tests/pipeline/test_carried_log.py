"""The log of a channel, part after part, is that of the whole channel."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from fairway.pipeline.stages.carried_log import carried_logs
from fairway.pipeline.stages.channel_log import ABSENT, LOGGED, channel_logs

MESSAGES = 300


def channel(rng: random.Random) -> tuple[list[dict], list[dict]]:
    """Messages that cite near and far ones, lost ones, and segments that were computed from parity."""
    absent = {
        f"gone{number}": {"first_cited_ns": rng.randrange(20), "told_by": None} for number in range(rng.randrange(6))
    }
    computed = {f"computed{number}": rng.randrange(MESSAGES // 2) for number in range(8)}
    messages: list[dict] = []
    for number in range(MESSAGES):
        near, far = range(max(0, number - 4), number), range(number)
        parents = {f"m{rng.choice(choices):03}" for choices in (near, near, far) if choices and rng.random() < 0.6}
        if rng.random() < 0.03:
            parents |= {name for name in absent if rng.random() < 0.5}
        parents |= {name for name, teller in computed.items() if teller < number and rng.random() < 0.03}
        messages.append(
            {
                "channel_id": "team",
                "message_id": f"m{number:03}",
                "sender_id": "alice",
                "lamport": 1 + number // 2 * 2 + number % 2,
                "timestamp_ns": number,
                "message_hash": b"%032d" % number,
                "history_bytes": 100,
                "parents": sorted(parents),
            }
        )
    rows = [{"channel_id": "team", "message_id": name} | told for name, told in absent.items()]
    rows += [{"channel_id": "team", "message_id": name, "told_by": f"m{at:03}"} for name, at in computed.items()]
    # The id of one is a guess: it is missing as well.
    rows.append({"channel_id": "team", "message_id": "computed0", "first_cited_ns": 30, "told_by": None})
    cited = {parent for message in messages for parent in message["parents"]}
    return messages, [row for row in rows if row["message_id"] in cited]


@pytest.mark.parametrize("draw", range(30))
def test_any_parts_of_a_channel_give_the_log_of_the_whole(rng, draw):
    messages, absent = channel(random.Random(rng.random() + draw))
    bounds = [0, *sorted(rng.sample(range(1, MESSAGES), rng.choice((1, 2, 12)))), MESSAGES]
    parts = [
        pa.Table.from_pylist(rng.sample(own, len(own)), LOGGED)
        for own in (messages[start:end] for start, end in pairwise(bounds))
    ]
    gone = pa.Table.from_pylist(absent, ABSENT)
    whole = channel_logs(pa.concat_tables(parts), gone)
    assert pa.concat_tables(carried_logs(parts, gone)).to_pylist() == whole.to_pylist()
    assert {"complete", "waiting"} >= set(whole["status"].to_pylist())


def test_a_part_gets_only_what_it_cites_and_later_parts_only_what_waits(monkeypatch):
    messages, absent = channel(random.Random(1))
    given = []

    def watched(part, own, **more):
        given.append((own.num_rows, more["inherited"].num_rows))
        return channel_logs(part, own, **more)

    monkeypatch.setattr("fairway.pipeline.stages.carried_log.channel_logs", watched)
    for message in messages:
        message["parents"] = [parent for parent in message["parents"] if not parent.startswith("m")]
    messages[150]["parents"] = ["m149"]
    messages[149]["parents"] = ["gone"]
    messages[299]["parents"] = ["m000"]
    absent = [{"channel_id": "team", "message_id": "gone", "first_cited_ns": 1, "told_by": None}]
    parts = [pa.Table.from_pylist(messages[start : start + 50], LOGGED) for start in range(0, MESSAGES, 50)]
    logs = pa.concat_tables(carried_logs(parts, pa.Table.from_pylist(absent, ABSENT))).to_pylist()
    assert [row["message_id"] for row in logs if row["waits_for"] == "gone"] == ["m149", "m150"]
    assert given == [(0, 0), (0, 0), (1, 0), (0, 1), (0, 0), (0, 0)]
