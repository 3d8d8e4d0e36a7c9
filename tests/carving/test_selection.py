"""Of many instances the first and the most stressed are kept, whatever their number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from .conftest import Recording

Record = Callable[..., Recording]


def magnitudes(recording: Recording, operator: str) -> list[tuple[str, float]]:
    kept = recording.one(operator).selection.kept()
    return [(reason, instance.tensors[0].abs().max().item()) for instance, reason in kept]


def test_first_largest_and_widest(record: Record) -> None:
    wide = torch.full((100,), 1e-6)
    wide[0] = 3.0
    inputs = [torch.full((100,), float(v)) for v in (1, 2, 9, 4)] + [wide] + [torch.full((100,), 5.0)]
    recording = record(lambda: [torch.sigmoid(x) for x in inputs])
    assert magnitudes(recording, "aten.sigmoid.default") == [("first", 1), ("magnitude", 9), ("range", 3)]


@pytest.mark.parametrize(("keep", "expected"), [(1, [1]), (2, [1, 9]), (3, [1, 9, 7]), (5, [1, 9, 7, 5, 4])])
def test_further_slots_go_by_magnitude(record: Record, keep: int, expected: list[float]) -> None:
    inputs = [torch.full((10,), float(v)) for v in (1, 2, 9, 4, 5, 3, 7)]
    recording = record(lambda: [torch.relu(x) for x in inputs], keep=keep)
    assert [m for _, m in magnitudes(recording, "aten.relu.default")] == expected


def test_an_overflow_at_a_later_layer_is_kept(record: Record) -> None:
    """float16 that doubles its exponent a layer is finite in the first layers and infinite from the sixth on."""

    def program() -> None:
        x = torch.full((4, 4), 1.5, dtype=torch.float16)
        for _ in range(8):
            x = x * 8.0

    recording = record(program)
    recorded = recording.one("aten.mul.Tensor")
    kept = recorded.selection.kept()
    overflowing = [i for i, _ in kept if torch.isinf(i.results[0][1]).any() and torch.isfinite(i.tensors[0]).all()]
    assert torch.isfinite(kept[0][0].results[0][1]).all()
    stress = [i.stress(reason) for i, reason in kept]
    assert stress[0]["nonfinite"] == 0 and stress[1]["nonfinite"] == 16
    assert overflowing, "the call that made the infinity is a case"
    (note,) = recording.recorder.nonfinite
    assert note.operator == "aten.mul.Tensor"


def test_a_mask_that_is_always_there_does_not_decide(record: Record) -> None:
    mask = torch.full((4,), torch.finfo(torch.float32).min)
    recording = record(lambda: [torch.maximum(torch.full((4,), float(v)), mask) for v in (1, 8, 3)])
    kept = recording.one("aten.maximum.default").selection.kept()
    assert [i.tensors[0][0].item() for i, _ in kept] == [1, 8, 3]


def test_parameters_do_not_count_as_stress(record: Record) -> None:
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4, bias=False) for _ in range(3)).eval()
    with torch.no_grad():
        layers[2].weight.fill_(100.0)
    x = torch.zeros(1, 4)
    recording = record(lambda: [layer(x) for layer in layers], torch.nn.Sequential(*layers))
    assert len(recording.one("aten.mm.default").selection.kept()) == 1, "the same figures, once"


def test_equal_instances_are_kept_once(record: Record) -> None:
    recording = record(lambda: [torch.relu(torch.ones(3)) for _ in range(10)])
    assert len(recording.one("aten.relu.default").selection.kept()) == 1
    assert recording.one("aten.relu.default").calls == 10


def test_integers_are_judged_too(record: Record) -> None:
    inputs = [torch.tensor([v]) for v in (1, 2**40, 3)]
    recording = record(lambda: [x + 1 for x in inputs])
    assert [i.tensors[0].item() for i, _ in recording.one("aten.add.Tensor").selection.kept()] == [1, 2**40, 3]


def test_bounded_while_running(record: Record) -> None:
    recording = record(lambda: [torch.relu(torch.full((10,), float(v))) for v in range(100)])
    assert len(recording.one("aten.relu.default").selection.held()) <= 4
