"""The house rules of the source tree, read off the sources: who may import whom, what the protocol core may not do."""

from __future__ import annotations

import ast
import gc
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("sources")  # what its tests share is made once

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fairway"

# Imports point downwards only: a part may import parts of a smaller rank, and itself.
RANKS = {
    "environment": 0,
    "lazy_names": 0,
    "errors": 0,
    "bounded": 0,
    "units": 0,
    "waiters": 0,
    "extras": 1,
    "foreign_code": 1,
    "type_checks": 1,
    "loop_binding": 1,
    "visible": 0,
    "opening": 1,
    "owned_tasks": 1,
    "subscription": 1,
    "events": 1,
    "json_reading": 1,
    "wire": 1,
    "options": 2,
    "protocol": 3,
    "encryption": 4,
    "storage": 4,
    "identity": 5,
    "group_keys": 6,
    "rln": 5,
    "libp2p": 5,
    "nodes": 6,
    "channel": 7,
    "service": 7,
    "pipeline": 7,
    "archives": 8,
    "testing": 8,
    "files": 8,
    "blocking": 9,
    "simulation": 10,
    "cli": 11,
    "__main__": 12,
}
# What may import the packages of which extras; everything else is the core. The longest prefix counts.
EXTRAS_OF = {
    "cli": {"cli"},
    "simulation/render": {"cli"},
    "service/rest": {"node"},
    "channel/telemetry": {"otel"},
    "archives": {"spark"},
    "pipeline": {"spark"},
    "testing/archives": {"spark"},
    "pipeline/hdfs": {"spark", "hdfs"},
    "pipeline/report/terminal": {"spark", "cli"},
    "cli/_pipeline": {"spark", "cli"},
    "cli/mcp": {"mcp", "cli"},
    "cli/web_chat": {"cli", "node"},
    "storage/postgres": {"postgresql"},
    "rln/field": {"rln"},
    "rln/proving": {"rln"},
}
PURE = ("wire", "protocol")
PURE_LIBRARIES = {"numpy", "Crypto", "cryptography", "google", "msgspec"}
# fmt: off
IMPURE_MODULES = {
    "asyncio", "concurrent", "http", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time",
    "urllib", "uuid",
}
# fmt: on
IMPURE_CALLS = {"breakpoint", "exec", "eval", "input", "open", "print"}
# The clock and the generators hide behind these names of modules that are otherwise harmless.
IMPURE_ATTRIBUTES = {"now", "today", "utcnow", "default_rng"}
RANDOM_LIBRARIES = ("Crypto.Random", "numpy.random")
# An application's cipher may be asynchronous: its result is passed on to the shell, which awaits it.
MAY_RETURN_COROUTINES = SOURCE / "protocol" / "encryption" / "hook.py"
# Scratch memory that is used again and again belongs to one thread each; that is all threading is for there.
MAY_KEEP_THREADS_APART = SOURCE / "protocol" / "segmentation" / "leopard.py"
GENERATED = "_pb2.py"


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if not path.name.endswith(GENERATED))


def text_files() -> list[Path]:
    """Everything that is written by hand or kept as data: the tree without what is built or installed."""
    top = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]  # a file in a linked work tree
    folders = (".ci", "src", "tests", "docs", "deploy", "benchmarks", "examples", "rln")
    inside = [path for name in folders for path in (ROOT / name).rglob("*") if path.is_file()]
    built = {"__pycache__", "_build", "node_modules", "target"}
    return sorted(path for path in [*top, *inside] if not built & set(path.parts) and path.suffix != ".pyc")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(autouse=True, scope="module")
