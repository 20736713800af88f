"""What lies in ``deploy/`` fits the node of this tree: options, metrics, the steps of the image.

No container and no systemd runs here: docs/deploying.md says what that leaves untested.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from prometheus_client.parser import text_string_to_metric_families

from certificates import Authority
from fairway.cli import node as node_command
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.nodes.discovery.network import Network
from fairway.nodes.discovery.node_record import Capability, NodeRecord
from fairway.rln.membership_file import MembershipFile
from fairway.service.proof_gate import ProofGate
from fairway.service.rest import RestOptions
from fairway.wire.relay_shards import RelayShards
from nodes_in_threads import NodeInThread

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
BOARD = DEPLOY / "grafana" / "dashboards" / "node.json"
METRIC = re.compile(r"\b((?:fairway|process)_\w+)")
SELECTED = re.compile(r"\b((?:fairway|process)_\w+)\{([^}]*)\}")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPED = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
# Those that Prometheus itself adds.
OF_PROMETHEUS = {"instance", "job"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of each sample that a node has after some use; without fairway-rln it has none of RLN."""
    if find_spec("fairway_rln") is None:
        pytest.skip("fairway-rln is not installed: make rln")
    folder = tmp_path_factory.mktemp("node")
    group = MembershipFile.create(folder / "group.json")
    issued = Authority(folder).issue("localhost")
    peer = "/ip4/127.0.0.1/tcp/9/p2p/16Uiu2HAmPLe7Mzm8TsYUubgCAW1aJoeFScxrLj8ppHFivPo97bUZ"
    elsewhere = NodeRecord.sign(
        IdentityKey.generate(KeyType.SECP256K1),
        sequence=1,
        addresses=[],
        relay_shards=RelayShards(cluster_id=17, shards=frozenset({0})),
        capabilities=Capability.RELAY,
    )
    joined = Network(source="this test", cluster=16, shards=1, peers=(peer,), records=(str(elsewhere),))
    with NodeInThread(
        gate=lambda: ProofGate(group), network=joined, tls_cert=issued.certificate, tls_key=issued.key
    ) as served:
        big = {"message": {"payload": "AAAA" * 100_000, "contentTopic": "/a/1/b/c"}}
        refused = urllib.request.Request(
            f"{served.server.url}/lightpush/v3/message",
            json.dumps(big).encode(),
            {"Content-Type": "application/json"},
        )
        with pytest.raises(OSError, match="413"):
            urllib.request.urlopen(refused)
        with urllib.request.urlopen(f"{served.server.url}/metrics") as answer:
            text = answer.read().decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> list[tuple[str, str]]:
    """Every PromQL expression of the board and of the alert rules, with where it stands."""
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    of_board = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]
    of_alerts = [(rule["alert"], rule["expr"]) for group in read(ALERTS)["groups"] for rule in group["rules"]]
    variables = [(each["label"], each["definition"]) for each in board["templating"]["list"]]
    return [*of_board, *of_alerts, *variables]


@pytest.mark.parametrize(("place", "expression"), expressions(), ids=[place for place, _ in expressions()])
def test_the_dashboard_and_the_alert_rules_use_metrics_and_labels_of_a_node(metrics, place, expression):
    names = set(METRIC.findall(expression))
    assert names | ({"up"} & set(expression.split("{"))), place
    assert names <= set(metrics)
    for name, labels in SELECTED.findall(expression):
        assert set(LABEL.findall(labels)) <= metrics[name] | OF_PROMETHEUS
    for labels in GROUPED.findall(expression):
        for name in names:
            assert {label.strip() for label in labels.split(",")} <= metrics[name] | OF_PROMETHEUS


def test_the_page_about_deploying_has_each_alert():
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    alerts = [rule["alert"] for group in read(ALERTS)["groups"] for rule in group["rules"]]
    assert [alert for alert in alerts if f"`{alert}`" not in page] == []


# ---- options


def parser() -> Any:
    app = typer.Typer()
    app.command("node")(node_command.command)
    return typer.main.get_command(app)


def accepted(arguments: list[str]) -> dict[str, Any]:
    """Return what ``fairway node`` would get from arguments; fail unless it accepts them. Nothing is started."""
    context = parser().make_context("node", list(arguments))
    assert not context.args
    return dict(context.params)


