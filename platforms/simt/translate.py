"""A kernel in Metal's or CUDA's language -> C++ for the engine, by way of a few regular expressions.

Nearly all of a source is C++ already, and the headers beside this file provide the types and functions.  What is not:
the head of a kernel, attributes, and arrays in shared memory, which become pointers to memory that the engine provides.
Lines stay where they are, so that faults can name the line of the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tapml.errors import CompileError, UnsupportedError
from tapml.kernels.plan import Kernel, Plan

Dialect = Literal["metal", "cuda"]

_WAITS = re.compile(
    r"\b(__syncthreads|__syncwarp|__activemask|__shfl\w*|threadgroup_barrier|simdgroup_\w+|simd_\w+|\w*simdgroup_matrix|nvcuda)\b"
)
_METAL_HEAD = re.compile(r"\bkernel\s+void\s+(\w+)\s*\((.*?)\)\s*\{", re.S)
_CUDA_HEAD = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)\s*([;{])', re.S
)
_METAL_SHARED = re.compile(r"^(\s*)threadgroup\s+([\w ]+?)\s+(\w+)\[([^\]]+)\];", re.M)
_CUDA_SHARED = re.compile(
    r"^(\s*)(extern\s+)?__shared__\s+(?:(?:alignas|__align__)\(\d+\)\s*)?([\w ]+?)\s+(\w+)\[([^\]]*)\];", re.M
)
_ATTRIBUTE = re.compile(r"\[\[\s*(\w+)\s*(?:\(\s*(\d+)\s*\))?\s*\]\]")
_HALF_LITERAL = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)h\b")
_BUILT_IN = {
    "threadgroup_position_in_grid": "self->blockIdx",
    "thread_position_in_threadgroup": "self->threadIdx",
    "threads_per_threadgroup": "self->blockDim",
    "threadgroups_per_grid": "self->gridDim",
}
_BUILT_IN_SCALARS = {
    "thread_index_in_threadgroup": "self->linear",
    "thread_index_in_simdgroup": "(self->linear & 31)",
    "simdgroup_index_in_threadgroup": "(self->linear >> 5)",
}
_SCALARS = {"bool": "bool", "float16": "half", "float32": "float", "float64": "double"}
_PARAMETERS = "const simt_uint3 threadIdx, const simt_uint3 blockIdx, char* const* simt_shared"


@dataclass(frozen=True)
class Translation:
    """C++ for all kernels of a plan; ``kernels``: their names in the order of the engine's table; ``shared``: the names
    of the arrays that each has in shared memory; ``text``: whole translation unit but the headers."""

    text: str
    kernels: tuple[str, ...]
    shared: dict[str, tuple[str, ...]]


def translate(plan: Plan, files: Mapping[str, bytes], dialect: Dialect) -> Translation:
    """C++ for the kernels of a plan.

    Raises :class:`CompileError` for a source without the kernel that the plan names, and :class:`UnsupportedError` for
    what cannot be emulated: assembly, textures, arguments of unknown meaning.
    """
    sources: dict[str, list[Kernel]] = {}
    for kernel in plan.kernels.values():
        sources.setdefault(kernel.file, []).append(kernel)
    parts, entries = [f'#include "{dialect}.h"\n'], []
    shared: dict[str, tuple[str, ...]] = {}
    for index, (file, kernels) in enumerate(sources.items()):
        if file not in files:
            raise CompileError(f"expected the source {file} among the artifact's files, found {sorted(files)}")
        source = files[file].decode()
        if re.search(r"\b(__asm__|asm)\s*(__volatile__|volatile)?\s*\(", source):
            raise UnsupportedError(f"{file} has assembly, which the emulator cannot execute")
        translated = _Source(source, dialect, {k.name: k for k in kernels})
        parts.append(f'namespace simt_source_{index} {{\n#line 1 "{file}"\n{translated.text}\n}}\n')
        for kernel in kernels:
            parts.append(translated.entry(kernel.name, index))
            entries.append(
                f"{{entry_{index}_{kernel.name}, sizes_{index}_{kernel.name}, {translated.row(kernel.name)}}}"
            )
            shared[kernel.name] = tuple(translated.shared[kernel.name])
    names = tuple(k.name for group in sources.values() for k in group)
    parts.append(f'extern "C" {{ const simt_kernel simt_kernels[] = {{{", ".join(entries)}}}; }}\n')
    return Translation("".join(parts), names, shared)


class _Source:
    """One source, translated: :attr:`text`, and what the engine's table needs of each of its kernels."""

    def __init__(self, source: str, dialect: Dialect, kernels: Mapping[str, Kernel]) -> None:
        self.kernels = kernels
        self.shared: dict[str, list[str]] = {}
        self._sizes: dict[str, list[str]] = {}
        self._calls: dict[str, list[str]] = {}
        self._waits: dict[str, bool] = {}
        self._dialect = dialect
        source = re.sub(r"^[ \t]*#[ \t]*include\b.*$", "", source, flags=re.M)
        source = re.sub(r"\bvolatile\b", "", source)  # one thread executes at a time, and waiting is a call
        head = _METAL_HEAD if dialect == "metal" else _CUDA_HEAD
        found = [m for m in head.finditer(source) if dialect == "metal" or m[3] == "{"]
        bodies = []
        start = 0
        for match, following in zip(found, [*found[1:], None], strict=True):
            bodies.append(self._rest(source[start : match.start()]))
            end = following.start() if following else len(source)
            bodies.append(self._kernel(match[1], match[2], source[match.end() : end], match[0].count("\n")))
            start = end
        self.text = "".join([*bodies, self._rest(source[start:])])
        missing = sorted(set(kernels) - set(self.shared))
        if missing:
            raise CompileError(f"expected a kernel {missing[0]} in its source, found {[m[1] for m in found]}")

    def row(self, name: str) -> str:
        """The rest of a kernel's row in the engine's table."""
        return f"{len(self.shared[name])}, {int(self._waits[name])}"

    def entry(self, name: str, index: int) -> str:
        """The function that the engine calls, and the sizes of the kernel's shared arrays."""
        sizes = ", ".join([*self._sizes[name], "0"])
        arguments = ", ".join(self._calls[name])
        return (
            f"static const unsigned long sizes_{index}_{name}[] = {{{sizes}}};\n"
            f"static void entry_{index}_{name}(void* const* arguments, char* const* shared, const simt_thread* self) {{ "
            f"using namespace simt_source_{index}; simt_source_{index}::{name}({arguments}); }}\n"
        )

    def _rest(self, text: str) -> str:
        """What stands before the first kernel."""
        return _CUDA_HEAD.sub(lambda m: "\n" * m[0].count("\n"), text) if self._dialect == "cuda" else text

    def _kernel(self, name: str, parameters: str, body: str, lines: int) -> str:
        self.shared[name], self._sizes[name] = [], []
        self._waits[name] = _WAITS.search(body) is not None
        kinds = [p.strip() for p in parameters.split(",") if p.strip()]
        if self._dialect == "metal":
            declared, self._calls[name] = self._metal_parameters(name, kinds)
            body = _METAL_SHARED.sub(lambda m: self._array(name, m[1], m[2], m[3], m[4]), body)
            body = _HALF_LITERAL.sub(r"half(\1f)", body)
            hidden = "char* const* simt_shared"
            self._calls[name].append("shared")
        else:
            declared, self._calls[name] = kinds, [self._cuda_argument(name, n, kind) for n, kind in enumerate(kinds)]
            body = _CUDA_SHARED.sub(lambda m: self._array(name, m[1], m[3], m[4], "" if m[2] else m[5]), body)
            body = re.sub(r"\balignas\(\d+\)\s*", "", body)
            hidden = _PARAMETERS
            self._calls[name] += ["self->threadIdx", "self->blockIdx", "shared"]
        head = f"static void {name}({', '.join([*declared, hidden])}) {{"
        return head + "\n" * lines + self._rest(body)

    def _array(self, kernel: str, indent: str, kind: str, name: str, count: str) -> str:
        index = len(self.shared[kernel])
        self.shared[kernel].append(name)
        self._sizes[kernel].append(f"sizeof({kind}) * ({count})" if count else "0")
        return f"{indent}{kind}* const {name} = ({kind}*)simt_shared[{index}];"

    def _cuda_argument(self, name: str, index: int, declaration: str) -> str:
        kind = re.sub(r"\s*\w+$", "", declaration).replace("__restrict__", "").strip()
        return f"({kind})arguments[{index}]" if kind.endswith("*") else f"*({kind}*)arguments[{index}]"

    def _metal_parameters(self, name: str, kinds: list[str]) -> tuple[list[str], list[str]]:
        declared, calls = [], []
        for kind in kinds:
            attribute = _ATTRIBUTE.search(kind)
            plain = _ATTRIBUTE.sub("", kind).strip()
            type_ = re.sub(r"\s*\w+$", "", plain)
            declared.append(plain)
            what = attribute[1] if attribute else ""
            if attribute and what == "buffer":
                slot = f"arguments[{attribute[2]}]"
                calls.append(f"*({type_[:-1].strip()}*){slot}" if type_.endswith("&") else f"({type_}){slot}")
            elif what in _BUILT_IN and type_ in ("uint", "ushort"):
                calls.append(f"{_BUILT_IN[what]}.x")
            elif what in _BUILT_IN and type_ in ("uint2", "uint3", "ushort2", "ushort3"):
                axes = "xyz"[: int(type_[-1])]
                calls.append(f"{type_}({', '.join(f'{_BUILT_IN[what]}.{axis}' for axis in axes)})")
            elif what in _BUILT_IN_SCALARS:
                calls.append(_BUILT_IN_SCALARS[what])
            else:
                raise UnsupportedError(
                    f"the emulator does not know the parameter {plain!r} [[{what}]] of kernel {name}"
                )
        return declared, calls
