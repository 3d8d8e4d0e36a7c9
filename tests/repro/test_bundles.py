"""Directories that stand alone: real defects of TVM's own front end, and wrong converters, on the CPU."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tapml.errors import UsageError
from tests.repro.making import made, recorded

CONVERTERS = Path(__file__).resolve().parent.parent / "converters"
FORBID = "import sys; sys.modules['tapml'] = None; import runpy; runpy.run_path(sys.argv.pop(1), run_name='__main__')"


def run(bundle: Path, *words: str, code: str = "") -> tuple[int, str]:
    """Run the script of a bundle elsewhere, where ``import tapml`` fails."""
    command = [sys.executable, "-I", "-c", code or FORBID, bundle / "reproduce.py", "--here", *words]
    environment = {k: os.environ[k] for k in ("PATH", "HOME", "LD_LIBRARY_PATH") if k in os.environ}
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout + done.stderr


def test_a_defect_of_tvm_shrinks_to_two_numbers_and_stands_alone(tmp_path: Path) -> None:
    """TVM 0.27's front end ignores the correction of a standard deviation."""
    case = recorded("aten.std.correction", torch.linspace(-2, 3, 132).reshape(4, 33), [1], correction=1)
    found = made(case, tmp_path / "std", route="frontend", budget=60)
    bundle = found.bundle
    assert bundle.confirmation.reproduced and bundle.confirmation.how == "import"
    assert found.failure.subject.elements == 2, found.failure.subject.tensors
    assert found.failure.kind.code == "error-too-large"
    assert bundle.nbytes < 50_000
    code, said = run(bundle.path)
    assert code == 1 and "REPRODUCED" in said, said
    readme = (bundle.path / "README.md").read_text()
    for words in ("aten.std.correction", "llvm:cpu (native)", "**Reproduced** in a clean process", "model.layers.3",
                  f"torch | {torch.__version__}", "From 132 elements"):  # fmt: skip
        assert words in readme, words
    verdict = json.loads((bundle.path / "verdict.json").read_text())
    assert verdict["clean run"]["outcome"] == "reproduced" and verdict["failure"]["stage"] == "result"
    assert found.to_json()["reproduced"] is True


@pytest.mark.slow
def test_a_refusal_is_reproduced_by_its_words(tmp_path: Path) -> None:
    """The front end refuses ``cat`` with a legacy empty tensor."""
    case = recorded("aten.cat.default", [torch.empty(0), torch.ones(3, 2)], 0)
    found = made(case, tmp_path / "cat", route="frontend")
    assert found.failure.kind.stage == "convert" and found.bundle.confirmation.how == "import"
    other = json.loads((found.bundle.path / "bundle.json").read_text())
    other["failure"]["words"] = "something else is not supported"
    (found.bundle.path / "bundle.json").write_text(json.dumps(other))
    code, said = run(found.bundle.path)
    assert code == 3 and "FAILS IN ANOTHER WAY" in said, said


@pytest.mark.slow
def test_an_operator_that_nobody_converts_is_reproduced_by_the_front_ends_words(tmp_path: Path) -> None:
    found = made(recorded("aten.linalg_inv_ex.default", torch.eye(3)), tmp_path / "inverse")
    assert found.failure.finding.explanation.startswith("neither tapml nor TVM's front end converts")
    assert found.bundle.confirmation.how == "import", found.bundle.confirmation.words


@pytest.mark.slow
def test_a_bundle_that_does_not_reproduce_says_so(tmp_path: Path) -> None:
    """tapml refuses what the front end gives for a selection from the end; TVM itself computes it, and wrongly."""
    found = made(
        recorded("aten.select.int", torch.arange(6.0).reshape(2, 3), 1, -1), tmp_path / "select", route="frontend"
    )
    assert not found.bundle.confirmation.reproduced
    assert "DOES NOT REPRODUCE" in (found.bundle.path / "README.md").read_text()
    verdict = json.loads((found.bundle.path / "verdict.json").read_text())
    assert verdict["clean run"]["outcome"].startswith("DOES NOT REPRODUCE: --how import: ")
    assert found.to_json()["reproduced"] is False


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_wrong_converter_by_the_module_that_it_made(tmp_path: Path, dtype: torch.dtype) -> None:
    case = recorded("aten.gelu.default", torch.linspace(-3, 3, 12).reshape(3, 4).t().to(dtype))
    found = made(case, tmp_path / "gelu", extensions=[CONVERTERS / "wrong_gelu.py"])
    assert found.failure.route == "converter" and found.bundle.confirmation.how == "module"
    assert "wrong_gelu.py" in (found.bundle.path / "README.md").read_text()