def directives() -> dict[str, list[str]]:
    """The lines of the unit by directive, with continued lines joined."""
    text = (DEPLOY / "fairway-node.service").read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value.strip())
    return found


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def test_the_unit_starts_the_node_with_options_that_it_has():
    (start,) = directives()["ExecStart"]
    program, command, *arguments = shlex.split(start)
    assert (program, command) == ("/opt/fairway/bin/fairway", "node")
    values = {"${STATE_DIRECTORY}": "/var/lib/fairway", "${CREDENTIALS_DIRECTORY}": "/run/credentials/x"}
    for name, value in values.items():
        arguments = [argument.replace(name, value) for argument in arguments]
    arguments[arguments.index("/etc/fairway/node.toml")] = str(DEPLOY / "node.toml")
    given = accepted(arguments)
    assert (given["archive"], given["tcp_port"], given["network"]) == ("sqlite:messages.db", 60_000, "twn")
    assert str(given["rest_admin_token_file"]) == "/run/credentials/x/rest-admin-token"
    credentials = {line.partition(":")[0] for line in directives()["LoadCredential"]}
    assert credentials == {Path(argument).name for argument in arguments if argument.startswith("/run/credentials/")}


def test_the_file_of_options_has_only_options_of_the_node():
    known = {name.removeprefix("--") for parameter in parser().params for name in parameter.opts}
    text = (DEPLOY / "node.toml").read_text(encoding="utf-8")
    assert set(tomllib.loads(text)) <= known
    suggested = re.findall(r"^# ([\w-]+) = ", text, re.MULTILINE)
    assert set(suggested) <= known
    assert "rln" in suggested


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path):
    program = tmp_path / "fairway"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    unit = tmp_path / "fairway-node.service"
    text = (DEPLOY / "fairway-node.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/fairway/bin/fairway", str(program)), encoding="utf-8")
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    complaints = [line for line in verified.stderr.splitlines() if unit.name in line]
    assert (verified.returncode, complaints) == (0, [])


