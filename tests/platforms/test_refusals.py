"""What a device or the compiler cannot hold is unsupported, by name: neither a pass nor a wrong result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tapml.migration.job import judge_signature
from tapml.migration.settings import Settings
from tapml.suite.reader import Suite
from tests.lowering.running import opened


@pytest.mark.parametrize("device", ["webgpu:native", "llvm:cpu"])
def test_results_that_no_kernel_could_give(carved: Callable[..., Path], device: str) -> None:
    opened(device)
    suite = Suite.open(carved("lengths"))
    settings, _ = Settings(device.split(":")[0], device).resolved()
    found = {}
    for record in suite.signatures:
        if record.kind == "compute":
            outcome = judge_signature(settings.job(carved("lengths"), record))
            dtypes = [spec.dtype for _, spec in record.signature.results]
            found[(record.signature.operator, *dtypes)] = (outcome.status, outcome.message)
    assert found["aten.add.Tensor", "complex64"] == ("unsupported", "TVM has no complex64")
    wide = [found["aten.to.dtype", "int64"], found["aten.where.self", "int64"]]
    if device == "llvm:cpu":
        assert [status for status, _ in wide] == ["passed", "passed"]
    else:
        assert [status for status, _ in wide] == ["unsupported", "unsupported"]
        assert all("between -2147483648 and 2147483647" in message for _, message in wide)
        assert "result out0" in wide[0][1] and "found 3000000053248" in wide[0][1]
    assert found["aten.mul.Tensor", "float32"][0] == "passed"
