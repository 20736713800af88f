"""What `import fairway` gives: every public name, and nothing that takes long."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import fairway
from fairway import errors, events
from patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
FRONT_DOOR = Path(fairway.__file__)
DEAR = (
    "asyncio",
    "cryptography",
    "Crypto",
    "google",
    "h11",
    "msgspec",
    "numpy",
    "websockets",
    "fairway.nodes",
    "fairway.libp2p",
)


def imported_in(body):
    return {
        (node.module, alias.name)
        for node in body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fairway.")
        for alias in node.names
    }


def test_every_public_name_is_there():
    for name in fairway.__all__:
        assert getattr(fairway, name) is not None
        assert name in dir(fairway)
    assert len(set(fairway.__all__)) == len(fairway.__all__)


def test_lazily_imported_names_are_those_that_type_checkers_see():
    source = ast.parse(FRONT_DOOR.read_text(encoding="utf-8"))
    at_once = imported_in(source.body)
    late = {
        pair
        for node in source.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for pair in imported_in(node.body)
    }
    assert {name for _, name in at_once | late} - {"lazy_names"} | {"__version__"} == set(fairway.__all__)
    for module, name in late:
        assert getattr(fairway, name) is getattr(import_module(module), name)


def test_an_unknown_name_raises_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fairway' has no attribute 'conect'"):
        getattr(fairway, "conect")  # noqa: B009 - a type checker would see it, too


def test_importing_fairway_loads_nothing_that_takes_long():
    code = f"import sys, fairway; sys.exit(' '.join(name for name in {DEAR!r} if name in sys.modules) or 0)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_local_network_loads_no_libp2p_and_no_rest():
    code = (
        "import asyncio, sys, fairway\n"
        "async def main():\n"
        "    async with fairway.connect('local:') as node:\n"
        "        await (await fairway.create_reliable_channel(node, 'a', 'b', '/a/1/b/proto')).close()\n"
        "asyncio.run(main())\n"
        "loaded = [name for name in sys.modules if name.startswith(('fairway.libp2p', 'fairway.nodes.rest'))]\n"
        "sys.exit(' '.join([*loaded, *({'h11', 'websockets'} & set(sys.modules))]) or 0)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("module", ["encryption", "files", "nodes", "rln", "service", "testing"])
def test_every_public_name_of_a_part_is_there(module):
    part = import_module(f"fairway.{module}")
    for name in part.__all__:
        assert getattr(part, name) is not None
        assert name in dir(part)


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_the_guide_names_nothing_that_fairway_does_not_have(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    parts = {path.stem for path in FRONT_DOOR.parent.iterdir()}
    named = set(re.findall(r"\bfairway\.(\w+)", text)) - parts
    assert named <= set(fairway.__all__)
    errors_named = set(re.findall(r"`([A-Z]\w+Error)`", text))
    assert errors_named <= {*vars(errors), *vars(events)}
