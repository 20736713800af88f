"""Channels of the SDS tests, and words for what the tests do with them."""

import pytest

from fairway.options import Profile, RepairConfig, SdsConfig
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import DependenciesMissing, MessageReady
from fairway.wire.sds import HistoryEntry, SdsMessage

START = 1_700_000_000_000


def _new_channel(name, now_ms=START, *, profile=Profile.WAKU, repair=None, **options):
    """Make a channel whose filter is small, which is quick."""
    options = {"bloom_capacity": 300, "repair": RepairConfig(**(repair or {}))} | options
    return MessageChannel("ch", name, SdsConfig(**options), now_ms=now_ms, profile=profile)


def _send(channel, content, now_ms=START, hint=None):
    """Send a message."""
    message = channel.send(content, now_ms)
    channel.add_hint(message.message_id, hint)
    return message


def _a_message(message_id, *cited, sender="zoe", lamport=START, **fields):
    """Make a message of somebody who needs no channel, which cites ids or whole entries, and vouches without filter."""
    history = tuple(HistoryEntry(c) if isinstance(c, str) else c for c in cited)
    defaults = {"content": f"content of {message_id}".encode(), "vouches": not fields.get("bloom_filter")}
    fields = {**defaults, "causal_history": history, **fields}
    return SdsMessage(message_id=message_id, sender_id=sender, channel_id="ch", lamport_timestamp=lamport, **fields)


@pytest.fixture(scope="session")
def start():
    return START


@pytest.fixture(scope="session")
def new_channel():
    return _new_channel


@pytest.fixture(scope="session")
def send():
    return _send


@pytest.fixture(scope="session")
def a_message():
    return _a_message


@pytest.fixture(scope="session")
def next_deadline():
    """Return when a channel next has something to do."""

    def when(channel):
        times = (
            channel.dependencies.next_loss_at(),
            channel.repair.requests.next_at(),
            channel.repair.responses.next_at(),
        )
        return min((at for at in times if at is not None), default=None)

    return when


@pytest.fixture(scope="session")
def found():
    """Return the outcomes of one kind."""
    return lambda outcomes, kind: [outcome for outcome in outcomes if isinstance(outcome, kind)]


@pytest.fixture(scope="session")
def ready():
    """Return the ids of the messages that became ready, in order."""
    return lambda outcomes: [outcome.message.message_id for outcome in outcomes if isinstance(outcome, MessageReady)]


@pytest.fixture(scope="session")
def sweep_until():
    """Sweep the incoming buffer as often as a channel does, up to a time; return what happened at the end of it.

    Time that passes in one leap is not waited for.
    """

    def sweep(channel, from_ms, until_ms):
        outcomes = []
        for now_ms in (*range(from_ms, until_ms, 60_000), until_ms):
            outcomes = [o for o in outcomes if not isinstance(o, DependenciesMissing)] + channel.dependencies.sweep(
                now_ms
            )
        return outcomes

    return sweep
