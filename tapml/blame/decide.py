"""What follows from who is right and who is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from tapml.blame.evidence import Cell, Evidence

PARTS = (
    "nothing",
    "reference",
    "schedule",
    "lowering",
    "synchronisation",
    "memory",
    "gpu code",
    "language",
    "device",
    "unknown",
)
"""Who can be at fault: PyTorch; how functions are merged and loops arranged; our lowering of the operator, or its
converter; the barriers of a kernel; its bounds; what we do for all GPUs (legalisation); what is done for one language
(legalisation, TVM's code generator); one device's compiler or driver."""
_SYNCHRONISATION = ("order-dependent", "divergent-barrier")
_MEMORY = ("out-of-bounds", "uninitialised", "writes-input", "out-of-memory", "division-by-zero", "unwritten")


@dataclass(frozen=True)
class Blame:
    """``part``: one of :data:`PARTS`.  ``sentence``: why, naming devices."""

    part: str
    sentence: str


def decide(evidence: Evidence) -> Blame:
    """The part at fault, by rules that go from the most certain to the least.

    Only what executed counts: a device that refuses the operator, or is not here, says nothing.
    """
    accused, route = evidence.accused, evidence.route
    right = [c for c in evidence.cells if c.right(route)]
    wrong = [c for c in evidence.cells if c.wrong(route)]
    if evidence.recorded:
        return Blame(
            "reference",
            f"PyTorch on this machine does not give the recorded results: {evidence.recorded}"
            + (f"; {_names(right)} agree with the recorded ones" if right else ""),
        )
    if evidence.off and accused not in wrong:
        return Blame("reference", f"PyTorch is off, and float64 sides with {accused.device.name}: {evidence.off}")
    if accused not in wrong:
        return Blame("nothing", f"{accused.status(route)} on {accused.device.name}: {accused.outcome.message}")
    for part, codes, what in (
        (
            "synchronisation",
            _SYNCHRONISATION,
            "depends on the order of threads, or its threads wait at different barriers",
        ),
        ("memory", _MEMORY, "reads or writes what it must not"),
    ):
        found = [
            (c, case) for c in wrong if _on_gpu(c) == _on_gpu(accused) for case in c.outcome.cases if case.code in codes
        ]
        if found:
            cell, case = found[0]
            return Blame(part, f"the kernel {what}, seen by {cell.device.name}: {case.explanation}")
    how = f"route {route}" if route else "every route"
    same_target = [c for c in evidence.cells if c.target == accused.target and c is not accused]
    brothers = [c for c in same_target if c in right]
    plain = evidence.plain
    if not brothers and plain is not None and plain.right(route):
        return Blame(
            "schedule",
            f"right on {plain.device.name} when compiled plainly (functions not merged, loops left as TVM made them), and "
            f"wrong as it is (on {_names(wrong)}): merging or scheduling",
        )
    if not right:
        others = [c for c in wrong if c is not accused]
        if not others:
            return Blame("unknown", f"no other device here executes it, so that {accused.device.name} stands alone")
        return Blame(
            "lowering", f"wrong on every device that executes it by {how} ({_names(wrong)}): {_whose(accused)}"
        )
    if brothers:
        return Blame(
            "device",
            f"wrong on {accused.device.name} only, and right on {_names(brothers)}, which execute the same source: "
            f"its compiler or driver ({_driver(accused)})"
            + ("; compiled plainly, it is right there too" if plain is not None and plain.right(route) else ""),
        )
    if _on_gpu(accused) and not any(_on_gpu(c) for c in right) and len({c.target for c in wrong}) > 1:
        return Blame(
            "gpu code",
            f"right on {_names(right)}, and wrong on every GPU target ({_names(wrong)}): their legalisation",
        )
    languages = {c.target for c in wrong}
    if languages == {accused.target}:
        alone = "" if same_target else "; there is no second device of this target here, so it may be its driver too"
        return Blame(
            "language",
            f"right on {_names(right)}, and wrong on target {accused.target} only: its legalisation or code generator{alone}",
        )
    return Blame("unknown", f"wrong on {_names(wrong)}, right on {_names(right)}: that fits no rule")


def _on_gpu(cell: Cell) -> bool:
    """Whether it executes kernels of threads; what an emulator sees in those says nothing of code for processors."""
    return cell.target != "llvm"


def _names(cells: list[Cell]) -> str:
    return ", ".join(f"{c.device.name} (emulated)" if c.device.emulated else c.device.name for c in cells)


def _whose(cell: Cell) -> str:
    converters = cell.outcome.converters
    return f"converter {', '.join(converters)}" if converters else "its converter"


def _driver(cell: Cell) -> str:
    details = cell.device.details
    return "; ".join([cell.device.description, *(details[k] for k in ("driver", "browser", "agent") if details.get(k))])
