"""Every kind of source, and every way in which one can be wrong."""

from __future__ import annotations

import json
import shutil
import struct
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file

from tapml.carving.reference import name_outputs
from tapml.carving.sources import SourceSpec, find_source, load_source
from tapml.errors import UsageError

Factory = Callable[[str], str]


@pytest.fixture
def factory(tmp_path: Path) -> Factory:
    """Writes a Python file whose ``make`` has the given body; returns the source that names it."""

    def write(body: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(f"import torch\n\ndef make():\n{textwrap.indent(textwrap.dedent(body), '    ')}\n")
        return f"{path}:make"

    return write


def failing(location: str, **options: object) -> UsageError:
    with pytest.raises(UsageError) as caught:
        load_source(find_source(location, **options))  # type: ignore[arg-type]
    return caught.value


# -- factories --------------------------------------------------------------------------------------------------------


def test_factory_with_args(factory: Factory) -> None:
    reference = load_source(find_source(factory("return torch.nn.Linear(3, 2).eval(), (torch.ones(1, 3),)")))
    first, second = reference.run(), reference.run()
    assert first["output"].shape == (1, 2)
    assert torch.equal(first["output"], second["output"])
    assert isinstance(reference.model, torch.nn.Linear)
    assert not first["output"].requires_grad


def test_factory_with_kwargs_and_dtype(factory: Factory) -> None:
    body = "return torch.nn.Bilinear(3, 3, 2).eval(), (torch.ones(1, 3),), {'input2': torch.ones(1, 3)}"
    reference = load_source(find_source(factory(body), dtype="bfloat16"))
    assert reference.run()["output"].dtype == torch.bfloat16


def test_factory_with_a_program_to_run_as_it_is(factory: Factory) -> None:
    body = """
        model = torch.nn.Linear(3, 3).eval()
        def loop():
            x = torch.rand(1, 3)
            for _ in range(3):
                x = model(x)
            return {"x": x, "steps": [x, x]}
        return loop
    """
    reference = load_source(find_source(factory(body), seed=7))
    outputs = reference.run()
    assert sorted(outputs) == ["steps.0", "steps.1", "x"]
    assert torch.equal(outputs["x"], reference.run()["x"]), "the seed is set before each run"
    assert isinstance(reference.model, torch.nn.Linear), "found in the closure"


def test_inputs_that_the_program_overwrites_are_fresh_each_time(factory: Factory) -> None:
    body = "return (lambda x: x.add_(1)), (torch.zeros(2),)"
    reference = load_source(find_source(factory(body)))
    assert reference.run()["output"].tolist() == reference.run()["output"].tolist() == [1, 1]


def test_factory_by_module_name(factory: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "carved_package").mkdir()
    (tmp_path / "carved_package" / "models.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Identity().eval(), (torch.ones(1),)\n"
    )
    monkeypatch.chdir(tmp_path)
    spec = find_source("carved_package.models:make")
    monkeypatch.chdir("/")
    assert load_source(spec).run()["output"].tolist() == [1.0]


@pytest.mark.parametrize("format", ["npz", "safetensors"])
def test_inputs_from_a_file(factory: Factory, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"inputs.{format}"
    values = numpy.arange(3, dtype=numpy.float32)
    if format == "npz":
        numpy.savez(path, input=values)
    else:
        save_file({"input": torch.from_numpy(values)}, path)
    reference = load_source(find_source(factory("return torch.nn.ReLU().eval(), (torch.zeros(1),)"), inputs=path))
    assert reference.run()["output"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('no weights here')", r"raised ValueError: no weights here \(.*program.py:4\)"),
        ("import a_module_that_is_missing", "raised ModuleNotFoundError"),
        ("return None", "found NoneType"),
        ("return torch.nn.Linear(2, 2)", "found Linear"),
        ("return torch.nn.Linear(2, 2), torch.ones(2)", "found a tuple of 2: Linear, Tensor"),
        ("return 1, 2, 3, 4", "found a tuple of 4"),
        ("return torch.nn.Linear(2, 2), (torch.ones(2),)", "training mode"),
    ],
)
def test_bad_factories(factory: Factory, body: str, message: str) -> None:
    error = failing(factory(body))
    assert error.hint
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(error.message)


def test_a_factory_that_is_not_there(factory: Factory, tmp_path: Path) -> None:
    location = factory("return 1")
    assert "has: make" in failing(location.replace(":make", ":build")).hint
    assert "no module" in failing("a_package_that_is_missing.models:make").message
    assert "no file" in failing(f"{tmp_path}/missing.py:make").message
    (tmp_path / "broken.py").write_text("def make(:\n")
    error = failing(f"{tmp_path}/broken.py:make")
    assert "SyntaxError" in error.message and "broken.py:1" in error.message


def test_programs_that_return_no_tensor() -> None:
    with pytest.raises(UsageError, match="found int"):
        name_outputs(3)


def test_options_that_make_no_sense(factory: Factory, tmp_path: Path) -> None:
    location = factory("return lambda: torch.ones(1)")
    assert "tokenizer" in failing(location, prompts=["hello"]).message
    assert "its own affair" in failing(location, dtype="float16").message
    assert "expected a dtype" in failing(location, dtype="float12").message
    assert "at least 1" in failing(location, max_new_tokens=0).message
    assert "no file of inputs" in failing(location, inputs=tmp_path / "missing.npz").message


# -- files ------------------------------------------------------------------------------------------------------------


def test_nothing_there(tmp_path: Path) -> None:
    error = failing(str(tmp_path / "missing"))
    assert "tried a model directory, a .gguf file, a .pt2 file, and package.module:factory" in error.message
    assert "config.json" in failing(str(tmp_path)).message
    other = tmp_path / "model.onnx"
    other.write_bytes(b"x")
    assert "expected a .gguf or .pt2 file" in failing(str(other)).message


def test_exported_program(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).eval()
    x = torch.randn(2, 3)
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, (x,)), path)
    reference = load_source(find_source(str(path)))
    with torch.no_grad():
        assert torch.equal(next(iter(reference.run().values())), model(x))
    numpy.savez(tmp_path / "other.npz", input=numpy.ones((2, 3), dtype=numpy.float32))
    reference = load_source(find_source(str(path), inputs=tmp_path / "other.npz"))
    with torch.no_grad():
        assert torch.equal(next(iter(reference.run().values())), model(torch.ones(2, 3)))
    numpy.savez(tmp_path / "other.npz", y=numpy.ones((2, 3), dtype=numpy.float32))
    assert "inputs named input" in failing(str(path), inputs=tmp_path / "other.npz").message


