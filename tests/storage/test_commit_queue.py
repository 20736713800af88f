"""Writes that wait together are committed together; after a failure no later write is tried."""

from __future__ import annotations

import logging
import threading

import pytest

from fairway.errors import StorageError, StoreFullError
from fairway.events import RequestSent
from fairway.storage.channel_store import TracePoint, Write
from fairway.storage.commit_queue import CommitQueue, WritingThread
from patience import PATIENCE_S


class Disk:
    """Takes groups of writes, as slowly as a test wants, and fails once if it is told to."""

    def __init__(self):
        self.groups = []
        self.tidied = 0
        self.fails_with = None
        self.tidying_fails_with = None
        self.writing = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def commit(self, entries):
        self.writing.set()
        assert self.may_go_on.wait(PATIENCE_S)
        failure, self.fails_with = self.fails_with, None
        if failure is not None:
            raise failure
        self.groups.append([entry.write for entry in entries])

    def housekeeping(self):
        self.tidied += 1
        if self.tidying_fails_with is not None:
            raise self.tidying_fails_with


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def committing(disk):
    queue = CommitQueue(disk.commit, disk.housekeeping, WritingThread())
    yield queue
    disk.may_go_on.set()
    queue.close()


def trace(*names):
    points = (TracePoint(at_ms=0, event=RequestSent(request_id=name, message_id="m")) for name in names)
    return Write(trace=tuple(points))


def hold(disk, committing, answers):
    """Let the disk take one write and not finish with it."""
    disk.may_go_on.clear()
    committing.submit(1, trace("held"), answers.append)
    assert disk.writing.wait(PATIENCE_S)


def test_writes_queued_during_a_commit_share_the_next_one(disk, committing):
    answers = []
    hold(disk, committing, answers)
    writes = [Write(finished=(number,)) for number in range(50)]
    for write in writes:
        committing.submit(1, write, answers.append)
    assert answers == []
    disk.may_go_on.set()
    committing.close()
    assert disk.groups == [[trace("held")], writes]
    assert answers == [None] * 51
    assert disk.tidied == 2


@pytest.mark.parametrize("cause", [StoreFullError("full"), ZeroDivisionError("what")])
def test_after_a_failure_every_write_fails_without_an_attempt(disk, committing, cause):
    answers = []
    hold(disk, committing, answers)
    committing.submit(1, Write(), answers.append)
    disk.fails_with = cause
    disk.may_go_on.set()
    committing.submit(1, Write(), answers.append)
    committing.close()
    assert disk.fails_with is None
    assert len(answers) == 3
    assert len(set(map(id, answers))) == 1
    assert isinstance(answers[0], StorageError)
    assert cause in {answers[0], answers[0].__cause__}
    assert disk.groups == []


def test_when_housekeeping_fails_earlier_writes_are_confirmed_and_later_ones_fail(disk, committing):
    answers, first = [], threading.Event()
    disk.tidying_fails_with = StoreFullError("full")

    def answered(error):
        answers.append(error)
        first.set()

    committing.submit(1, Write(), answered)
    assert first.wait(PATIENCE_S)
    committing.submit(1, Write(), answers.append)
    committing.close()
    assert answers == [None, disk.tidying_fails_with]
    assert disk.groups == [[Write()]]


def test_an_answer_that_raises_is_logged_and_the_others_are_given(disk, committing, caplog):
    answers = []

    def raising(error):
        raise RuntimeError("the loop is closed")

    with caplog.at_level(logging.ERROR):
        hold(disk, committing, answers)
        committing.submit(1, Write(), raising)
        committing.submit(1, Write(), answers.append)
        disk.may_go_on.set()
        committing.close()
    assert answers == [None, None]
    assert "the loop is closed" in caplog.text
