"""Buffers: stored once, written as they come, dropped when no case has them, or only referred to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from suite_making import assert_same_case, make_case, records_of, tensors_case, write_suite

from tapml.errors import SuiteError, UsageError
from tapml.platform import DeviceInfo
from tapml.score.result import Score
from tapml.score.rewrite import write_rewritten
from tapml.suite import Suite, SuiteWriter


def pack_sizes(path: Path) -> list[int]:
    return [pack.stat().st_size for pack in sorted((path / "tensors").iterdir())]


# -- packs ------------------------------------------------------------------------------------------------------------


def test_equal_values_are_stored_once_over_the_whole_suite(tmp_path: Path) -> None:
    weight, x = torch.randn(100, 100), torch.randn(4, 100)
    cases = [make_case("aten.mm.default", x, weight.clone(), number=n) for n in range(10)]
    suite = write_suite(tmp_path / "s", cases, outputs={"out": cases[0].results[0][1]}, pack_bytes=1)
    stored = sum(pack_sizes(tmp_path / "s"))
    assert len(pack_sizes(tmp_path / "s")) == 3
    assert stored == suite.nbytes < weight.nbytes + x.nbytes + 4 * 400 + 3 * 200


def test_equal_bytes_of_two_dtypes_are_two_buffers(tmp_path: Path) -> None:
    case = tensors_case(torch.zeros(4), torch.zeros(4, dtype=torch.int32), torch.zeros(8, dtype=torch.int16))
    suite = write_suite(tmp_path / "s", [case])
    assert len({record.buffer for record in suite.entry(case.id).tensors}) == 3


def test_packs_stay_below_their_size(tmp_path: Path) -> None:
    cases = [tensors_case(torch.full((256,), float(n)), number=n) for n in range(20)]
    large = tensors_case(torch.full((4096,), 1.0))
    write_suite(tmp_path / "s", [*cases, large], pack_bytes=4096)
    sizes = pack_sizes(tmp_path / "s")
    assert sorted(size // 1024 for size in sizes) == [4, 4, 4, 4, 4, 16]


def test_memory_stays_bounded(tmp_path: Path) -> None:
    code = """
import resource, sys, torch
from suite_making import records_of, tensors_case
from tapml.suite import Suite, SuiteWriter
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before, cases = peak(), []
with SuiteWriter(sys.argv[1], pack_bytes=8 << 20) as writer:
    for n in range(32):
        case = tensors_case(torch.full((1 << 20,), float(n)), number=n)
        writer.add_case(case)
        object.__setattr__(case, "tensors", ())
        cases.append(case)
    writer.commit(records_of(cases), info={})
print(peak() - before)
"""
    program = [sys.executable, "-c", code, str(tmp_path / "s")]
    grown = int(subprocess.run(program, check=True, capture_output=True, cwd=Path(__file__).parent).stdout)
    assert sum(pack_sizes(tmp_path / "s")) >= 128 << 20
    assert grown < 50, f"128 MB were written with packs of 8 MB, and memory grew by {grown} MB"


def test_a_discarded_case_leaves_no_bytes(tmp_path: Path) -> None:
    shared = torch.randn(300)
    cases = [tensors_case(torch.full((256,), float(n)), shared, number=n) for n in range(8)]
    with SuiteWriter(tmp_path / "s", pack_bytes=3000) as writer:
        for case in cases:
            writer.add_case(case)
        for case in (*cases[:3], cases[5], cases[7]):
            writer.discard_case(case.id)
        writer.add_case(cases[5])
        kept = [cases[3], cases[4], cases[5], cases[6]]
        writer.commit(records_of(kept), info={})
    suite = Suite.open(tmp_path / "s")
    for case in kept:
        assert_same_case(suite.case(case.id), case)
    assert suite.nbytes < 4 * 1024 + shared.nbytes + 1500


# -- checkpoints ------------------------------------------------------------------------------------------------------


class Checkpoint:
    """A model's parameters, the file they came from, and the function that finds the one for a tensor."""

    def __init__(self, folder: Path, **parameters: torch.Tensor) -> None:
        self.file = folder / "model.safetensors"
        self.parameters = parameters
        save_file({name: tensor.contiguous() for name, tensor in parameters.items()}, self.file)
        self._names = {tensor.untyped_storage().data_ptr(): name for name, tensor in parameters.items()}

    def __call__(self, tensor: torch.Tensor) -> tuple[Path, str] | None:
        name = self._names.get(tensor.untyped_storage().data_ptr())
        return None if name is None else (self.file, name)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    qkv = torch.randn(48, 16, dtype=torch.bfloat16)
    return Checkpoint(tmp_path, qkv=qkv, bias=torch.randn(16), flags=torch.rand(9) > 0.5, z=torch.randn(0, 4))


