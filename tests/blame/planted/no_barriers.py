"""Kernels of every language without their barriers, as a pass would write them that forgets to synchronise."""

from __future__ import annotations

import re
from typing import Any

from tapml.kernels import device_code

_source_of = device_code._source_of
_BARRIER = re.compile(
    r"^\s*(workgroupBarrier\(\);|__syncthreads\(\);|threadgroup_barrier\(.*\);|barrier\(CLK_LOCAL_MEM_FENCE\);)\s*$",
    re.M,
)


def source_of(*arguments: Any) -> str:
    return _BARRIER.sub("", _source_of(*arguments))


device_code._source_of = source_of
