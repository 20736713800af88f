"""The two models of js-waku that replaying its records needs: its collation and its string hash."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.blooms import check_bloom, check_bloom_error
from tests.conformance.cases import case_list
from tests.conformance.collation import collation_key, history_key
from tests.conformance.js_hash import js_hash_n

from fairway.errors import ConfigurationError
from fairway.wire.bloom import murmur_base_hashes

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126))


def test_printable_ascii_stands_in_the_order_of_the_cldr_root():
    printable = [character for character in map(chr, range(32, 127)) if not character.isalnum()]
    assert "".join(sorted(printable, key=collation_key)) == " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$"
    assert sorted("bB1aA0", key=collation_key) == ["0", "1", "a", "A", "b", "B"]


def test_case_decides_only_where_nothing_else_differs():
    texts = ["AB", "aaa", "Ab", "AAA", "a-b", "aB", "ab", "a b"]
    assert sorted(texts, key=collation_key) == ["a b", "a-b", "aaa", "AAA", "ab", "aB", "Ab", "AB"]


@given(PRINTABLE, PRINTABLE)
def test_different_texts_have_different_keys(one: str, other: str):
    assert (collation_key(one) == collation_key(other)) == (one == other)


@pytest.mark.parametrize("text", ["é", "\n", "a\u0301", "\x7f"])
def test_other_characters_are_refused(text: str):
    with pytest.raises(ConfigurationError, match="printable ASCII"):
        collation_key(text)


@given(st.lists(st.tuples(st.integers(0, 10**16 - 1), st.text("0123456789abcdef", max_size=64))))
def test_for_hex_ids_and_times_of_this_age_the_order_is_fairways_own(stamped: list[tuple[int, str]]):
    assert sorted(stamped, key=lambda one: history_key(*one)) == sorted(stamped)


def test_a_timestamp_longer_than_its_padding_sorts_by_its_leading_digits():
    assert history_key(10**16, "a") < history_key(2 * 10**15, "a")


@given(st.text(string.printable), st.integers(0, 9), st.integers(1, 200_000))
def test_for_ascii_the_string_hash_is_that_of_the_wire(text: str, n: int, below: int):
    a, b = murmur_base_hashes(text)
    assert js_hash_n(text, n, below) == (a % below + n * (b % below)) % below


def test_sums_past_31_bits_and_a_bound_of_zero_are_errors_there():
    assert js_hash_n("hello", 5, 0x7FFFFFFF) is None
    assert js_hash_n("hello", 0, 0) is None


@pytest.mark.parametrize(
    ("label", "result"),
    [
        ("kHashes 12 / 0.5", "ok"),
        ("kHashes 0", "ok"),
        ("kHashes 99", "Error: K must be <= 12"),
        ("kHashes 3 / 1e-4", "Error: Specified value of k and error rate not achievable"),
        ("capacity 50, errorRate 0.2", "ok"),
        ("fromBytes empty", "RangeError: out of bounds"),
        ("fromBytes exact", "ok"),
    ],
)
def test_labels_of_filters_are_understood_in_general(label: str, result: str):
    assert all(check.ok for check in case_list(check_bloom_error)([{"label": label, "result": result}]))


@pytest.mark.parametrize(
    ("label", "result", "said"),
    [
        ("kHashes 13", "ok", "None expected"),
        ("kHashes 2 / 1e-5", "Error: K must be <= 12", "True expected"),
        ("fromBytes longer", "RangeError: x", "got a filter"),
        ("fromBytes sideways", "ok", "is not understood"),
        ("a strange thing", "ok", "is not understood"),
        ("kHashes 13", "perhaps", "neither"),
    ],
)
def test_a_wrong_result_or_an_unknown_label_is_a_failure_that_says_so(label: str, result: str, said: str):
    checks = case_list(check_bloom_error)([{"label": label, "result": result}])
    failures = [check.detail for check in checks if not check.ok]
    assert any(said in failure for failure in failures)


def bloom_case(**changes: object) -> dict[str, object]:
    case: dict[str, object] = {
        "options": {"capacity": 10, "errorRate": 0.01, "kHashes": 4, "forceNBitsPerElem": 20},
        "totalBits": 200,
        "kHashes": 4,
        "words": 4,
        "byteLength": 32,
        "inserted": [],
        "n": 0,
        "bytes_sha256": "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925",
        "set_bits": 0,
        "hashes_of_first": [],
        "lookup_present_all": True,
        "absent_rule": "sha256hex(utf8('x'+i)) for i in 0..3",
        "absent_false_positive_indices": [],
        "roundtrip_equal": True,
    }
    return case | changes


def test_bits_per_element_can_be_forced():
    assert [check for check in case_list(check_bloom)([bloom_case()]) if not check.ok] == []


@pytest.mark.parametrize(
    "rule", ["sha1hex(i)", "sha256hex(utf8('x'+i)) for i in 0..n-1", "sha256hex(utf8('x'+i)) for i in 0..99999999"]
)
def test_a_rule_for_ids_that_is_not_understood_is_a_failure(rule: str):
    failures = [check.detail for check in case_list(check_bloom)([bloom_case(absent_rule=rule)]) if not check.ok]
    assert any("is not understood" in failure for failure in failures)
