"""Samples of operators whose schema does not say what their arguments mean."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from tests.lowering.samples import Sample, tensor

f32, f16, bf16, i64, b8 = torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool


def _x(*shape: int, dtype: torch.dtype = f32, seed: int = 0) -> torch.Tensor:
    return tensor(shape, dtype, seed)


def _index(shape: tuple[int, ...], extent: int, seed: int = 0) -> torch.Tensor:
    """Positions, some of them counted from the end."""
    return torch.randint(-extent, extent, shape, generator=torch.Generator().manual_seed(seed))


def _positions(shape: tuple[int, ...], extent: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, extent, shape, generator=torch.Generator().manual_seed(seed))


def _distinct(count: int, extent: int, seed: int = 0) -> torch.Tensor:
    return torch.randperm(extent, generator=torch.Generator().manual_seed(seed))[:count]


def _call(*args: Any, **kwargs: Any) -> Sample:
    return args, kwargs


def _of(*found: Sample) -> Callable[[], Iterable[Sample]]:
    return lambda: found


def _with_nan(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x.view(-1)[1::7] = math.nan
    return x


def _matrices() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for dtype in (f32, bf16, f16, i64):
        yield _x(5, 48, dtype=dtype), _x(48, 32, dtype=dtype, seed=1)
        yield _x(33, 7, dtype=dtype), _x(5, 33, dtype=dtype, seed=1).t()
        yield _x(1, 1, dtype=dtype), _x(1, 3, dtype=dtype)
        yield _x(3, 0, dtype=dtype), _x(0, 4, dtype=dtype)


def _products() -> Iterator[Sample]:
    yield from (_call(a, b) for a, b in _matrices())


def _batched_products() -> Iterator[Sample]:
    yield from (_call(a.expand(3, *a.shape), b.expand(3, *b.shape)) for a, b in _matrices())


def _sums_with_products(batch: int | None = None) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        for a, b in _matrices():
            base = _x(b.shape[1], dtype=a.dtype, seed=2)
            left, right = (a, b) if batch is None else (a.expand(batch, *a.shape), b.expand(batch, *b.shape))
            yield _call(base, left, right)
            yield _call(base, left, right, beta=2, alpha=3)
            if a.dtype.is_floating_point:
                yield _call(torch.full_like(base, math.nan), left, right, beta=0, alpha=0.5)

    return found


def _attention() -> Iterator[Sample]:
    for dtype in (f32, bf16):
        q, k, v = (_x(2, 4, n, 16, dtype=dtype, seed=s) for n, s in ((5, 0), (9, 1), (9, 2)))
        yield _call(q, k, v)
        yield _call(q, k, v, _x(2, 1, 5, 9, dtype=dtype, seed=3))
        yield _call(q, k, v, torch.ones(5, 9, dtype=b8).tril())
        yield _call(k, k, v, None, 0.0, True, scale=0.3)
        yield _call(q, k[:, :2], v[:, :2], enable_gqa=True)
        yield _call(q.transpose(1, 2), k.transpose(1, 2)[:, :5], v.transpose(1, 2)[:, :5])


def _convolutions() -> Iterator[Sample]:
    for dtype in (f32, bf16):
        for transposed in (False, True):
            image, bias = _x(2, 4, 9, 8, dtype=dtype), _x(6, dtype=dtype, seed=2)
            weight = _x(*((4, 6) if transposed else (6, 4)), 3, 2, dtype=dtype, seed=1)
            yield _call(image, weight, bias, [1, 1], [0, 0], [1, 1], transposed, [0, 0], 1)
            yield _call(image, weight, None, [2, 3], [1, 0], [2, 1], transposed, [0, 0], 1)
        yield _call(_x(1, 4, 9, dtype=dtype), _x(4, 1, 4, dtype=dtype), None, [1], [3], [1], False, [0], 4)
        yield _call(_x(1, 4, 9, dtype=dtype), _x(4, 2, 4, dtype=dtype), None, [2], [1], [1], True, [1], 2)
        yield _call(_x(1, 2, 3, 4, 5), _x(2, 2, 2, 2, 2), _x(2), [1, 1, 1], [1, 1, 1], [1, 1, 1], False, [0, 0, 0], 1)


def _pooling(dimensions: int, *, averaging: bool) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        for dtype in (f32, bf16):
            x = _x(2, 3, *(7, 6, 5)[:dimensions], dtype=dtype)
            ones, twos = [1] * dimensions, [2] * dimensions
            yield _call(x, twos)
            yield _call(x, [3] * dimensions, twos, ones, *([] if averaging else [ones]))
            yield _call(x, twos, [3] * dimensions, [0] * dimensions, *([True] if averaging else [ones, True]))
            if averaging:
                yield _call(x, twos, ones, ones, False, False)
                if dimensions > 1:
                    yield _call(x, twos, ones, ones, True, True, 3)
            else:
                yield _call(_with_nan(x), twos, ones)
                yield _call(x, twos, ones, [0] * dimensions, twos)

    return found


def _adaptive(dimensions: int) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        for dtype, size in itertools.product((f32, bf16), ((3, 2, 4), (1, 1, 1), (9, 8, 7))):
            yield _call(_x(2, 3, *(7, 6, 5)[:dimensions], dtype=dtype), list(size[:dimensions]))

    return found


def _resampling(dimensions: int, *, corners: bool) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        for dtype, size in itertools.product((f32, bf16), ((3, 2, 4), (13, 9, 1))):
            x = _x(2, 3, *(7, 6, 5)[:dimensions], dtype=dtype)
            for flag in (False, True):
                yield _call(x, list(size[:dimensions]), *([flag] if corners else []))
        x = _x(1, 2, *(4, 4, 4)[:dimensions])
        yield _call(x, [10] * dimensions, *([False] if corners else []), *[2.5] * dimensions)

    return found


def _lines() -> list[torch.Tensor]:
    ties = _x(4, 33).round()
    return [ties, _with_nan(_x(3, 17)), _x(1, 50, dtype=bf16), _x(6, 7, dtype=i64).t(), _x(5, dtype=b8), _x(), _x(2, 1)]


def _sorted(*, stable: bool = False) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        for x, descending in itertools.product(_lines(), (False, True)):
            for dim in (-1, 0):
                yield _call(x, stable=True, dim=dim, descending=descending) if stable else _call(x, dim, descending)

    return found


def _top() -> Iterator[Sample]:
    for x, largest in itertools.product((_x(4, 33), _with_nan(_x(3, 17)), _x(1, 50, dtype=f16), _x()), (True, False)):
        for k in (1, 5):
            yield _call(x, k, -1, largest)


def _scans(*dtypes: torch.dtype) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        for dtype, dim in itertools.product(dtypes, (0, -1)):
            yield _call(_x(4, 9, dtype=dtype), dim)
            yield _call(_x(2, 3, 5, dtype=dtype).transpose(0, 2), dim)
            yield _call(_x(dtype=dtype), dim)
            if dtype.is_floating_point:
                yield _call(_with_nan(_x(4, 9, dtype=dtype)), dim)

    return found


def _boundaries(*, bucketize: bool) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        values = torch.tensor([[-9.0, 0.5, 1.0], [3.0, 9.0, math.nan]])
        line = torch.tensor([-1.0, 0.5, 0.5, 1.0, 3.0])
        for right, narrow in itertools.product((False, True), (False, True)):
            arguments = (values, line) if bucketize else (line, values)
            yield _call(*arguments, right=right, out_int32=narrow)
        if not bucketize:
            order = torch.tensor([4, 0, 1, 3, 2])
            yield _call(torch.empty(5).scatter(0, order, line), values, sorter=order)
            yield _call(line.expand(2, 5), values, side="right")

    return found


def _put() -> Iterator[Sample]:
    for dtype, accumulate in itertools.product((f32, i64, bf16), (False, True)):
        x = _x(5, 6, 4, dtype=dtype)
        rows, columns = _distinct(3, 5), _distinct(3, 6)
        yield _call(x, [rows], _x(3, 6, 4, dtype=dtype, seed=1), accumulate)
        yield _call(x, [None, columns - 6], _x(dtype=dtype, seed=1), accumulate)
        yield _call(x, [rows, None, rows], _x(3, 6, dtype=dtype, seed=1), accumulate)
        yield _call(x, [rows, columns], _x(4, dtype=dtype, seed=1), accumulate)
    x, mask = _x(5, 6), _x(5, dtype=b8)
    yield _call(x, [mask], _x(int(mask.sum()), 6))
    yield _call(x, [x > 0], torch.tensor(9.0))
    yield _call(x, [x > 0], _x(int((x > 0).sum())))


def _index_reads() -> Iterator[Sample]:
    for dtype in (f32, i64, b8):
        x = _x(5, 6, 4, dtype=dtype)
        yield _call(x, [_index((3,), 5)])
        yield _call(x, [None, _index((2, 3), 6)])
        yield _call(x, [_index((2, 1), 5), None, _index((3,), 4)])
        yield _call(x, [None, _index((2, 1), 6), _index((1, 3), 4)])
        yield _call(x.transpose(0, 2), [_index((), 4)])


def _scattered(*, valued: bool) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        for dtype in (f32, i64, bf16):
            x = _x(5, 6, dtype=dtype)
            for dim in (0, -1):
                index = torch.stack([_distinct(5, (5, 6)[dim], s) for s in range(4)]).t()
                index = index[:5, :4] if dim == 0 else index.t()[:4]
                yield _call(x, dim, index, 3 if valued else _x(6, 6, dtype=dtype, seed=1))

    return found


def _added(name: str) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        for dtype in (f32, i64):
            x = _x(5, 6, dtype=dtype)
            for dim, index in ((0, _positions((4,), 5)), (1, _positions((4,), 6))):
                source = _x(*((4, 6) if dim == 0 else (5, 4)), dtype=dtype, seed=1)
                if name == "scatter_add":
                    yield _call(x, dim, _positions((4, 4), (5, 6)[dim]), _x(5, 6, dtype=dtype, seed=1))
                elif name == "fill":
                    yield _call(x, dim, index, 7)
                elif name == "fill tensor":
                    yield _call(x, dim, index, torch.tensor(7, dtype=dtype))
                elif name == "copy":
                    yield _call(x, dim, _distinct(4, (5, 6)[dim]), source)
                else:
                    yield _call(x, dim, index, source)
                    yield _call(x, dim, index, source, alpha=2)

    return found


def _reduced(*, by_rows: bool) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        names = ("prod", "mean", "amax", "amin") if by_rows else ("sum", "prod", "mean", "amax", "amin")
        for reduce, include in itertools.product(names, (True, False)):
            x = _x(5, 6)
            if by_rows:
                yield _call(x, 0, _positions((4,), 5), _x(4, 6, seed=1), reduce, include_self=include)
            else:
                yield _call(x, -1, _positions((5, 4), 6), _x(5, 6, seed=1), reduce, include_self=include)

    return found


def _reductions_of_three(**more: Any) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        for dtype in (f32, bf16, f16):
            yield _call(_x(3, 4, 5, dtype=dtype), [1], **more)
            yield _call(_x(3, 4, 5, dtype=dtype).transpose(0, 2), [-1, 0], keepdim=True, **more)
            yield _call(_x(64, dtype=dtype), None, **more)

    return found


def _normalised(dtype: torch.dtype) -> list[torch.Tensor]:
    return [_x(4, 6, 5, 3, dtype=dtype), *(_x(6, dtype=dtype, seed=s) for s in (1, 2))]


def _batch_norms(*tail: Any) -> Callable[[], Iterator[Sample]]:
    def found() -> Iterator[Sample]:
        for dtype in (f32, bf16):
            x, weight, bias = _normalised(dtype)
            statistics = (_x(6, dtype=dtype, seed=3), _x(6, dtype=dtype, seed=4).abs() + 0.5)
            yield _call(x, weight, bias, *statistics, *tail)
            yield _call(x, None, None, *statistics, *tail)

    return found


def _layer_norms() -> Iterator[Sample]:
    for dtype in (f32, bf16, f16):
        x = _x(3, 4, 48, dtype=dtype)
        yield _call(x, [48], _x(48, dtype=dtype, seed=1), _x(48, dtype=dtype, seed=2), 1e-5)
        yield _call(x.transpose(0, 1), [4 - 1, 48], None, None, 1e-12)


def _group_norms() -> Iterator[Sample]:
    for dtype in (f32, bf16):
        x, weight, bias = _normalised(dtype)
        yield _call(x, weight, bias, 4, 6, 15, 3, 1e-5)
        yield _call(x, None, None, 4, 6, 15, 1, 1e-5)


_images = (_x(2, 3, 4, 5), _x(2, 3, 4, 5, dtype=bf16).transpose(0, 3), _x(6, dtype=i64))
_grid = _x(4, 6)
_CREATION = {"dtype": f32, "device": torch.device("cpu")}

CASES: dict[str, Callable[[], Iterable[Sample]]] = {
    "aten.mm.default": _products,
    "aten.bmm.default": _batched_products,
    "aten.addmm.default": _sums_with_products(),
    "aten.baddbmm.default": _sums_with_products(3),
    "aten.addbmm.default": _sums_with_products(3),
    "aten.mv.default": lambda: (_call(a, b[:, 0]) for a, b in _matrices()),
    "aten.addmv.default": lambda: (_call(_x(a.shape[0], dtype=a.dtype), a, b[:, 0]) for a, b in _matrices()),
    "aten.dot.default": lambda: (_call(a.reshape(-1), a.reshape(-1)) for a, _ in _matrices()),
    "aten.vdot.default": lambda: (_call(a.reshape(-1), a.reshape(-1)) for a, _ in _matrices()),
    "aten.linear.default": lambda: (_call(a, b.t(), _x(b.shape[1], dtype=a.dtype)) for a, b in _matrices()),
    "aten._grouped_mm.default": lambda: (
        _call(_x(9, 16, dtype=d), _x(3, 16, 32, dtype=d, seed=1), torch.tensor([2, 2, 9], dtype=torch.int32))
        for d in (f32, bf16)
    ),
    "aten.scaled_dot_product_attention.default": _attention,
    "aten.convolution.default": _convolutions,
    "aten.max_pool2d_with_indices.default": _pooling(2, averaging=False),
    "aten.max_pool3d_with_indices.default": _pooling(3, averaging=False),
    "aten.avg_pool1d.default": _pooling(1, averaging=True),
    "aten.avg_pool2d.default": _pooling(2, averaging=True),
    "aten.avg_pool3d.default": _pooling(3, averaging=True),
    **{f"aten.{n}_pool{d}d.default": _adaptive(d) for n in ("_adaptive_avg", "adaptive_max") for d in (2, 3)},
    **{
        f"aten.{n}{d}d.default": _resampling(d, corners=False)
        for n in ("upsample_nearest", "_upsample_nearest_exact")
        for d in (1, 2, 3)
    },
    **{
        f"aten.upsample_{n}.default": _resampling(d, corners=True)
        for n, d in (("linear1d", 1), ("bilinear2d", 2), ("trilinear3d", 3), ("bicubic2d", 2))
    },
    "aten.sort.default": _sorted(),
    "aten.argsort.default": _sorted(),
    "aten.sort.stable": _sorted(stable=True),
    "aten.topk.default": _top,
    "aten.kthvalue.default": lambda: (_call(x, k, -1, flag) for x, k, flag in
                                      itertools.product((_x(4, 33), _x(3, 7, dtype=i64)), (1, 5), (False, True))),
    "aten.cumsum.default": _scans(f32, bf16, f16, i64, b8),
    "aten.cumprod.default": _scans(f32, bf16, i64),
    "aten.logcumsumexp.default": _scans(f32, bf16),
    "aten.cummax.default": _scans(f32, bf16, i64, b8),
    "aten.cummin.default": _scans(f32, bf16, i64, b8),
    "aten.searchsorted.Tensor": _boundaries(bucketize=False),
    "aten.bucketize.Tensor": _boundaries(bucketize=True),
    "aten.searchsorted.Scalar": _of(_call(torch.tensor([1.0, 2.0, 3.0]), 2), _call(torch.tensor([1, 2, 3]), 2.5)),
    "aten.bucketize.Scalar": _of(_call(2, torch.tensor([1.0, 2.0, 3.0])), _call(2, torch.tensor([1, 2, 3]), right=True)),
    "aten.histc.default": _of(
        _call(_x(48), 10, -1, 1), _call(_x(3, 9), 7), _call(torch.ones(5), 4), _call(_positions((9,), 4).float(), 4, 0, 3)
    ),
    "aten.index.Tensor": _index_reads,
    "aten.index_put.default": _put,
    "aten._unsafe_index_put.default": _put,
    "aten.index_select.default": _of(
        _call(_grid, 1, _positions((3,), 6)), _call(_grid.t(), 0, _positions((2,), 6)), _call(_x(), 0, _positions((1,), 1))
    ),
    "aten.embedding.default": _of(
        _call(_grid, _positions((2, 3), 4)),
        _call(_grid.bfloat16(), _positions((3,), 4).int(), 1),
        _call(_grid, _positions((), 4)),
    ),
    "aten.gather.default": _of(
        _call(_grid, 1, _positions((4, 2), 6)), _call(_grid.t(), 0, _positions((3, 4), 6)), _call(_x(), 0, _positions((), 1))
    ),
    "aten.take.default": _of(_call(_grid.t(), _index((3, 2), 24))),
    "aten.put.default": _of(_call(_grid, _distinct(5, 24), _x(5)), _call(_grid, _positions((9,), 24), _x(9), True)),
    "aten.masked_scatter.default": _of(_call(_grid, _grid > 0, _x(30)), _call(_grid.t(), _x(6, 1, dtype=b8), _x(5, 6))),
    "aten.scatter.src": _scattered(valued=False),
    "aten.scatter.value": _scattered(valued=True),
    "aten.scatter_add.default": _added("scatter_add"),
    "aten.index_add.default": _added("add"),
    "aten.index_copy.default": _added("copy"),
    "aten.index_fill.int_Scalar": _added("fill"),
    "aten.index_fill.int_Tensor": _added("fill tensor"),
    "aten.scatter_reduce.two": _reduced(by_rows=False),
    "aten.index_reduce.default": _reduced(by_rows=True),
    "aten.one_hot.default": _of(_call(_positions((3, 2), 5), 5)),
    "aten.isin.Tensor_Tensor": _of(
        _call(_positions((4, 3), 9), _positions((4,), 9)), _call(_x(5).round(), _x(6).round(), invert=True)
    ),
    **{f"aten.{n}.correction": _reductions_of_three(correction=c)
       for n, c in (("var", 1), ("std", 0), ("var_mean", 0), ("std_mean", None))},
    "aten.logsumexp.default": _reductions_of_three(),
    "aten.linalg_vector_norm.default": lambda: (
        _call(x, order, dim) for x in (_x(3, 40), _x(3, 40, dtype=bf16))
        for order, dim in ((2, None), (1, [1]), (math.inf, [0]), (-math.inf, None), (0, [1]), (3, [0]))
    ),
    "aten.native_layer_norm.default": _layer_norms,
    "aten.layer_norm.default": _layer_norms,
    "aten._fused_rms_norm.default": lambda: (
        _call(_x(3, 48, dtype=d), [48], _x(48, dtype=d), e) for d, e in ((f32, 1e-6), (bf16, None), (f32, None))
    ),
    "aten.native_group_norm.default": _group_norms,
    "aten._native_batch_norm_legit_no_training.default": _batch_norms(0.1, 1e-5),
    "aten.native_batch_norm.default": _batch_norms(False, 0.1, 1e-5),
    "aten.cat.default": _of(
        _call([_grid, _grid[:2]], 0), _call([_grid, _grid.long(), _grid.bfloat16()], -1), _call([torch.empty(0), _grid], 1)
    ),
    "aten.stack.default": _of(_call([_grid, _grid + 1], 0), _call([_grid.t(), _grid.t()], -1), _call([_x(), _x()], 0)),
    "aten.constant_pad_nd.default": _of(
        _call(_grid, [1, 2]), _call(_grid, [0, 1, 2, 0], -math.inf), _call(_grid, [-1, 2, 0, -1], 3.0)
    ),
    "aten.roll.default": _of(_call(_grid, [1], [0]), _call(_grid.t(), [-2, 7], [0, 1]), _call(_grid, [3])),
    "aten.repeat.default": _of(_call(_grid, [2, 1, 3]), _call(_x(), [2]), _call(_grid.t(), [1, 2])),
    "aten.repeat_interleave.self_int": _of(_call(_grid, 2), _call(_grid.t(), 3, -1)),
    "aten.view.default": _of(_call(_grid, [3, -1]), _call(_grid, [24]), _call(_x(1), [])),
    "aten.reshape.default": _of(_call(_grid.t(), [3, -1])),
    "aten._unsafe_view.default": _of(_call(_grid, [2, 12])),
    "aten.view_copy.default": _of(_call(_grid, [2, 12])),
    "aten.expand.default": _of(_call(_x(3, 1), [2, -1, 4]), _call(_x(), [2])),
    "aten.permute.default": _of(_call(_x(2, 3, 4), [2, 0, -2]), _call(_x(), [])),
    "aten.transpose.int": _of(_call(_x(2, 3, 4), 0, -1)),
    "aten.squeeze.dims": _of(_call(_x(1, 3, 1), [0, -1])),
    "aten.select.int": _of(_call(_grid, 1, -2), _call(_grid.t(), -1, 0)),
    "aten.slice.Tensor": _of(_call(_grid, 1, 1, -1, 2), _call(_grid), _call(_grid, 0, -3, 99)),
    "aten.slice_scatter.default": _of(_call(_grid, _x(4, 2), 1, 1, 5, 2), _call(_grid, _x(2, 6), 0, -2)),
    "aten.split.Tensor": _of(_call(_grid, 4, 1), _call(_grid, 4, 0)),
    "aten.split_with_sizes.default": _of(_call(_grid, [1, 5], 1)),
    "aten.diagonal.default": _of(_call(_grid), _call(_x(2, 3, 4), 1, 0, 2), _call(_grid, -2)),
    "aten.unfold.default": _of(_call(_grid, 1, 3, 2), _call(_grid, -2, 2, 1)),
    "aten.flip.default": _of(*(_call(x, [0, -1][: x.dim()]) for x in _images)),
    "aten.glu.default": _of(_call(_grid), _call(_x(4, 3, dtype=bf16), 0)),
    "aten.where.self": _of(
        _call(_grid > 0, _grid, _grid.long()), _call(_x(4, 1, dtype=b8), _x(6), _x()), _call(_grid.t() > 0, _grid.t(), _x(1))
    ),
    "aten.where.ScalarOther": _of(_call(_grid > 0, _grid, 2)),
    "aten.where.ScalarSelf": _of(_call(_grid > 0, -math.inf, _grid)),
    "aten.where.Scalar": _of(_call(_grid > 0, 1.0, 0.0)),
    "aten.masked_fill.Scalar": _of(_call(_grid, _grid > 0, -math.inf), _call(_x(3, dtype=bf16), _x(3, dtype=b8), 3)),
    "aten.masked_fill.Tensor": _of(_call(_grid, _grid > 0, torch.tensor(2.0))),
    "aten.clamp.default": _of(
        _call(_grid, -1, 1), _call(_with_nan(_grid), None, 0.5), _call(_grid.long(), 0, 2.5), _call(_grid, -math.inf, 1)
    ),
    "aten.clamp.Tensor": _of(_call(_grid, _x(6), None), _call(_grid, _x(6), _x(4, 1))),
    "aten.hardtanh.default": _of(_call(_with_nan(_grid)), _call(_grid.bfloat16(), -0.5, 0.25)),
    "aten.addcmul.default": _of(_call(_grid, _x(6), _x(4, 1), value=0.5), _call(*[_grid.long()] * 3, value=2)),
    "aten.addcdiv.default": _of(_call(_grid, _x(6), _x(4, 1), value=0.5)),
    "aten.lerp.Scalar": _of(_call(_grid, _x(6), 0.3), _call(_grid, _x(6), 0.8)),
    "aten.lerp.Tensor": _of(_call(_grid, _x(6), _x(4, 1))),
    "aten.div.Tensor_mode": lambda: (
        _call(_x(5, 6, dtype=d), _x(6, dtype=d, seed=1), rounding_mode=m)
        for d, m in itertools.product((f32, bf16, i64), ("floor", "trunc", None))
    ),
    "aten.div.Scalar_mode": lambda: (
        _call(_x(5, 6, dtype=d), s, rounding_mode=m)
        for d, s, m in itertools.product((f32, i64), (2, -3.5), ("floor", "trunc", None))
    ),
    "aten.pow.Scalar": _of(_call(2, _grid), _call(2, _positions((5,), 9)), _call(0.5, _grid.bfloat16())),
    "aten.pow.Tensor_Tensor": _of(
        _call(_grid.abs(), _x(6)), _call(_grid.long(), _positions((6,), 9)), _call(_grid, _grid.round())
    ),
    "aten.to.dtype": lambda: (
        _call(_x(5, 6, dtype=a), b)
        for a, b in itertools.product((f32, bf16, i64, b8), (f32, f16, bf16, i64, torch.int8, b8, torch.float64))
    ),
    "aten.to.dtype_layout": _of(_call(_grid, dtype=bf16, layout=torch.strided)),
    "aten._to_copy.default": _of(_call(_grid, dtype=f16), _call(_grid.t())),
    "aten.copy.default": _of(_call(_grid, _x(6, dtype=i64)), _call(_grid.t(), _x(1))),
    "aten.fill.Scalar": _of(_call(_grid, 3), _call(_grid.long(), 2.9)),
    "aten.fill.Tensor": _of(_call(_grid, torch.tensor(3))),
    "aten.nan_to_num.default": _of(
        _call(_with_nan(_grid)),
        _call(torch.tensor([math.inf, -math.inf, math.nan], dtype=bf16)),
        _call(_grid / 0, 1.0, 2.0, 3.0),
    ),
    "aten.round.decimals": _of(_call(_grid, decimals=2), _call(_grid * 100, decimals=-1), _call(_grid.double(), decimals=3)),
    "aten.full.default": _of(_call([2, 3], -math.inf, **_CREATION), _call([], 3, dtype=i64)),
    "aten.new_full.default": _of(_call(_grid, [2, 3], 1.5), _call(_grid, [2], 1, dtype=i64)),
    "aten.full_like.default": _of(_call(_grid, 1.5), _call(_grid.t(), 2, dtype=b8)),
    "aten.scalar_tensor.default": _of(_call(2.5, dtype=f32), _call(3, dtype=i64)),
    "aten.ones.default": _of(_call([2, 3]), _call([], dtype=i64)),
    "aten.zeros.default": _of(_call([2, 3]), _call([3], dtype=b8)),
    "aten.new_ones.default": _of(_call(_grid, [2, 3])),
    "aten.new_zeros.default": _of(_call(_grid, [2, 3], dtype=i64)),
    "aten.arange.default": _of(_call(7), _call(6.5, dtype=f32), _call(5, dtype=bf16)),
    "aten.arange.start": _of(_call(-2, 7), _call(0.5, 4, dtype=f32)),
    "aten.arange.start_step": _of(_call(7, -2, -3), _call(0, 1, 0.1, dtype=f32)),
    "aten.linspace.default": _of(_call(-1, 2, 10), _call(4.3, 4, 1), _call(0, 9, 4, dtype=i64)),
    "aten.eye.default": _of(_call(4), _call(3, dtype=i64)),
    "aten.eye.m": _of(_call(4, 2), _call(2, 3, dtype=b8)),
}  # fmt: skip
