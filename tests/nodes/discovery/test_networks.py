"""What is known of networks: the table of public ones, files of one's own, and what is remembered of peers."""

import json

import pytest

from fairway.errors import ConfigurationError
from fairway.libp2p.multiaddr import Multiaddr
from fairway.nodes.discovery.network import DEFAULT_NETWORK, Network, network_of, public_networks
from fairway.nodes.discovery.node_record import NodeRecord
from fairway.nodes.discovery.peer_memory import PeerMemory, peers_file
from fairway.nodes.light import LightOptions

PEER = "16Uiu2HAmQ9X2xDfPG3uL77V9piYDhjq14JhKCtcmNYsTMKNqrKCj"
ADDRESS = f"/ip4/192.0.2.7/tcp/60000/p2p/{PEER}"


@pytest.mark.parametrize("name", public_networks())
def test_every_public_network_has_a_source_and_a_way_in(name):
    network = network_of(name)
    assert network.source
    assert network.lists or network.records or network.peers
    assert all(NodeRecord.parse(text).relay_shards.cluster_id == network.cluster for text in network.records)


def test_the_waku_network_is_as_published():
    network = network_of(DEFAULT_NETWORK)
    assert (network.cluster, network.shards, network.max_message_bytes) == (1, 8, 153_600)
    assert (network.rln.epoch_s, network.rln.messages_per_epoch, network.rln.chain_id) == (600, 100, 59_141)


def test_a_file_describes_a_network(tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text(
        f"""
        source = "our wiki"
        cluster = 16
        shards = 1
        peers = ["{ADDRESS}"]
        name_servers = ["192.0.2.1:53"]
        [rln]
        epoch_s = 60
        messages_per_epoch = 5
        """
    )
    network = network_of(str(path))
    assert (network.cluster, network.shards, network.peers) == (16, 1, (ADDRESS,))
    assert (network.rln.epoch_s, network.rln.contract) == (60, None)


def test_an_unknown_network_is_named_with_those_that_are_known():
    with pytest.raises(ConfigurationError, match=r"'moon' is unknown; known are twn"):
        network_of("moon")


WRONG_FILES = {
    "no TOML": "cluster",
    "no cluster": 'source = "x"\npeers = []',
    "no way in": 'source = "x"\ncluster = 16',
    "a cluster out of range": f'source = "x"\ncluster = 65536\npeers = ["{ADDRESS}"]',
    "no shards": f'source = "x"\ncluster = 16\nshards = 0\npeers = ["{ADDRESS}"]',
    "a word that is unknown": f'source = "x"\ncluster = 16\nshard = 1\npeers = ["{ADDRESS}"]',
    "a cluster in words": f'source = "x"\ncluster = "one"\npeers = ["{ADDRESS}"]',
    "a peer without its id": 'source = "x"\ncluster = 16\npeers = ["/ip4/192.0.2.7/tcp/60000"]',
    "a peer that is no address": 'source = "x"\ncluster = 16\npeers = ["192.0.2.7:60000"]',
    "a record that is none": 'source = "x"\ncluster = 16\nrecords = ["enr:abc"]',
    "a list that is none": 'source = "x"\ncluster = 16\nlists = ["nodes.example.org"]',
    "a limit of nothing": (
        f'source = "x"\ncluster = 16\npeers = ["{ADDRESS}"]\n[rln]\nepoch_s = 0\nmessages_per_epoch = 1'
    ),
}


@pytest.mark.parametrize("text", WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_file_is_refused_with(text, tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"ours\.toml describes no network"):
        Network.load(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="describes no network"):
        network_of(str(tmp_path / "none.toml"))


def test_peers_and_lists_are_remembered(tmp_path):
    path = tmp_path / "made" / "peers.json"
    address = Multiaddr.parse(ADDRESS)
    PeerMemory(path, cluster_id=1).write([address], {"nodes.example.org": 7})
    assert PeerMemory(path, cluster_id=1).read() == ((address,), {"nodes.example.org": 7})
    assert [file.name for file in path.parent.iterdir()] == ["peers.json"]


DAMAGED = {
    "cut off": '{"cluster": 1, "pe',
    "of another kind": "[]",
    "with a wrong address": '{"cluster": 1, "peers": ["x"], "sequences": {}}',
    "of another network": json.dumps({"cluster": 2, "peers": [ADDRESS], "sequences": {}}),
    "no text": "\udcff",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_memory_is_not_used_that_is(text, tmp_path, caplog):
    path = tmp_path / "peers.json"
    path.write_text(text, errors="surrogateescape")
    assert PeerMemory(path, cluster_id=1).read() == ((), {})
    assert "is not used" in caplog.text


def test_a_memory_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    PeerMemory(tmp_path / "file" / "peers.json", cluster_id=1).write([], {})
    assert "no peers are remembered" in caplog.text


def test_each_network_has_a_memory_of_its_own(tmp_path):
    names = ["twn", "logos.test", "./a.toml", "./b.toml", "../twn"]
    files = {peers_file(tmp_path, name) for name in names}
    assert len(files) == len(names)
    assert {file.parent for file in files} == {tmp_path}


def test_options_for_another_cluster_are_refused():
    assert LightOptions().of_cluster(2).cluster_id == 2
    assert LightOptions(cluster_id=2).of_cluster(2).cluster_id == 2
    with pytest.raises(ConfigurationError, match="cluster 3"):
        LightOptions(cluster_id=3).of_cluster(2)
