"""The README of a bundle: what is wrong, in words."""

from __future__ import annotations

from collections.abc import Sequence

from tapml.repro.confirm import Confirmation, conclusion
from tapml.repro.failure import Failure
from tapml.repro.subject import Memory
from tapml.suite.call import Signature

_ELEMENTS = 24
"""Values of a tensor that are shown."""

_HOWS = {
    "import": "TVM's own PyTorch front end on the operator, then `tvm.compile`",
    "module": "`module.py` by `tvm.compile`",
    "kernels": "`kernels.py` by `tvm.compile`",
    "library": "`kernels.so`, compiled by tapml",
    "replay": "the sources in `kernels/` on the device, by `replay.py`",
    "tapml": "the sources in `kernels/` on the device, by way of tapml",
}

_FILES = {
    "README.md": "this",
    "bundle.json": "what `reproduce.py` reads: specs of tensors and results, the plan of launches, the failure",
    "call.py": "the operator call, in PyTorch",
    "kernels": "the kernels' sources as emitted",
    "kernels.py": "the functions as they are handed to TVM's code generator, in TVMScript",
    "kernels.so": "those functions, compiled",
    "module.py": "the operator in TVM's terms, in TVMScript",
    "replay.py": "launches the kernels",
    "reproduce.html": "reproduces it in a browser: open it (which was not done when this was written)",
    "reproduce.py": "reproduces it",
    "tensors.npz": "bytes of the tensors' memory: arguments, expected and found results, float64's where PyTorch's are off",
    "verdict.json": "everything that is said here, as JSON",
}


def readme(failure: Failure, confirmation: Confirmation, files: Sequence[str]) -> str:
    """Markdown."""
    finding, subject = failure.finding, failure.subject
    signature = Signature(subject.operator, subject.arguments, ())
    emulated = ", **emulated**: not the real device" if failure.device.emulated else ""
    converters = f" ({', '.join(finding.converters)})" if finding.converters else ""
    lines = [
        f"# {subject.operator} on {failure.target}: {failure.kind}",
        "",
        finding.explanation,
        "",
        "| | |",
        "|---|---|",
        f"| target, device | {failure.target}, {failure.device.name} ({failure.device.mode}{emulated}) |",
        f"| adapter | {_cell(failure.device.description)} |",
        f"| route | {failure.route}{converters} |",
        f"| arguments | `{_cell(signature.arguments)}` |",
        *(f"| {name} | {_cell(value)} |" for name, value in failure.origin.items() if value),
        *(f"| {name} | {version} |" for name, version in failure.versions.items()),
        *(f"| {name} | {_cell(value)} |" for name, value in failure.device.details.items() if name not in failure.versions),
        f"| made by | `{_cell(failure.command)}` |",
        "",
        "## Tensors",
        "",
        *(f"- `x{i}`: {_shown(memory)}" for i, memory in enumerate(subject.tensors)),
        *(f"- expected `{name}`: {_shown(memory)}" for name, memory in finding.expected),
        *(f"- float64 `{name}`, PyTorch's being off: {_shown(memory)}" for name, memory in finding.exact),
        *(f"- found `{name}`: {_shown(memory)}" for name, memory in finding.found),
        "",
        *_run(failure, confirmation),
        *_shrunk(failure),
        "## Files",
        "",
        *(f"- `{name}`: {_FILES[name]}" for name in files if name in _FILES and (confirmation.how == "library" or
          name != "kernels.so")),
        "",
    ]  # fmt: skip
    if finding.notes or finding.warnings:
        lines += ["## Notes", "", *(f"- {text}" for text in (*finding.notes, *finding.warnings)), ""]
    if finding.output:
        lines += ["## Last words of the process", "", "```text", *finding.output, "```", ""]
    return "\n".join(lines)


def _run(failure: Failure, confirmation: Confirmation) -> list[str]:
    lines = ["## Run it", "", "```sh", "python reproduce.py", "```", ""]
    if confirmation.how:
        needs = {"replay": _REPLAY_NEEDS.get(failure.target, "the device's binding"), "tapml": "tapml"}
        on = f", on {confirmation.device}" if confirmation.device else ""
        needed = needs.get(confirmation.how, "PyTorch and TVM")
        lines += [
            f"**Reproduced** in a clean process when this was written, by {_HOWS[confirmation.how]}{on}. It needs {needed}. "
            "Exit code 1 says that the failure is still there, 0 that it is gone, 2 that it cannot run, 3 that it fails "
            "in another way.",
            "",
        ]
    else:
        lines += [
            "**DOES NOT REPRODUCE** outside of tapml: in a clean process `reproduce.py` did not show the failure. What "
            "is written here is what tapml saw.",
            "",
        ]
        if not confirmation.runs:
            lines += [_NO_WAY.format(device=failure.device.name), ""]
    if len(confirmation.runs) > 1 or (confirmation.runs and not confirmation.how):
        lines += ["| `--how` | exit code | it said |", "|---|---|---|"]
        lines += [f"| {how} | {code} | {_cell(conclusion(text))} |" for how, (code, text) in confirmation.runs.items()]
        lines += [""]
    if failure.extensions:
        lines += [
            "The operator was converted by "
            + ", ".join(f"`{e}`" for e in failure.extensions)
            + ", which is not in here: "
            "what it gave is.",
            "",
        ]
    return lines


_NO_WAY = "Kernels for {device} cannot be launched without tapml, and they came to none that could be tried with it."
_REPLAY_NEEDS = {
    "webgpu": "PyTorch, NumPy and wgpu (`pip install torch wgpu`); a browser needs `reproduce.html` alone",
    "opencl": "PyTorch, NumPy and pyopencl (`pip install torch pyopencl`), and an OpenCL driver",
}


def _shrunk(failure: Failure) -> list[str]:
    shrunk = failure.shrunk
    if shrunk is None:
        return []
    before = failure.before.elements if failure.before is not None else 0
    return [
        "## Shrunk",
        "",
        f"From {before:,} elements of arguments to {shrunk.subject.elements:,}, in {shrunk.seconds:.0f} s: "
        f"{shrunk.tried} candidates executed, {shrunk.rejected} that PyTorch refuses; {shrunk.end}. The failure stayed "
        f"`{failure.kind}`.",
        "",
    ]


def _shown(memory: Memory) -> str:
    values = memory.tensor().reshape(-1)[:_ELEMENTS].tolist()
    text = ", ".join(f"{v:.9g}" if isinstance(v, float) else str(v) for v in values)
    more = ", ..." if memory.spec.numel > _ELEMENTS else ""
    contiguous = memory.tensor().is_contiguous()
    strides = "" if contiguous else f", strides {list(memory.spec.strides)}"
    return f"{memory.spec}{strides}: `{text}{more}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
