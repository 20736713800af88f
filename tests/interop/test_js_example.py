"""The js-waku programs of examples/js-waku and Python's, in one channel through a node."""

import asyncio
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

import fairway
from fairway.wire.envelope import ENVELOPE_PREFIX, Envelope, EnvelopeKind
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
def addresses(start):
    """The addresses of a node: over TCP, and over WebSocket."""
    node = start(sys.executable, "-c", "from fairway.cli import main; main()", "node", "--json")
    return json.loads(node.stdout.readline())["multiaddrs"]


@pytest.fixture
def javascript(start, js_folder):
    """Start a program of js with the words that follow its name on the command line."""
    for path in (ROOT / "examples" / "js-waku").glob("*.mjs"):
        shutil.copyfile(path, js_folder / path.name)
    return lambda *words: start(shutil.which("node"), "--import", "./polyfill.mjs", *words, cwd=js_folder)


@pytest.fixture
def people(start, addresses, javascript, tmp_path):
    """Both programs of the guide, each started by a call with the words that follow its name on the command line."""
    tcp, websocket = addresses
    (tmp_path / "team.py").write_text(
        re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0].replace(
            "/ip4/127.0.0.1/tcp/60000", tcp
        )
    )
    return (
        lambda *words: start(sys.executable, "team.py", *words),
        lambda *words: javascript("team.mjs", websocket, *words),
    )


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


@pytest.mark.full
def test_js_waku_answers_a_request_and_gets_the_reply_to_its_own(addresses, javascript):
    tcp, websocket = addresses

    async def ask():
        async with (
            fairway.connect(tcp) as node,
            fairway.create_reliable_channel(node, "team", "alice", "/fairway/1/team/proto") as alice,
        ):
            served = []

            def serve(request):
                served.append((request.sender_id, bytes(request), dict(request.headers)))
                return Envelope(b"ebb", content_type="text/plain", headers={"place": "Emden"})

            alice.on_request(serve)
            carol = javascript("requests.mjs", websocket, "carol", "alice", "which tide?")
            question = Envelope(b"who is on watch?", content_type="text/plain", headers={"trace": "42"})
            reply = await alice.request(question, to="carol", timeout=PATIENCE_S)
            wanted = ["reply: ebb text/plain", "asked: who is on watch? text/plain"]
            said = await asyncio.to_thread(says, carol, *wanted)
            # A request to a group, of which carol is no worker, arrives before the next request to her.
            for_workers = asyncio.ensure_future(alice.request(b"who works?", group="workers", timeout=PATIENCE_S))
            await asyncio.sleep(0)
            await alice.request(b"are you there?", to="carol", timeout=PATIENCE_S)
            assert not for_workers.done()
            for_workers.cancel()
            present = [member.sender_id for member in alice.members() if member.is_present]
            return reply, served, said, present

    reply, served, said, present = asyncio.run(ask())
    assert said
    assert present == ["carol"]
    assert reply.sender_id == "carol"
    assert json.loads(bytes(reply)) == {"from": "carol", "question": "who is on watch?"}
    assert (reply.content_type, reply.headers) == ("application/json", {"trace": "42"})
    assert served == [("carol", b"which tide?", {"from": "carol"})]


_READ_AND_WRITE_AGAIN = """
import { decode, encode } from "./envelope.mjs";
for (const word of process.argv.slice(1)) {
  const envelope = decode(Buffer.from(word, "hex"));
  console.log(envelope ? Buffer.from(encode(envelope)).toString("hex") : "none");
}
"""


@pytest.mark.full
def test_the_example_reads_and_writes_envelopes_as_fairway_does(javascript):
    envelopes = [
        Envelope(b""),
        Envelope(b"x" * 300, content_type="text/plain", headers={"": "", "a": "å", "b": "x" * 200, "__proto__": "1"}),
        *(
            Envelope(b"\x00\xff", kind=kind, to="bob", correlation_id="7 c", headers={"t": "1"})
            for kind in EnvelopeKind
            if kind <= EnvelopeKind.CLAIM
        ),
        Envelope(b"soon", kind=EnvelopeKind.REQUEST, expires_after_ms=3_155_760_000_000, group="workers"),
    ]
    unknown_field = envelopes[1].encode() + bytes.fromhex("7a0161")  # field 15
    payloads = [each.encode() for each in envelopes] + [unknown_field]
    others = [b"text", b"\xff", ENVELOPE_PREFIX + b"\x0a\x05ab", ENVELOPE_PREFIX + b"\x18\x63"]
    words = [payload.hex() for payload in payloads + others]
    written, _ = javascript("--input-type=module", "-e", _READ_AND_WRITE_AGAIN, "--", *words).communicate()
    assert written.split() == [each.encode().hex() for each in [*envelopes, envelopes[1]]] + ["none"] * len(others)
