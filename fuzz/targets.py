"""The table of what is fuzzed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from fairway.options import Profile
from fuzz import seeds
from fuzz.ciphers import check_ciphers
from fuzz.columns import check_columns
from fuzz.decoders import check_decoders
from fuzz.reassembly import check_reassembly
from fuzz.stacks import check_logos_stack, check_waku_stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something to fuzz."""

    check: Callable[[bytes], None]
    """Raises if bytes break a promise."""
    seeds: Callable[[], Iterable[bytes]]
    """Makes the first inputs."""
    max_input_bytes: int
    """Longer inputs are not made: they would find the same, slower."""
    is_script: bool
    """Whether the input is of fields, so that changes to fields are worth more than changes to bytes."""


TARGETS: Final = {
    "decoders": Target(check=check_decoders, seeds=seeds.message_seeds, max_input_bytes=4_096, is_script=True),
    "columns": Target(check=check_columns, seeds=seeds.message_seeds, max_input_bytes=4_096, is_script=True),
    "ciphers": Target(check=check_ciphers, seeds=seeds.cipher_seeds, max_input_bytes=1_024, is_script=False),
    "reassembly": Target(check=check_reassembly, seeds=seeds.reassembly_seeds, max_input_bytes=16_384, is_script=True),
    "stack-waku": Target(
        check=check_waku_stack,
        seeds=partial(seeds.stack_seeds, Profile.WAKU),
        max_input_bytes=8_192,
        is_script=True,
    ),
    "stack-logos": Target(
        check=check_logos_stack,
        seeds=partial(seeds.stack_seeds, Profile.LOGOS),
        max_input_bytes=8_192,
        is_script=True,
    ),
}
"""By the name that the command line takes."""
