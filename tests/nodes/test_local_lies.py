"""A store that lies: each kind of false answer, now and then, and the truth when it is asked again."""

from __future__ import annotations

import random

import pytest

from fairway.nodes import StorePage, StoreQuery
from fairway.nodes.local import NO_FAULTS, LocalNetwork, NetworkFaults
from fairway.nodes.local.lies import Lie, false_page
from fairway.testing import virtual_time
from fairway.wire.waku_message import message_hash


class Chosen(random.Random):
    """Dice that fall on one lie."""

    def __init__(self, lie):
        super().__init__(3)
        self._lie = lie

    def choice(self, options):
        assert self._lie in options
        return self._lie


def told(say, lie, *, newest_first=False, cursor=None, more=b"more"):
    messages = tuple(say.message(number) for number in range(10))
    others = [*messages[:2], *(say.message(number) for number in (20, 30, 40, 50))]
    page = StorePage(messages=messages, cursor=more)
    query = StoreQuery(newest_first=newest_first)
    return messages, false_page(page, query, cursor, anything=lambda: others, dice=Chosen(lie))


def test_it_omits_some_messages_and_goes_on(say):
    messages, page = told(say, Lie.OMITS)
    assert 0 < len(page.messages) < 10
    assert set(page.messages) < set(messages)
    assert page.cursor == b"more"


@pytest.mark.parametrize(("newest_first", "kept"), [(False, slice(0, 5)), (True, slice(5, 10))])
def test_it_ends_before_the_end(say, newest_first, kept):
    messages, page = told(say, Lie.ENDS_EARLY, newest_first=newest_first)
    assert page == StorePage(messages=messages[kept])


@pytest.mark.parametrize(("newest_first", "first"), [(False, 0), (True, 9)])
def test_it_leads_back_to_where_it_was(say, newest_first, first):
    messages, page = told(say, Lie.REPEATS, newest_first=newest_first)
    assert page == StorePage(messages=messages, cursor=messages[first].message_hash)
    messages, page = told(say, Lie.REPEATS, newest_first=newest_first, cursor=b"here", more=None)
    assert page == StorePage(messages=messages, cursor=b"here")


def test_it_adds_what_nobody_asked_for(say):
    messages, page = told(say, Lie.ADDS)
    assert page.messages[:10] == messages
    assert len(set(page.messages[10:])) == 3
    assert set(page.messages[10:]) <= {say.message(number) for number in (20, 30, 40, 50)}


def test_it_gives_a_message_with_a_bit_turned_under_the_hash_that_was_asked_for(say):
    messages, page = told(say, Lie.FORGES)
    false = [given for given in page.messages if message_hash(given.pubsub_topic, given.message) != given.message_hash]
    assert len(false) == 1
    assert [given.message_hash for given in page.messages] == [message.message_hash for message in messages]


@pytest.mark.parametrize("lie", Lie)
def test_of_nothing_it_can_lie_too(lie):
    page = false_page(StorePage(messages=()), StoreQuery(), None, anything=lambda: (), dice=Chosen(lie))
    assert page == StorePage(messages=())


@virtual_time()
async def test_an_answer_may_end_early_and_the_next_one_to_such_a_query_does_not(say):
    with LocalNetwork(seed=2) as network:
        node = network.node("alice")
        for number in range(20):
            await node.send(say.message(number))
        network.faults = NetworkFaults(min_delay_ms=0, max_delay_ms=0, store_cuts=1.0)
        answers = [await node.query(say.query(page_size=10)) for _ in range(4)]
        assert [len(answer.messages) for answer in answers] == [5, 10, 5, 10]
        assert [answer.cursor is None for answer in answers] == [True, False, True, False]


@virtual_time()
async def test_a_further_page_may_lead_back_to_itself_and_the_next_one_leads_on(say):
    with LocalNetwork(seed=2) as network:
        node = network.node("alice")
        for number in range(40):
            await node.send(say.message(number))
        network.faults = NetworkFaults(min_delay_ms=0, max_delay_ms=0, store_circles=1.0)
        query = say.query(page_size=10)
        first = await node.query(query)
        again = await node.query(query, first.cursor)
        assert first.cursor is not None
        assert again.cursor == first.cursor
        third = await node.query(query, again.cursor)
        assert third.messages == again.messages
        assert third.cursor not in {None, first.cursor}


@virtual_time()
async def test_a_service_node_may_give_a_message_another_timestamp(say):
    with LocalNetwork(NetworkFaults(min_delay_ms=0, max_delay_ms=0, restamped=1.0), seed=2) as network:
        alice, bob = network.node("alice"), network.node("bob")
        said = say.message(1)
        heard = await bob.subscribe(said.pubsub_topic, [said.message.content_topic])
        assert (await alice.send(said)).accepted
        message = await anext(heard)
        assert message.is_genuine
        assert message.message.payload == said.message.payload
        assert message.message_hash != said.message_hash


@virtual_time()
async def test_of_a_hundred_answers_some_are_false_and_the_store_keeps_what_it_has(say):
    with LocalNetwork(seed=2) as network:
        node = network.node("alice")
        for number in range(20):
            await node.send(say.message(number))
        truth = await node.query(say.query())
        network.faults = NetworkFaults(min_delay_ms=0, max_delay_ms=0, store_lies=0.5)
        answers = [await node.query(say.query()) for _ in range(100)]
        network.faults = NO_FAULTS
        assert await node.query(say.query()) == truth
        false = [answer for answer in answers if answer != truth]
        # Some lies are the truth by chance.
        assert 25 <= len(false) <= network.statistics().queries_belied <= 65
