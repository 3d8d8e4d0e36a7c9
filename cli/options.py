"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tapml.migration.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

suite_argument = click.argument("suite", type=click.Path(path_type=Path))


def writable(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Find out before the work is done, and not after it, that a file cannot be written."""
    if path is None or str(path) == "-":
        return path
    folder = path if path.is_dir() else path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise click.BadParameter(f"expected a file that can be written, found {path}", ctx, parameter)
    return path


def target_options(function: F) -> F:
    """``--target``, ``--device``, ``--jobs``, ``--timeout``, ``--memory-limit``, ``--with``, ``--json``."""
    jobs = click.option("--jobs", type=click.IntRange(1), help="Worker processes.  [default: one a core]")
    return signature_options(jobs(function))


def signature_options(function: F) -> F:
    """The same without ``--jobs``: for commands about one signature."""
    for option in reversed(
        (
            click.option("--target", required=True, help="What kernels are compiled for: llvm, webgpu, ..."),
            click.option(
                "--device",
                default="",
                help="Where they execute, as `tapml devices` names it, or rpc://host:port/key.  [default: the best one here]",
            ),
            click.option(
                "--timeout",
                type=click.FloatRange(0, min_open=True),
                default=120.0,
                show_default=True,
                help="Seconds that one signature may take.",
            ),
            click.option(
                "--memory-limit",
                type=click.IntRange(256),
                default=6144,
                show_default=True,
                help="Megabytes that one worker may use.",
            ),
            click.option(
                "--with",
                "extensions",
                multiple=True,
                type=click.Path(path_type=Path),
                metavar="FILE.py",
                help="Python file that registers converters or kernels (repeatable).",
            ),
            click.option(
                "--json",
                "json_file",
                type=click.Path(path_type=Path),
                callback=writable,
                help="Write all figures there ('-': to stdout).",
            ),
        )
    ):
        function = option(function)
    return function


def settings_of(
    target: str,
    device: str,
    timeout: float,
    memory_limit: int,
    extensions: Sequence[Path],
    *,
    jobs: int | None = None,
    gate: str = "operator",
) -> Settings:
    """What the values of these options choose."""
    from tapml.migration.settings import Settings

    return Settings(
        target,
        device,
        gate=gate,
        jobs=jobs,
        seconds=timeout,
        memory_mb=memory_limit,
        extensions=tuple(map(str, extensions)),
    )
