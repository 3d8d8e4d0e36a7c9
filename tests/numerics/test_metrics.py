"""The figures of a verdict."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tapml.numerics.example import example
from tapml.numerics.judge import judge
from tapml.numerics.metrics import HISTOGRAM_SAMPLE, figures, histogram, residuals, rms, ulp_distance, worst_channel
from tapml.numerics.tolerance import limits_of


def compare(exact, candidate, reference=None, compared=None, dtype=torch.float32):
    tensors = [torch.as_tensor(t, dtype=torch.float64) for t in (exact, candidate, reference or exact)]
    res = residuals(*tensors, compared)
    return res, figures(res, limits_of(dtype))


def test_largest_errors_with_index_and_both_values():
    _, found = compare([[1.0, 2.0], [1000.0, 4.0]], [[1.0, 2.5], [1001.0, 4.0]])
    assert found["max_abs"] == {"error": 1.0, "index": [1, 0], "candidate": 1001.0, "float64": 1000.0}
    assert found["max_rel"]["index"] == [0, 1] and found["max_rel"]["error"] == 0.25
    assert found["smallest_atol"] == 1.0 and found["smallest_rtol"] == 0.25
    assert found["rmse"] == pytest.approx(math.sqrt((0.25 + 1) / 4))
    assert found["bias"] == pytest.approx(1.5 / 4)
    assert found["worst_channel"]["index"] == 0 and found["worst_channel"]["dim"] == 1


def test_no_relative_tolerance_excuses_a_wrong_zero():
    assert compare([0.0, 1.0], [1e-3, 1.0])[1]["smallest_rtol"] is None


def test_no_error_no_noise_ratio():
    _, found = compare([1.0, 2.0], [1.0, 2.0])
    assert found["sqnr_db"] is None and found["cosine"] == pytest.approx(1.0) and found["ulp"] == 0


def test_sqnr_in_decibel():
    assert compare([1.0, 1.0], [1.1, 0.9])[1]["sqnr_db"] == pytest.approx(20)


def test_excluded_elements_count_for_nothing():
    keep = torch.tensor([True, False, True])
    _, found = compare([1.0, math.nan, 3.0], [1.0, math.inf, 3.5], [1.0, 2.0, math.inf], keep)
    assert found["compared"] == 2 and found["max_abs"]["error"] == 0.5 and found["max_abs_reference"] == 0


def test_scalars_and_nothing():
    assert compare(2.0, 2.5)[1]["max_abs"]["index"] == []
    assert compare([1.0], [math.nan], None, torch.tensor([False]))[1] == {"elements": 1, "compared": 0}


def test_huge_and_tiny_values_do_not_overflow():
    assert rms(torch.full((4,), 1e300, dtype=torch.float64), 4) == pytest.approx(1e300)
    assert rms(torch.full((4,), 1e-300, dtype=torch.float64), 4) == pytest.approx(1e-300)
    _, found = compare([1e300, -1e300], [1.01e300, -1e300], dtype=torch.float64)
    assert found["cosine"] == pytest.approx(1.0, abs=1e-3) and found["sqnr_db"] == pytest.approx(43, abs=0.1)


def test_every_figure_is_json():
    for pair in ([[0.0], [0.0]], [[1.0], [2.0]], [[[1.0, -2.0]], [[1.5, -2.0]]]):
        json.dumps(compare(*pair)[1], allow_nan=False)


def test_worst_channel_of_an_image_is_dimension_1():
    exact, candidate = torch.zeros(2, 3, 4, 4).double(), torch.zeros(2, 3, 4, 4).double()
    candidate[:, 2] = 1
    found = worst_channel(residuals(exact, candidate, exact, None))
    assert (found["dim"], found["index"]) == (1, 2)


def test_worst_elements_and_channels_are_named_in_order():
    exact, candidate = torch.zeros(3, 5).double(), torch.zeros(3, 5).double()
    candidate[0, 4], candidate[2, 1], candidate[1, 1] = 5.0, -3.0, 1.0
    found = figures(residuals(exact, candidate, exact, None), limits_of(torch.float32))
    assert [(e["index"], e["error"]) for e in found["worst_elements"]] == [([0, 4], 5.0), ([2, 1], 3.0), ([1, 1], 1.0)]
    assert [c["index"] for c in found["worst_channels"][:2]] == [4, 1]
    assert found["worst_channels"][0] == found["worst_channel"]


def test_a_histogram_counts_every_finite_value_in_bins_common_to_both():
    reference = torch.tensor([0.0, 1.0, -1.0, 2.0, 1000.0, math.nan]).double()
    candidate = torch.tensor([0.0, 1.0, -1.0, 2.0, -1000.0, 3.0]).double()
    found = histogram(reference, candidate)
    assert (found["low"], found["high"], found["nonfinite"]) == (-1000.0, 1000.0, [1, 0])
    assert (sum(found["reference"]), sum(found["candidate"])) == (5, 6)
    assert found["reference"][0] == 0 and found["candidate"][0] == 1, "-1000"
    assert found["reference"][-1] == 1 and found["candidate"][-1] == 0, "1000"
    assert sum(n > 0 for n in found["reference"]) >= 3, "the outlier leaves the rest apart"


@pytest.mark.parametrize("values", [[0.0], [7.0, 7.0], [1e300, -1e300, 1e-300], [5e-324, 0.0], [math.inf], []], ids=str)
def test_any_values_have_a_histogram(values):
    tensor = torch.tensor(values, dtype=torch.float64)
    found = histogram(tensor, tensor)
    assert found["reference"] == found["candidate"]
    assert sum(found["reference"]) == int(torch.isfinite(tensor).sum())
    json.dumps(found, allow_nan=False)


def test_a_histogram_of_a_large_result_samples_all_channels():
    tensor = torch.arange(64, dtype=torch.float64).repeat(HISTOGRAM_SAMPLE // 16)
    found = histogram(tensor, tensor)
    assert found["sampled_every"] >= 4 and sum(found["reference"]) <= HISTOGRAM_SAMPLE
    assert (found["low"], found["high"]) == (0.0, 63.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0, 3.0, 30.0, 1000.0])
def test_what_passes_uses_no_more_than_its_tolerance_and_what_fails_more(scale, dtype):
    torch.manual_seed(0)
    call = example("aten.mm.default", torch.randn(24, 96).to(dtype), torch.randn(96, 40).to(dtype))
    ((name, exact),) = call.results
    unit = torch.finfo(dtype).eps / 2
    wrong = (exact.double() * (1 + scale * unit * torch.randn(exact.shape).double())).to(dtype)
    verdict = judge(call.signature, call.tensors, call.results, [(name, wrong)])
    used = verdict.results[0].figures.get("tolerance")
    if verdict.code == "exact":
        assert used is None
    else:
        assert (used["error"] <= used["allowed"]) == verdict.passed
    if scale in (0.0, 1000.0):
        assert verdict.passed == (scale == 0.0)


def test_figures_of_large_results_are_sampled_and_say_so():
    exact = torch.zeros(2**20 + 8, dtype=torch.float64)
    found = figures(residuals(exact, exact + 1, exact, None), limits_of(torch.float32))
    assert found["sampled_every"] == 2 and found["bias"] == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_neighbours_are_one_apart(dtype):
    below = torch.tensor([1.0, 2.0, 0.0, -1.0], dtype=dtype)
    integer = torch.int32 if dtype == torch.float32 else torch.int16
    above = torch.tensor([1.0, 2.0, 0.0, -1.0], dtype=dtype).view(integer).add_(1).view(dtype)
    assert ulp_distance(above.double(), below.double(), dtype).tolist() == [1, 1, 1, 1]
    zero = torch.zeros(1, dtype=torch.float64)
    assert ulp_distance(zero, -zero, dtype).item() == 0


@settings(max_examples=100, deadline=None)
@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
def test_ulp_distance_orders_float32(a, b):
    one, other = (torch.tensor([v], dtype=torch.float64) for v in (a, b))
    distance = ulp_distance(one, other, torch.float32).item()
    assert (distance == 0) == (a == b) and distance == ulp_distance(other, one, torch.float32).item()


def test_the_table_of_dtypes():
    assert limits_of(torch.float16).unit == 2**-11 and limits_of(torch.float16).overflow == 65520
    assert limits_of(torch.complex64).dtype == torch.float32
    assert limits_of(torch.float8_e4m3fn).unit == 2**-4
    with pytest.raises(TypeError):
        limits_of(torch.int32)
