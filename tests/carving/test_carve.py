"""From a source to a suite, with small programs and with real models."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from tapml.carving.carve import CarveSummary, carve
from tapml.carving.classify import same_bits
from tapml.carving.sources import SourceSpec, find_source
from tapml.errors import UsageError
from tapml.suite.call import execute
from tapml.suite.reader import Suite

PROGRAM = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)
            self.steps, self.generator = 0, torch.Generator()

        def forward(self, x):
            for _ in range(4):
                x = self.down(torch.relu(self.up(x)))
            return {"x": x, "index": x.argmax(-1)}

    class Counting(Net):
        def forward(self, x):
            self.steps += 1
            return super().forward(torch.sigmoid(x) * self.steps)

    class Drawing(Net):
        def forward(self, x):
            return super().forward(x + torch.rand(4, generator=self.generator))

    def good():
        return Net().eval(), (torch.randn(2, 4),)

    def counting():
        return Counting().eval(), (torch.randn(2, 4),)

    def drawing():
        return Drawing().eval(), (torch.randn(2, 4),)

    def seeded():
        return (lambda x: x + torch.rand(4)), (torch.randn(2, 4),)

    def singular():
        return (lambda x: torch.log(x) * 2), (torch.zeros(2, 4),)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def source(program: Path, name: str) -> SourceSpec:
    return find_source(f"{program}:{name}")


def check_replays(suite: Suite, *, within: float = 0.0) -> int:
    """Execute every case of every compute signature; results are those recorded, bit for bit or within rounding."""
    count = 0
    for record in suite.signatures:
        if record.kind != "compute":
            continue
        for case in suite.cases(record.signature.id):
            for (name, found), (expected_name, expected) in zip(
                execute(record.signature, case.tensors), case.results, strict=True
            ):
                assert name == expected_name
                if not same_bits(found, expected):
                    scale = expected.abs().max().item()
                    torch.testing.assert_close(found, expected, rtol=0, atol=within * scale, msg=str(case.id))
            count += 1
    return count


def test_a_suite_is_written(program: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, int]] = []
    notes: list[str] = []
    summary = carve(source(program, "good"), tmp_path / "suite", progress=lambda *a: seen.append(a), note=notes.append)
    suite = Suite.open(summary.path)
    assert summary.path == tmp_path / "suite"
    assert check_replays(suite) > 4
    assert sorted(suite.reference_outputs()) == ["index", "x"]
    assert SourceSpec.from_json(suite.info["source"]) == source(program, "good")
    assert suite.info["calls"] == summary.calls == sum(row.calls for row in summary.operators) == seen[-1][0]
    assert summary.signatures == len(suite.signatures) == sum(row.signatures for row in summary.operators)
    assert summary.cases == len(suite.case_ids) == sum(row.cases for row in summary.operators)
    assert not summary.warnings and "writing" in notes
    rows = {row.operator: row for row in summary.operators}
    assert (rows["aten.addmm.default"].calls, rows["aten.addmm.default"].signatures) == (8, 2)
    assert rows["aten.addmm.default"].cases == 6
    assert [row.kind for row in summary.operators] == sorted(row.kind for row in summary.operators)


def test_two_carves_are_the_same_suite(program: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        carve(source(program, "good"), tmp_path / name)
    one, two = Suite.open(tmp_path / "one"), Suite.open(tmp_path / "two")
    assert one.digest == two.digest


@pytest.mark.parametrize(
    ("name", "operator"),
    [("counting", r"aten\.mul\.Tensor \(.*program\.py:18"), ("drawing", r"aten\.rand\.generator \(.*program\.py:22")],
)
def test_the_operator_that_first_differs_is_named(program: Path, tmp_path: Path, name: str, operator: str) -> None:
    with pytest.raises(UsageError, match=operator) as caught:
        carve(source(program, name), tmp_path / "suite")
    assert "--allow-nondeterministic" in caught.value.hint
    assert not (tmp_path / "suite").exists()
    summary = carve(source(program, name), tmp_path / "suite", allow_nondeterministic=True)
    assert "different results in two runs" in summary.warnings[0]
    assert Suite.open(summary.path).info["warnings"] == list(summary.warnings)


def test_random_numbers_from_the_seed_are_no_nondeterminism(program: Path, tmp_path: Path) -> None:
    summary = carve(source(program, "seeded"), tmp_path / "suite")
    assert summary.classes["random"] == (1, 1)
    assert not summary.warnings


def test_infinity_in_the_reference_is_reported(program: Path, tmp_path: Path) -> None:
    summary = carve(source(program, "singular"), tmp_path / "suite")
    (warning,) = summary.warnings
    assert "aten.log.default made NaN or Inf out of finite inputs" in warning


def test_what_exists_is_not_overwritten(program: Path, tmp_path: Path) -> None:
    carve(source(program, "good"), tmp_path / "suite")
    with pytest.raises(UsageError):
        carve(source(program, "good"), tmp_path / "suite")
    carve(source(program, "good"), tmp_path / "suite", force=True, keep=1)
    assert all(len(r.cases) == 1 for r in Suite.open(tmp_path / "suite").signatures)


def test_bad_requests_leave_nothing(program: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no safetensors checkpoint"):
        carve(source(program, "good"), tmp_path / "suite", params="reference")
    with pytest.raises(UsageError, match="at least 1 case"):
        carve(source(program, "good"), tmp_path / "suite", keep=0)
    assert {p.name for p in tmp_path.iterdir()} <= {"program.py", "__pycache__"}


def test_a_killed_carve_leaves_no_half_suite(program: Path, tmp_path: Path) -> None:
    """Killed at three moments after it has begun: nothing at the output, or a whole suite; the next carve works."""
    out = tmp_path / "suite"
    code = f"""
        from tapml.carving.carve import carve
        from tapml.carving.sources import find_source
        print("begun", flush=True)
        while True:
            carve(find_source({f"{program}:good"!r}), {str(out)!r}, force=True)
    """
    for delay in (0.0, 0.15, 0.4):
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            time.sleep(delay)
            process.kill()
        if out.exists():
            assert check_replays(Suite.open(out)) > 4
    carve(source(program, "good"), out, force=True)
    assert {p.name for p in tmp_path.iterdir()} <= {"program.py", "__pycache__", "suite"}


# -- real models ------------------------------------------------------------------------------------------------------


def attention_row(summary: CarveSummary) -> int:
    names = [row.operator for row in summary.operators]
    assert not [n for n in names if "_scaled_dot_product" in n or "_unsafe" in n or "_to_copy" in n]
    return next(row.calls for row in summary.operators if row.operator == "aten.scaled_dot_product_attention.default")


def test_minilm(minilm: Path, tmp_path: Path) -> None:
    spec = find_source(str(minilm), prompts=["A cat sat.", "The weather is really lovely today, isn't it?"])
    summary = carve(spec, tmp_path / "embedded")
    suite = Suite.open(summary.path)
    assert attention_row(summary) == 6
    assert check_replays(suite, within=1e-5) > 30
    assert suite.reference_outputs()["last_hidden_state"].shape[0] == 2
    modules = {m for record in suite.signatures for m in record.modules}
    assert "encoder.layer.5.attention.self" in modules
    referring = carve(spec, tmp_path / "referring", params="reference")
    assert referring.nbytes < summary.nbytes / 5
    check_replays(Suite.open(referring.path), within=1e-5)


def test_smollm2(smollm2: Path, tmp_path: Path) -> None:
    spec = find_source(str(smollm2), prompts=["What is the capital of France?"], max_new_tokens=2)
    summary = carve(spec, tmp_path / "suite")
    suite = Suite.open(summary.path)
    assert attention_row(summary) == 60
    assert check_replays(suite, within=1e-5) > 150
    assert summary.text == "The capital"
    assert summary.nbytes < 300e6
    outputs = suite.reference_outputs()
    assert outputs["tokens"].shape == (1, 2) and outputs["logits"].shape == (2, 1, 49152)
    (embedding, *_) = [r for r in suite.signatures if r.signature.operator == "aten.embedding.default"]
    assert embedding.modules == {"model.embed_tokens": 1}
