"""``tapml blame``: where a failure comes from."""

from __future__ import annotations

from pathlib import Path

import click

from tapml.cli.options import settings_of, signature_options, suite_argument


@click.command(
    epilog="""\
\b
Examples:
  tapml blame suite gelu --target webgpu
"""
)
@suite_argument
@click.argument("signature")
@signature_options
@click.option("--boundary", default="", help="A neighbour of the signature, as `tapml test --boundary` names it.")
def command(
    suite: Path,
    signature: str,
    target: str,
    device: str,
    timeout: float,
    memory_limit: int,
    extensions: tuple[Path, ...],
    json_file: Path | None,
    boundary: str,
) -> int:
    """Judge one signature on every device that is here, and say which part is at fault.

    Wrong everywhere: its lowering. Wrong in one browser only: that browser's compiler. Dependent on the order of threads
    (an emulated device sees that): a barrier. Right when functions are not merged and loops not rearranged: our
    schedule. And PyTorch may be the one that is off. SIGNATURE is an id of `tapml show`, or
    words as of --select that one signature matches. The exit code is 1 when the device in question is wrong.
    """
    from tapml.migration.process import start_fork_server

    start_fork_server(suite)
    from tapml.blame.decide import decide
    from tapml.blame.evidence import gather, places
    from tapml.boundary.neighbours import require_neighbour
    from tapml.errors import UsageError
    from tapml.migration.ladder import compute_signatures
    from tapml.migration.select import selector
    from tapml.report.progress import outcome_progress
    from tapml.report.terminal import print_blame, write_json
    from tapml.suite.reader import Suite

    settings, info = settings_of(target, device, timeout, memory_limit, extensions, jobs=1).resolved()
    chosen = selector(signature)
    found = [r for r in compute_signatures(Suite.open(suite)) if r.cases and chosen(r)]
    if len(found) != 1:
        raise UsageError(
            f"expected one compute signature with cases, found {len(found)} that match {signature!r}",
            hint=f"`tapml show {suite}` lists their ids",
        )
    if boundary:
        require_neighbour(found[0].signature, boundary)
    where = places(target, info)
    with outcome_progress(len(where)) as listen:
        evidence = gather(suite, settings, where, found[0], boundary, listen)
    blame = decide(evidence)
    if json_file is not None:
        write_json(
            json_file,
            {
                "signature": found[0].signature.id,
                "operator": found[0].signature.operator,
                "boundary": boundary,
                "part": blame.part,
                "sentence": blame.sentence,
                "devices": [
                    {"target": c.target, **c.device.to_json(), "outcome": c.outcome.to_json()} for c in evidence.cells
                ],
                "plain": evidence.plain.outcome.to_json() if evidence.plain is not None else None,
            },
        )
    if json_file is None or str(json_file) != "-":
        print_blame(evidence, blame)
    return 1 if evidence.accused.wrong(evidence.route) else 0
