"""``fairway node --rln`` as an operator runs it: its own membership, the file of double signals, and wrong options."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import stat
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from chain_node import ADDRESS, CHAIN_ID, ChainNode, status
from chain_node import serving as chain_serving
from fairway.cli import app
from fairway.errors import ConfigurationError, WrongPasswordError
from fairway.nodes.proving import with_proof
from fairway.nodes.rest.shapes import PushRequest, json_of, relay_shape
from fairway.rln.contract import ContractMembership
from fairway.rln.identity import RlnIdentity
from fairway.rln.keystore import Keystore, KeystoreMembership
from fairway.rln.membership import RlnMembership, ids_beside
from fairway.rln.membership_file import MembershipFile
from fairway.rln.message_ids import MessageIds
from fairway.rln.proof import SignalProof
from patience import PATIENCE_S, until

PASSWORD = "correct horse"


@pytest.fixture
def keystore(harbour):
    """A keystore with the identity 2, as ``fairway rln create`` makes it."""
    path = harbour.folder / "node.keystore"
    Keystore.create(path, [KeystoreMembership(identity=harbour.identities[2])], PASSWORD)
    MessageIds.create(ids_beside(path), first_epoch=0).close()
    return path


@contextmanager
def node_process(state, *options, **environment):
    """A node process; yields what it says first."""
    command = [sys.executable, "-m", "fairway", "node", "--json", "--until-stdin-closes", "--state", str(state)]
    process = subprocess.Popen(
        [*command, *map(str, options)],
        env={**os.environ, "FAIRWAY_RLN_PASSWORD": PASSWORD, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.communicate(timeout=PATIENCE_S)


def serving(harbour, *options):
    """A node process that asks for proofs of the members of a file."""
    network = ("--cluster", "16", "--shards", "1", "--rln", harbour.group)
    return node_process(harbour.folder / "state", *network, *options)


def ask(url, body=None):
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


def pushed(routed):
    return json_of(PushRequest(message=relay_shape(routed.message), pubsub_topic=routed.pubsub_topic))


def test_a_node_with_a_membership_proves_what_its_rest_api_publishes(harbour, keystore):
    bare = {"payload": base64.b64encode(b"hello").decode(), "contentTopic": harbour.topic}
    relay = "/relay/v1/messages/%2Fwaku%2F2%2Frs%2F16%2F0"
    with serving(harbour, "--rln-keystore", keystore) as told:
        assert ask(f"{told['rest']}{relay}", json.dumps(bare).encode()) == "OK"
        [kept] = json.loads(ask(f"{told['rest']}{relay}"))
    proof = SignalProof.decode(base64.b64decode(kept["proof"]))
    with MessageIds(ids_beside(keystore)) as ids:
        assert ids.used(harbour.identities[2].commitment, proof.epoch) == 1


@pytest.mark.full
def test_commands_with_a_membership_send_and_others_get_an_error(harbour, keystore):
    def send(*words):
        options = ["--node", told["multiaddrs"][0], "--channel", "team", "--sender", "alice", "--wait", "sent"]
        environment = {"FAIRWAY_RLN_PASSWORD": PASSWORD}
        return CliRunner().invoke(app, ["send", *options, *map(str, words), "hello"], env=environment)

    poor = harbour.folder / "poor.keystore"
    identity = RlnIdentity.create()
    Keystore.create(poor, [KeystoreMembership(identity=identity)], PASSWORD)
    MessageIds.create(ids_beside(poor), first_epoch=0).close()
    MembershipFile(harbour.group).register(identity.commitment, 1)
    with node_process(harbour.folder / "state", "--rln", harbour.group, "--no-rest") as told:
        proven = send("--rln", harbour.group, "--rln-keystore", keystore)
        assert proven.exit_code == 0, proven.output
        refused = send("--timeout", "3")
        assert refused.exit_code == 1
        assert "within 3 s: " in refused.output
        assert "no RLN proof" in refused.output
        # What an earlier process used up is known only later, and said all the same.
        assert send("--rln", harbour.group, "--rln-keystore", poor).exit_code == 0
        late = send("--timeout", "3", "--rln", harbour.group, "--rln-keystore", poor)
        assert late.exit_code == 1
        assert re.search(r"the rate limit is\s+used\s+up,\s+and\s+allows\s+more\s+at\s+about", late.output)
        half = send("--rln", harbour.group)
        assert isinstance(half.exception, ConfigurationError)
        assert "--rln-keystore FILE" in str(half.exception)


@pytest.mark.full
def test_a_double_signal_is_a_line_in_the_slash_log(harbour):
    log = harbour.folder / "slashed.jsonl"
    doubles = [
        asyncio.run(with_proof(harbour.membership(1, name), harbour.message(name.encode()))) for name in ("one", "two")
    ]
    with serving(harbour, "--rln-slash-log", log) as told:
        ask(f"{told['rest']}/lightpush/v3/message", pushed(doubles[0]))
        with pytest.raises(urllib.error.HTTPError, match="420"):
            ask(f"{told['rest']}/lightpush/v3/message", pushed(doubles[1]))
        asyncio.run(until(lambda: log.stat().st_size))
    [line] = log.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["identity_secret"] == harbour.identities[1].secret.hex()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.full
def test_a_node_process_knows_the_members_that_a_contract_has(harbour, keystore):
    def proven(number):
        group = ContractMembership(chain.url, ADDRESS, timeout_s=PATIENCE_S)
        ids = harbour.folder / f"contract-{number}.ids"
        with RlnMembership.open(harbour.identities[number], group, ids, never_used=True) as membership:
            return asyncio.run(with_proof(membership, harbour.message(b"of %d" % number)))

    def push(routed):
        ask(f"{told['rest']}/lightpush/v3/message", pushed(routed))

    def passes(routed):
        try:
            push(routed)
        except urllib.error.HTTPError as error:
            if error.code not in {420, 505}:
                raise
            return False
        return True

    of_a_file = asyncio.run(with_proof(harbour.membership(3), harbour.message(b"of another group")))
    bare = json.dumps({"payload": base64.b64encode(b"own").decode(), "contentTopic": harbour.topic}).encode()
    relay = "/relay/v1/messages/%2Fwaku%2F2%2Frs%2F16%2F0"
    described = harbour.folder / "ours.toml"
    with (
        chain_serving(ChainNode()) as chain,
        node_process(harbour.folder / "other", "--cluster", "16", "--shards", "1", "--no-rest") as other,
    ):
        for number in (0, 2):
            chain.register(harbour.identities[number].commitment, 7)
        described.write_text(
            f'source = "a test"\ncluster = 16\nshards = 1\npeers = ["{other["multiaddrs"][0]}"]\n'
            f'[rln]\nepoch_s = 600\nmessages_per_epoch = 7\nchain_id = {CHAIN_ID}\ncontract = "{ADDRESS}"\n',
            encoding="utf-8",
        )
        of_contract = ("--network", described, "--rln", "contract", "--rln-keystore", keystore)
        with node_process(harbour.folder / "state", *of_contract, FAIRWAY_RLN_RPC=chain.url) as told:
            member = proven(0)
            asyncio.run(until(lambda: passes(member)))  # which needs the other node as a relay peer
            assert ask(f"{told['rest']}{relay}", bare) == "OK"
            assert not passes(of_a_file)
            chain.register(harbour.identities[1].commitment, 7)
            newcomer, late = proven(1), proven(0)
            asyncio.run(until(lambda: passes(newcomer)))
            chain.raw = status(503)
            assert passes(late)  # the roots that were known stay in force
            failed = "fairway_rln_group_refreshes_failed_total"
            asyncio.run(until(lambda: not passes(of_a_file) and f"{failed} 0.0" not in ask(f"{told['rest']}/metrics")))


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (["--rln-slash-log", "x"], ConfigurationError, "need --rln"),
        (["--rln", "contract"], ConfigurationError, "needs --network"),
        (["--rln", "contract", "--network", "twn"], ConfigurationError, "FAIRWAY_RLN_RPC"),
        (["--rln", "{short}", "--network", "twn"], ConfigurationError, "epochs of 600000 ms"),
        (["--rln", "{group}", "--rln-keystore", "{keystore}"], WrongPasswordError, "password"),
    ],
)
def test_invalid_options_stop_the_command_before_the_node_starts(harbour, keystore, options, error, says):
    short = harbour.folder / "short.json"
    CliRunner().invoke(app, ["rln", "group", str(short), "--create", "--epoch-ms", "60000"])
    places = {"group": harbour.group, "keystore": keystore, "short": short}
    words = [word.format(**places) for word in options]
    result = CliRunner().invoke(
        app, ["node", "--no-rest", *words], env={"FAIRWAY_RLN_PASSWORD": "wrong", "FAIRWAY_RLN_RPC": None}
    )
    assert isinstance(result.exception, error)
    assert says in str(result.exception)


@pytest.mark.parametrize(
    "command", [["node", "--no-rest", "--rln", "group.json"], ["rln", "create", "alice.keystore"]], ids=["node", "rln"]
)
def test_without_the_compiled_package_a_command_names_the_extra(tmp_path, command):
    group = {"format": "fairway-rln-group", "version": 1, "identifier": "rln/x", "epoch_ms": 600_000, "members": []}
    (tmp_path / "group.json").write_text(json.dumps(group), encoding="utf-8")
    without = f"import sys; sys.modules['fairway_rln'] = None; sys.argv = ['fairway', *{command!r}]; "
    ran = subprocess.run(
        [sys.executable, "-c", f"{without}from fairway.cli import main; main()"],
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "FAIRWAY_RLN_PASSWORD": PASSWORD},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    assert "RLN needs fairway_rln, which is not installed: pip install 'fairway[rln]'" in ran.stderr
    assert "Traceback" not in ran.stderr
