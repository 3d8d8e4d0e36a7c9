"""What a recording holds: values before and after, aliases, counts, places."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch

from tapml.carving.recorder import Recorder
from tapml.errors import UnsupportedError, UsageError

from .conftest import Recording

Record = Callable[..., Recording]


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Model(torch.nn.Module):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_calls_are_counted_by_module_and_have_a_source_line(record: Record) -> None:
    model, x = Model().eval(), torch.randn(2, 8)
    recording = record(lambda: model(x), model)
    relu = recording.one("aten.relu.default")
    assert relu.calls == 3
    assert relu.modules == {f"layers.{i}": 1 for i in range(3)}
    first, _ = relu.selection.kept()[0]
    assert first.module == "layers.0"
    assert "test_recorder.py:" in first.source and first.source.endswith(" in forward")
    up, down = recording.of("aten.addmm.default")
    assert set(up.modules) == {f"layers.{i}.up" for i in range(3)}
    assert set(down.modules) == {f"layers.{i}.down" for i in range(3)}
    assert recording.recorder.calls == sum(r.calls for r in recording.recorded)
    recording.check_replays()


def test_without_a_model_modules_are_named_after_their_class(record: Record) -> None:
    model, x = Model(1).eval(), torch.randn(2, 8)
    recording = record(lambda: model(x))
    assert recording.one("aten.relu.default").modules == {"Model.layers.0": 1}


def test_a_module_from_elsewhere_keeps_the_place_of_its_caller(record: Record) -> None:
    activation = torch.nn.ReLU()  # in training mode, as a table of activations has them

    class Caller(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return activation(x)

    model = torch.nn.Sequential(Caller()).eval()
    recording = record(lambda: model(torch.randn(3)), model)
    assert recording.one("aten.relu.default").modules == {"0.ReLU": 1}


def test_in_place_mutation_has_state_before_and_after(record: Record) -> None:
    x = torch.zeros(3)
    recording = record(lambda: [x.add_(i + 1) for i in range(2)])
    first, second = recording.of("aten.add_.Tensor")
    (one, _), (two, _) = first.selection.kept()[0], second.selection.kept()[0]
    assert one.tensors[0].tolist() == [0, 0, 0]
    assert [(n, t.tolist()) for n, t in one.results] == [("arg0", [1, 1, 1])]
    assert two.tensors[0].tolist() == [1, 1, 1]
    assert two.results[0][1].tolist() == [3, 3, 3]
    assert x.tolist() == [3, 3, 3]


def test_kept_values_survive_later_writes(record: Record) -> None:
    x = torch.randn(2, 3)

    def program() -> None:
        product = x * 2  # held as a result ...
        view = product.view(6)
        total = product + 1  # ... and as an input
        view[2:4].fill_(7.0)
        product.mul_(0)
        product.copy_(total)
        product.t_()
        torch.relu(product, out=product) if False else product.relu_()

    original = x.clone()
    recording = record(program)
    product, _ = recording.one("aten.mul.Tensor").selection.kept()[0]
    assert torch.equal(product.results[0][1], original * 2)
    total, _ = recording.one("aten.add.Tensor").selection.kept()[0]
    assert torch.equal(total.tensors[0], original * 2)
    view, _ = recording.of("aten.view.default")[0].selection.kept()[0]
    assert view.tensors[0].data_ptr() == view.results[0][1].data_ptr(), "a view still shares memory after the copy"
    assert not recording.recorder.warnings
    recording.check_replays()


def test_cache_updates(record: Record) -> None:
    """A static cache written at a position, by index_copy_ and by slice assignment."""

    def program() -> None:
        keys, values = torch.zeros(1, 2, 6, 4), torch.zeros(1, 2, 6, 4)
        for step in range(5):
            fresh = torch.full((1, 2, 1, 4), float(step + 1))
            keys.index_copy_(2, torch.tensor([step]), fresh)
            values[:, :, step : step + 1] = fresh
            keys @ values.transpose(2, 3)

    recording = record(program, keep=5)
    written = recording.one("aten.index_copy_.default")
    assert written.calls == 5
    for instance, _ in written.selection.kept():
        step = int(instance.tensors[1].item())
        before, after = instance.tensors[0], instance.results[0][1]
        assert before[0, 0, :, 0].tolist() == [*range(1, step + 1), *[0] * (6 - step)]
        assert after[0, 0, :, 0].tolist() == [*range(1, step + 2), *[0] * (5 - step)]
    assert len(written.selection.kept()) == 5
    copies = recording.of("aten.copy_.default")
    assert sum(c.calls for c in copies) == 5
    recording.check_replays()


def test_arguments_that_share_storage_with_a_mutated_one_still_do(record: Record) -> None:
    base = torch.arange(8.0).reshape(4, 2)
    recording = record(lambda: base[0].add_(base[1]))
    instance, _ = recording.one("aten.add_.Tensor").selection.kept()[0]
    into, other = instance.tensors
    assert into.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    assert other.storage_offset() - into.storage_offset() == 2
    assert into.tolist() == [0, 1] and other.tolist() == [2, 3]
    assert instance.results[0][1].tolist() == [2, 4]


def test_sharing_survives_different_dtypes(record: Record) -> None:
    base = torch.arange(4, dtype=torch.float64)
    recording = record(lambda: base[3:].copy_(base[1:2].view(torch.float32)[1:]))
    instance, _ = recording.one("aten.copy_.default").selection.kept()[0]
    assert instance.tensors[0].tolist() == [3.0]
    assert instance.tensors[1].tolist() == torch.tensor([1.0], dtype=torch.float64).view(torch.float32)[1:].tolist()


def test_out_variants(record: Record) -> None:
    x = torch.randn(3, 3)
    recording = record(lambda: torch.mm(x, x, out=torch.zeros(3, 3)))
    instance, _ = recording.one("aten.mm.out").selection.kept()[0]
    assert [n for n, _ in instance.results] == ["arg2"]
    assert torch.equal(instance.results[0][1], x @ x)
    recording.check_replays()


def test_a_write_that_nobody_announced_drops_the_case(record: Record) -> None:
    x = torch.ones(3)

    def program() -> None:
        torch.relu(x)
        x.numpy()[:] = 9

    recording = record(program)
    assert recording.one("aten.relu.default").selection.kept() == []
    assert "changed its values later" in recording.recorder.warnings[0]


def test_undefined_values_are_zero_in_the_recording(record: Record) -> None:
    recording = record(lambda: torch.empty(1000).fill_(1.0))
    instance, _ = recording.one("aten.fill_.Scalar").selection.kept()[0]
    assert not instance.tensors[0].any()


def test_what_is_not_kept_is_not_held() -> None:
    alive: list[weakref.ref[torch.Tensor]] = []
    with torch.no_grad(), Recorder(keep=3) as recorder:
        for scale in range(50, 0, -1):
            y = torch.ones(10) * float(scale % 7)
            alive.append(weakref.ref(torch.relu(y).untyped_storage()))  # type: ignore[arg-type]
    recorder.finish()
    del y
    gc.collect()
    assert recorder.calls == 150
    held = {t.untyped_storage()._cdata for holders in recorder._holders.values() for i in holders for t in i.tensors}
    assert len(held) < 30


def test_nan_out_of_finite_inputs_is_noted_once(record: Record) -> None:
    class Log(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(x) + torch.log(x)

    model = torch.nn.Sequential(Log()).eval()
    recording = record(lambda: model(torch.tensor([1.0, 0.0])), model)
    (note,) = recording.recorder.nonfinite
    assert (note.operator, note.module) == ("aten.log.default", "0")
    assert "test_recorder.py" in str(note)


def test_infinite_scalars_and_masks_are_not_noted(record: Record) -> None:
    x = torch.randn(3)

    def program() -> None:
        masked = x.masked_fill(x > 0, -float("inf"))
        torch.softmax(masked + torch.full((3,), -float("inf")), 0)

    assert not record(program).recorder.nonfinite


def test_training_mode_is_an_error() -> None:
    model = Model(1)
    with pytest.raises(UsageError, match="training mode") as caught, Recorder(model), torch.no_grad():
        model(torch.randn(2, 8))
    assert ".eval()" in caught.value.hint
    model.eval().layers[0].up.train()
    with pytest.raises(UsageError, match=r"layers\.0\.up in training mode"), Recorder(model), torch.no_grad():
        model(torch.randn(2, 8))


def test_sparse_tensors_are_refused_by_name() -> None:
    x = torch.eye(3).to_sparse()
    with pytest.raises(UnsupportedError, match="sparse"), Recorder(), torch.no_grad():
        x + x


def test_hooks_are_gone_afterwards() -> None:
    hooks = torch.nn.modules.module._global_forward_pre_hooks, torch.nn.modules.module._global_forward_hooks
    with pytest.raises(ZeroDivisionError), Recorder():
        assert all(hooks)
        raise ZeroDivisionError
    assert not any(hooks)


def test_progress(record: Record) -> None:
    seen: list[tuple[int, int, int]] = []
    x = torch.randn(64)
    record(lambda: [x * float(i) for i in range(300)], progress=lambda *a: seen.append(a))
    assert seen[-1][:2] == (300, 300)
    assert seen[-1][2] > 0
    assert len(seen) < 10


def test_recording_does_not_change_the_numbers() -> None:
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(4, 8)
    with torch.no_grad():
        plain = model(x)
        with Recorder(model):
            assert torch.equal(model(x), plain)
