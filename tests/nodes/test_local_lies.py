"""A store that lies: each kind of false answer, now and then, and the truth when it is asked again."""

from __future__ import annotations

from fairway.nodes.local import NO_FAULTS, LocalNetwork, NetworkFaults
from fairway.testing import virtual_time


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
