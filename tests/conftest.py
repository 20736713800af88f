"""The selection of tests, their random draws, and their distribution over processes."""

from __future__ import annotations

import gc
import inspect
import os
import random
import shutil
import signal
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fairway.wire.hashing import keccak256
from patience import run

# Hypothesis draws constants of the loaded modules. A module that a test loads later would change its draws.
keccak256(b"")

GROUPS = {
    "browser": "pages",
    "postgres": "postgresql",
    "spark": "spark",
    "js_folder": "interop",
    "py_libp2p_python": "interop",
    "rln_js_folder": "interop",
}
"""By fixture, the group of tests that one process runs, because the fixture is expensive."""
LONGEST = (
    *("test_object_store_runs", "test_growing_sources", "test_benchmarks"),
    *("test_against_worlds", "test_generated_tables", "test_killed_runs", "test_streaming", "test_other_sparks"),
    *("test_poisoned", "test_hostile_bytes", "test_run_every_source", "test_run_failures", "test_notebook"),
    "test_go_waku",
)
"""The longest files of a full run: each process begins with one, so that all end at about the same time."""
MAX_NAME = 100
"""Longest text in the name of a test's parameter."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fairway")
    group.addoption("--full", action="store_true", help="run the tests marked full as well, and more examples")
    group.addoption("--seed", type=int, default=1, help="seed of the random draws: 1")


def by_folder(arguments: list[str], base: Path) -> list[str]:
    """Sort the arguments so that those of one folder are together, in the order of the first one of each.

    pytest 9.1 loses the fixtures of a folder's conftest.py if tests of the parent folder run between two of its own
    (pytest-dev/pytest#14964).
    """
    places: dict[Path, int] = {}

    def place(argument: str) -> list[int]:
        path = base / argument.partition("::")[0]
        return [places.setdefault(part, len(places)) for part in (*reversed(path.parents), path)]

    return sorted(arguments, key=place)


def in_turns(arguments: list[str], base: Path, worker: int, workers: int) -> list[str]:
    """Return the content of the only argument, a folder, in another order for each process.

    So a process loads modules that another one has compiled. Several arguments stay as they are.
    """
    folder = base / arguments[0] if len(arguments) == 1 else None
    if folder is None or not folder.is_dir():
        return arguments
    found = sorted(str(each) for each in folder.iterdir() if each.match("test_*.py") or each.is_dir())
    found = [each for each in found if not each.endswith("__pycache__")]
    begin = len(found) * worker // workers
    return found[begin:] + found[:begin]


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function, each in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_configure(config: pytest.Config) -> None:
    """Set up hypothesis, without deadlines, and the order of the arguments."""
    # A shell starts background programs with SIGINT ignored, and their child processes inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    base = config.invocation_params.dir
    config.args[:] = by_folder(config.args, base)
    if hasattr(config, "workerinput"):
        number, count = int(config.workerinput["workerid"].removeprefix("gw")), config.workerinput["workercount"]
        config.args[:] = in_turns(config.args, base, number, count)
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # pytest-xdist would begin with the group of the most tests
    steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    settings.register_profile("quick", steady, max_examples=20)
    settings.register_profile("full", steady, max_examples=100)
    settings.load_profile("full" if config.getoption("full") else "quick")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return one more than the number of cores, because many tests wait."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else (os.cpu_count() or 1) + 1


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long parameter by its length, because each report carries the name."""
    if isinstance(val, str | bytes) and len(val) > MAX_NAME:
        return f"{argname}-of-{len(val)}"
    return None


def pytest_report_header(config: pytest.Config) -> str:
    return f"random draws: --seed {config.getoption('seed')}"


@pytest.fixture(scope="session")
def compiled() -> None:
    """Skip the test if fairway-rln is not installed."""
    if find_spec("fairway_rln") is not None:
        return
    reason = "fairway-rln is not installed: make rln"
    if os.environ.get("CI") == "true" and shutil.which("cargo") is not None:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of the random draws of this run."""
    return int(pytestconfig.getoption("seed"))


@pytest.fixture(autouse=True)
def rng(request: pytest.FixtureRequest) -> random.Random:
    """The random draws of a test; like those of the module `random`, they do not depend on the tests before it."""
    # pytest-xdist adds a group to the full name of a test.
    drawn_from = f"{request.node.originalname}/{request.config.getoption('seed')}"
    random.seed(drawn_from)
    return random.Random(drawn_from)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the seed with each failure."""
    report = yield
    if report.failed:
        report.sections.append(("random draws", f"--seed {item.config.getoption('seed')}"))
    return report


@pytest.fixture(autouse=True, scope="session")
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the state of programs out of the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        # NumPy would start a thread for each core in every program.
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the collected tests from garbage collection.

    They are some 300,000 objects, and hundreds of tests collect garbage to find open sockets.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked full without --full, and group tests that share an expensive fixture."""
    full = bool(config.getoption("full"))
    named = [argument for argument in config.args if "::" in argument]
    if not full and not named:
        left_out = [item for item in items if item.get_closest_marker("full") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("full") is None]
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        for group in sorted({group for fixture, group in GROUPS.items() if fixture in names}):
            # In a full run each file with Spark has a process, and so a Java, of its own.
            own = f" {item.path.stem}" if full and group == "spark" else ""
            item.add_marker(pytest.mark.xdist_group(group + own))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path)  # all processes need the same order
    if config.getoption("loadgroup", default=False):
        items.sort(key=lambda item: (_place(item), item.get_closest_marker("xdist_group") is None))


def _place(item: pytest.Item) -> int:
    return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)
