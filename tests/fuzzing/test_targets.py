"""The fuzz targets without the fuzzer: they hold for real traffic and for some of what can become of it.

Inputs that once broke a promise are kept in `regressions`, in a folder of the target's name.
"""

from pathlib import Path
from random import Random

import pytest
from fuzz import ciphers, decoders, stacks
from fuzz.decoders import BrokenPromiseError
from fuzz.mutation import EXTREME_TAILS, mutate, mutate_blindly
from fuzz.targets import TARGETS
from fuzz.wire_fields import Field, bytes_field, read_fields, varint_field, write_fields
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import DecodeError
from fairway.options import Profile
from fairway.protocol.effects import Change, Persist
from fairway.protocol.encryption import AesGcm
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.stack import Stack
from fairway.wire.bloom import BloomParameters
from fairway.wire.sds import NIM_SDS, WAKU_SDS, ReceivedBloom

REGRESSIONS = sorted(path for path in (Path(__file__).parent / "regressions").glob("*/*") if path.is_file())
SEEDS_REPLAYED = 25
MUTANTS = 15

mutated_fields = st.builds(varint_field, st.integers(1, 1 << 20), st.integers(0, (1 << 64) - 1)) | st.builds(
    bytes_field, st.integers(1, 1 << 20), st.binary(max_size=300)
)


def check_all_seeds(name):
    for seed in TARGETS[name].seeds():
        TARGETS[name].check(seed)


@pytest.fixture(params=TARGETS.values(), ids=list(TARGETS))
def target(request):
    return request.param


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_broke_a_promise_does_not_any_more(path):
    TARGETS[path.parent.name].check(path.read_bytes())


def test_real_traffic_breaks_no_promise(target):
    seeds = list(target.seeds())
    assert seeds
    for seed in Random(1).sample(seeds, min(SEEDS_REPLAYED, len(seeds))):
        target.check(seed)


def test_traffic_that_was_tampered_with_breaks_no_promise(target):
    random = Random(2)
    seeds = list(target.seeds())
    for _ in range(MUTANTS):
        target.check(mutate(random.choice(seeds), target.max_input_bytes, random, mutate_blindly(random)))


def test_inputs_are_the_same_in_every_run(target):
    assert list(target.seeds()) == list(target.seeds())


def test_no_seed_is_longer_than_inputs_may_be(target):
    assert max(map(len, target.seeds())) <= target.max_input_bytes


# The targets notice what they are for


def test_a_decoder_that_raises_something_else_is_noticed():
    def careless(data):
        return data[0]

    with pytest.raises(IndexError):
        decoders.Decoder(name="careless", decode=careless, encode=bytes).check(b"")


def test_a_decoder_that_loses_something_is_noticed():
    decoder = decoders.Decoder(name="forgetful", decode=bytes.rstrip, encode=lambda value: value + b"!")
    with pytest.raises(BrokenPromiseError, match="forgetful"):
        decoder.check(b"x")


def test_a_decoder_may_refuse_and_a_value_may_be_refused_where_it_is_used():
    def refuse(_):
        raise DecodeError("no")

    decoders.Decoder(name="strict", decode=refuse, encode=bytes).check(b"x")
    decoders.Decoder(name="lazy", decode=bytes, encode=bytes, use=refuse).check(b"x")


def test_a_bloom_filter_that_is_shorter_than_it_says_is_noticed(monkeypatch):
    claims = BloomParameters(capacity=1, error_rate=0.1, hash_count=1, bit_count=1 << 40)
    monkeypatch.setattr(type(NIM_SDS), "read_bloom", lambda *_: ReceivedBloom(b"short", claims))
    with pytest.raises(IndexError):
        decoders.check_bloom(NIM_SDS, b"")


def test_an_altered_message_that_opens_is_noticed(monkeypatch):
    def without_a_check(_, encrypted):
        return encrypted[12:-16]

    monkeypatch.setattr(AesGcm, "decrypt", without_a_check)
    with pytest.raises(BrokenPromiseError):
        ciphers.check_ciphers(b"\x00\x20\x00\x01some payload that is long enough")


def test_a_reassembler_that_keeps_everything_is_noticed(monkeypatch):
    monkeypatch.setattr("fairway.protocol.segmentation.open_sets.OpenSets.full", lambda *_, **_options: None)
    with pytest.raises(BrokenPromiseError, match="more is held"):
        check_all_seeds("reassembly")


def test_rows_that_changed_untold_are_noticed(monkeypatch):
    make = Reassembler.__init__
    monkeypatch.setattr(Reassembler, "__init__", lambda self, config, form, _on_change: make(self, config, form))
    with pytest.raises(BrokenPromiseError, match="changed untold"):
        check_all_seeds("reassembly")


