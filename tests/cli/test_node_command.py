"""What the options of ``fairway node`` come to."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fairway.cli import app, node
from fairway.errors import ConfigurationError
from fairway.service import StoreSyncOptions


@pytest.fixture
def options_of(monkeypatch):
    def options(**given):
        served = []

        async def serve(settings, say):
            served.append(settings.options)

        monkeypatch.setattr(node, "serve", serve)
        words = [f"--{name}={value}" for name, values in given.items() for value in values or ()]
        words += [f"--{name}" for name, values in given.items() if values is None]
        CliRunner().invoke(app, ["node", *words], catch_exceptions=False)
        return served[0]

    return options


@pytest.mark.parametrize(
    ("given", "served", "count"),
    [
        ({}, tuple(range(8)), 8),
        ({"shards": [2]}, (0, 1), 2),
        ({"cluster": [16]}, tuple(range(8)), 8),
        ({"cluster": [16], "shard": [0]}, (0,), 1),
        ({"shard": [3]}, (3,), 8),
        ({"cluster": [16], "shard": [32, 64]}, (32, 64), 65),
        ({"cluster": [16], "shard": [0], "shards": [1]}, (0,), 1),
        ({"cluster": [16], "shard": [0, 1000], "shards": [0]}, (0, 1000), 0),
    ],
)
def test_the_node_serves_the_shards_that_are_named_or_all(options_of, given, served, count):
    options = options_of(**given)
    assert (options.shards, options.shard_count) == (served, count)


@pytest.mark.parametrize(("given", "kept_in"), [({}, "memory:"), ({"archive": ["none:"]}, None)])
def test_a_node_has_an_archive_unless_the_option_is_none(options_of, given, kept_in):
    assert options_of(**given).archive == kept_in


def test_a_node_synchronizes_its_archive_if_the_option_says_so(options_of):
    assert options_of().store_sync is None
    assert options_of(**{"store-sync": None}).store_sync == StoreSyncOptions(interval_s=300.0, range_s=3_600.0)
    given = {"store-sync": None, "store-sync-interval": [60], "store-sync-range": [7_200]}
    assert options_of(**given).store_sync == StoreSyncOptions(interval_s=60.0, range_s=7_200.0)
    with pytest.raises(ConfigurationError, match="need --store-sync"):
        options_of(**{"store-sync-range": [7_200]})


def test_a_shard_beyond_the_number_of_shards_is_refused(options_of):
    with pytest.raises(ConfigurationError, match=r"0\.\.1 in this cluster"):
        options_of(shard=[2], shards=[2])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tls-cert", "x"], "give --tls-cert and --tls-key"),
        (["--rest-tls-key", "x"], "give --rest-tls-cert and --rest-tls-key"),
    ],
)
def test_a_certificate_without_its_key_raises_with_the_names_of_the_options(words, told):
    result = CliRunner().invoke(app, ["node", *words])
    assert isinstance(result.exception, ConfigurationError)
    assert told in str(result.exception)
