"""Who sent what and who got it, judged by the lines that participants print."""

from __future__ import annotations

import hashlib

import pytest

from fairway.apps.demonstration_bookkeeping import Bookkeeping, Happening

NAMES = ("alice", "bob", "carol")


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Talk:
    """Books, and the lines of those who are in them."""

    def __init__(self):
        self.books = Bookkeeping(NAMES)
        self.at_ms = 0

    def line(self, name, line, life=1):
        self.at_ms += 10
        return self.books.line(name, line, life=life, at_ms=self.at_ms)

    def command(self, sender, request_id, text):
        return self.books.command(
            sender, request_id, title=text, sha256=sha256(text), size_bytes=len(text), at_ms=self.at_ms
        )

    def accepted(self, name, request_id, outcome=None, life=1):
        return self.line(name, {"event": "accepted", "request_id": request_id, "outcome": outcome}, life)

    def send(self, sender, request_id, text):
        self.command(sender, request_id, text)
        self.accepted(sender, request_id)

    def receive(self, name, sender, text, *sds_ids, redelivered=False, life=1, recovered=False):
        told = {"event": "message-received", "type": "MessageReceived", "sender_id": sender, "sha256": sha256(text)}
        told |= {"size": len(text), "sds_ids": list(sds_ids), "redelivered": redelivered, "recovered": recovered}
        return self.line(name, told, life)

    def delivered(self, name, request_id, *to):
        told = {"event": "reliable:message:delivered", "type": "MessageDelivered", "request_id": request_id}
        return self.line(name, {**told, "delivered_to": list(to), "at_ms": 1})

    @property
    def wrong(self):
        verdict = self.books.verdict()
        return (verdict.lost, verdict.twice, verdict.out_of_order, verdict.unacknowledged, verdict.ended_twice)


@pytest.fixture
def talk():
    return Talk()


def test_a_message_that_everybody_got_once_and_acknowledged_is_all_well(talk):
    message = talk.command("alice", "r1", "hello")
    assert talk.accepted("alice", "r1") == (Happening.ACCEPTED, message)
    assert talk.receive("bob", "alice", "hello", "s1") == (Happening.RECEIVED, message)
    assert talk.receive("carol", "alice", "hello", "s1", recovered=True) == (Happening.RECEIVED, message)
    assert talk.delivered("alice", "r1", "bob", "carol") == (Happening.DELIVERED, message)
    assert talk.books.verdict().is_good
    assert message.received_at_ms == {"bob": 20, "carol": 30}
    assert (message.recovered_by, message.delivered_to, message.delivered_at_ms) == ({"carol"}, ("bob", "carol"), 40)


def test_who_did_not_get_a_message_is_counted_as_a_loss(talk):
    talk.send("alice", "r1", "hello")
    talk.receive("bob", "alice", "hello", "s1")
    assert [(message.request_id, name) for message, name in talk.books.lacking()] == [("r1", "carol")]
    assert talk.wrong == (1, 0, 0, 1, 0)
    assert not talk.books.verdict().is_good


def test_a_second_delivery_is_twice_whatever_its_sds_ids(talk):
    talk.send("alice", "r1", "hello")
    talk.receive("bob", "alice", "hello", "s1")
    assert talk.receive("bob", "alice", "hello", "s1")[0] is Happening.RECEIVED_AGAIN
    talk.receive("bob", "alice", "hello", "s2")
    assert talk.wrong[1] == 2
    assert "bob got 'hello' of alice once too often" in talk.books.faults[0]


def test_a_line_told_again_in_a_later_life_is_no_repetition(talk):
    talk.send("alice", "r1", "hello")
    talk.receive("bob", "alice", "hello", "s1", "s2")
    assert talk.receive("bob", "alice", "hello", "s1", "s2", redelivered=True, life=2) is None
    assert (talk.books.redelivered, talk.wrong[1]) == (1, 0)


@pytest.mark.parametrize(("life", "redelivered"), [(1, True), (2, False)])
def test_a_line_told_again_in_the_same_life_or_not_marked_is_a_repetition(talk, life, redelivered):
    talk.send("alice", "r1", "hello")
    talk.receive("bob", "alice", "hello", "s1")
    talk.receive("bob", "alice", "hello", "s1", redelivered=redelivered, life=life)
    assert (talk.books.redelivered, talk.wrong[1]) == (0, 1)


def test_a_line_that_only_a_later_life_told_is_the_first_delivery(talk):
    message = talk.command("alice", "r1", "hello")
    assert talk.receive("bob", "alice", "hello", "s1", redelivered=True, life=2) == (Happening.RECEIVED, message)
    assert talk.wrong[1] == 0


def test_the_same_words_of_two_people_or_said_twice_are_messages_of_their_own(talk):
    for sender, request_id in (("alice", "r1"), ("bob", "r2"), ("alice", "r3")):
        talk.send(sender, request_id, "ok")
    talk.receive("carol", "alice", "ok", "s1")
    talk.receive("carol", "bob", "ok", "s2")
    talk.receive("carol", "alice", "ok", "s3")
    assert {name for _, name in talk.books.lacking()} == {"alice", "bob"}
    assert talk.wrong[1] == 0
    talk.receive("carol", "alice", "ok", "s4")
    assert talk.wrong[1] == 1