def test_the_node_of_compose_gets_options_that_it_has_and_all_files_are_there():
    composed = read(DEPLOY / "compose.yaml")
    node = composed["services"]["node"]
    given = accepted([re.sub(r"\$\{FAIRWAY_NETWORK:-(\w+)\}", r"\1", argument) for argument in node["command"]])
    # Without a token the API would be open to all containers and, by a published port, to this machine.
    assert given["rest_host"] == "0.0.0.0"
    assert {f"/run/secrets/{name}" for name in node["secrets"]} == {
        str(given["rest_token_file"]),
        str(given["rest_admin_token_file"]),
    }
    assert node["environment"]["FAIRWAY_TOKEN_FILE"] == str(given["rest_token_file"])
    for service in composed["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).exists() if source.startswith("./") else source in composed["volumes"]
        assert set(service.get("secrets", ())) <= set(composed["secrets"])
    assert (DEPLOY / node["build"]["context"] / node["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert {port.rpartition(":")[2] for port in node["ports"]} == set(dict(instructions())["EXPOSE"].split())
    # Only what other nodes and browsers need is open to other machines.
    published = [port for service in composed["services"].values() for port in service.get("ports", ())]
    assert [port for port in published if not port.startswith("127.0.0.1:")] == ["60000:60000", "8000:8000"]


def test_the_tokens_of_compose_are_files_that_git_does_not_see():
    composed = read(DEPLOY / "compose.yaml")
    # Compose refuses secrets of another kind for a container that is read-only.
    assert composed["services"]["node"]["read_only"]
    assert {secret["file"] for secret in composed["secrets"].values()} == {
        f"./secrets/{name}" for name in composed["secrets"]
    }
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/deploy/secrets/", "/deploy/.env"} <= set(ignored)


def test_prometheus_scrapes_the_node_of_compose_with_its_token():
    (job,) = read(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    composed = read(DEPLOY / "compose.yaml")
    assert job["static_configs"] == [{"targets": ["node:8645"]}]
    assert "--rest-port=8645" in composed["services"]["node"]["command"]
    assert job["authorization"]["credentials_file"] == "/run/secrets/rest-token"
    assert composed["services"]["prometheus"]["secrets"] == ["rest-token"]
    assert job["job_name"] in ALERTS.read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool")
def test_promtool_accepts_the_rules_and_their_tests_pass():
    for arguments in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            ["promtool", *arguments], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


# ---- the image


def healthcheck(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DEPLOY / "healthcheck.py")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_the_healthcheck_reports_whether_the_node_is_ready(tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n", encoding="utf-8")
    options = RestOptions(token=token.read_text(encoding="utf-8").strip())
    with NodeInThread(options) as served:
        ready = healthcheck(FAIRWAY_REST=served.server.url, FAIRWAY_TOKEN_FILE=str(token))
        assert (ready.returncode, ready.stdout) == (0, "READY\n")
        without = healthcheck(FAIRWAY_REST=served.server.url)
        assert without.returncode == 1
        assert "401" in without.stdout
    with NodeInThread(
        peers=("/ip4/127.0.0.1/tcp/9/p2p/16Uiu2HAmPLe7Mzm8TsYUubgCAW1aJoeFScxrLj8ppHFivPo97bUZ",)
    ) as served:
        alone = healthcheck(FAIRWAY_REST=served.server.url)
        assert (alone.returncode, alone.stdout) == (
            1,
            (
                "NOT_READY; No connected peers; Node has no relay peers to fullfill push requests; "
                "Relay is not ready, filter will not be able to sort out messages\n"
            ),
        )
    gone = healthcheck(FAIRWAY_REST="http://127.0.0.1:9", FAIRWAY_TOKEN_FILE=str(tmp_path / "nothing"))
    assert gone.returncode == 1
    assert gone.stdout.startswith("the node does not say how it is: ")


@pytest.mark.full
def test_the_steps_of_the_image_install_a_node_that_runs(tmp_path):
    """The RUN lines of the Dockerfile, in a virtual environment that has this one's packages in place of an index."""
    copied = [words.split() for name, words in instructions() if name == "COPY" and not words.startswith("--")]
    source = tmp_path / "src"
    for *names, target in copied[:2]:
        for name in names:
            goal = source / (name if target == "./" else target)
            goal.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, goal)
    built, installed = [words for name, words in instructions() if name == "RUN"]
    upgraded, _, built = built.partition(" && ")
    assert upgraded.split()[-3:] == ["--constraint", "constraints.txt", "pip"]
    pip = [sys.executable, "-m", "pip"]
    dist = tmp_path / "dist"
    wheel = shlex.split(built.strip().removeprefix("pip "))
    wheel[wheel.index("/dist")] = str(dist)
    place = wheel.index("--build-constraint")  # it is for an environment of the build's own, which needs an index
    del wheel[place : place + 2]
    subprocess.run([*pip, *wheel, "--no-build-isolation", "--quiet"], cwd=source, check=True)
    (made,) = dist.glob("fairway-*.whl")

    home = tmp_path / "image"
    venv.create(home, with_pip=False, symlinks=True)
    (site,) = home.glob("lib/python3*/site-packages")
    extras = re.search(r"\[([\w,]+)\]", installed)
    assert extras
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--target", str(site), str(made)], check=True)
    assert extras[1].split(",") == ["cli", "node", "postgresql"]
    here = next(path for path in map(Path, sys.path) if (path / "uvicorn").is_dir())
    # Not a .pth file: the one of this environment's editable fairway would be read with it.
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(map(str, (site, here))),
    }
    entry = json.loads(next(words for name, words in instructions() if name == "ENTRYPOINT"))
    given = json.loads(next(words for name, words in instructions() if name == "CMD"))
    state = tmp_path / "state"
    state.mkdir()
    given = ["0" if each.isdigit() else str(state) if each.startswith("/var/") else each for each in given]
    assert entry == ["fairway", "node"]
    with subprocess.Popen(
        [home / "bin" / "python", "-m", "fairway", "node", *given, "--json", "--until-stdin-closes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=state,
        env=environment,
        text=True,
    ) as running:
        assert running.stdin
        assert running.stdout
        said = json.loads(running.stdout.readline())
        assert Path(said["key"]).parent == state
        ready = healthcheck(FAIRWAY_REST=said["rest"])
        assert (ready.returncode, ready.stdout) == (0, "READY\n")
        running.stdin.close()
        assert "statistics" in json.loads(running.stdout.readline())
    assert running.returncode == 0
    assert (state / "messages.db").exists()
