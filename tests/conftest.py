"""Which tests run, how long hypothesis looks, what is drawn, and how the tests are shared out between processes."""

from __future__ import annotations

import gc
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

# Hypothesis draws constants of the modules that are loaded, and looks again whenever another one is. So what is loaded
# when it is first needed must not be loaded amid a test, which would draw otherwise from then on.
keccak256(b"")

GROUPS = {
    "browser": "pages",
    "postgres": "postgresql",
    "spark": "spark",
    "js_folder": "interop",
    "py_libp2p_python": "interop",
    "rln_js_folder": "interop",
    "links_run": "world of bad links",
    "small_run": "small world",
}
"""By fixture, the group of tests that one process runs: what they share costs more to make twice than it gains."""
LONGEST = (
    *("test_object_store_runs", "test_growing_sources", "test_known_costs", "test_benchmarks"),
    *("test_against_worlds", "test_generated_tables", "test_killed_runs", "test_streaming", "test_other_sparks"),
    *("test_poisoned", "test_hostile_bytes", "test_run_every_source", "test_run_failures", "test_notebook"),
    "test_go_waku",
)
"""Files that a process begins with in a full run, so that none is left with one of them when the others have ended."""
MAX_NAME = 100
"""Of characters or bytes, in the name of one parameter of a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fairway")
    group.addoption("--full", action="store_true", help="run the tests marked full as well, and more examples")
    group.addoption("--seed", type=int, default=1, help="what tests that draw at random draw from: 1")


def by_folder(arguments: list[str], base: Path) -> list[str]:
    """Put the arguments that are of one folder beside each other, and keep the order of the first of each.

    pytest 9.1 loses the fixtures of a folder's conftest.py where tests of the folder above stand between two of its own
    (pytest-dev/pytest#14964).
    """
    places: dict[Path, int] = {}

    def place(argument: str) -> list[int]:
        path = base / argument.partition("::")[0]
        return [places.setdefault(part, len(places)) for part in (*reversed(path.parents), path)]

    return sorted(arguments, key=place)


def in_turns(arguments: list[str], base: Path, worker: int, workers: int) -> list[str]:
    """Return what is in a folder that is the only argument, so that each process begins elsewhere.

    What one process has compiled the others load. If all went the same way in step, each would compile everything.
    Several arguments stay as they are: to pytest, a folder to which it comes back later is another one.
    """
    folder = base / arguments[0] if len(arguments) == 1 else None
    if folder is None or not folder.is_dir():
        return arguments
    found = sorted(str(each) for each in folder.iterdir() if each.match("test_*.py") or each.is_dir())
    found = [each for each in found if not each.endswith("__pycache__")]
    begin = len(found) * worker // workers
    return found[begin:] + found[:begin]


def pytest_configure(config: pytest.Config) -> None:
    """Settle what is drawn. Nothing here may depend on how fast the machine is: no deadline, no check of speed."""
    # A shell starts what runs in its background with interrupts ignored, and so would every process of the tests.
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
    """One more process than there are cores, since many tests wait for processes, for Java or for a time to pass."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else (os.cpu_count() or 1) + 1


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a parameter that is megabytes by its length: names of tests go between processes with each report."""
    if isinstance(val, str | bytes) and len(val) > MAX_NAME:
        return f"{argname}-of-{len(val)}"
    return None


def pytest_report_header(config: pytest.Config) -> str:
    return f"drawn from: --seed {config.getoption('seed')}"


@pytest.fixture(scope="session")
def compiled() -> None:
    """Skip what needs fairway-rln where it is not installed."""
    if find_spec("fairway_rln") is not None:
        return
    reason = "fairway-rln is not installed: make rln"
    if os.environ.get("CI") == "true" and shutil.which("cargo") is not None:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """What the draws of this run follow from."""
    return int(pytestconfig.getoption("seed"))


@pytest.fixture(autouse=True)
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Draws of one test, the same whichever tests run before it; those of the module `random` are, too."""
    # Its name in the file, since pytest-xdist lengthens the whole by the name of a group.
    drawn_from = f"{request.node.originalname}/{request.config.getoption('seed')}"
    random.seed(drawn_from)
    return random.Random(drawn_from)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with each failure what gives its draws back."""
    report = yield
    if report.failed:
        report.sections.append(("what gives the draws back", f"--seed {item.config.getoption('seed')}"))
    return report


@pytest.fixture(autouse=True, scope="session")
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what programs keep of themselves out of the home of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        # NumPy's library would start a thread for each core in every program, where none of them multiplies matrices.
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage neither while the tests are collected nor among them later.

    They are some 300,000 objects, which take a fifth of a second each time: hundreds of tests ask for a collection, to
    see whether they left a socket open.
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
    """Leave out what only a full run looks at, and keep the tests that share something dear in one process."""
    full = bool(config.getoption("full"))
    named = [argument for argument in config.args if "::" in argument]
    if not full and not named:
        left_out = [item for item in items if item.get_closest_marker("full") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("full") is None]
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        for group in sorted({group for fixture, group in GROUPS.items() if fixture in names}):
            # The long tests of Spark are worth a Java in each process.
            own = f" {item.path.stem}" if full and group == "spark" else ""
            item.add_marker(pytest.mark.xdist_group(group + own))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path)  # the same order in all processes, wherever each began
    if config.getoption("loadgroup", default=False):
        items.sort(key=lambda item: (_place(item), item.get_closest_marker("xdist_group") is None))


def _place(item: pytest.Item) -> int:
    return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)
