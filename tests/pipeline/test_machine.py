from __future__ import annotations

import pytest

from fairway.pipeline import machine

GIB = 1_024


@pytest.mark.parametrize(("limit_gib", "expected_gib"), [(None, 16), ("max", 16), (4, 3)])
def test_available_memory_is_what_the_kernel_and_the_container_leave(tmp_path, limit_gib, expected_gib):
    (tmp_path / "meminfo").write_text("MemTotal:       32000000 kB\nMemAvailable:   16777216 kB\n")
    if limit_gib is not None:
        limit = limit_gib if limit_gib == "max" else limit_gib * GIB * machine.MIB
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{GIB * machine.MIB}\n")
    assert machine.available_memory_mib(tmp_path / "meminfo", tmp_path) == expected_gib * GIB


def test_an_unknown_system_still_gives_a_figure(tmp_path):
    assert machine.available_memory_mib(tmp_path / "none", tmp_path / "none") > 0


@pytest.mark.parametrize(
    ("available", "expected"),
    [(100, machine.MIN_MEMORY_MIB), (10 * GIB, 3 * GIB), (1_000 * GIB, machine.MAX_MEMORY_MIB)],
)
def test_the_jvm_gets_a_bounded_share(available, expected):
    assert machine.jvm_memory_mib(available) == expected


@pytest.mark.parametrize(
    ("tasks", "available", "expected"),
    [(1, 100 * GIB, 1_024), (2, 100 * GIB, 1_024), (16, 100 * GIB, 4_608), (16, 10 * GIB, 3 * GIB), (64, 100, 1_024)],
)
def test_a_jvm_that_passes_on_what_python_works_on_needs_memory_for_each_task(tasks, available, expected):
    assert machine.jvm_memory_to_pass_on_mib(tasks, available) == expected
