"""Defects planted in what was emitted for a GPU: the text of its kernels, and their launches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tapml.kernels.plan import Artifact, Kernel
from tapml.score.defect import Defect, difference, numbered

_BARRIER = re.compile(
    r"^[ \t]*(?:workgroupBarrier\(\)|storageBarrier\(\)|barrier\([A-Z_| ]*\)|threadgroup_barrier\([^)]*\)|__syncthreads\(\));",
    re.M,
)
_GUARD = re.compile(r"^[ \t]*if \(.*<\s(\d+)[iu]?\)+ \{", re.M)
_EXTENT = re.compile(r"^[ \t]*for \([^;]*;[^;<]*< (\d+)[iu]?\s*;", re.M)
_LITERAL = re.compile(r"(?<![\w.])(\d+\.\d+e[+-]\d+)(?=f|h|\b)")
_DEFINED = re.compile(r"^\s*(?:let|var|int|const int) (\w+)\b[^;=]*=")
_DECLARED = re.compile(r"^\s*(?:var|let|__shared__|threadgroup|local|__local|float|int|half)\b[^=\[]*\[?[^=]*;")
_LAUNCH = "launch"


@dataclass(frozen=True)
class _Edit:
    """Text from ``start`` to ``end`` of a source replaced."""

    kind: str
    what: str
    start: int
    end: int
    text: str


def kernel_defects(artifact: Artifact) -> list[Defect]:
    """Every defect that can be planted in the kernels and launches of an artifact, in a fixed order; none where its code
    is no text."""
    found: list[Defect] = []
    for name, kernel in sorted(artifact.plan.kernels.items()):
        source = _source(artifact, kernel)
        if source is not None:
            found += numbered([(e.kind, e.what) for e in _edits(source, name)], "kernel", name)
    launches = []
    for number, step in enumerate(artifact.plan.steps):
        if max(step.grid) > 1:
            launches.append(
                numbered([(_LAUNCH, _fewer(step.grid)[1])], "kernel", f"launch {number} of {step.kernel}")[0]
            )
    return found + launches


def plant_in_kernel(artifact: Artifact, defect: Defect) -> tuple[Artifact, Defect]:
    """The artifact with the defect in it, and the defect with its line.  ``artifact`` stays as it is."""
    if defect.kind == _LAUNCH:
        number = int(defect.function.split()[1])
        steps = list(artifact.plan.steps)
        steps[number] = replace(steps[number], grid=_fewer(steps[number].grid)[0])
        return replace(artifact, plan=replace(artifact.plan, steps=tuple(steps))), defect
    kernel = artifact.plan.kernels[defect.function]
    source = _source(artifact, kernel)
    assert source is not None
    edit = [e for e in _edits(source, kernel.name) if e.kind == defect.kind][defect.number]
    wrong = source[: edit.start] + edit.text + source[edit.end :]
    line, before, after = difference(source, wrong)
    planted = replace(defect, line=line, before=before, after=after)
    return replace(artifact, files={**artifact.files, kernel.file: wrong.encode()}), planted


def _fewer(grid: tuple[int, int, int]) -> tuple[tuple[int, int, int], str]:
    """One block less along the longest dimension."""
    axis = grid.index(max(grid))
    x, y, z = (extent - (i == axis) for i, extent in enumerate(grid))
    return (x, y, z), f"{max(grid)} -> {max(grid) - 1} blocks along {'xyz'[axis]}"


def _source(artifact: Artifact, kernel: Kernel) -> str | None:
    try:
        text = artifact.files[kernel.file].decode()
    except (KeyError, UnicodeDecodeError):
        return None
    return None if "\0" in text or _body(text, kernel.name) is None else text


def _body(source: str, name: str) -> int | None:
    """Where the body of the kernel begins: tapml's own functions stand before it."""
    heads = list(re.finditer(rf"\b{re.escape(name)}\s*\(", source))
    begin = source.find("{", heads[-1].end()) if heads else -1
    return begin + 1 if begin >= 0 else None


def _edits(source: str, name: str) -> Iterator[_Edit]:
    body = _body(source, name)
    assert body is not None
    suffix = "i" if re.search(r"\b0i\b", source) else ""
    for n, found in enumerate(_BARRIER.finditer(source, body), 1):
        yield _Edit("barrier", f"barrier {n} removed", found.start(), found.end(), "")
    for kind, pattern in (("guard", _GUARD), ("extent", _EXTENT)):
        for found in pattern.finditer(source, body):
            bound = int(found[1])
            if bound > 0:
                yield _Edit(kind, f"{bound} -> {bound - 1}", *found.span(1), str(bound - 1))
    for found in _LITERAL.finditer(source, body):
        value = float(found[1])
        if 0 < value < 1e30 and _matters(source, found.start()):
            yield _Edit("constant", f"{value:g} -> {2 * value:g}", *found.span(1), f"{2 * value:.6e}")
    for start, end in _indices(source, body):
        index = source[start:end]
        yield _Edit("index", "one element on", start, end, f"({index}) + 1{suffix}")


def _indices(source: str, body: int) -> Iterator[tuple[int, int]]:
    """Where the outermost indices are that are no mere numbers."""
    position = body
    while (position := source.find("[", position)) >= 0:
        depth, end = 1, position + 1
        while depth and end < len(source):
            depth += {"[": 1, "]": -1}.get(source[end], 0)
            end += 1
        text = source[position + 1 : end - 1]
        if not re.fullmatch(r"\s*\d*[iu]?\s*", text) and _matters(source, position):
            yield position + 1, end - 1
        position = end


def _matters(source: str, at: int) -> bool:
    """Whether the line is no declaration, and not the definition of a variable that nobody reads (TVM leaves some)."""
    line = source[source.rfind("\n", 0, at) + 1 : source.find("\n", at)]
    defined = _DEFINED.match(line)
    if defined is not None:
        return len(re.findall(rf"\b{re.escape(defined[1])}\b", source)) > 1
    return not (_DECLARED.match(line) and "=" not in line)
