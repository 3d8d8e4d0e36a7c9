"""Whether NVIDIA's own compiler takes a CUDA source; needs no GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from tapml.platforms.simt.compiles import Compiles

_INSTALLED = "/usr/local/bin/nvcc"
_LIMIT = 120
_PACKAGES = "nvidia-cuda-nvrtc, nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl"


def check_cuda(source: str, arch: str = "sm_80") -> Compiles:
    """Compile a source to PTX with nvcc, or with NVRTC from PyPI where there is no nvcc.

    ``not checked`` where there is neither, or where nvcc itself does not work (no host compiler, say).
    """
    nvcc = shutil.which("nvcc") or shutil.which(_INSTALLED)
    if nvcc:
        return _with_nvcc(nvcc, source, arch)
    library = _nvrtc()
    if library is not None:
        return _with_nvrtc(library, source, arch)
    return Compiles("not checked", message=f"expected nvcc on the PATH, or the packages {_PACKAGES}; found neither")


def _with_nvcc(nvcc: str, source: str, arch: str) -> Compiles:
    by = _nvcc_version(nvcc)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cu")
        path.write_text(source)
        command = [nvcc, f"-arch={arch}", "-ptx", "-w", "-o", str(Path(folder, "kernel.ptx")), str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            return Compiles("not checked", by, f"nvcc took longer than {_LIMIT} s")
        if done.returncode == 0:
            return Compiles("compiles", by)
        words = (done.stderr + done.stdout).replace(str(path), "kernel.cu")
    errors = [line for line in words.splitlines() if re.search(r"^kernel\.cu\(\d+\): error", line)]
    if not errors:
        return Compiles("not checked", by, f"nvcc failed: {words.strip()[:300]}")
    return Compiles("refused", by, "; ".join(errors[:2])[:400])


@lru_cache(maxsize=None)
def _nvcc_version(nvcc: str) -> str:
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"release ([\d.]+)", done.stdout)
    return f"nvcc {found[1]}" if found else "nvcc"


@lru_cache(maxsize=None)
def _nvrtc() -> Path | None:
    """NVRTC's library among the folders of the Python packages of NVIDIA."""
    for folder in _nvidia_folders():
        for path in sorted(folder.glob("*/lib/libnvrtc.so*")):
            if "builtins" not in path.name and "alt" not in path.name:
                return path
    return None


def _nvidia_folders() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    return [Path(p) for p in spec.submodule_search_locations or ()] if spec else []


def _with_nvrtc(path: Path, source: str, arch: str) -> Compiles:
    nvrtc = ctypes.CDLL(str(path))
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    by = f"NVRTC {major.value}.{minor.value}"
    includes = [str(p) for folder in _nvidia_folders() for p in folder.glob("*/include")]
    includes += [str(p) for folder in _nvidia_folders() for p in folder.glob("*/include/cccl")]
    options = [f"--gpu-architecture={arch}", "-w", *(f"-I{p}" for p in includes)]
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        words = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        code = nvrtc.nvrtcCompileProgram(program, len(options), words)
        if code == 0:
            return Compiles("compiles", by)
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    text = log.value.decode(errors="replace")
    errors = [line for line in text.splitlines() if re.search(r"^kernel\.cu\(\d+\): error", line)]
    missing = re.search(r"could not open source file.*|cannot open source file.*", text)
    if missing or not errors:
        return Compiles("not checked", by, f"NVRTC failed: {missing[0] if missing else text.strip()[:300]}")
    return Compiles("refused", by, "; ".join(errors[:2])[:400])