def test_a_compiler_that_dies_is_a_crash_in_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    case = recorded("aten.neg.default", torch.ones(2))
    found = made(case, tmp_path / "bundle", extensions=[tmp_path / "dies.py"], budget=20)
    assert found.failure.finding.status == "crashed" and "SIGABRT" in str(found.failure.kind)
    assert not found.bundle.confirmation.reproduced  # it is the converter that dies, before there is a module
    assert "DOES NOT REPRODUCE" in (found.bundle.path / "README.md").read_text()


DIES = """
import os
import tapml

@tapml.converter("aten.neg.default")
def neg(ctx, x):
    os.abort()
"""


def test_float64_is_the_yardstick_where_pytorch_itself_is_not_right(tmp_path: Path) -> None:
    """Squares of these rows overflow: PyTorch gives NaN, a candidate that gives the bias is judged against float64."""
    x = torch.linspace(-1, 1, 64).reshape(4, 16) * 1e37
    (tmp_path / "biased.py").write_text(BIASED)
    case = recorded("aten.native_layer_norm.default", x, [16], torch.ones(16), torch.full((16,), 0.25), 1e-5)
    assert bool(case.results[0][1].isnan().any()), "PyTorch overflows"
    found = made(case, tmp_path / "norm", extensions=[tmp_path / "biased.py"])
    assert found.failure.kind.code == "absorbed-overflow" and found.failure.kind.result == "out0"
    assert found.bundle.confirmation.how == "module", found.bundle.confirmation.words
    code, said = run(found.bundle.path)
    assert code == 1 and "REPRODUCED: out0: expected 1.8" in said and "float64" in said, said
    assert "float64 `out0`" in (found.bundle.path / "README.md").read_text()


BIASED = """
import tapml
from tapml.lowering.converters import normalization

@tapml.converter("aten.native_layer_norm.default")
def biased(ctx, x, shape, weight, bias, eps):
    out, mean, inverse = normalization.native_layer_norm(ctx, x, shape, weight, bias, eps)
    return [ctx.pointwise(lambda o, b: b, out, bias), mean, inverse]
"""


