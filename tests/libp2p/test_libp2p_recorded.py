"""Whole connections between two peers of js-libp2p, recorded under the encryption and replayed against our cores.

Each side's bytes go to the core that would stand in the other's place, so that multistream-select, both muxers and
identify are held against what another maker really sends, in the order in which it sends it.
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.identify import IDENTIFY_PROTOCOL, decode_identify
from fairway.libp2p.multistream import MultistreamDialer, MultistreamListener, Negotiated
from fairway.libp2p.mux.mplex import Mplex
from fairway.libp2p.mux.muxer import DataReceived, RemoteWriteClosed, StreamOpened, StreamWasReset
from fairway.libp2p.mux.yamux import Yamux
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.ping import PING_PROTOCOL

FOLDER = Path(__file__).parents[1] / "vectors" / "libp2p"
CORES = {"yamux": ("/yamux/1.0.0", Yamux), "mplex": ("/mplex/6.7.0", Mplex)}
ECHO = "/recorded-echo/1"
MUXERS = pytest.mark.parametrize("muxer", CORES)
OTHER = {"dialer": "listener", "listener": "dialer"}


class Replay:
    """What each side of a recording said on each stream, as our cores understand it."""

    def __init__(self, muxer):
        self.record = json.loads((FOLDER / f"js_{muxer}.json").read_text())
        self.said = [(one["from"], bytes.fromhex(one["bytes"])) for one in self.record["said"]]
        self.protocol, core = CORES[muxer]
        self.negotiations = {
            "listener": MultistreamDialer([self.protocol]),
            "dialer": MultistreamListener({self.protocol}.__contains__),
        }
        # By who is heard: a core in the place of the other.
        self.cores = {
            "dialer": core(initiator=False),
            "listener": core(initiator=True),
        }
        self.names = {"dialer": {}, "listener": {}}
        self.opened_by = []
        self.bytes_of = defaultdict(bytes)
        self.ends = defaultdict(list)
        self.agreed = {}
        for who, data in self.said:
            self._hear(who, data)

    def _hear(self, who, data):
        if who not in self.agreed:
            negotiated = self.negotiations[who].receive_data(data)
            if negotiated is None:
                return
            self.agreed[who], data = negotiated.protocol, negotiated.leftover
        for event in self.cores[who].receive_data(data):
            match event:
                case StreamOpened(stream_id):
                    number = len(self.opened_by)
                    self.opened_by.append(who)
                    self.names[who][stream_id] = number
                    self.names[OTHER[who]][self.cores[OTHER[who]].open_stream()] = number
                case DataReceived(stream_id, piece):
                    self.bytes_of[self.names[who][stream_id], who] += piece
                case RemoteWriteClosed(stream_id) | StreamWasReset(stream_id):
                    self.ends[self.names[who][stream_id]].append((who, type(event)))

    def streams(self):
        """Yield who opened a stream, for what, and what the opener and the other said after that was agreed on."""
        for number, opener in enumerate(self.opened_by):
            asked, answered = self.bytes_of[number, opener], self.bytes_of[number, OTHER[opener]]
            listener = MultistreamListener({IDENTIFY_PROTOCOL, PING_PROTOCOL, ECHO}.__contains__)
            heard = listener.receive_data(asked)
            dialer = MultistreamDialer([heard.protocol])
            # What js-libp2p wrote here is, byte for byte, what we would have written.
            assert asked.startswith(dialer.data_to_send())
            assert answered.startswith(listener.data_to_send())
            agreed = dialer.receive_data(answered)
            assert agreed.protocol == heard.protocol
            yield opener, heard.protocol, heard.leftover, agreed.leftover


@MUXERS
def test_the_muxer_is_agreed_on_byte_for_byte_as_we_would(muxer):
    replay = Replay(muxer)
    assert replay.agreed == {"dialer": replay.protocol, "listener": replay.protocol}
    dialer, listener = MultistreamDialer([replay.protocol]), MultistreamListener({replay.protocol}.__contains__)
    said = {who: b"".join(data for one, data in replay.said if one == who) for who in OTHER}
    asked = dialer.data_to_send()
    assert said["dialer"].startswith(asked)
    assert listener.receive_data(asked) == Negotiated(replay.protocol, b"")
    assert said["listener"].startswith(listener.data_to_send())


@MUXERS
def test_every_stream_is_found_with_what_was_said_on_it(muxer):
    found = sorted((opener, protocol) for opener, protocol, _, _ in Replay(muxer).streams())
    assert found == [
        ("dialer", IDENTIFY_PROTOCOL),
        ("dialer", PING_PROTOCOL),
        ("dialer", ECHO),
        ("listener", IDENTIFY_PROTOCOL),
    ]


@MUXERS
def test_ping_and_echo_come_back_as_they_were(muxer):
    said = {protocol: (asked, answered) for _, protocol, asked, answered in Replay(muxer).streams()}
    assert said[ECHO] == (b"said twice", b"said twice")
    asked, answered = said[PING_PROTOCOL]
    assert len(asked) == 32
    assert asked == answered


@MUXERS
def test_identify_says_who_both_are(muxer):
    replay = Replay(muxer)
    infos = {}
    for opener, protocol, asked, answered in replay.streams():
        if protocol == IDENTIFY_PROTOCOL:
            assert asked == b""
            length, start = decode_uvarint(answered) or (0, 0)
            assert len(answered) == start + length
            speaker = OTHER[opener]
            peer_id = PeerId.parse(replay.record[speaker]["peer_id"])
            infos[speaker] = info = decode_identify(answered[start:], peer_id)
            assert info.agent.startswith("js-libp2p/")
    assert infos["listener"].protocols == {IDENTIFY_PROTOCOL, PING_PROTOCOL, ECHO}


@MUXERS
def test_both_sides_end_every_stream_in_good_order(muxer):
    replay = Replay(muxer)
    for number in range(4):
        assert sorted(replay.ends[number], key=str) == [("dialer", RemoteWriteClosed), ("listener", RemoteWriteClosed)]
