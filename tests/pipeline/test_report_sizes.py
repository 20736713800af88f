"""A report over a million senders and epochs: its memory does not grow with them, and it names the worst."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa

from fairway.pipeline.report import bounded, findings
from fairway.pipeline.report.as_json import report_json
from fairway.pipeline.run import reading
from fairway.pipeline.run.reading import RunTables
from run_tables import write_run

MILLION = 1_000_000
LIMIT = 100
EPOCH_MS = 600_000
WORST = 30
FEW, MANY = 200_000, MILLION
MOST_MORE_MIB = 150

_REPORT = """
import json, sys
from pathlib import Path
from fairway.pipeline.report.as_json import report_json
from fairway.pipeline.run.reading import RunTables
told = report_json(RunTables(sys.argv[1]))
# Not ru_maxrss, which a process inherits from its parent.
peak_kib = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
print(json.dumps({"peak_kib": peak_kib, "told": told}))
"""


def big_run(path: Path, senders: int, **others: list[dict]) -> Path:
    """A run of many senders, each with 10 messages in one epoch; the last `WORST` lost some and sent too many."""
    numbers = np.arange(senders)
    worst = np.maximum(numbers - (senders - WORST) + 1, 0)  # 1 to WORST
    sender_id = pa.array([f"sender-{number:08}" for number in range(senders)])
    channel_id = pa.array(np.where(numbers % 2, "even", "odd"))
    stats = {
        "channel_id": channel_id,
        "sender_id": sender_id,
        "content": np.full(senders, 10),
        "ephemeral": np.zeros(senders, np.int64),
        "missing": worst,
    }
    # All senders but the worst sent the same: a choice by the value alone would choose all of them.
    messages = np.where(worst, LIMIT + worst, 10)
    epochs = {
        "channel_id": channel_id,
        "sender_id": sender_id,
        "epoch_start_ms": np.full(senders, EPOCH_MS),
        "messages": messages,
        "charged": messages,
        "rate_limit": np.full(senders, LIMIT),
        "pct": 100.0 * messages / LIMIT,
        "message_ids": np.zeros(senders, np.int64),
        "double_signals": np.zeros(senders, np.int64),
    }
    channels = [
        {"channel_id": name, "content": 5 * senders, "ephemeral": 0, "missing": int(worst[numbers % 2 == rest].sum())}
        for name, rest in (("odd", 0), ("even", 1))
    ]
    tables = {"sender_stats": pa.table(stats), "rate_utilisation": pa.table(epochs), "channel_stats": channels}
    return write_run(path, tables | others)


def test_a_report_of_a_million_senders_takes_no_more_memory_and_names_the_worst(tmp_path):
    peaks = []
    for senders in (FEW, MANY):
        run = big_run(tmp_path / str(senders), senders)
        done = subprocess.run(
            [sys.executable, "-c", _REPORT, str(run)], capture_output=True, check=True, env=os.environ, text=True
        )
        answer = json.loads(done.stdout)
        peaks.append(answer["peak_kib"] // 1_024)
        told = answer["told"]
        worst = [f"sender-{senders - 1 - place:08}" for place in range(WORST)]
        shown = told["tables"]
        assert [row["sender_id"] for row in shown["senders"]["rows"]] == worst[:20]
        assert [row["sender_id"] for row in shown["rate"]["rows"]] == worst[:20]
        assert (shown["senders"]["total"], shown["rate"]["total"]) == (senders, senders)
        assert [each["sender_id"] for each in told["over_limit"]] == worst
        assert told["over_limit_senders"] == WORST
        assert told["headline"]["known"] == 10 * senders + sum(range(WORST + 1))
        assert told["headline"]["lost"] == sum(range(WORST + 1))
    assert peaks[1] - peaks[0] < MOST_MORE_MIB, peaks


def test_a_report_made_in_many_small_parts_is_the_same(tmp_path, monkeypatch):
    lost = [
        {
            "channel_id": ("odd", "even")[number % 2],
            "message_id": f"m{number}",
            "sender_id": f"sender-{4_960 + number % 60:08}" if number % 4 else None,
            "retrieval_hint": bytes([number]) * 32 if number % 3 else None,
            "cited_by": number % 5,
            "first_cited_by": f"sender-{4_960 + number % 60:08}",
            "last_cited_by": f"sender-{4_960 + number % 60:08}" if number % 7 else "another",
            "first_cited_ns": EPOCH_MS * 1_000_000 + number,
        }
        for number in range(200)
    ]
    quarantined = [
        {"message_hash": bytes([number]) * 32, "status": status, "payload_bytes": number, "timestamp_ns": number}
        for number, status in ((1, "hash-mismatch"), (2, "not-for-us"), (100, "hash-mismatch"))
    ]
    citing = [
        {
            "channel_id": "even",
            "sender_id": "another",
            "kind": "content",
            "timestamp_ns": 1,
            "payload_bytes": 1,
            "causal_history": [{"message_id": f"m{number}"}],
        }
        for number in range(200)
    ]
    waiting = [
        {"channel_id": "odd", "sender_id": "sender-00004998", "status": status, "waits_for": f"m{4 + 10 * place}"}
        for place, status in enumerate(("waiting", "waiting", "not-computed"))
    ]
    others = {"missing_messages": lost, "quarantine": quarantined, "sds_messages": citing, "sds_ordered": waiting}
    run = RunTables(big_run(tmp_path / "run", 5_000, **others))
    whole = report_json(run)
    assert {each["cause"] for each in whole["causes"]} == {"damaged", "quarantined", "no-store", "unknown"}
    assert whole["circumstances"]
    monkeypatch.setattr(bounded, "PART_ROWS", 100)
    monkeypatch.setattr(bounded, "CUT_ROWS", 50)
    monkeypatch.setattr(reading, "TABLE_BYTES", 2_000)
    monkeypatch.setattr(findings, "HELD_COUNTS", 3)
    monkeypatch.setattr(reading, "BATCH_ROWS", 64)
    assert report_json(run) == whole