def test_a_delivery_of_what_nobody_sent_is_a_fault(talk):
    assert talk.receive("bob", "alice", "hello", "s1") is None
    assert talk.wrong[1] == 1
    assert "5 bytes that nobody sent" in talk.books.faults[0]


def test_an_answer_before_what_it_answers_is_out_of_order(talk):
    talk.send("alice", "r1", "how are you?")
    talk.receive("bob", "alice", "how are you?", "s1")
    talk.send("bob", "r2", "fine")
    talk.receive("carol", "bob", "fine", "s2")
    talk.receive("carol", "alice", "how are you?", "s1")
    assert talk.wrong[2] == 1
    assert talk.books.faults == ["carol got 'fine' of bob before 'how are you?'"]


def test_two_messages_of_one_sender_come_in_order(talk):
    talk.send("alice", "r1", "one")
    talk.send("alice", "r2", "two")
    talk.receive("bob", "alice", "two", "s2")
    assert talk.wrong[2] == 1


def test_what_the_sender_had_not_been_heard_to_know_is_not_in_the_past_of_its_message(talk):
    talk.send("alice", "r1", "how are you?")
    talk.send("bob", "r2", "fine")
    talk.receive("bob", "alice", "how are you?", "s1")
    talk.receive("carol", "bob", "fine", "s2")
    talk.command("alice", "r3", "not accepted yet")
    talk.command("alice", "r4", "nor this")
    talk.receive("bob", "alice", "nor this", "s4")
    assert talk.wrong[2] == 0


def test_ones_own_messages_need_not_be_received(talk):
    talk.send("alice", "r1", "one")
    talk.receive("bob", "alice", "one", "s1")
    talk.send("bob", "r2", "two")
    talk.receive("alice", "bob", "two", "s2")
    assert talk.wrong[2] == 0


def test_telling_a_command_again_changes_nothing(talk):
    message = talk.command("alice", "r1", "hello")
    talk.receive("alice", "bob", "x", "s0")
    assert talk.command("alice", "r1", "hello") is message
    assert talk.accepted("alice", "r1") is not None
    assert talk.accepted("alice", "r1", life=2) is None
    assert len(talk.books.messages) == 1


def test_the_answer_to_a_repeated_send_tells_an_outcome_that_went_down_with_its_process(talk):
    message = talk.command("alice", "r1", "hello")
    talk.accepted("alice", "r1")
    outcome = {"delivered": True, "delivered_to": ["bob", "carol"], "at_ms": 5}
    assert talk.accepted("alice", "r1", outcome, life=2) == (Happening.DELIVERED, message)
    assert (message.delivered_to, message.endings) == (("bob", "carol"), 0)
    failed = talk.command("bob", "r2", "bye")
    assert talk.accepted("bob", "r2", {"delivered": False, "detail": "no more retries"}) == (Happening.FAILED, failed)
    assert (failed.failed, failed.has_ended, failed.delivered_at_ms) == ("no more retries", True, None)


def test_a_send_that_ends_twice_is_a_fault(talk):
    talk.send("alice", "r1", "hello")
    talk.delivered("alice", "r1", "bob")
    talk.delivered("alice", "r1", "bob", "carol")
    assert talk.wrong[4] == 1


def test_progress_is_followed_segment_by_segment(talk):
    message = talk.command("alice", "r1", "a file")
    about = {"request_id": "r1", "chunk_info": {"chunk_index": 0, "total_chunks": 4, "is_parity": False}}
    assert talk.line("alice", {"event": "sending-message", "type": "MessageSending", **about}) is None
    assert message.total_chunks == 4
    told = {"event": "message-acknowledged", "type": "MessageAcknowledged", "request_id": "r1", "total_chunks": 4}
    talk.line("alice", {**told, "chunks_acknowledged": [0, 2], "acknowledged_by": ["bob"]})
    happened = talk.line("alice", {**told, "chunks_acknowledged": [0, 1, 2], "acknowledged_by": ["carol"]})
    assert happened == (Happening.ACKNOWLEDGED, message)
    assert (message.chunks_acknowledged, message.acknowledged_by) == (3, {"bob", "carol"})
    error = {"type": "DeliveryError", "request_id": "r1", "detail": "retries are exhausted"}
    assert talk.line("alice", error) == (Happening.FAILED, message)
    assert talk.wrong == (2, 0, 0, 1, 0)


def test_lines_about_other_things_say_nothing(talk):
    talk.send("alice", "r1", "hello")
    assert talk.line("alice", {"event": "status", "type": "StatusChanged", "status": "synced"}) is None
    assert talk.line("bob", {"event": "accepted", "request_id": "r1", "outcome": None}) is None
    assert talk.line("alice", {"event": "accepted", "request_id": "stranger", "outcome": None}) is None
    assert talk.line("bob", {"type": "IrretrievableMessage", "message_id": "m1"}) is None
    assert talk.books.irretrievable == [("bob", "m1")]
