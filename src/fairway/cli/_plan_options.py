"""One option for every field of a `SimulationPlan`, made from the field: its name, its type and its docstring."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import pairwise
from typing import Annotated, Any, Final, get_type_hints

import typer
from rich.markup import escape

from fairway.errors import ConfigurationError
from fairway.simulation.plan import MAX_DURATION_MS, MIN_DURATION_MS, SimulationPlan
from fairway.units import HOUR_MS

_PLAN: Final = SimulationPlan()
_PANELS: Final = {
    "The world": "participants hours seed settle_ms",
    "The network": "loss duplication min_delay_ms max_delay_ms partitions partition_ms partition_sides refusals "
    "answer_loss silence node_rate slow_uplinks node_deaths_per_hour deaf_per_hour hostile haste insatiable",
    "Light clients": "service_nodes resets_per_hour stalls_per_hour garbled bad_nodes vice",
    "The store of the network": "store_gaps store_lag_ms store_page store_lies store_cuts restamped",
    "What participants do": "messages_per_hour long_share ephemeral_share repeat_share ask_all_share ask_some_share "
    "ask_more_share impatience bursts "
    "burst_messages burst_repeats joins leaves foreign slow_readers direct_readers handler_failures",
    "The channel": "profile delivery rate_limit rln_limit rln_failures rln_shared "
    "segment_size_bytes parity_rate bloom_policy bloom_capacity "
    "bloom_error_rate max_history repairs response_groups reassembly_timeout_ms lost_timeout_ms gap_timeout_ms "
    "encrypted cipher_delay_ms cipher_failures mixed_options option_changes tight_quotas tiny_quotas",
}
_OTHERS: Final = "What happens to them"
"""The panel of fields that stand in none of the above."""


def with_plan(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a plan in place of its first parameter, which is a dict of the fields given.

    What typer looks at, signature and annotations, names the options of the plan before the command's own.
    """
    hints = get_type_hints(command, include_extras=True)
    own = list(signature(command).parameters.values())[1:]
    options = _options()

    @wraps(command)
    def wrapper(**words: Any) -> None:
        given = {name: value for name in options if (value := words.pop(name)) is not None}
        if (hours := given.pop("hours", None)) is not None:
            given["duration_ms"] = _milliseconds(hours)
        command(given, **words)

    kind = Parameter.KEYWORD_ONLY
    added = [Parameter(name, kind, default=None, annotation=hint) for name, hint in options.items()]
    described: Any = wrapper
    described.__signature__ = Signature([*added, *(each.replace(annotation=hints[each.name]) for each in own)])
    described.__annotations__ = options | {each.name: hints[each.name] for each in own} | {"return": None}
    return wrapper


def plan_of(given: dict[str, Any]) -> SimulationPlan:
    """Return the default plan with what was given; of few participants fewer leave than by default."""
    leaves = min(_PLAN.leaves, max(0, given.get("participants", _PLAN.participants) - 2))
    return SimulationPlan(**{"leaves": leaves, **given})


def _options() -> dict[str, Any]:
    """Return what typer takes for each option, by the option's name and in the order of the panels."""
    types, texts = get_type_hints(SimulationPlan), _docstrings()
    panel_of = {name: panel for panel, names in _PANELS.items() for name in names.split()}
    options = {}
    for field in fields(SimulationPlan):
        name, kind, default = field.name, types[field.name], getattr(_PLAN, field.name)
        if name == "duration_ms":
            name, kind, default = "hours", float, default / HOUR_MS
        elif name == "leaves":
            default = f"{default}, fewer where fewer than {default + 2} take part"
        panel = panel_of.get(name, _OTHERS)
        option = typer.Option(help=_help(texts[field.name], default), show_default=False, rich_help_panel=panel)
        options[name] = Annotated[kind | None, option]
    order = [*panel_of, *options]
    return dict(sorted(options.items(), key=lambda option: order.index(option[0])))


def _docstrings() -> dict[str, str]:
    """Return the docstring beneath each field, which only the source has, as one line."""
    (plan,) = ast.parse(inspect.getsource(SimulationPlan)).body
    texts = {}
    body = plan.body if isinstance(plan, ast.ClassDef) else []
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            texts[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return texts


def _help(text: str, default: Any) -> str:
    """Return a help text with the default, which typer does not know: to it, nothing given is None."""
    if isinstance(default, Enum):
        default = default.value
    shown = f"{default:g}" if isinstance(default, float) else default
    return escape(text) if default is None else f"{escape(text)} [dim]{escape(f'[default: {shown}]')}[/dim]"


def _milliseconds(hours: float) -> int:
    """Return hours as milliseconds, or raise `ConfigurationError` if no world lasts so long."""
    longest = MAX_DURATION_MS / HOUR_MS
    if not 0 < hours <= longest or round(hours * HOUR_MS) < MIN_DURATION_MS:
        raise ConfigurationError(f"hours must be {MIN_DURATION_MS / HOUR_MS:.5f} to {longest:g}, not {hours:g}")
    return round(hours * HOUR_MS)
