"""Peers of other makers, as processes that speak JSON lines.

js-waku and js-libp2p are installed once into the build folder from ``js/package-lock.json``. Where Node.js or the
package registry is missing the tests are skipped with the reason; in CI (``CI=true``) that is a failure.
"""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "js"
INSTALLED = Path(__file__).parents[2] / "build" / "interop-js"
_VERSIONS = ("package.json", "package-lock.json")
_INSTALL_SECONDS = 600
_START_SECONDS = 60
_LINE_BYTES = 4_194_304


def _missing(reason):
    if os.environ.get("CI") == "true":
        pytest.fail(f"in CI the peers must run, but {reason}")
    pytest.skip(f"no js peers: {reason}")


@pytest.fixture(scope="session")
def js_folder():
    """Where the js packages are installed, with the scripts of this repository beside them."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        _missing("there is no Node.js with npm")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    wanted = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in _VERSIONS)).hexdigest()
    mark = INSTALLED / "installed"
    for path in HERE.iterdir():
        shutil.copyfile(path, INSTALLED / path.name)
    if not mark.exists() or mark.read_text() != wanted:
        done = subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund"],
            cwd=INSTALLED,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
        if done.returncode:
            _missing(f"npm ci failed: {done.stderr[-500:]}")
        mark.write_text(wanted)
    return INSTALLED


class JsPeer:
    """A js process: commands go in, events come out and are kept."""

    def __init__(self, name, process):
        self.name = name
        self.events = []
        self._process = process
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

    async def wait(self, name, count=1, timeout_s=60.0):
        """Wait for that many events of a kind and return them all."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(self.of(name)) < count:
                    if self.of("ended"):
                        break
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass
        found = self.of(name)
        assert len(found) >= count, f"{self.name}: {len(found)} of {count} {name!r} in {timeout_s} s; {self._tail()}"
        return found

    def _tail(self):
        return [event for event in self.events if event["event"] in {"failed", "ended"}][-5:]

    async def stop(self):
        """End the process."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._process._transport.close()


@pytest.fixture
def js_peer(js_folder, tmp_path):
    """Start js peers: ``async with js_peer("light.mjs", name, settings) as peer``."""

    @asynccontextmanager
    async def start(script, name, settings):
        log = tmp_path / f"{name}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                shutil.which("node"),
                "--import",
                "./polyfill.mjs",
                script,
                json.dumps(settings),
                cwd=js_folder,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=_LINE_BYTES,
            )
        peer = JsPeer(name, process)
        try:
            try:
                await peer.wait("ready", timeout_s=_START_SECONDS)
            except AssertionError as error:
                raise AssertionError(f"{error}; {log.read_text()[-2000:]}") from None
            yield peer
        finally:
            await peer.stop()

    return start
