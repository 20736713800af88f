"""How a run looks on a terminal: the step, its tasks, how long yet, and what is said when it is broken off."""

from __future__ import annotations

import io
import logging
import signal
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from rich.console import Console
from rich.progress import Progress

from fairway.cli._pipeline_terminal import StepColumn, StepsShown, TimeLeft, broken_off
from fairway.pipeline.run.attempt import step_names
from fairway.pipeline.run.folder import TableResult
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.progress import RunProgress


class Tracker:
    """As Spark's, with two stages that run and one that ends meanwhile."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault

    def getActiveStageIds(self):  # noqa: N802 - Spark's own name
        if self.fault is not None:
            raise self.fault
        return [1, 2, 3]

    def getStageInfo(self, stage):  # noqa: N802 - Spark's own name
        return None if stage == 3 else SimpleNamespace(numTasks=1_000 * stage, numCompletedTasks=5)


def shown(**fields) -> str:
    return StepColumn().render(SimpleNamespace(fields=fields)).plain


def result(name: str, seconds: float) -> TableResult:
    return TableResult(name=name, rows=1_000, files=1, bytes=100, seconds=seconds)


def test_how_long_yet_is_not_said_before_anything_is_known():
    left = TimeLeft(step_names(RunOptions()))
    assert left.seconds() is None
    left.ended("waku_messages", None)
    assert left.seconds() is None


def test_the_rest_takes_as_long_as_the_steps_so_far_did_for_their_share():
    names = step_names(RunOptions())
    quick, slow = TimeLeft(names), TimeLeft(names)
    for left, seconds in ((quick, 10.0), (slow, 20.0)):
        for name in names[:2]:
            left.ended(name, seconds)
    before = quick.seconds()
    assert before is not None
    assert slow.seconds() == pytest.approx(2 * before)
    quick.ended(names[2], None)
    assert (quick.seconds() or before) < before
    for name in names:
        quick.ended(name, 1.0)
    assert quick.seconds() == 0


def test_a_run_that_looks_at_bloom_filters_takes_longer():
    told = []
    for blooms in (False, True):
        left = TimeLeft(step_names(RunOptions(blooms=blooms)))
        left.ended(step_names(RunOptions())[0], 60.0)
        left.ended(step_names(RunOptions())[1], 60.0)
        told.append(left.seconds() or 0.0)
    assert 0 < told[0] < told[1]


def test_the_line_tells_tasks_time_and_what_is_left(monkeypatch):
    monkeypatch.setattr("time.monotonic", lambda: 130.0)
    assert shown() == ""
    assert shown(began_s=100.0) == "30 s"
    told = shown(began_s=100.0, tracker=Tracker(), left_s=400.0)
    assert told == "10 of 3,000 tasks · 30 s · about 7 min left"
    assert shown(began_s=100.0, left_s=20.0) == "30 s · under a minute left"


@pytest.mark.parametrize("fault", [Py4JError("gone"), ConnectionRefusedError()])
def test_an_end_of_java_does_not_end_the_line(monkeypatch, fault):
    monkeypatch.setattr("time.monotonic", lambda: 130.0)
    assert shown(began_s=100.0, tracker=Tracker(fault)) == "30 s"


def test_each_step_that_ended_leaves_a_line():
    written = io.StringIO()
    console = Console(file=written, width=160, force_terminal=False)
    with Progress(console=console) as bar:
        steps_shown = StepsShown(bar, "starting Spark", ["decoded"])
        for told, resumed in ((None, False), (result("decoded", 2.0), False), (result("quarantine", 0.0), True)):
            name = "decoded" if told is None else told.name
            steps_shown.step(
                RunProgress(step=name, number=1, total=2, results=None if told is None else (told,), resumed=resumed)
            )
    lines = written.getvalue()
    assert "decoded          2.0 s  rows: decoded 1,000" in lines
    assert "from an earlier attempt" in lines


def test_who_breaks_a_run_off_reads_what_to_do_and_no_trace(capsys, caplog):
    def interrupted() -> None:
        logging.getLogger().error("KeyboardInterrupt while sending command.")
        logging.getLogger().error("something else")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), broken_off("the same words go on"):
        interrupted()
    assert "broken off; the same words go on" in capsys.readouterr().err
    assert [record.message for record in caplog.records] == ["something else"]
    logging.getLogger().error("while sending command")
    assert len(caplog.records) == 2


def test_sigterm_breaks_a_run_off_like_ctrl_c_and_has_its_usual_effect_afterwards(capsys):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), broken_off("the same words go on"):
        signal.raise_signal(signal.SIGTERM)
    assert "broken off; the same words go on" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before