def test_a_program_that_raises_while_it_runs(factory: Factory) -> None:
    for body, message in (
        ("return torch.nn.Linear(3, 2).eval(), (torch.ones(1, 4),)", "the reference raised RuntimeError: .*shape"),
        ("return torch.nn.Linear(3, 2).eval(), ()", "the reference raised TypeError"),
        ("return lambda: {}['key']", r"the reference raised KeyError: 'key' \(.*program.py:4\)"),
    ):
        reference = load_source(find_source(factory(body)))
        with pytest.raises(UsageError, match=message):
            reference.run()


def test_damaged_exported_program(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(b"PK\x03\x04 and nothing more")
    assert "no exported program" in failing(str(path)).message


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04junk"])
def test_damaged_inputs(factory: Factory, tmp_path: Path, content: bytes) -> None:
    location = factory("return torch.nn.ReLU().eval(), (torch.zeros(1),)")
    for name in ("inputs.npz", "inputs.safetensors"):
        (tmp_path / name).write_bytes(content)
        assert "cannot read inputs" in failing(location, inputs=tmp_path / name).message
    numpy.savez(tmp_path / "objects.npz", input=numpy.array([{}], dtype=object))
    assert "cannot read inputs" in failing(location, inputs=tmp_path / "objects.npz").message
    (tmp_path / "inputs.csv").write_bytes(content)
    assert "expected a .npz or .safetensors" in failing(location, inputs=tmp_path / "inputs.csv").message


# -- Hugging Face -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model with random weights and without a tokenizer, as a model directory."""
    transformers = pytest.importorskip("transformers")
    directory = tmp_path_factory.mktemp("tiny")
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(directory)
    save_file({"input_ids": torch.tensor([[5, 6, 7]])}, directory / "ids.safetensors")
    return directory


def test_model_directory_generates(tiny: Path) -> None:
    reference = load_source(find_source(str(tiny), inputs=tiny / "ids.safetensors", max_new_tokens=5))
    outputs = reference.run()
    assert outputs["tokens"].shape == (1, 5)
    assert outputs["logits"].shape == (5, 1, 64)
    assert torch.equal(outputs["logits"].argmax(-1).T, outputs["tokens"])
    assert reference.text(outputs) == ""


def test_parameters_are_found_in_the_checkpoint(tiny: Path) -> None:
    reference = load_source(find_source(str(tiny), inputs=tiny / "ids.safetensors"))
    assert reference.model is not None
    stored = load_file(tiny / "model.safetensors")
    names = set()
    for name, parameter in reference.model.named_parameters():
        found = reference.external(parameter.t() if parameter.dim() == 2 else parameter)
        assert found is not None, name
        assert Path(found[0]) == tiny / "model.safetensors"
        assert torch.equal(stored[found[1]], parameter)
        names.add(found[1])
    assert names == set(stored)
    assert reference.external(torch.ones(3)) is None


def test_model_directory_without_tokenizer(tiny: Path) -> None:
    assert "cannot load a tokenizer" in failing(str(tiny), prompts=["hello"]).message
    assert "--prompt" in failing(str(tiny)).hint


def damaged(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "damaged"))


