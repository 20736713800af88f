"""Known answers about bloom filters and the string hash under them (Waku wire), as js-waku and Nim gave them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from tests.conformance.cases import Case, MalformedCaseError, replay_cases, same
from tests.conformance.js_hash import js_hash_n
from tests.conformance.report import Check

from fairway.errors import ConfigurationError
from fairway.wire.bloom import BloomFilter, BloomParameters, murmur_base_hashes

_JS_HASH: Final = "js-waku's integers end at 31 bits and it hashes UTF-16 units; fairway has neither limit"
_DEFAULT_CAPACITY: Final = 10_000
_DEFAULT_ERROR_RATE: Final = 0.001
_MOST_IDS: Final = 1_000_000
_ID_RULE: Final = re.compile(r"sha256hex\(utf8\('([^']*)'\+i\)\) for i in 0\.\.(n-1|\d+)")
"""How a file says which ids it means, without listing them."""
_BYTES_LABEL: Final = re.compile(r"fromBytes (shorter|longer|empty|exact)\b.*")
_OPTION: Final = re.compile(r"(?:(kHashes|errorRate|capacity)\s*[=:]?\s*)?(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")


def check_hash_n(case: Case) -> Iterator[Check]:
    """Check js-waku's ``hashN``: the n-th hash of a text below a bound."""
    text, n, below = case.text("item"), case.integer("n"), case.integer("maxValue")
    yield same("ascii", case.flag("ascii"), text.isascii())
    result = case.value("result")
    recorded = None if isinstance(result, str) and result.startswith("ERR") else case.integer("result")
    check = same(f"hash {n} of {text!r} below {below}", recorded, js_hash_n(text, n, below))
    a, b = murmur_base_hashes(text)
    own = (a % below + n * (b % below)) % below if below else None
    yield check if recorded == own or not check.ok else Check(check.name, ok=True, differs_on_purpose=_JS_HASH)


def check_nim_table(table: Case) -> Iterator[Check]:
    """Check the hashes that the Nim implementation gives, of which js-waku carries a table."""
    table.prose("source")
    yield from replay_cases(table.items("vectors"), _nim_hash)


def _nim_hash(case: Case) -> Iterator[Check]:
    text, n, below = case.text("input"), case.integer("n"), case.integer("maxValue")
    expected = case.child("expected")
    a, b = (value % below for value in murmur_base_hashes(text))
    name = f"{text!r} below {below}"
    yield same(f"first hash of {name}", expected.integer("hashA"), a)
    yield same(f"second hash of {name}", expected.integer("hashB"), b)
    yield same(f"hash {n} of {name}", expected.integer("hashC"), (a + n * b) % below)


def _parameters(options: Case) -> BloomParameters:
    """Return the parameters that js-waku derives from its options."""
    capacity, error_rate = options.integer("capacity"), options.number("errorRate")
    # js-waku: a number of hash functions below 1 means "choose", and bits per element are forced only beside one.
    hash_count, forced = options.maybe_integer("kHashes") or 0, options.maybe_integer("forceNBitsPerElem") or 0
    if hash_count >= 1 and forced >= 1:
        return BloomParameters(
            capacity=capacity, error_rate=error_rate, hash_count=hash_count, bit_count=capacity * forced
        )
    return BloomParameters.of(capacity, error_rate, hash_count if hash_count >= 1 else None)


def _ids(rule: str, n: int | None) -> list[str]:
    """Return the ids that a rule describes; ``n`` is what it calls n."""
    match = _ID_RULE.fullmatch(rule)
    count = None if match is None else n if match[2] == "n-1" else int(match[2]) + 1
    if match is None or count is None or not 0 <= count <= _MOST_IDS:
        raise MalformedCaseError(f"the rule {rule!r} for ids is not understood")
    return [sha256(f"{match[1]}{i}".encode()).hexdigest() for i in range(count)]


