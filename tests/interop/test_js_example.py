"""The programs that a reader of the guide starts, js-waku's and Python's, in one channel through a node."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
_QUESTION = "who is on watch?"


@pytest.fixture
def start(tmp_path):
    """Start programs whose output is text; none of them outlives the test."""
    with ExitStack() as running:

        def start(*command, cwd=tmp_path, **environment):
            process = running.enter_context(
                subprocess.Popen(
                    list(map(str, command)),
                    cwd=cwd,
                    env=os.environ | environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            running.callback(process.kill)
            too_late = threading.Timer(PATIENCE_S, process.kill)
            too_late.start()
            running.callback(too_late.cancel)
            return process

        yield start


@pytest.fixture
def people(start, js_folder, tmp_path):
    """Both programs, each started by a call with the words that follow its name on the command line."""
    shutil.copyfile(ROOT / "examples" / "js-waku" / "team.mjs", js_folder / "team.mjs")
    node = start(sys.executable, "-c", "from fairway.cli import main; main()", "node", "--json")
    tcp, websocket = json.loads(node.stdout.readline())["multiaddrs"]
    (tmp_path / "team.py").write_text(
        re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0].replace(
            "/ip4/127.0.0.1/tcp/60000", tcp
        )
    )

    def javascript(*words):
        command = [shutil.which("node"), "--import", "./polyfill.mjs", "team.mjs", websocket, *words]
        return start(*command, cwd=js_folder)

    return lambda *words: start(sys.executable, "team.py", *words), javascript


def says(process, *beginnings):
    """Return whether a program says lines that begin so, in any order, before it ends."""
    missing = set(beginnings)
    for line in process.stdout:
        missing -= {beginning for beginning in missing if line.startswith(beginning)}
        if not missing:
            return True
    return False


@pytest.mark.full
def test_js_waku_answers_a_question_of_python(people):
    python, javascript = people
    carol = javascript("carol")
    alice = python("alice", _QUESTION)
    assert alice.communicate(timeout=PATIENCE_S)[0] == "delivered to carol\n"
    assert alice.returncode == 0
    assert says(carol, f"in the channel: {_QUESTION}", "in the channel: I am", "acknowledged")


@pytest.mark.full
def test_python_answers_a_question_of_js_waku(people):
    python, javascript = people
    bob = python("bob")
    carol = javascript("carol", _QUESTION)
    assert bob.communicate(timeout=PATIENCE_S)[0] == f"carol says {_QUESTION}\n"
    assert bob.returncode == 0
    assert says(carol, "in the channel: I am", "acknowledged")
