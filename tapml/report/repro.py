"""A bundle in the terminal."""

from __future__ import annotations

from rich.markup import escape

from tapml.report.style import coloured, human_bytes, human_seconds
from tapml.report.terminal import console
from tapml.repro.make import Made


def print_bundle(made: Made) -> None:
    """What fails, how much smaller it became, what is in the directory, whether it reproduces."""
    out = console()
    failure, bundle = made.failure, made.bundle
    where = f"{failure.device.name} ({failure.device.mode})"
    out.print(
        f"{coloured(failure.finding.status)} {escape(failure.subject.operator)} {failure.case} on {where} by route "
        f"{failure.route}: {escape(failure.finding.explanation)}",
        soft_wrap=True,
    )
    out.print(f"    kind: {escape(str(failure.kind))}", soft_wrap=True)
    shrunk = failure.shrunk
    if shrunk is not None and failure.before is not None:
        tensors = ", ".join(str(m.spec) for m in failure.subject.tensors) or "no tensors"
        out.print(
            f"    shrunk from {failure.before.elements:,} elements to {failure.subject.elements:,} "
            f"({escape(tensors)}) in {human_seconds(shrunk.seconds)}: {shrunk.tried} candidates executed, "
            f"{shrunk.rejected} refused by PyTorch; {shrunk.end}",
            soft_wrap=True,
        )
    confirmation = bundle.confirmation
    if confirmation.reproduced:
        out.print(f"[green]reproduced[/] in a clean process: python {bundle.path}/reproduce.py", soft_wrap=True)
    else:
        out.print(f"[red]{escape(confirmation.words)}[/]", soft_wrap=True)
    out.print(f"wrote {bundle.path} ({human_bytes(bundle.nbytes)}, {len(bundle.files)} files)", soft_wrap=True)
