"""JSON of others becomes a value of the declared shape or a `DecodeError`, whatever the bytes are."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import DecodeError
from fairway.json_reading import MAX_DEPTH, read_json
from patience import PATIENCE_S

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(alphabet='ab"\\[]{}\u00e9'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a"\\[{'), inner),
)


def nested(levels: int, begin: str = "[", end: str = "]") -> bytes:
    return (begin * levels + end * levels).encode()


@given(st.lists(VALUES))
def test_written_json_is_read(value):
    # As many brackets in one text as would be too deep if they stood outside of it.
    text = "[" * (MAX_DEPTH + 1) + '\\"{'
    assert read_json(json.dumps([text, value]).encode(), Any) == [text, value]
    assert read_json(json.dumps([value] * MAX_DEPTH).encode(), Any) == [value] * MAX_DEPTH


@given(st.binary() | st.lists(st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b"1", b",", b":"])).map(b"".join))
def test_any_bytes_are_a_value_or_a_decode_error(data):
    for whole in (data, nested(MAX_DEPTH - 1)[: MAX_DEPTH - 1] + data):
        try:
            read_json(whole, Any)
        except DecodeError:
            continue


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "1}"), ('[{"\\\\":"[\\"",  "b":', "1}]")])
def test_nesting_at_the_limit_is_read_and_one_level_more_is_refused(begin, end):
    levels = begin.count("[{") + 1  # of the one opening bracket within a text none counts
    end = end if begin == "[" else end.removeprefix("1")
    inner = "" if begin == "[" else "1"
    data = (begin * (MAX_DEPTH // levels) + inner + end * (MAX_DEPTH // levels)).encode()
    assert read_json(data, Any)
    with pytest.raises(DecodeError, match="more than 64 levels"):
        read_json(b"[" + data + b"]", Any)


def test_deep_nesting_crashes_no_process_with_a_raised_recursion_limit():
    program = (
        "import sys; sys.setrecursionlimit(10**6)\n"
        "from typing import Any\n"
        "from fairway.errors import DecodeError\n"
        "from fairway.json_reading import read_json\n"
        "for data in (b'[' * 10**6, b'{\"a\":' * 10**6, b'[[],' * 10**6):\n"
        "    try: read_json(data, Any)\n"
        "    except DecodeError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout.count("levels of nesting")) == (0, 3), done.stderr[-500:]
