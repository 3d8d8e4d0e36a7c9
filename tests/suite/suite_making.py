"""What the tests of the suite share: real calls as cases, suites of them, and manifests edited under a valid digest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from tapml.suite import Suite, SuiteWriter
from tapml.suite.call import (
    Signature,
    TensorSpec,
    canonical_json,
    collect_results,
    decode_arguments,
    encode_arguments,
    mutated_tensors,
    resolve_operator,
)
from tapml.suite.case import Case, Origin, SignatureRecord
from tapml.suite.manifest import manifest_text


def make_case(operator: str, *args: Any, number: int = 0, **kwargs: Any) -> Case:
    """Run a call for real.  Its mutated arguments must be plain tensors with storage of their own."""
    overload = resolve_operator(operator)
    template, tensors = encode_arguments(args, kwargs)
    mutated = mutated_tensors(overload, template)
    before = tuple(t.clone() if i in mutated else t for i, t in enumerate(tensors))
    args, kwargs = decode_arguments(template, tensors)
    results = collect_results(overload, mutated, tensors, overload(*args, **kwargs))
    return as_case(operator, template, before, results, number=number)


def as_case(operator: str, template: Any, tensors: Any, results: Any = (), *, number: int = 0) -> Case:
    signature = Signature(
        operator,
        canonical_json(template),
        tuple(TensorSpec.of(t) for t in tensors),
        tuple((name, TensorSpec.of(t)) for name, t in results),
    )
    origin = Origin(number, "model.layers.0", "model.py:12")
    stress = {"kept": "first", "max_abs": float("inf"), "nonfinite": 1}
    return Case(f"{signature.id}/{number}", signature, origin, tuple(tensors), tuple(results), stress)


def tensors_case(*tensors: torch.Tensor, mutated: Iterable[int] = (), number: int = 0) -> Case:
    """A call that never ran: any tensors as arguments."""
    template = [[{"tensor": i} for i in range(len(tensors))], {}]
    results = [(f"arg{i}", tensors[i].detach().clone()) for i in mutated]
    return as_case("test.any.default", template, tensors, results, number=number)


def records_of(cases: Iterable[Case]) -> list[SignatureRecord]:
    by_signature: dict[str, list[Case]] = {}
    for case in cases:
        by_signature.setdefault(case.signature.id, []).append(case)
    return [
        SignatureRecord(
            same[0].signature,
            "compute",
            len(same) + 3,
            {"model.layers.0": 4},
            tuple(c.id for c in same),
            {"aten.a.b": 2},
        )
        for same in by_signature.values()
    ]


def write_suite(path: Path, cases: Iterable[Case], *, info: Any = None, outputs: Any = None, **options: Any) -> Suite:
    cases = list(cases)
    with SuiteWriter(path, **options) as writer:
        for case in cases:
            writer.add_case(case)
        written = writer.commit(records_of(cases), info=info or {"seed": 1}, reference_outputs=outputs)
    return Suite.open(written)


def edit_manifest(path: Path, edit: Callable[[Any], Any]) -> None:
    """Change the manifest of the suite at ``path`` and give it the digest that belongs to it."""
    file = path / "manifest.json"
    data = json.loads(file.read_text())
    edit(data)
    file.write_text(manifest_text({key: value for key, value in data.items() if key != "digest"}))


def bits(tensor: torch.Tensor) -> bytes:
    """The logical values, row-major, as bytes: equal where NaNs are."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if torch._is_zerotensor(tensor):
        tensor = tensor.clone()
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    same_size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}[tensor.itemsize]
    flat.view(same_size).view(tensor.shape).copy_(tensor.view(same_size))
    return bytes(flat.view(torch.uint8).numpy().data)


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert TensorSpec.of(found) == TensorSpec.of(expected)
    assert bits(found) == bits(expected)


def assert_same_case(found: Case, expected: Case) -> None:
    assert (found.id, found.signature, found.origin) == (expected.id, expected.signature, expected.origin)
    assert found.signature.results == expected.signature.results
    assert found.stress == expected.stress
    assert [name for name, _ in found.results] == [name for name, _ in expected.results]
    for a, b in zip(found.tensors, expected.tensors, strict=True):
        assert_same(a, b)
    for (_, a), (_, b) in zip(found.results, expected.results, strict=True):
        assert_same(a, b)