@pytest.mark.parametrize("profile", list(Profile), ids=lambda profile: profile.value)
def test_a_stack_that_raises_is_noticed(monkeypatch, profile):
    def raises(*_):
        raise KeyError("m1")

    monkeypatch.setattr(Stack, "receive", raises)
    codec = NIM_SDS if profile is Profile.LOGOS else WAKU_SDS
    with pytest.raises(KeyError):
        TARGETS[f"stack-{profile.value}"].check(write_fields([bytes_field(stacks.Step.SDS, codec.name.encode())]))


def test_a_delivery_that_comes_twice_is_noticed(monkeypatch):
    receive = Stack.receive
    monkeypatch.setattr(Stack, "receive", lambda *args: receive(*args) * 2)
    script = [bytes_field(stacks.Step.PEER_SENDS, b"hello"), varint_field(stacks.Step.ARRIVES, 0)]
    with pytest.raises(BrokenPromiseError, match="delivered twice"):
        TARGETS["stack-waku"].check(write_fields(script))


def test_a_change_that_is_not_persisted_is_noticed(monkeypatch):
    receive = Stack.receive

    def forgetful(*args):
        return tuple(effect for effect in receive(*args) if not isinstance(effect, Persist))

    monkeypatch.setattr(Stack, "receive", forgetful)
    script = [bytes_field(stacks.Step.PEER_SENDS, b"hello"), varint_field(stacks.Step.ARRIVES, 0)]
    with pytest.raises(BrokenPromiseError, match="not persisted"):
        TARGETS["stack-waku"].check(write_fields(script))


def test_what_is_kept_for_ever_is_noticed(monkeypatch):
    monkeypatch.setattr(Stack, "tick", lambda *_: ())
    script = [bytes_field(stacks.Step.SEND, b"nobody acknowledges")]
    with pytest.raises(BrokenPromiseError, match="sends have not ended"):
        TARGETS["stack-waku"].check(write_fields(script))


def test_a_row_that_no_store_could_hold_is_noticed(monkeypatch):
    receive = Stack.receive

    def careless(*args):
        return (*receive(*args), Persist(changes=(Change(table="history", key="m1", row=(1 << 64,)),)))

    monkeypatch.setattr(Stack, "receive", careless)
    script = [bytes_field(stacks.Step.PEER_SENDS, b"hello"), varint_field(stacks.Step.ARRIVES, 0)]
    with pytest.raises(BrokenPromiseError, match="no store"):
        TARGETS["stack-waku"].check(write_fields(script))


# Fields and what is changed about them


@given(st.lists(mutated_fields), st.sampled_from([b"", *EXTREME_TAILS[:4]]))
def test_fields_that_were_written_are_read_again_up_to_what_is_none(fields, tail):
    assert read_fields(write_fields(fields) + tail) == (fields, tail)


@given(st.binary(max_size=300))
def test_any_bytes_are_fields_and_a_rest_that_begins_none(data):
    fields, tail = read_fields(data)
    assert read_fields(write_fields(fields)) == (fields, b"")
    assert data.endswith(tail)


def test_fixed_size_fields_keep_their_bytes():
    data = b"\x09" + bytes(range(8)) + b"\x15" + bytes(range(4))
    assert read_fields(data) == ([Field(1, 1, bytes(range(8))), Field(2, 5, bytes(range(4)))], b"")
    assert write_fields(read_fields(data)[0]) == data


@given(st.lists(mutated_fields, min_size=1).map(write_fields), st.integers(0, 400), st.integers())
def test_a_mutation_is_repeatable_and_never_too_long(data, max_size, seed):
    def mutant():
        random = Random(seed)
        return mutate(data, max_size, random, mutate_blindly(random))

    assert mutant() == mutant()
    assert len(mutant()) <= max_size


def test_mutations_reach_into_nested_messages_and_change_numbers_to_extremes():
    nested = write_fields([bytes_field(1, write_fields([varint_field(2, 5), bytes_field(3, b"abc")]))])
    random = Random(3)
    seen = {mutate(nested, 1_000, random, mutate_blindly(random)) for _ in range(2_000)}
    outer = [field for data in seen for field in read_fields(data)[0] if field.number == 1]
    inner = [read_fields(field.value)[0] for field in outer if isinstance(field.value, bytes)]
    numbers = {field.value for fields in inner for field in fields if field.number == 2}
    assert {0, 1 << 63, (1 << 64) - 1} <= numbers
    assert any(len(fields) > 2 for fields in inner)
