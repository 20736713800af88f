"""How the tests are shared out between processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

GROUPS = {
    "spark": "spark",
    "js_folder": "interop",
    "py_libp2p_python": "interop",
}
"""By fixture, the group of tests that one process runs: what they share costs more to make twice than it gains."""


@pytest.fixture(autouse=True, scope="session")
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what programs keep of themselves out of the home of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share something dear in one process."""
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        for group in sorted({group for fixture, group in GROUPS.items() if fixture in names}):
            item.add_marker(pytest.mark.xdist_group(group))