def test_parameters_are_referred_to_wherever_the_bits_are_the_checkpoints(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    qkv, bias = checkpoint.parameters["qkv"], checkpoint.parameters["bias"]
    cases = [
        tensors_case(qkv, qkv.t(), qkv[16:32], qkv[:, 3:5], bias, bias.clone(), checkpoint.parameters["flags"]),
        tensors_case(checkpoint.parameters["z"], torch.randn(3)),
        make_case("aten.t.default", qkv),
    ]
    suite = write_suite(tmp_path / "s", cases, params="reference", external=checkpoint)
    for case in cases:
        assert_same_case(suite.case(case.id), case)
    assert suite.nbytes < 500
    external = json.loads((tmp_path / "s" / "manifest.json").read_text())["external"]
    assert sorted((e["path"], e["name"], e["dtype"], e["size"]) for e in external.values()) == [
        (str(checkpoint.file), "bias", "float32", 64),
        (str(checkpoint.file), "flags", "bool", 9),
        (str(checkpoint.file), "qkv", "bfloat16", 48 * 16 * 2),
    ]


def test_a_suite_written_anew_from_its_score_refers_to_the_same(tmp_path: Path, checkpoint: Checkpoint) -> None:
    qkv, bias = checkpoint.parameters["qkv"], checkpoint.parameters["bias"]
    cases = [tensors_case(qkv, qkv[16:32], qkv[:, 3:5], bias, torch.randn(3)), make_case("aten.t.default", qkv)]
    suite = write_suite(tmp_path / "s", cases, params="reference", external=checkpoint)
    score = Score(str(suite.path), "llvm", DeviceInfo("llvm:cpu", "none"), 0, 8, ())
    new = write_rewritten(score, suite.path, tmp_path / "new", minimise=False, strengthen=False)
    again = Suite.open(tmp_path / "new")
    for case in cases:
        assert_same_case(again.case(case.id), case)
    manifests = [json.loads((s.path / "manifest.json").read_text()) for s in (suite, again)]
    assert manifests[0]["external"] == manifests[1]["external"] != {}
    assert new.stored == suite.nbytes < 500
    assert new.nbytes == new.nbytes_before == 3 * 4  # of what the checkpoint does not have


def test_what_was_converted_or_changed_since_loading_is_embedded(tmp_path: Path, checkpoint: Checkpoint) -> None:
    bias = checkpoint.parameters["bias"]
    bias[3] = 7
    converted = checkpoint.parameters["qkv"].float()
    names = {bias.data_ptr(): "bias", converted.data_ptr(): "qkv"}
    case = tensors_case(bias, converted)
    suite = write_suite(
        tmp_path / "s", [case], params="reference", external=lambda t: (checkpoint.file, names[t.data_ptr()])
    )
    checkpoint.file.unlink()
    assert_same_case(suite.case(case.id), case)
    assert json.loads((tmp_path / "s" / "manifest.json").read_text())["external"] == {}


def test_embedding_takes_no_notice_of_the_checkpoint(tmp_path: Path, checkpoint: Checkpoint) -> None:
    case = tensors_case(checkpoint.parameters["qkv"])
    suite = write_suite(tmp_path / "s", [case], external=checkpoint)
    checkpoint.file.unlink()
    assert_same_case(suite.case(case.id), case)


def test_two_parameters_in_one_storage(tmp_path: Path) -> None:
    flat = torch.randn(30)
    first, second = flat[:10], flat[10:].view(4, 5)
    file = tmp_path / "model.safetensors"
    save_file({"first": first.clone(), "second": second.clone()}, file)
    case = tensors_case(first, second)
    suite = write_suite(
        tmp_path / "s",
        [case],
        params="reference",
        external=lambda t: (file, "first" if t.storage_offset() < 10 else "second"),
    )
    assert_same_case(suite.case(case.id), case)
    assert suite.nbytes == 0


def test_a_reference_needs_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a checkpoint to refer to"):
        SuiteWriter(tmp_path / "s", params="reference")
    with pytest.raises(UsageError, match="expected params to be embed or reference, found 'zip'"):
        SuiteWriter(tmp_path / "s", params="zip")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def rewrite(checkpoint: Checkpoint, **changed: torch.Tensor) -> None:
    save_file({**checkpoint.parameters, **changed}, checkpoint.file)


CHANGES = {
    "expected a file, found: No such file or directory": lambda c: c.file.unlink(),
    "expected a regular file, found another kind": lambda c: (c.file.unlink(), os.mkfifo(c.file)),
    "expected a safetensors header, found a damaged one": lambda c: c.file.write_bytes(b"\x01" + bytes(99)),
    "expected a safetensors header within the file's 3 bytes": lambda c: c.file.write_bytes(b"abc"),
    "expected the tensor 'bias' (float32 of 64 bytes), found none": lambda c: save_file({}, c.file),
    "found float64 of 128 bytes: the checkpoint that": lambda c: rewrite(c, bias=torch.randn(16).double()),
    "expected the tensor 'bias' with the SHA-256": lambda c: rewrite(c, bias=torch.randn(16)),
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_checkpoint_that_moved_or_changed(tmp_path: Path, checkpoint: Checkpoint, message: str) -> None:
    case = tensors_case(checkpoint.parameters["bias"])
    suite = write_suite(tmp_path / "s", [case], params="reference", external=checkpoint)
    suite.case(case.id)
    CHANGES[message](checkpoint)
    for reader in (suite, Suite.open(tmp_path / "s")):
        with pytest.raises(SuiteError) as caught:
            reader.case(case.id)
        assert str(checkpoint.file) in str(caught.value) and message in str(caught.value)
        assert caught.value.hint == (
            "put the checkpoint back where it was, or carve again with the parameters embedded"
        )
