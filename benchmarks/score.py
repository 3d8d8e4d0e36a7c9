"""How many planted defects do the cases of a suite catch, and how many would random inputs of the same shapes?

    python benchmarks/score.py SUITE [SUITE ...] [--markdown FILE]

Each defect of :mod:`tapml.numerics.planted` is planted in the results of every compute signature to which it applies,
and judged: on the inputs that were carved, and on as many inputs drawn from N(0, 1) with the same shapes, dtypes and
strides (integers and masks as carved: random ones would be out of range).  A defect of a signature is caught when one
of its cases is judged wrong.  One that leaves the results of all cases as they are is not caught: those inputs cannot
see it (a wrong scale in a mask of zeros and infinities, say).
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.progress import track

from tapml.numerics.judge import judge
from tapml.numerics.oracle import float64_results
from tapml.numerics.planted import PLANTED
from tapml.suite.call import Signature, clone_strided, execute
from tapml.suite.reader import Suite

Call = tuple[Sequence[torch.Tensor], Sequence[tuple[str, torch.Tensor]]]


@dataclass
class Tally:
    """Signatures in which one defect was planted, and those in which each kind of input caught it."""

    planted: int = 0
    carved: int = 0
    random: int = 0


@dataclass
class Score:
    """Tallies by defect, and false alarms (a right result judged wrong) by kind of input."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    false_alarms: dict[str, int] = field(default_factory=lambda: {"carved": 0, "random": 0})
    signatures: int = 0
    left_out: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="+", type=Path)
    parser.add_argument("--markdown", type=Path, help="write the table there as well")
    parser.add_argument(
        "--largest", type=int, default=1 << 23, help="leave out signatures with larger tensors (elements)"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = []
    for path in options.suites:
        text = table(path.name, score(Suite.open(path), options.largest))
        print(text)
        texts.append(text)
    if options.markdown:
        options.markdown.write_text("\n".join(texts))


def score(suite: Suite, largest: int) -> Score:
    """Plant every defect in every compute signature of a suite whose tensors have at most ``largest`` elements."""
    result = Score()
    records = [r for r in suite.signatures if r.kind == "compute" and r.cases]
    for record in track(records, description="planting"):
        signature = record.signature
        if max((spec.numel for spec in signature.tensors), default=0) > largest:
            result.left_out += 1
            continue
        carved: list[Call] = [(c.tensors, c.results) for c in suite.cases(signature.id)]
        drawn = [random_call(signature, tensors, n) for n, (tensors, _) in enumerate(carved)]
        result.signatures += 1
        for kind, calls in (("carved", carved), ("random", drawn)):
            result.false_alarms[kind] += sum(not judge(signature, t, r, r).passed for t, r in calls)
        found = {"carved": caught(signature, carved), "random": caught(signature, drawn)}
        for name in {**found["carved"], **found["random"]}:
            tally = result.tallies.setdefault(name, Tally())
            tally.planted += 1
            tally.carved += found["carved"].get(name, False)
            tally.random += found["random"].get(name, False)
    return result


def caught(signature: Signature, calls: Iterable[Call]) -> dict[str, bool]:
    """Defect -> whether a call caught it, for the defects that change the results of any of the calls."""
    found: dict[str, bool] = {}
    for tensors, results in calls:
        truth = float64_results(signature, tensors)
        for planted in PLANTED:
            if found.get(planted.name):
                continue
            wrong = planted(signature, tensors, results)
            if wrong is not None:
                found[planted.name] = not judge(signature, tensors, results, wrong, oracle=truth).passed
    return found


def random_call(signature: Signature, tensors: Sequence[torch.Tensor], number: int) -> Call:
    """The call with floating arguments drawn from N(0, 1), and PyTorch's results for them."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{signature.id}/{number}".encode()))
    drawn = []
    for tensor in tensors:
        if not tensor.is_floating_point():
            drawn.append(tensor)
            continue
        fresh = clone_strided(tensor)
        values = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
        drawn.append(fresh.copy_(values.to(tensor.dtype)))
    with torch.no_grad():
        return drawn, execute(signature, drawn)


def table(name: str, result: Score) -> str:
    """A Markdown table: defects by number planted, with the share that each kind of input caught."""
    left_out = f" ({result.left_out} with large tensors left out)" if result.left_out else ""
    lines = [f"### {name}: {result.signatures} compute signatures{left_out}", ""]
    lines += ["| defect | planted in | caught by carved inputs | caught by N(0, 1) inputs |", "|---|---:|---:|---:|"]
    total = Tally()
    for defect, tally in sorted(result.tallies.items(), key=lambda item: (-item[1].planted, item[0])):
        lines.append(f"| {defect} | {tally.planted} | {share(tally.carved, tally)} | {share(tally.random, tally)} |")
        total = Tally(total.planted + tally.planted, total.carved + tally.carved, total.random + tally.random)
    lines.append(
        f"| **all** | **{total.planted}** | **{share(total.carved, total)}** | **{share(total.random, total)}** |"
    )
    alarms = ", ".join(f"{count} on {kind} inputs" for kind, count in result.false_alarms.items())
    return "\n".join([*lines, "", f"False alarms on PyTorch's own results: {alarms}.", ""])


def share(count: int, tally: Tally) -> str:
    """``17 (94.4 %)``."""
    return f"{count} ({100 * count / tally.planted:.1f} %)" if tally.planted else "0"


if __name__ == "__main__":
    main()
