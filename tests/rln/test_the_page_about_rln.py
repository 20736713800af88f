"""docs/rln.md: its commands and its program run as they stand there, and show no secret."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import fairway
from fairway.rln import RlnMembership
from fairway.rln.keystore import Keystore
from patience import PATIENCE_S, run

PAGE = Path(__file__).parents[2] / "docs" / "rln.md"
PASSWORD = "correct horse battery staple"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def shell(tmp_path, compiled):
    """What starts a command of the page in a folder of the test's own."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "FAIRWAY_RLN_PASSWORD": PASSWORD}

    def start(command: str, **more) -> subprocess.Popen[str]:
        words = shlex.split(command, comments=True)
        assert words[0] == "fairway"
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env={**environment, **more},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return out + err


@pytest.mark.full
def test_the_page_of_rln_is_true(tmp_path, shell):
    [commands], [program] = blocks("sh"), blocks("python")
    *preparing, serving = commands.splitlines()
    said = "".join(ended(shell(command)) for command in preparing)
    said += ended(shell("fairway rln create bob.keystore"))
    said += ended(shell("fairway rln register ours.json --keystore bob.keystore"))
    node = shell(serving.replace("60000", "0") + " --json --until-stdin-closes --no-rest")
    told = json.loads(node.stdout.readline())
    assert told["rln"] is True
    address = told["multiaddrs"][0]
    environment = {**os.environ, "FAIRWAY_NODE": address, "FAIRWAY_RLN_PASSWORD": PASSWORD}

    async def bob(alice: subprocess.Popen[str]) -> str:
        with RlnMembership.load(tmp_path / "bob.keystore", PASSWORD, tmp_path / "ours.json") as membership:
            assert PASSWORD not in repr(membership)
            async with (
                fairway.connect(address, rln=membership) as client,
                fairway.create_reliable_channel(client, "team", "bob", "/myapp/1/team/proto") as channel,
            ):
                heard = await asyncio.wait_for(anext(aiter(channel)), PATIENCE_S)
                assert (heard.sender_id, heard.payload) == ("alice", b"hello")
                return await asyncio.to_thread(ended, alice)

    alice = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    arguments = [Path(f"/proc/{process.pid}/cmdline").read_text(encoding="utf-8") for process in (alice, node)]
    answer = run(bob(alice))
    assert "bob" in answer
    said += answer + "".join(arguments) + ended(node)
    for name in ("alice", "bob"):
        identity = Keystore(tmp_path / f"{name}.keystore").membership(PASSWORD).identity
        for secret in (identity.secret, identity.trapdoor, identity.nullifier):
            assert secret.hex() not in said
        assert identity.commitment.hex() in said
    assert PASSWORD not in said
