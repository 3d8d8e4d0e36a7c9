"""Neighbours: each differs from the carved call in one thing, and PyTorch says whether it is a call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tapml.boundary import values
from tapml.boundary.neighbours import RefusedError, choose, make, neighbours_of
from tapml.suite.call import has_overlap
from tapml.suite.case import Case, Origin, SignatureRecord
from tests.lowering.running import record

nan, inf = float("nan"), float("inf")


def case_of(operator: str, *args: Any, **kwargs: Any) -> Case:
    call = record(f"aten.{operator}", args, kwargs)
    return Case("id/0", call.signature, Origin(0, "", ""), tuple(call.tensors), tuple(call.results))


def made(case: Case) -> dict[str, Case]:
    found = {}
    for neighbour in neighbours_of(case.signature):
        try:
            found[neighbour.name] = make(case, neighbour.name)
        except RefusedError:
            continue
    return found


CALLS = {
    "mm": lambda: case_of("mm.default", torch.randn(5, 64), torch.randn(64, 7).t().contiguous().t()),
    "softmax": lambda: case_of("_softmax.default", torch.randn(2, 3, 8), -1, False),
    "embedding": lambda: case_of("embedding.default", torch.randn(9, 4), torch.tensor([[0, 8, 3]])),
    "where": lambda: case_of("where.self", torch.tensor([True, False]), torch.ones(2), torch.zeros(2)),
    "in place": lambda: case_of("add_.Tensor", torch.ones(3, 4), torch.ones(4)),
    "half": lambda: case_of("mul.Tensor", torch.randn(4, 4).half(), torch.randn(4).half()),
    "narrow": lambda: case_of("add.Tensor", torch.tensor([1, 2], dtype=torch.int8), torch.tensor([3], dtype=torch.int8)),
    "layer norm": lambda: case_of("native_layer_norm.default", torch.randn(3, 6), [6], torch.ones(6), torch.zeros(6), 1e-5),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_neighbour_differs_in_one_thing(call: str) -> None:
    torch.manual_seed(0)
    case = CALLS[call]()
    found = made(case)
    assert len(found) > 5
    for name, other in found.items():
        assert other.signature.operator == case.signature.operator
        assert [s.dtype for s in other.signature.tensors] == [s.dtype for s in case.signature.tensors]
        again = make(case, name)
        assert again.signature == other.signature
        assert all(
            torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(again.tensors, other.tensors, strict=True)
        )
        if name.startswith("extent"):
            assert other.signature.tensors != case.signature.tensors
            continue
        index = int(name[3 : name.index(" ")])
        for i, (before, after) in enumerate(zip(case.tensors, other.tensors, strict=True)):
            same = torch.equal(before.nan_to_num(), after.nan_to_num()) and before.stride() == after.stride()
            assert same or i == index
            assert before.shape == after.shape


def test_values() -> None:
    case = CALLS["mm"]()
    found = made(case)
    assert found["arg0 one NaN"].tensors[0].isnan().sum() == 1
    assert (found["arg1 a row of -Inf"].tensors[1][0] == -inf).all()
    assert found["arg1 a row of -Inf"].tensors[1].stride() == case.tensors[1].stride()
    assert found["arg0 zeros of both signs"].tensors[0].signbit().sum() == case.tensors[0].numel() // 2
    subnormal = found["arg0 subnormal"].tensors[0].abs()
    assert 0 < subnormal.max() < torch.finfo(torch.float32).tiny
    assert found["arg0 huge"].results[0][1].isfinite().all(), (
        "sums overflow or not by the order in which they are taken"
    )
    assert found["arg0 ties"].tensors[0].unique().numel() == 2
    half = made(CALLS["half"]())
    assert half["arg0 large"].tensors[0].square().isinf().any() and half["arg0 large"].tensors[0].isfinite().all()
    narrow = made(CALLS["narrow"]())
    assert narrow["arg0 all largest"].tensors[0].tolist() == [127, 127]
    assert set(made(CALLS["where"]())) >= {"arg0 all true", "arg0 all false", "arg1 one NaN"}


def test_extents_that_belong_together_change_together() -> None:
    found = made(CALLS["mm"]())
    both = found["extent 64 -> 65"]
    assert [s.shape for s in both.signature.tensors] == [(5, 65), (65, 7)]
    assert both.signature.tensors[1].strides == (1, 65), "laid out as before"
    assert "extent 64 -> 65 in arg0 dim 1" not in found, "PyTorch refuses it"
    assert [s.shape for s in found["extent 5 -> 1"].signature.tensors] == [(1, 64), (64, 7)]
    norm = made(CALLS["layer norm"]())["extent 6 -> 17"]
    assert norm.signature.template[0][1] == [17] and norm.signature.tensors[1].shape == (17,)


def test_longer_rows_are_drawn_from_the_carved_values_and_the_same_each_time() -> None:
    case, longer = CALLS["mm"](), "extent 64 -> 257"
    row, again = (made(case)[longer].tensors[0] for _ in range(2))
    assert torch.equal(row[:, :64], case.tensors[0]) and torch.equal(row, again)
    assert set(row[0].tolist()) == set(case.tensors[0][0].tolist())
    assert not torch.equal(row[:, 64:128], case.tensors[0]), "repeated in order, roundings would repeat"


def test_an_extent_alone_where_operators_broadcast() -> None:
    found = made(CALLS["in place"]())
    assert [s.shape for s in found["extent 4 -> 1 in arg1 dim 0"].signature.tensors] == [(3, 4), (1,)]
    assert "extent 4 -> 1 in arg0 dim 1" not in found, "the result would not fit into the argument"


def test_indices_point_into_what_is_left() -> None:
    found = made(CALLS["embedding"]())
    shrunk = found["extent 9 -> 3"]
    assert shrunk.tensors[1].tolist() == [[0, 2, 2]] and shrunk.results[0][1].shape == (1, 3, 4)
    assert found["extent 9 -> 65537"].tensors[0].shape == (65537, 4)


def test_strides() -> None:
    found = made(CALLS["softmax"]())
    assert found["arg0 every second element"].tensors[0].stride()[-1] == 2
    assert found["arg0 transposed in memory"].tensors[0].stride() == (1, 2, 6)
    assert found["arg0 one row expanded"].tensors[0].stride()[0] == 0
    windows = found["arg0 overlapping windows"].tensors[0]
    assert windows.stride()[-2:] == (1, 1) and has_overlap(windows.shape, windows.stride())
    written = [n for n in made(CALLS["in place"]()) if n.startswith("arg0 ")]
    assert not any("expanded" in n or "windows" in n for n in written)


def test_what_is_too_large_is_refused_before_it_is_made() -> None:
    case = case_of("mul.Tensor", torch.ones(1, 1), torch.ones(1, 1))
    with pytest.raises(RefusedError, match=r"at most 4,194,304 elements .* found 8,590"):
        make(case, "extent 1 -> 65537")


def test_calls_that_differ_in_numbers_have_each_kind_once() -> None:
    calls = [case_of("mul.Tensor", torch.randn(n, 8), torch.randn(8)) for n in (5, 6, 7)]
    records = [SignatureRecord(c.signature, "compute", 1, {}, ("id/0",)) for c in calls]
    one, three = choose(records[:1]), choose(records)
    assert len(one) <= len(three) < 1.2 * len(one)
    other = case_of("mul.Tensor", torch.randn(5, 8), torch.randn(5, 8).t().contiguous().t())
    more = choose([*records, SignatureRecord(other.signature, "compute", 1, {}, ("id/0",))])
    assert len(more) > len(three) + 10, "another layout is another structure"


def test_the_command_judges_them_apart(tapml: Callable[..., Any], carved: Callable[..., Path], tmp_path: Path) -> None:
    import json

    suite = carved("mlp")
    extension = Path(__file__).parent.parent / "converters" / "drops_nan.py"
    options = ("--target", "llvm", "--with", extension, "--select", "gelu", "--jobs", 1)
    assert tapml("test", suite, *options).code == 0, "right on what the run met"
    ran = tapml("test", suite, *options, "--boundary", "--json", tmp_path / "out.json")
    assert ran.code == 1
    found = json.loads((tmp_path / "out.json").read_text())
    failed = {o["boundary"] for o in found["boundary"] if o["status"] == "failed"}
    assert failed == {"arg0 one NaN"}
    assert all(o["launches"] > 0 for o in found["boundary"] if o["status"] == "passed")
    assert len(found["boundary"]) > 15 and found["refused"] > 0
    assert "was not met by the carved run" in ran.out and "arg0 one NaN" in ran.out


def test_what_lies_between_elements_is_zero() -> None:
    """A device gets the whole span of an argument, and one of 32 bits looks whether its integers fit."""
    for what in ("all equal", "ties", "all zero"):
        for _ in range(4):
            changed = values.change(torch.arange(64).reshape(8, 8)[:, ::4], what)
            assert changed.stride() == (8, 4)
            between = changed.as_strided((8, 3), (8, 1), 1)[:-1]
            assert not between.any()