def test_nothing_is_written_where_nothing_fails(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a failure, found none") as raised:
        made(recorded("aten.neg.default", torch.ones(2)), tmp_path / "bundle")
    assert "--route" in raised.value.hint
    assert not (tmp_path / "bundle").exists()


def test_what_is_in_the_way_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    case = recorded("aten.neg.default", torch.ones(2))
    for force in (False, True):
        with pytest.raises(UsageError, match="expected"):
            made(case, tmp_path / "mine", force=force)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_the_command_says_what_it_made(tapml: Callable[..., Any], carved: Callable[..., Path], tmp_path: Path) -> None:
    from tapml.suite.reader import Suite

    suite = carved("mlp")
    signature = next(r.signature for r in Suite.open(suite).signatures if r.signature.operator == "aten.gelu.default")
    command = ("repro", suite, signature.id, "--target", "llvm", "-o", tmp_path / "bug")
    assert tapml(*command).code == 2, "it passes"
    ran = tapml(*command, "--with", CONVERTERS / "wrong_gelu.py", "--json", tmp_path / "figures.json")
    assert ran.code == 0, ran.err
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["reproduced"] and str(tmp_path / "bug") in ran.out and "reproduced in a clean process" in ran.out
    assert figures["bytes"] == sum(figures["files"].values())
    assert figures["case"] == f"{signature.id}/0"
    again = tapml(*command, "--with", CONVERTERS / "wrong_gelu.py")
    assert again.code == 2 and "--force" in again.err
    assert tapml("repro", suite, f"{signature.id}/7", "--target", "llvm", "-o", tmp_path / "no").code == 2
    assert tapml("repro", suite, signature.id, "--target", "llvm", "--route", "side", "-o", tmp_path / "no").code == 2


@pytest.mark.slow
def test_a_neighbour_of_a_carved_case(tapml: Callable[..., Any], carved: Callable[..., Path], tmp_path: Path) -> None:
    from tapml.suite.reader import Suite

    suite = carved("mlp")
    signature = next(r.signature for r in Suite.open(suite).signatures if r.signature.operator == "aten.gelu.default")
    command = ("repro", suite, signature.id, "--target", "llvm", "--with", CONVERTERS / "wrong_gelu.py")
    ran = tapml(*command, "--boundary", "arg0 ties", "-o", tmp_path / "bug", "--json", tmp_path / "figures.json")
    assert ran.code == 0, ran.err
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["reproduced"] and figures["case"] == f"{signature.id}/0 arg0 ties"
    refused = tapml(*command, "--boundary", "arg7 ties", "-o", tmp_path / "no")
    assert refused.code == 2 and "arg7 ties" in refused.err


@pytest.mark.slow
def test_values_that_change_from_run_to_run_are_one_failure(tmp_path: Path) -> None:
    """An index from the end reads what lies before the tensor: another value each time."""
    index = [torch.tensor([0, 3, -1]), torch.tensor([1, -2, 4])]
    found = made(recorded("aten.index.Tensor", torch.arange(60.0).reshape(5, 12), index), tmp_path / "index",
                 route="frontend", budget=60)  # fmt: skip
    assert found.failure.kind.stage == "result" and found.failure.subject.elements < 20


@pytest.mark.slow
def test_a_lost_nan_among_many(tmp_path: Path) -> None:
    x = torch.randn(64, 128)
    x[40, 100] = math.nan
    found = made(recorded("aten.max.dim", x, 1), tmp_path / "max", route="frontend", budget=60)
    assert found.bundle.confirmation.reproduced and found.failure.subject.elements == 2


@pytest.mark.slow
def test_functions_as_they_go_to_llvm_and_as_they_are_compiled(tmp_path: Path) -> None:
    """Where the module itself is right, and what tapml made of it is not."""
    found = made(
        recorded("aten.std.correction", torch.tensor([1.0, 0.0]), correction=1), tmp_path / "std", route="frontend"
    )
    for how in ("module", "kernels"):
        code, said = run(found.bundle.path, "--how", how)
        assert code == 1, said
    code, said = run(found.bundle.path, "--how", "library")
    assert code == 2 and "there is no kernels.so here" in said


@pytest.mark.slow
def test_what_is_right_is_told_from_what_is_wrong(tmp_path: Path) -> None:
    """The same script where the operator is the one that TVM computes."""
    found = made(
        recorded("aten.std.correction", torch.tensor([1.0, 0.0]), correction=1), tmp_path / "std", route="frontend"
    )
    file = found.bundle.path / "call.py"
    for how in ("import", "module", "kernels"):
        file.write_text(file.read_text().replace("correction=1", "correction=0"))
        code, said = run(found.bundle.path, "--how", how)
        assert code == 0 and "RIGHT" in said, (how, said)


@pytest.mark.slow
def test_the_operator_at_fault_in_a_decomposition(tmp_path: Path) -> None:
    case = recorded("aten.softplus.default", torch.linspace(-3, 3, 6))
    found = made(case, tmp_path / "bundle", route="decomposition", extensions=[wrong_exp(tmp_path)])
    assert any("aten.exp.default" in note for note in found.failure.finding.notes), found.failure.finding.notes


def wrong_exp(folder: Path) -> Path:
    path = folder / "wrong_exp.py"
    path.write_text(
        "from tvm import tirx\nimport tapml\n\n"
        "@tapml.converter('aten.exp.default')\n"
        "def exp(ctx, x):\n    return ctx.pointwise(lambda v: tirx.exp(v) * 2.0, x)\n"
    )
    return path
