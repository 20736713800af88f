import asyncio
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dns_lists import dns_server, list_key, make_list, name_of, root_text, url_of
from fairway.errors import ConfigurationError, DecodeError
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.nodes.discovery import node_list
from fairway.nodes.discovery.name_servers import NameServers
from fairway.nodes.discovery.node_list import (
    NameServerError,
    NodeListError,
    NodeListReader,
    NodeListUrl,
    read_entry,
    read_root,
)
from fairway.nodes.discovery.node_record import NodeRecord

EXAMPLE = json.loads((Path(__file__).parents[2] / "vectors" / "discovery" / "node_list.json").read_text())
URL = NodeListUrl.parse(EXAMPLE["url"])
KEY = list_key()
DOMAIN = "nodes.example.org"
OWN = NodeListUrl.parse(url_of(KEY, DOMAIN))


def record(number):
    return str(NodeRecord.sign(IdentityKey.from_secret(number.to_bytes(32), KeyType.SECP256K1), sequence=1))


RECORDS = [record(number) for number in range(1, 12)]


def read(texts, url=OWN, *, invent=lambda _: None, reader=None, most=None):
    """Read a list through a real name server; return the records, the reader, and the names that were asked."""

    async def run():
        async with dns_server(texts, invent) as server:
            sequences = {} if reader is None else reader.sequences
            used = NodeListReader(NameServers([server.address]).texts, rng=random.Random(7), sequences=sequences)
            found = []
            async for one in used.read(url):
                found.append(str(one))
                if len(found) == most:
                    break
            return found, used, server.asked

    return asyncio.run(run())


def test_the_example_of_the_specification_is_read():
    texts = {URL.domain: EXAMPLE["root"]} | {f"{name}.{URL.domain}": text for name, text in EXAMPLE["entries"].items()}
    found, reader, _ = read(texts, URL)
    assert sorted(found) == sorted(text for text in EXAMPLE["entries"].values() if text.startswith("enr:"))
    assert reader.sequences == {URL.domain: 1}
    assert reader.faults == {"name server": 1}  # the list that it links to, which is nowhere


def test_the_url_of_a_list_names_its_key():
    assert URL.public_key.hex()[2:] == EXAMPLE["public_key"][2:66]
    assert str(URL) == EXAMPLE["url"]
    assert NodeListUrl.parse(EXAMPLE["entries"]["C7HRFPF3BLGF3YR4DY5KX3SMBE"]).domain == "morenodes.example.org"


def test_all_records_of_a_list_are_found_once():
    found, reader, asked = read(make_list(DOMAIN, KEY, [*RECORDS, RECORDS[0]]))
    assert sorted(found) == sorted(RECORDS)
    assert not reader.faults
    assert len(asked) == len(set(asked))


def test_no_more_is_looked_up_than_is_asked_for():
    _, _, asked = read(make_list(DOMAIN, KEY, RECORDS), most=1)
    assert len(asked) < len(RECORDS)


def test_lists_that_link_to_each_other_are_read_once_each():
    other_key, other = list_key(2), "more.example.org"
    texts = make_list(DOMAIN, KEY, RECORDS[:2], [url_of(other_key, other)])
    texts |= make_list(other, other_key, RECORDS[2:4], [str(OWN), url_of(other_key, other)])
    found, reader, asked = read(texts)
    assert sorted(found) == sorted(RECORDS[:4])
    assert not reader.faults
    assert len(asked) == len(set(asked))


def test_a_record_that_does_not_fit_into_a_datagram_comes_over_tcp():
    branch = "enrtree-branch:" + ",".join([name_of(RECORDS[0]), *(name_of(f"no {number}") for number in range(20))])
    texts = {
        DOMAIN: root_text(KEY, name_of(branch), name_of("enrtree-branch:")),
        f"{name_of(branch)}.{DOMAIN}": branch,
        f"{name_of(RECORDS[0])}.{DOMAIN}": RECORDS[0],
    }
    found, reader, _ = read(texts)
    assert found == [RECORDS[0]]
    assert reader.faults == {"name server": 21}


def test_an_endless_chain_of_lists_that_link_to_new_ones_ends():
    """The server makes a list of its own for every domain that is asked for, with a link to the next."""
    texts: dict[str, str] = {}

    def invent(name):
        number = int(name.split(".")[0].removeprefix("l"))
        texts.update(make_list(f"l{number}.org", KEY, [], [url_of(KEY, f"l{number + 1}.org")]))
        return texts[name]

    found, _, asked = read(texts, NodeListUrl.parse(url_of(KEY, "l0.org")), invent=invent)
    assert found == []
    assert sum(name.startswith("l") and name.count(".") == 1 for name in asked) == node_list.MAX_LISTS


def test_a_tree_that_is_too_large_to_read_ends(monkeypatch):
    monkeypatch.setattr(node_list, "MAX_LOOKUPS", 6)
    found, _, asked = read(make_list(DOMAIN, KEY, RECORDS))
    assert len(asked) == 6
    assert len(found) < len(RECORDS)


