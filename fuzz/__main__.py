"""Run one target: ``python -m fuzz TARGET FOLDER [libFuzzer options] [inputs]``.

The corpus is kept in a folder of the target's name below FOLDER and grows from run to run; an input that breaks a
promise is written beside it. With inputs, which are files, these are run and nothing else. The rest is a matter of
libFuzzer's options, for example ``-max_total_time=600``.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

# What is imported here is instrumented: fairway and nothing else, since only its branches are worth reaching.
with atheris.instrument_imports(include=["fairway"]):
    from fuzz.mutation import mutate
    from fuzz.targets import TARGETS

if TYPE_CHECKING:
    from fuzz.targets import Target

_SLOWEST_SECONDS: Final = 5
_MOST_MEMORY_MB: Final = 1_024


def _plant(target: Target, corpus: Path) -> None:
    """Write the seeds into a corpus."""
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / sha256(seed).hexdigest()[:16]).write_bytes(seed)


def _mutator(data: bytes, max_size: int, seed: int) -> bytes:
    return mutate(bytes(data), max_size, Random(seed), atheris.Mutate)  # noqa: S311 - repeatable on purpose


def main(arguments: list[str]) -> None:
    """Fuzz until libFuzzer has had enough."""
    if len(arguments) < 2 or arguments[0] not in TARGETS:
        sys.exit(f"usage: python -m fuzz {{{','.join(TARGETS)}}} FOLDER [libFuzzer options]")
    name, folder, *options = arguments
    target, corpus = TARGETS[name], Path(folder) / name
    _plant(target, corpus)
    defaults = [
        f"-artifact_prefix={folder}/{name}-",
        f"-max_len={target.max_input_bytes}",
        f"-timeout={_SLOWEST_SECONDS}",
        f"-rss_limit_mb={_MOST_MEMORY_MB}",
    ]
    # Files are run one by one, each once; a corpus beside them would be fuzzed instead.
    inputs = [] if any(not option.startswith("-") for option in options) else [str(corpus)]
    # libFuzzer obeys the last of two equal options, so that the caller's win.
    command = [sys.argv[0], *defaults, *options, *inputs]
    if target.is_script:
        atheris.Setup(command, target.check, custom_mutator=_mutator)
    else:
        atheris.Setup(command, target.check)
    atheris.Fuzz()


main(sys.argv[1:])
