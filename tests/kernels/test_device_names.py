"""What devices are called."""

from __future__ import annotations

import pytest

from tapml.kernels.device_names import numbered, slug


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA GeForce RTX 4090", "nvidia-geforce-rtx-4090"),
        ("AMD Radeon Graphics (RADV RAPHAEL)", "amd-radeon-graphics"),
        ("(?)", "device"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert slug(name) == short


def test_devices_of_one_name_are_numbered() -> None:
    taken: list[str] = []
    for name in ("opencl:a", "opencl:b", "opencl:a", "opencl:a"):
        taken.append(numbered(name, taken))
    assert taken == ["opencl:a", "opencl:b", "opencl:a#2", "opencl:a#3"]
