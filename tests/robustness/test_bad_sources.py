"""What can be wrong with what is carved: one ``error:`` line, a ``hint:``, exit code 2, nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import save_file

from .conftest import Refused
from .running import HERE

FACTORIES = HERE / "bad_factories.py"


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        ("nothing_of_that_name", "expected a callable nothing_of_that_name"),
        ("not_callable", "expected a callable not_callable"),
        ("raises", "raised RuntimeError: no model [/here] ("),
        ("exits", "raised SystemExit: 0"),
        ("returns_none", "found NoneType"),
        ("returns_text", "found str"),
        ("returns_four", "found a tuple of 4"),
        ("returns_model_alone", "found Linear"),
        ("args_are_a_tensor", "found a tuple of 2: Linear, Tensor"),
        ("needs_arguments", "missing 1 required positional argument"),
        ("wrong_shape", "the reference raised RuntimeError"),
        ("no_tensor", "expected the reference to return tensors, found int"),
        ("training", "found Linear in training mode"),
        ("unsteady", "different results in two runs"),
        ("exits_while_it_runs", "the reference raised SystemExit: enough"),
    ],
)
def test_a_factory(refused: Refused, factory: str, expected: str) -> None:
    assert expected in refused("carve", f"{FACTORIES}:{factory}", "-o", "out")


@pytest.mark.parametrize(
    "source",
    ["nowhere", "nowhere.gguf", "nowhere.pt2", "no.such.module:make", "nowhere.py:make", "file.txt", ".", "torch:", ""],
)
def test_a_source_that_is_none(refused: Refused, source: str) -> None:
    Path("file.txt").write_text("x")
    refused("carve", source, "-o", "out")


def test_a_module_that_cannot_be_imported(refused: Refused) -> None:
    Path("broken.py").write_text("import torch\ndef make(:\n")
    assert "broken.py:2" in refused("carve", "broken.py:make", "-o", "out")
    Path("script.py").write_text("import argparse\nargparse.ArgumentParser().parse_args(['--no'])\n")
    assert "SystemExit" in refused("carve", "script.py:make", "-o", "out", lines=None)


@pytest.mark.parametrize(
    "options",
    [
        ("--dtype", "float8"),
        ("--keep", "0"),
        ("--max-new-tokens", "0"),
        ("--keep", "x"),
        ("--nope",),
        ("--prompt", "x"),
    ],
)
def test_an_option(refused: Refused, options: tuple[str, ...]) -> None:
    refused("carve", f"{FACTORIES}:works", "-o", "out", *options)


def test_no_output_and_no_command(refused: Refused) -> None:
    refused("carve", f"{FACTORIES}:works")
    refused("crave", "x")
    refused("carve", f"{FACTORIES}:works", "-o", "out", "--params", "reference")


class TestOutput:
    def test_that_exists(self, refused: Refused) -> None:
        os.mkdir("mine")
        Path("mine/thesis.tex").write_text("years of work")
        for force in ([], ["--force"]):
            refused("carve", f"{FACTORIES}:works", "-o", "mine", *force)
        assert Path("mine/thesis.tex").read_text() == "years of work"

    def test_that_is_a_suite(self, refused: Refused, suite: Path) -> None:
        shutil.copytree(suite, "suite")
        assert "--force" in refused("carve", f"{FACTORIES}:works", "-o", "suite")

    def test_that_is_a_file_or_in_one(self, refused: Refused) -> None:
        Path("file").write_text("x")
        refused("carve", f"{FACTORIES}:works", "-o", "file")
        refused("carve", f"{FACTORIES}:works", "-o", "file/suite")
        refused("carve", f"{FACTORIES}:works", "-o", "/proc/suite")

    def test_in_parents_that_are_missing_are_removed_again(self, refused: Refused) -> None:
        refused("carve", f"{FACTORIES}:raises", "-o", "a/b/c")


def _lying(path: Path, header: dict[str, Any], data: bytes = b"", length: int | None = None) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


LIES: dict[str, tuple[dict[str, Any], int | None]] = {
    "more data than there is": (
        {"input": {"dtype": "F32", "shape": [1 << 20, 3], "data_offsets": [0, 12 << 20]}},
        None,
    ),
    "another shape": ({"input": {"dtype": "F32", "shape": [9, 9], "data_offsets": [0, 12]}}, None),
    "a header as long as the universe": ({"input": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}, 1 << 62),
    "offsets backwards": ({"input": {"dtype": "F32", "shape": [3], "data_offsets": [12, 0]}}, None),
}


@pytest.mark.parametrize("lie", LIES)
def test_inputs_with_a_lying_header(refused: Refused, lie: str) -> None:
    header, length = LIES[lie]
    _lying(Path("in.safetensors"), header, bytes(12), length)
    assert "in.safetensors" in refused("carve", f"{FACTORIES}:works", "-o", "out", "--inputs", "in.safetensors")


def test_inputs(refused: Refused) -> None:
    def carve(name: str) -> str:
        return refused("carve", f"{FACTORIES}:works", "-o", "out", "--inputs", name)

    carve("missing.npz")
    Path("in.txt").write_text("x")
    assert ".npz or .safetensors" in carve("in.txt")
    Path("random.npz").write_bytes(os.urandom(1000))
    carve("random.npz")
    Path("empty.npz").write_bytes(b"")
    carve("empty.npz")
    numpy.savez("none.npz")
    assert "no tensors" in carve("none.npz")
    numpy.savez_compressed("whole.npz", input=numpy.random.rand(1, 3).astype("float32"))
    data = Path("whole.npz").read_bytes()
    for cut in (10, len(data) // 2, len(data) - 10):
        Path("cut.npz").write_bytes(data[:cut])
        carve("cut.npz")
    middle = data.index(b"PK\x01\x02") - 20  # the member's last bytes: behind it comes the central directory
    Path("flipped.npz").write_bytes(data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :])
    carve("flipped.npz")
    numpy.savez("object.npz", input=numpy.array([{"a": 1}], dtype=object))
    carve("object.npz")
    save_file({"other": torch.ones(1, 3)}, "names.safetensors")
    assert "unexpected keyword argument 'other'" in carve("names.safetensors")
    save_file({"input": torch.ones(1, 4)}, "shape.safetensors")
    assert "RuntimeError" in carve("shape.safetensors")
    os.mkdir("folder.npz")
    carve("folder.npz")


def test_an_exported_program(refused: Refused) -> None:
    Path("random.pt2").write_bytes(os.urandom(1000))
    refused("carve", "random.pt2", "-o", "out")
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2).eval(), (torch.ones(1, 3),)), "whole.pt2")
    data = Path("whole.pt2").read_bytes()
    Path("cut.pt2").write_bytes(data[: len(data) // 2])
    refused("carve", "cut.pt2", "-o", "out")
    save_file({"nope": torch.ones(1, 3)}, "in.safetensors")
    assert "expected inputs named" in refused("carve", "whole.pt2", "-o", "out", "--inputs", "in.safetensors")


class TestModelDirectory:
    @pytest.fixture
    def model(self) -> Path:
        pytest.importorskip("transformers")
        from transformers import BertConfig, BertModel

        config = BertConfig(
            vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
        )
        BertModel(config).save_pretrained("model")
        save_file({"input_ids": torch.ones(1, 4, dtype=torch.int64)}, "in.safetensors")
        return Path("model")

    def carve(self, refused: Refused) -> str:
        return refused("carve", "model", "-o", "out", "--inputs", "in.safetensors")

    def test_without_anything_to_run_on(self, refused: Refused, model: Path) -> None:
        assert "needs something to run on" in refused("carve", "model", "-o", "out")
        assert "tokenizer" in refused("carve", "model", "-o", "out", "--prompt", "hello")

    @pytest.mark.parametrize("cut", [0, 4, 100, -100])
    def test_whose_weights_are_cut_off(self, refused: Refused, model: Path, cut: int) -> None:
        data = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(data[:cut])
        self.carve(refused)

    @pytest.mark.parametrize("lie", LIES)
    def test_whose_weights_have_a_lying_header(self, refused: Refused, model: Path, lie: str) -> None:
        header, length = LIES[lie]
        _lying(model / "model.safetensors", header, bytes(12), length)
        self.carve(refused)

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", '{"model_type": "nope"}', '{"model_type": "bert", "hidden_size": "x"}']
    )
    def test_whose_config_is_bad(self, refused: Refused, model: Path, text: str) -> None:
        (model / "config.json").write_text(text)
        self.carve(refused)

    def test_whose_weights_are_missing_or_of_another_size(self, refused: Refused, model: Path) -> None:
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "hidden_size": 16}))
        self.carve(refused)
        (model / "model.safetensors").unlink()
        self.carve(refused)

    def test_with_inputs_it_does_not_take(self, refused: Refused, model: Path) -> None:
        ids = torch.ones(1, 4, dtype=torch.int64)
        save_file({"input_ids": ids, "attention_maks": ids.clone()}, "in.safetensors")  # BERT would ignore it
        assert "attention_maks" in self.carve(refused)
        save_file({"input_ids": torch.full((1, 4), 77)}, "in.safetensors")
        assert "IndexError" in self.carve(refused)


class TestGguf:
    @pytest.mark.parametrize("data", [b"", b"GGU", b"GGUF", b"GGUF" + bytes(100), b"GGUF\3\0\0\0" + b"\xff" * 100])
    def test_that_is_none(self, refused: Refused, data: bytes) -> None:
        pytest.importorskip("gguf")
        Path("x.gguf").write_bytes(data)
        refused("carve", "x.gguf", "-o", "out", "--prompt", "hello")

    @pytest.mark.parametrize("size", [1000, 1 << 20, 20 << 20, pytest.param(-1000, marks=pytest.mark.slow)])
    def test_that_is_cut_off(self, refused: Refused, smollm2: Path, size: int) -> None:
        length = size if size > 0 else smollm2.stat().st_size + size
        with open(smollm2, "rb") as file:
            Path("cut.gguf").write_bytes(file.read(length))
        refused("carve", "cut.gguf", "-o", "out", "--prompt", "hello")
