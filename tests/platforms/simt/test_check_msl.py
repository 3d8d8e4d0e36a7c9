"""The check of Metal sources has to refuse what Apple's compiler refuses."""

from __future__ import annotations

import pytest

from tapml.platforms.simt.check_msl import check_msl
from tests.platforms.simt.running import source


def check(body: str, dtypes: tuple[str, ...] = ("float32", "float32")) -> tuple[str, str]:
    checked = check_msl(source("metal", body, list(dtypes)))
    if checked.status == "not checked" and not checked.by:
        pytest.skip(checked.message)
    return checked.status, checked.message


@pytest.mark.parametrize(
    "body",
    [
        "b[x] = exp(a[x]) + (float)popcount(x);",
        "threadgroup float s[32]; s[x] = a[x]; threadgroup_barrier(mem_flags::mem_threadgroup); b[x] = s[31 - x];",
        "float4 v = *(device float4*)(a + x * 4); *(device float4*)(b + x * 4) = max(v, float4(0.0f)) + v[0];",
        "b[x] = simd_shuffle_down(a[x], 1) + (float)((half)a[x] * 2.000000e+00h) + as_type<float>(as_type<int>(a[x]));",
        "simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); simdgroup_store(m, b, 8, 0, false);",
    ],
)
def test_valid(body: str) -> None:
    assert check(body) == ("compiles", "")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("b[x] = erf(a[x]);", "erf"),
        ("b[x] = log1p(a[x]);", "log1p"),
        ("b[x] = nearbyint(a[x]);", "nearbyint"),
        ("b[x] = atan2f(a[x], a[x]);", "atan2f"),
        ("threadgroup float s[32]; device float* p = s; b[x] = p[0];", "__global"),
        ("b[x] = (double)a[x] + unknown;", "unknown"),
    ],
)
def test_invalid(body: str, words: str) -> None:
    status, message = check(body)
    assert status == "refused" and words in message
