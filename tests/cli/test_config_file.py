"""``fairway node --config FILE``: every option of the command in a file, and what is wrong with a file."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from fairway.cli import app, main, node


@pytest.fixture
def started(monkeypatch):
    """Run the command, and return the settings with which it would serve."""

    def start(*words):
        served = []

        async def serve(settings, say):
            served.append(settings)

        monkeypatch.setattr(node, "serve", serve)
        result = CliRunner().invoke(app, ["node", *map(str, words)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return served[0]

    return start


@pytest.fixture
def config(tmp_path):
    def write(text):
        file = tmp_path / "node.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


EVERYTHING = """
json = true
until-stdin-closes = true
tcp-port = 60000
ws-port = 8000
ws-origin = ["https://a.example.org", "https://b.example.org"]
host = "0.0.0.0"
tls-cert = "chain.pem"
tls-key = "key.pem"
tls-ca = "authority.pem"
announce = "/dns4/node.example.org/tcp/8000/tls/ws"
key-file = "node.key"
state = "state"
rest-port = 8645
rest-host = "::1"
rest-token-file = "{token}"
rest-admin-token-file = "{admin}"
rest-origin = ["*"]
no-rest = false
peer = ["/ip4/192.0.2.7/tcp/60000"]
cluster = 16
shards = 2
shard = [1]
archive = "sqlite:messages.db"
keep = "12h"
keep-size = "20GB"
requests-per-second = 1.5
max-connections = 100
max-connections-per-ip = 50
loss = 0.25
seed = 7
"""


def test_a_file_has_every_option_of_the_command(started, config, tmp_path):
    for name in ("token", "admin"):
        (tmp_path / name).write_text(f"{name}-0123456789abcdef")
    text = EVERYTHING.format(token=tmp_path / "token", admin=tmp_path / "admin")
    settings = started("--config", config(text))
    options, rest = settings.options, settings.rest
    assert (settings.as_json, settings.until_stdin_closes) == (True, True)
    assert (options.host, options.tcp_port, options.ws_port) == ("0.0.0.0", 60_000, 8_000)
    assert options.ws_origins == ("https://a.example.org", "https://b.example.org")
    assert list(map(str, (options.tls_cert, options.tls_key, options.tls_ca_file))) == [
        "chain.pem",
        "key.pem",
        "authority.pem",
    ]
    assert options.announce == ("/dns4/node.example.org/tcp/8000/tls/ws",)
    assert (str(settings.key), str(settings.state)) == ("node.key", "state")
    assert (rest.port, rest.host, rest.allowed_origins) == (8_645, "::1", ("*",))
    assert (rest.token, rest.admin_token) == ("token-0123456789abcdef", "admin-0123456789abcdef")
    assert (options.cluster_id, options.shard_count, options.shards) == (16, 2, (1,))
    assert options.peers == ("/ip4/192.0.2.7/tcp/60000",)
    assert (options.archive, options.retention.max_age_s) == ("sqlite:messages.db", 43_200.0)
    assert options.retention.max_bytes == 20_000_000_000
    assert (options.request_rate.per_second, options.request_rate.burst) == (1.5, 3)
    assert (options.host_limits.max_connections, options.host_limits.max_connections_per_ip) == (100, 50)
    assert (options.loss, options.seed) == (0.25, 7)


def test_the_command_line_takes_precedence_over_the_file(started, config):
    file = config('tcp-port = 60000\nws-port = 8000\npeer = ["/ip4/192.0.2.7/tcp/1"]\narchive = "sqlite:a.db"')
    settings = started("--config", file, "--tcp-port", 60001, "--peer", "/ip4/192.0.2.8/tcp/2")
    options = settings.options
    assert (options.tcp_port, options.ws_port, options.archive) == (60_001, 8_000, "sqlite:a.db")
    assert options.peers == ("/ip4/192.0.2.8/tcp/2",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tcp-prot = 60000", "there is no option 'tcp-prot'; did you mean 'tcp-port'?"),
        ("tcp_port = 60000", "there is no option 'tcp_port'; did you mean 'tcp-port'?"),
        ("zzz = 1", "there is no option 'zzz'"),
        ('config = "other.toml"', "there is no option 'config'"),
        ("[node]\ntcp-port = 1", "there is no option 'node'"),
        ("tcp-port = [1, 2]", "tcp-port takes one value, not a list"),
        ("tcp-port = true", "tcp-port takes a text or a number, not True"),
        ("host = 1979-05-27", "host takes a text or a number"),
        ('json = "yes"', "json is true or false, not 'yes'"),
        ("peer = [[1]]", "peer takes a text or a number or a list, not [1]"),
        ("tcp-port = ", "is not a TOML file"),
        ("\udcff", "is not a TOML file"),
        ('archive = "elsewhere:"', "'elsewhere:' is no archive"),
    ],
)
def test_a_wrong_file_raises_with_the_reason(monkeypatch, tmp_path, capsys, text, words):
    file = tmp_path / "node.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["fairway", "node", "--config", str(file)])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert words in said
    assert "see 'fairway node --help'" in said


@pytest.mark.parametrize("text", ['tcp-port = "many"', "tcp-port = 1.5", "tcp-port = 65536"])
def test_a_value_is_refused_as_on_the_command_line(config, text):
    result = CliRunner().invoke(app, ["node", "--config", str(config(text))], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "Invalid value for '--tcp-port'" in result.output


def test_a_missing_file_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["fairway", "node", "--config", str(tmp_path / "none.toml")])
    with pytest.raises(SystemExit):
        main()
    assert "none.toml cannot be read (No such file or directory)" in capsys.readouterr().err