def test_safetensors_with_a_lying_header(tiny: Path, tmp_path: Path) -> None:
    directory = damaged(tiny, tmp_path)
    weights = directory / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(struct.pack("<Q", 1 << 40) + content[8:])
    assert "cannot load the model" in failing(str(directory), inputs=tiny / "ids.safetensors").message
    weights.write_bytes(content[: len(content) // 2])
    assert "cannot load the model" in failing(str(directory), inputs=tiny / "ids.safetensors").message
    weights.unlink()
    assert "cannot load the model" in failing(str(directory), inputs=tiny / "ids.safetensors").message


def test_a_checkpoint_that_lacks_parameters(tiny: Path, tmp_path: Path) -> None:
    directory = damaged(tiny, tmp_path)
    tensors = load_file(directory / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    error = failing(str(directory), inputs=tiny / "ids.safetensors")
    assert "lacks 1 parameters" in error.message and "layers.1.mlp.up_proj.weight" in error.message


def test_an_unknown_architecture(tiny: Path, tmp_path: Path) -> None:
    directory = damaged(tiny, tmp_path)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "model_type": "nobody_knows"}))
    assert "cannot load the model" in failing(str(directory), inputs=tiny / "ids.safetensors").message
    (directory / "config.json").write_text("{")
    assert "cannot load the model" in failing(str(directory), inputs=tiny / "ids.safetensors").message


def test_damaged_gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smollm2: Path) -> None:
    monkeypatch.setenv("TAPML_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGML and so on")
    assert "no GGUF file" in failing(str(path), prompts=["hello"]).message
    with open(smollm2, "rb") as whole:
        path.write_bytes(whole.read(3 << 20))
    error = failing(str(path), prompts=["hello"])
    assert "cannot read the GGUF file" in error.message and "cut off" in error.hint
    left = [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.suffix != ".lock"]
    assert not left


def test_a_missing_optional_package_says_how_to_get_it(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "transformers" else find(n, *a))
    error = failing(str(tiny), inputs=tiny / "ids.safetensors")
    assert "needs the package transformers" in error.message
    assert "tapml[hf]" in error.hint


# -- specs ------------------------------------------------------------------------------------------------------------


def test_specs_survive_json(tiny: Path) -> None:
    spec = find_source(str(tiny), prompts=["a", "b"], dtype="float16", max_new_tokens=3, seed=9)
    assert SourceSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize("change", [{"kind": "pickle"}, {"seed": "1"}, {"prompts": [1]}, {"other": 1}])
def test_foreign_specs_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="description of a source"):
        SourceSpec.from_json({**SourceSpec("factory", "a:b").to_json(), **change})
    with pytest.raises(UsageError):
        SourceSpec.from_json([])