def _trees_end_with_their_tests() -> Iterator[None]:
    """Keep millions of objects out of the garbage collection, which would go through them again and again."""
    gc.disable()
    yield
    nodes_of.cache_clear()
    tree_of.cache_clear()
    gc.enable()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=name_of(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all nodes of a module: to find them takes longer than what is asked of them."""
    return list(ast.walk(tree_of(path)))


def package_of(path: Path) -> list[str]:
    """Return the package that relative imports of a module count from."""
    return ["fairway", *path.relative_to(SOURCE).parent.parts]


def part_of(path: Path) -> str:
    """Return the part of the house that a module belongs to: its folder, or its own name; "" for the front door."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


@cache
def imports_of(path: Path) -> list[tuple[int, str]]:
    """Return line and full name of whatever a module imports, wherever it does so."""
    found: list[tuple[int, str]] = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = package_of(path)
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{origin}.{alias.name}") for alias in node.names]
    return found


def pure_modules() -> list[Path]:
    return [path for path in modules() if part_of(path) in PURE]


def handles_ciphers(path: Path) -> bool:
    return "encryption" in path.relative_to(SOURCE).parts


def test_imports_point_downwards_only():
    wrong = []
    for path in modules():
        own = part_of(path)
        for line, imported in imports_of(path):
            names = imported.split(".")
            if names[0] != "fairway" or not own:
                continue
            other = names[1] if len(names) > 1 and names[1] in RANKS else ""
            # The front door gathers the public names of everything, so only the command line may use it.
            allowed = other == own or (RANKS[other] < RANKS[own] if other else own == "cli")
            if not allowed:
                wrong.append(f"{name_of(path)}:{line} imports {imported}")
    assert wrong == []


def test_the_core_imports_nothing_but_the_standard_library_and_five_others():
    wrong = [
        f"{name_of(path)}:{line} imports {imported}"
        for path in pure_modules()
        for line, imported in imports_of(path)
        if (top := imported.split(".")[0]) not in {"fairway", *PURE_LIBRARIES, *sys.stdlib_module_names}
        or (top == "google" and not imported.startswith("google.protobuf"))
    ]
    assert wrong == []


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named_in(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[^\w.-]", requirement)[0]) for requirement in requirements}


def test_no_part_imports_what_its_extra_does_not_bring():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    distributions = packages_distributions()
    groups = {extra: named_in(needs) for extra, needs in project["optional-dependencies"].items()}
    groups["spark"] |= {"py4j"}  # PySpark is made of it, and names the one version that it works with
    wrong = []
    for path in modules():
        place = path.relative_to(SOURCE).as_posix()
        prefix = max((each for each in EXTRAS_OF if place.startswith(each)), key=len, default="")
        brought = named_in(project["dependencies"]).union(*(groups[extra] for extra in EXTRAS_OF.get(prefix, ())))
        imported = {full.partition(".")[0] for _, full in imports_of(path)}
        wrong += [
            f"{place} imports {package}"
            for package in imported - {"fairway", "__future__"} - set(sys.stdlib_module_names)
            if not {normal(name) for name in distributions.get(package, [package])} & brought
        ]
    assert wrong == []


def test_the_core_imports_no_clock_no_randomness_and_no_input_or_output():
    wrong = []
    for path in pure_modules():
        for line, imported in imports_of(path):
            impure = imported.split(".")[0] in IMPURE_MODULES or imported.startswith(RANDOM_LIBRARIES)
            # Ciphers take their nonces from the operating system unless they are given another source.
            nonces = handles_ciphers(path) and imported in {"os", "os.urandom"}
            if impure and not nonces and (path, imported) != (MAY_KEEP_THREADS_APART, "threading"):
                wrong.append(f"{name_of(path)}:{line} imports {imported}")
    assert wrong == []


def impurity_of(node: ast.AST) -> str | None:
    """Return what a node does that depends on more than its arguments, or None."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
            return f"calls {name}()"
        case ast.Attribute(attr=name) if name in IMPURE_ATTRIBUTES:
            return f"uses .{name}"
        case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
            return "uses numpy's generators"
        case ast.Attribute(value=ast.Name(id="os"), attr=name) if name != "urandom":
            return f"uses os.{name}"
    return None


def test_the_core_calls_nothing_impure():
    wrong = [
        f"{name_of(path)}:{getattr(node, 'lineno', 0)} {impurity}"
        for path in pure_modules()
        for node in nodes_of(path)
        if (impurity := impurity_of(node))
    ]
    assert wrong == []


def test_the_core_awaits_nothing():
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in pure_modules()
        if path != MAY_RETURN_COROUTINES
        for node in nodes_of(path)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
    ]
    assert wrong == []


def test_only_the_wire_imports_generated_code():
    wrong = [
        f"{name_of(path)}:{line} imports {imported}"
        for path in modules()
        if part_of(path) != "wire" and "pipeline/columnar" not in path.as_posix()  # which reads numbers of fields alone
        for line, imported in imports_of(path)
        if imported.startswith("fairway.wire.proto.")
    ]
    assert wrong == []


def test_no_two_public_classes_share_a_name():
    classes = Counter(
        node.name
        for path in modules()
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_no_text_names_a_path_of_one_machine():
    # Written so that this file does not match itself.
    machine_path = re.compile(r"(?<![\w.])/(?:work|farm|root|tmp|home|Users)/[A-Za-z]")
    wrong = []
    for path in text_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # no text
        wrong += [
            f"{name_of(path)}:{number}" for number, line in enumerate(text.splitlines(), 1) if machine_path.search(line)
        ]
    assert wrong == []


PUBLIC_BY_DOCUMENTATION = {"_replace", "_asdict", "_fields", "_exit"}  # of a named tuple, and of a process
MAY_REACH_INSIDE = {
    # asyncio has no other way to let go of the pipes of a process that was killed.
    "tests/interop/conftest.py": {"_transport"},
    "tests/interop/test_burst_through_a_node.py": {"_transport"},
    "tests/interop/test_js_waku_light_node.py": {"_transport"},
    "tests/interop/test_py_libp2p_streams.py": {"_transport"},
}
"""What tests read or set though it is private, by file; whatever else one needs becomes a figure or a property."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC_BY_DOCUMENTATION


def reaches_inside(node: ast.AST) -> str | None:
    """Return the private name of something else that a node reads, sets or imports, or None."""
    if not isinstance(node, ast.Attribute | ast.Call | ast.ImportFrom):
        return None  # nearly all, and a pattern takes its time
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
            return None
        case ast.Attribute(attr=name) if is_private(name):
            return name
        case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[ast.Name(id="self" | "cls"), *_]):
            return None
        case ast.Call(
            func=ast.Attribute(attr="setattr" | "delattr" | "object") | ast.Name(id="getattr" | "setattr"), args=given
        ):
            names = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            return next((last for name in names if is_private(last := name.rpartition(".")[2])), None)
        case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "fairway":
            return next((alias.name for alias in names if is_private(alias.name)), None)
    return None


def test_tests_use_public_names_only():
    wrong = [
        f"{name_of(path)}:{getattr(node, 'lineno', 0)} {name}"
        for folder in ("tests", "benchmarks", "examples", "fuzz")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "node_modules" not in path.parts
        for node in nodes_of(path)
        if (name := reaches_inside(node)) and name not in MAY_REACH_INSIDE.get(name_of(path), ())
    ]
    assert wrong == []


def test_every_part_has_a_rank():
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    files = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert sorted((folders | files) - RANKS.keys()) == []


def names_of_modules() -> dict[str, Path]:
    """Return every module by its full name."""
    named = {}
    for path in modules():
        parts = ("fairway", *path.relative_to(SOURCE).with_suffix("").parts)
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def test_no_imports_are_circular():
    named = names_of_modules()
    needs = {
        name: {full if full in named else full.rpartition(".")[0] for _, full in imports_of(path)}
        & named.keys() - {name}
        for name, path in named.items()
    }
    while ready := {name for name, others in needs.items() if not others}:
        needs = {name: others - ready for name, others in needs.items() if name not in ready}
    assert sorted(needs) == []
