"""What the opencl platform uses of a machine."""

from __future__ import annotations

import os
from pathlib import Path

from tapml.doctor import Finding, find_package


def examine() -> list[Finding]:
    """The binding and a driver."""
    folder = Path(os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors"))
    drivers = sorted(p.stem for p in folder.glob("*.icd")) if folder.is_dir() else []
    remedy = "apt-get install pocl-opencl-icd (for the CPU), or your GPU's own driver"
    return [
        find_package("pyopencl", "target opencl", "pip install 'tapml[opencl]'", optional=True),
        Finding("OpenCL driver", "target opencl", bool(drivers), ", ".join(drivers) or "none", remedy, True),
    ]
