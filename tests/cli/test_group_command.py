"""``fairway group``, and the option --group of the commands that open a channel."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from fairway import GroupKeys, Identity
from fairway.cli import app
from fairway.cli.send import send
from fairway.errors import ConfigurationError
from fairway.events import MessageReceived


@pytest.fixture
def fairway(tmp_path, monkeypatch):
    """Return what runs a command in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        result = CliRunner().invoke(app, [*words], env={"COLUMNS": "200"})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stdout

    return run


def test_a_member_that_the_commands_add_reads_what_is_sent(fairway, make_settings, tmp_path):
    keys = {name: fairway("identity", "new", f"{name}.key").strip() for name in ("alice", "bob")}
    group_id = fairway("group", "create", "team.group", "alice", "--identity", "alice.key").strip()
    fairway("group", "join", "bob.group", group_id, "--identity", "bob.key")
    shown = f"{keys['alice']} alice\n{keys['bob']} bob\n"
    added = fairway("group", "add", "team.group", "bob", keys["bob"], "--identity", "alice.key")
    assert added == f"group {group_id}, epoch 2, 2 members\n{shown}"

    async def work():
        alice, bob = (
            replace(make_settings(name), encryption=GroupKeys.load(tmp_path / file, Identity.load(f"{name}.key")))
            for name, file in (("alice", "team.group"), ("bob", "bob.group"))
        )
        async with bob.open() as (_, channel):
            events = channel.events()
            await channel.start()
            await send(alice, b"welcome")
            while not isinstance(event := await anext(events), MessageReceived):
                pass
            return event.payload

    assert asyncio.run(asyncio.wait_for(work(), 60)) == b"welcome"
    assert fairway("group", "show", "bob.group", "--identity", "bob.key") == added
    removed = fairway("group", "remove", "team.group", "bob", "--identity", "alice.key")
    assert removed == f"group {group_id}, epoch 3, 1 member\n{keys['alice']} alice\n"


def test_a_group_needs_an_identity_and_has_its_own_key(fairway):
    fairway("identity", "new", "alice.key")
    fairway("group", "create", "team.group", "alice", "--identity", "alice.key")
    channel = ("send", "--node", "local:", "--channel", "team", "--sender", "alice", "--group", "team.group", "hello")
    for more in ((), ("--identity", "alice.key", "--key-file", "a"), ("--identity", "alice.key", "--members", "a")):
        with pytest.raises(ConfigurationError, match="--group needs --identity"):
            fairway(*channel, *more)