def test_a_name_that_stands_in_a_branch_many_times_is_looked_up_once():
    # What contains its own hash cannot be made, so the same few names again and again are the worst.
    loop = "enrtree-branch:" + ",".join([name_of(RECORDS[0])] * 50)
    texts = {
        DOMAIN: root_text(KEY, name_of(loop), name_of("enrtree-branch:")),
        f"{name_of(loop)}.{DOMAIN}": loop,
        f"{name_of(RECORDS[0])}.{DOMAIN}": RECORDS[0],
    }
    found, _, asked = read(texts)
    assert found == [RECORDS[0]]
    assert len(set(asked)) == 4


def test_a_wrong_record_costs_itself_only():
    text = RECORDS[0][:-1] + ("A" if RECORDS[0][-1] != "A" else "B")
    found, reader, _ = read(make_list(DOMAIN, KEY, [text, *RECORDS[1:5]]))
    assert sorted(found) == sorted(RECORDS[1:5])
    assert sum(reader.faults.values()) == 1


def test_an_entry_with_another_hash_costs_its_subtree_only():
    texts = make_list(DOMAIN, KEY, RECORDS[:3])
    texts[f"{name_of(RECORDS[1])}.{DOMAIN}"] = RECORDS[5]
    found, reader, _ = read(texts)
    assert sorted(found) == sorted([RECORDS[0], RECORDS[2]])
    assert reader.faults == {"hash": 1}


def test_a_link_among_the_records_and_a_record_among_the_links_are_left_out():
    link = url_of(list_key(2), "more.example.org")
    found, reader, _ = read(make_list(DOMAIN, KEY, [link, RECORDS[0]], [RECORDS[1]]))
    assert found == [RECORDS[0]]
    assert reader.faults == {"entry": 2}


def test_a_list_of_another_key_is_refused():
    with pytest.raises(NodeListError) as caught:
        read(make_list(DOMAIN, list_key(2), RECORDS))
    assert caught.value.fault == "signature"


def test_an_older_list_is_refused_and_the_same_one_is_not():
    _, reader, _ = read(make_list(DOMAIN, KEY, RECORDS, sequence=5))
    assert read(make_list(DOMAIN, KEY, RECORDS, sequence=5), reader=reader)[0]
    with pytest.raises(NodeListError) as caught:
        read(make_list(DOMAIN, KEY, RECORDS, sequence=4), reader=reader)
    assert caught.value.fault == "sequence"


ROOT = root_text(KEY, name_of("a"), name_of("b"), 3)
WRONG_ROOTS = {
    "other hashes": ROOT.replace("e=", "e=A", 1),
    "another version": ROOT.replace("v1", "v2"),
    "another sequence number": ROOT.replace("seq=3", "seq=4"),
    "a negative sequence number": ROOT.replace("seq=3", "seq=-3"),
    "no signature": ROOT.partition(" sig=")[0],
    "a short signature": ROOT[:-4],
    "something behind": ROOT + " x",
    "nothing": "",
}


@pytest.mark.parametrize("text", WRONG_ROOTS.values(), ids=WRONG_ROOTS)
def test_a_root_is_refused_with(text):
    assert read_root(ROOT, OWN).sequence == 3
    with pytest.raises(NodeListError):
        read_root(text, OWN)


WRONG_ENTRIES = ["", "enrtree-branch:short", "enrtree-branch:a,b", "enrtree://x@y", "text", "enr:", ROOT, "x" * 5000]


@pytest.mark.parametrize("text", WRONG_ENTRIES, ids=lambda text: text[:20] or "nothing")
def test_what_is_no_entry_is_refused(text):
    with pytest.raises(DecodeError):
        read_entry(text, name_of(text))


@given(st.text(max_size=200), st.text(max_size=60))
def test_any_text_is_an_entry_or_refused(text, name):
    for under in (name, name_of(text.encode("ascii", "replace").decode())):
        with pytest.raises(DecodeError):
            read_entry(text.encode("ascii", "replace").decode(), under)


WRONG_URLS = [
    "nodes.example.org",
    "enrtree://nodes.example.org",
    EXAMPLE["url"].replace("@", "@/"),
    EXAMPLE["url"].replace("AKP", "A"),
    EXAMPLE["url"].replace("AKP", "BKP"),
    EXAMPLE["url"] + ".." + "org",
    EXAMPLE["url"] + ".x" * 200,
]


@pytest.mark.parametrize("text", WRONG_URLS, ids=lambda text: text[:30])
def test_what_is_no_url_of_a_list_is_refused(text):
    with pytest.raises(NodeListError) as caught:
        NodeListUrl.parse(text)
    assert caught.value.fault == "URL"


@pytest.mark.parametrize("address", ["", "example.org", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", "[::1"])
def test_what_is_no_name_server_is_refused(address):
    with pytest.raises(ConfigurationError, match="name server"):
        NameServers([address])


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "[::1]", "[::1]:5353", "127.0.0.1:5353"])
def test_name_servers_have_addresses_with_or_without_a_port(address):
    assert NameServers([address])


def test_a_name_server_that_is_silent_is_an_error():
    async def run():
        loop = asyncio.get_running_loop()
        silent, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
        try:
            port = silent.get_extra_info("sockname")[1]
            with pytest.raises(NameServerError, match="no text"):
                await NameServers([f"127.0.0.1:{port}"], timeout_s=0.3).texts(DOMAIN)
        finally:
            silent.close()

    asyncio.run(run())
