"""``tapml show``: a suite or a case in the terminal."""

from __future__ import annotations

from typing import Any

import torch
from rich.markup import escape
from rich.table import Table

from tapml.report.style import human_bytes
from tapml.report.terminal import console
from tapml.suite.call import TensorSpec
from tapml.suite.reader import Suite


def print_suite(suite: Suite) -> None:
    """Signatures with class, calls, kept cases and where they come from; then what the suite is."""
    out = console()
    table = Table()
    for name, justify in (("signature", "left"), ("operator and arguments", "left"), ("class", "left")):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for name in ("calls", "cases"):
        table.add_column(name, justify="right")
    table.add_column("first module", overflow="fold")
    for record in suite.signatures:
        module = next(iter(record.modules), "")
        table.add_row(
            record.signature.id,
            escape(str(record.signature)),
            record.kind,
            f"{record.calls:,}",
            str(len(record.cases)),
            escape(module),
        )
    out.print(table)
    info = suite.info
    source = info.get("source", {})
    out.print(f"source: {escape(str(source.get('kind', 'unknown')))} {escape(str(source.get('location', '')))}")
    for name in ("prompts", "max_new_tokens", "dtype", "seed"):
        if source.get(name):
            out.print(f"{name}: {escape(str(source[name]))}")
    out.print(f"{len(suite.signatures)} signatures, {len(suite.case_ids)} cases, {human_bytes(suite.nbytes)}")
    out.print(f"digest {suite.digest}")
    for warning in info.get("warnings", ()):
        out.print(f"[yellow]warning:[/] {escape(str(warning))}")


def print_case(suite: Suite, case_id: str) -> None:
    """Arguments and results of one case with their figures, and where the call came from."""
    case = suite.case(case_id)
    out = console()
    out.print(f"[bold]{case.id}[/] {escape(str(case.signature))}")
    origin = case.origin
    module = escape(origin.module) or "the program"
    out.print(f"call {origin.call_index:,} in {module}, at {escape(origin.source)}")
    out.print(f"kept for: {escape(', '.join(f'{k} {v}' for k, v in case.stress.items()))}")
    out.print(f"arguments: {escape(case.signature.arguments)}")
    table = Table()
    for name in ("tensor", "spec", "strides"):
        table.add_column(name)
    for name in ("min", "max", "mean", "rms", "NaN", "Inf"):
        table.add_column(name, justify="right")
    mutated = case.signature.mutated
    for i, tensor in enumerate(case.tensors):
        label = f"tensor {i}" + (" (before)" if i in mutated else "")
        _row(table, label, tensor)
    for name, tensor in case.results:
        _row(table, f"{name} (after)" if name.startswith("arg") else name, tensor)
    out.print(table)


def _row(table: Table, name: str, tensor: torch.Tensor) -> None:
    spec = TensorSpec.of(tensor)
    table.add_row(name, escape(str(spec)), str(spec.strides), *_figures(tensor))


def _figures(tensor: torch.Tensor) -> list[str]:
    if not tensor.numel() or tensor.is_complex():
        return [""] * 6
    values = tensor.double()
    finite = values[torch.isfinite(values)]

    def figure(value: Any) -> str:
        return f"{float(value):.4g}" if finite.numel() else ""

    counts = [str(int(torch.isnan(values).sum())), str(int(torch.isinf(values).sum()))]
    if not finite.numel():
        return ["", "", "", "", *counts]
    rms = finite.square().mean().sqrt()
    return [figure(finite.min()), figure(finite.max()), figure(finite.mean()), figure(rms), *counts]
