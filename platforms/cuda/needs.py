"""What the cuda platform uses of a machine."""

from __future__ import annotations

from tapml.doctor import Finding, find_package, find_program


def examine() -> list[Finding]:
    """nvcc or NVRTC, to see that kernels compile."""
    purpose = "target cuda: checking that kernels compile"
    remedy = "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
    nvcc = find_program(("nvcc",), purpose, remedy)
    return [nvcc if nvcc.present else find_package("nvidia-cuda-nvrtc", purpose, remedy, optional=True)]
