"""Peers of other makers, as processes that speak JSON lines.

js-waku and js-libp2p are installed once into the build folder from ``js/package-lock.json``, py-libp2p into a virtual
environment there from ``py/requirements.txt`` (which needs a C compiler and the headers of GMP); go-waku is built there
from ``go/go.sum``. Where a toolchain or its package registry is missing the tests are skipped with the reason; in CI
(``CI=true``) that is a failure. ``pytest --seed`` chooses other payloads, losses and meshes.
``FAIRWAY_INTEROP_JS=latest``, or another release of ``@waku/sdk``, has that one run in place of the pinned one, with
the packages that it names, so that a release that breaks us is seen.

A test that is marked ``enclosed`` runs, with all processes that it starts, where no network can be reached: go-waku's
program looks for the live one by itself. What it needs is installed before.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from patience import PATIENCE_S

HERE = Path(__file__).parent
BUILD = Path(__file__).parents[2] / "build"
_PINNED = ("package.json", "package-lock.json")
_INSTALL_SECONDS = 600
_LINE_BYTES = 4_194_304
_OLDEST_NODE = 20
_BUILD_SECONDS = 1_500
_ENCLOSED = "FAIRWAY_INTEROP_ENCLOSED"
_ENCLOSED_SECONDS = 900
_NO_WAY_IN = 77
"""How `enclosed.py` ends where the system does not allow it."""


def _missing(reason):
    if os.environ.get("CI") == "true":
        pytest.fail(f"in CI the peers must run, but {reason}")
    pytest.skip(f"no peer: {reason}")


@contextmanager
def _alone(folder):
    """Keep other processes out of a folder that is being filled."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(folder, versions, *commands, seconds=_INSTALL_SECONDS):
    """Run commands in a folder unless they were run there for the same versions before."""
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in versions)).hexdigest()
    mark = folder / "installed"
    if mark.exists() and mark.read_text() == wanted:
        return
    mark.unlink(missing_ok=True)
    for command in commands:
        name = " ".join(map(str, command[:4]))
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            _missing(f"{name} took longer than {seconds} s")
        if done.returncode:
            _missing(f"{name} failed: {(done.stderr or done.stdout)[-700:]}")
    mark.write_text(wanted)


def _age_of(node):
    """Return the major version of Node.js, 0 if it does not say."""
    done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    found = re.match(r"v(\d+)", done.stdout)
    return int(found[1]) if found else 0