def check_bloom(case: Case) -> Iterator[Check]:
    """Check whole filters: their size, their bits and bytes, and what they claim to hold."""
    parameters = _parameters(case.child("options"))
    yield same("totalBits", case.integer("totalBits"), parameters.bit_count)
    yield same("kHashes", case.integer("kHashes"), parameters.hash_count)
    yield same("words", case.integer("words"), parameters.byte_length // 8)
    yield same("byteLength", case.integer("byteLength"), parameters.byte_length)

    inserted = case.texts("inserted")
    rule = case.maybe_text("inserted_rule")
    ids = inserted if rule is None else _ids(rule, case.integer("n"))
    yield same("n", case.integer("n"), len(ids))
    yield same("inserted", inserted, ids[: len(inserted)])
    bloom = BloomFilter(parameters)
    for message_id in ids:
        bloom.insert(message_id)

    data = bytes(bloom)
    if "bytes_hex" in case:
        yield same("bytes", case.octets("bytes_hex"), data)
    yield same("SHA-256 of the bytes", case.octets("bytes_sha256"), sha256(data).digest())
    if "bloom_bits" in case:
        yield same("bloom_bits", case.integers("bloom_bits"), bloom.set_positions())
    yield same("set_bits", case.integer("set_bits"), len(bloom.set_positions()))
    first = bloom.wire.positions(ids[0], parameters) if ids else []
    yield same("hashes_of_first", case.integers("hashes_of_first"), first)
    again = BloomFilter(parameters, bits=data)
    yield same("lookup_present_all", case.flag("lookup_present_all"), all(one in again for one in ids))
    absent = _ids(case.text("absent_rule"), None)
    hits = [index for index, one in enumerate(absent) if one in again]
    yield same("absent_false_positive_indices", case.integers("absent_false_positive_indices"), hits)
    yield same("roundtrip_equal", case.flag("roundtrip_equal"), bytes(again) == data)


def check_bloom_error(case: Case) -> Iterator[Check]:
    """Check which filters cannot be had; a label says in words what was tried."""
    label, result = case.text("label"), case.text("result")
    problem = _problem_with_bytes(label) if label.startswith("fromBytes") else _problem_with_options(label)
    if result == "ok":
        yield same(label, None, problem)
    elif "Error" in result:
        yield Check(label, ok=problem is not None, detail="" if problem else f"{result!r} expected, got a filter")
        if problem is not None and not label.startswith("fromBytes"):
            too_many = "must be <=" in result
            yield same(f"{label}: for having too many hash functions", too_many, "must lie in" in problem)
    else:
        raise MalformedCaseError(f"the result {result!r} is neither 'ok' nor an error")


def _problem_with_bytes(label: str) -> str | None:
    """Return why no default filter can be read from bytes of the length that a label describes; None if one can."""
    match = _BYTES_LABEL.fullmatch(label)
    if match is None:
        raise MalformedCaseError(f"the label {label!r} is not understood")
    full = BloomFilter(BloomParameters.of(_DEFAULT_CAPACITY, _DEFAULT_ERROR_RATE))
    full.insert("known")
    data = bytes(full)
    given = {"shorter": data[:-1], "empty": b"", "exact": data, "longer": data + b"\xff" * 8}[match[1]]
    try:
        read = BloomFilter(full.parameters, bits=given)
    except ConfigurationError as error:
        return str(error)
    return None if bytes(read) == data else "the filter that was read is another one"


def _problem_with_options(label: str) -> str | None:
    """Return why there is no filter with the options that a label names; None if there is one."""
    options: dict[str, float] = {"capacity": _DEFAULT_CAPACITY, "errorRate": _DEFAULT_ERROR_RATE}
    for part in re.split(r"\s*[/,]\s*", label):
        match = _OPTION.fullmatch(part.strip())
        if match is None:
            raise MalformedCaseError(f"the label {label!r} is not understood")
        # A bare number after the number of hash functions is the error rate: "kHashes 2 / 1e-5".
        options[match[1] or "errorRate"] = float(match[2])
    hash_count = int(options.get("kHashes", 0))
    try:
        BloomParameters.of(int(options["capacity"]), options["errorRate"], hash_count if hash_count >= 1 else None)
    except ConfigurationError as error:
        return str(error)
    return None