def _of_release(npm, release):
    """Return the packages that a release of js-waku needs, with their versions, in place of the pinned ones."""
    asked = [npm, "view", f"@waku/sdk@{release}", "version", "dependencies", "--json"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    if done.returncode:
        _missing(f"npm does not know @waku/sdk@{release}: {done.stderr[-700:]}")
    told = json.loads(done.stdout)
    package = json.loads((HERE / "js" / "package.json").read_text())
    pinned = package["dependencies"]
    if told["version"] == pinned["@waku/sdk"]:
        pytest.skip(f"@waku/sdk@{release} is the pinned release, {told['version']}, which other tests run")
    print(f"@waku/sdk {told['version']} in place of {pinned['@waku/sdk']}")  # noqa: T201 - for who reads a failure
    # What the release does not name, like the encryption of messages, is taken as it is newest.
    ours = {name: "latest" if name.startswith("@waku/") else version for name, version in pinned.items()}
    named = {name: version for name, version in told["dependencies"].items() if name in ours}
    return {**package, "dependencies": {**ours, **named, "@waku/sdk": told["version"]}}


def _npm():
    """Return npm's path, if it and Node.js are there."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        _missing("there is no Node.js with npm")
    if _age_of(node) < _OLDEST_NODE:
        _missing(f"Node.js must be {_OLDEST_NODE} or newer, {node} is {_age_of(node)}")
    return npm


def _copied(source, folder, *, without=()):
    """Copy the files of a folder into another one, where they changed: another run may be reading them."""
    for path in source.iterdir():
        copy = folder / path.name
        if path.name not in without and not (copy.exists() and copy.read_bytes() == path.read_bytes()):
            shutil.copyfile(path, copy)


@pytest.fixture(scope="session")
def js_folder():
    """Where the js packages are installed, with the scripts of this repository beside them."""
    npm = _npm()
    release = os.environ.get("FAIRWAY_INTEROP_JS")
    folder = BUILD / ("interop-js" if release is None else "interop-js-release")
    with _alone(folder):
        _copied(HERE / "js", folder, without=() if release is None else _PINNED)
        if release is None:
            versions = [HERE / "js" / name for name in _PINNED]
            _install(folder, versions, [npm, "ci", "--no-audit", "--no-fund"])
        else:
            (folder / "package.json").write_text(json.dumps(_of_release(npm, release), indent=2))
            install = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock"]
            _install(folder, [folder / "package.json"], install)
    return folder


@pytest.fixture(scope="session")
def rln_js_folder():
    """Where zerokit in WebAssembly is installed, with the script that drives it."""
    npm = _npm()
    folder = BUILD / "interop-rln"
    with _alone(folder):
        _copied(HERE / "rln", folder)
        _install(folder, [HERE / "rln" / name for name in _PINNED], [npm, "ci", "--no-audit", "--no-fund"])
    return folder


@pytest.fixture(scope="session")
def py_libp2p_python():
    """An interpreter that has py-libp2p, and nothing of ours."""
    folder = BUILD / "interop-py"
    versions = HERE / "py" / "requirements.txt"
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", versions]
    with _alone(folder):
        _install(folder, [versions], [sys.executable, "-m", "venv", "--clear", folder / "venv"], pip)
    return python


@pytest.fixture(scope="session")
def go_folder():
    """Where go-waku is built: ``peer``, which the tests drive, and ``waku``, the program as its makers ship it."""
    go = shutil.which("go")
    if go is None:
        _missing("there is no Go")
    folder = BUILD / "interop-go"
    versions = [HERE / "go" / name for name in ("go.mod", "go.sum", "tools.go", "peer/main.go")]
    # Without RLN, which is a library in Rust; the rest of go-waku is Go alone.
    build = [go, "build", "-C", HERE / "go", "-buildvcs=false", "-tags=gowaku_no_rln", "-o", f"{folder}/"]
    with _alone(folder):
        _install(folder, versions, [*build, "./peer", "github.com/waku-org/go-waku/cmd/waku"], seconds=_BUILD_SECONDS)
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is marked ``enclosed`` in a process of its own that reaches no network."""
    if pyfuncitem.get_closest_marker("enclosed") is None or _ENCLOSED in os.environ:
        return None
    command = [sys.executable, str(HERE / "enclosed.py"), sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    process = subprocess.Popen(
        # Not its node id, which pytest-xdist lengthens by the name of its group.
        [
            *command,
            "--seed",
            str(pyfuncitem.config.getoption("seed")),
            f"{pyfuncitem.nodeid.partition('::')[0]}::{pyfuncitem.name}",
        ],
        cwd=pyfuncitem.config.rootpath,
        env={**os.environ, _ENCLOSED: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=_ENCLOSED_SECONDS)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    print(output)  # noqa: T201 - what a failure is explained with
    if process.returncode == _NO_WAY_IN:
        _missing(f"nothing can be enclosed here: {output.strip()}")
    if process.returncode:
        pytest.fail(f"the test failed where no network is reached:\n{output}", pytrace=False)
    return True


class Peer:
    """A process: commands go in, events come out and are kept."""

    def __init__(self, name, process, log):
        self.name = name
        self.events = []
        self._process = process
        self._log = log
        self._arrived = asyncio.Event()
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def _read(self):
        while line := await self._process.stdout.readline():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a library's log
            self.events.append(event)
            self._arrived.set()
        self.events.append({"event": "ended"})
        self._arrived.set()

    def tell(self, command, **fields):
        """Give a command; its outcome is an event."""
        self._process.stdin.write(json.dumps({"do": command, **fields}).encode() + b"\n")

    def of(self, name):
        """The events of a kind so far."""
        return [event for event in self.events if event["event"] == name]

    async def wait(self, name, count=1):
        """Wait for that many events of a kind and return them all."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while len(self.of(name)) < count:
                    if self.of("ended"):
                        break
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass
        found = self.of(name)
        assert len(found) >= count, f"{self.name}: {len(found)} of {count} {name!r} in {PATIENCE_S} s; {self.state()}"
        return found

    def state(self):
        """What went wrong with it, for the message of a failed test."""
        said = [event for event in self.events if event["event"] in {"failed", "ended"}][-5:]
        return f"{self.name} said {said or 'nothing of it'}; its log ends {self._log.read_text()[-2000:]!r}"

    async def stop(self):
        """End the process."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._process._transport.close()


@asynccontextmanager
async def _running(name, command, folder, log, **variables):
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=_LINE_BYTES,
            env={**os.environ, **variables},
        )
    peer = Peer(name, process, log)
    try:
        await peer.wait("ready")
        yield peer
    finally:
        await peer.stop()


@pytest.fixture
def js_peer(js_folder, tmp_path):
    """Start js peers: ``async with js_peer("light.mjs", name, settings) as peer``; more are environment variables."""

    def start(script, name, settings, **variables):
        command = [shutil.which("node"), "--import", "./polyfill.mjs", script, json.dumps(settings)]
        return _running(name, command, js_folder, tmp_path / f"{name}.log", **variables)

    return start


@pytest.fixture
def py_peer(py_libp2p_python, tmp_path):
    """Start py-libp2p peers: ``async with py_peer("relay_peer.py", name, settings) as peer``."""

    def start(script, name, settings):
        command = [py_libp2p_python, "-W", "ignore", HERE / "py" / script, json.dumps(settings)]
        return _running(name, command, tmp_path, tmp_path / f"{name}.log")

    return start


@pytest.fixture
def go_peer(go_folder, tmp_path):
    """Start go-waku nodes: ``async with go_peer(name, port=..., client=...) as peer``."""

    def start(name, **settings):
        command = [go_folder / "peer", json.dumps({"cluster": 16, "shard": 0, **settings})]
        return _running(name, command, tmp_path, tmp_path / f"{name}.log")

    return start
