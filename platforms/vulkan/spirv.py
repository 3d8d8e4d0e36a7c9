"""What a launch has to know of a SPIR-V module that clspv made: it stands in the module, NonSemantic.ClspvReflection.

Instruction and capability numbers: the SPIR-V specification and its NonSemantic.ClspvReflection extended instructions.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tapml.errors import CompileError, UnsupportedError

MAGIC = b"\x03\x02\x23\x07"
_EXTENSION, _EXT_IMPORT, _EXT_INST, _ENTRY_POINT, _CAPABILITY = 10, 11, 12, 15, 17
_TYPE_INT, _TYPE_FLOAT, _TYPE_VECTOR, _TYPE_ARRAY, _TYPE_RUNTIME_ARRAY, _TYPE_STRUCT = 21, 22, 23, 28, 29, 30
_TYPE_POINTER, _CONSTANT, _VARIABLE = 32, 43, 59
_WORKGROUP, _STORAGE_BUFFER = 4, 12

_FREE = {0: "Matrix", 1: "Shader"}
_FEATURES = {
    9: "shaderFloat16",
    10: "shaderFloat64",
    11: "shaderInt64",
    12: "shaderBufferInt64Atomics",
    22: "shaderInt16",
    39: "shaderInt8",
    4433: "storageBuffer16BitAccess",
    4434: "uniformAndStorageBuffer16BitAccess",
    4435: "storagePushConstant16",
    4441: "variablePointersStorageBuffer",
    4442: "variablePointers",
    4448: "storageBuffer8BitAccess",
    4449: "uniformAndStorageBuffer8BitAccess",
    4450: "storagePushConstant8",
}
"""Capability -> the Vulkan feature that it needs."""

_KERNEL, _STORAGE, _POD_PUSH_CONSTANT, _WORKGROUP_SIZE = 1, 3, 7, 12
_WANTS = {
    4: "a uniform argument",
    5: "scalars in a storage buffer",
    6: "scalars in a uniform buffer",
    8: "a sampled image",
    9: "a storage image",
    10: "a sampler",
    11: "shared memory as an argument",
    13: "a global offset",
    15: "a global offset",
    16: "the enqueued local size",
    17: "the global size",
    18: "a region offset",
    19: "the number of workgroups",
    20: "a region's group offset",
    21: "constant data in a buffer",
    22: "constant data in a uniform buffer",
    23: "a literal sampler",
    28: "program-scope variables",
    38: "printf",
}
"""Reflection instructions for which a launch would have to provide something that ours do not."""


@dataclass(frozen=True)
class PushConstant:
    """A scalar argument: ordinal among all arguments; offset and size in bytes."""

    ordinal: int
    offset: int
    size: int


@dataclass(frozen=True)
class EntryPoint:
    """A kernel.  ``bindings``: the buffer arguments, as ordinal among all arguments -> binding in descriptor set 0."""

    name: str
    bindings: dict[int, int]
    push_constants: tuple[PushConstant, ...]


@dataclass(frozen=True)
class Reflection:
    """``workgroup_size``: ids of the specialisation constants for x, y, z; ``shared``: bytes of workgroup memory;
    ``features``: names of the Vulkan features that the module needs."""

    entry_points: dict[str, EntryPoint]
    workgroup_size: tuple[int, int, int] | None
    shared: int
    features: tuple[str, ...]


@dataclass(frozen=True)
class Validation:
    """What spirv-val said; ``valid`` is ``None`` where it is not installed."""

    valid: bool | None
    words: str


def reflect(spirv: bytes) -> Reflection:
    """Read a module.  Raises :class:`CompileError` if it is none, :class:`UnsupportedError` for what needs more than
    buffers and push constants, or a capability that has no feature here."""
    return _Module(spirv).reflection()


def strip_reflection(spirv: bytes) -> bytes:
    """The module without non-semantic instructions, which only drivers with VK_KHR_shader_non_semantic_info accept."""
    module = _Module(spirv)
    out = [module.words[:5]]
    for op, words in module.instructions:
        name = _text(words[1 if op == _EXTENSION else 2 :]) if op in (_EXTENSION, _EXT_IMPORT) else ""
        if name.startswith(("SPV_KHR_non_semantic", "NonSemantic.")):
            continue
        if op == _EXT_INST and words[3] in module.reflections:
            continue
        out.append(words)
    return _pack(out)


def validate(spirv: bytes) -> Validation:
    """Run spirv-val for Vulkan 1.1, if it is installed."""
    program = shutil.which("spirv-val")
    if program is None:
        return Validation(None, "spirv-val is not installed")
    command = [program, "--target-env", "vulkan1.1", "-"]
    done = subprocess.run(command, input=spirv, capture_output=True, check=False)
    return Validation(done.returncode == 0, done.stderr.decode(errors="replace").strip())


class _Module:
    """A module as instructions (opcode, words)."""

    def __init__(self, spirv: bytes) -> None:
        if spirv[:4] != MAGIC or len(spirv) % 4 or len(spirv) < 20:
            raise CompileError(f"expected a little-endian SPIR-V module, found {len(spirv)} bytes {spirv[:16]!r}")
        self.words = struct.unpack(f"<{len(spirv) // 4}I", spirv)

    @cached_property
    def instructions(self) -> list[tuple[int, tuple[int, ...]]]:
        return list(self._read())

    def _read(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        at = 5
        while at < len(self.words):
            length, op = self.words[at] >> 16, self.words[at] & 0xFFFF
            if length == 0 or at + length > len(self.words):
                raise CompileError(f"expected a SPIR-V instruction at word {at}, found one of {length} words")
            yield op, self.words[at : at + length]
            at += length

    @cached_property
    def reflections(self) -> set[int]:
        """Ids of non-semantic instruction sets."""
        return {w[1] for op, w in self.instructions if op == _EXT_IMPORT and _text(w[2:]).startswith("NonSemantic.")}

    @cached_property
    def types(self) -> dict[int, tuple[int, tuple[int, ...]]]:
        return {w[1]: (op, w[2:]) for op, w in self.instructions if _TYPE_INT <= op <= _TYPE_POINTER}

    @cached_property
    def constants(self) -> dict[int, int]:
        return {w[2]: w[3] for op, w in self.instructions if op == _CONSTANT}

    def reflection(self) -> Reflection:
        names = {w[2]: _text(w[3:]) for op, w in self.instructions if op == _ENTRY_POINT}
        buffers: dict[str, dict[int, int]] = {name: {} for name in names.values()}
        scalars: dict[str, list[PushConstant]] = {name: [] for name in names.values()}
        kernels: dict[int, str] = {}
        size: tuple[int, int, int] | None = None
        for op, words in self.instructions:
            if op != _EXT_INST or words[3] not in self.reflections:
                continue
            which, operands = words[4], words[5:]
            if which == _KERNEL:
                kernels[words[2]] = names[operands[0]]
            elif which == _STORAGE:
                ordinal, descriptor_set, binding = (self.constants[i] for i in operands[1:4])
                if descriptor_set != 0:
                    raise UnsupportedError(f"a buffer in descriptor set {descriptor_set}, expected set 0")
                buffers[kernels[operands[0]]][ordinal] = binding
            elif which == _POD_PUSH_CONSTANT:
                scalars[kernels[operands[0]]].append(PushConstant(*(self.constants[i] for i in operands[1:4])))
            elif which == _WORKGROUP_SIZE:
                x, y, z = (self.constants[i] for i in operands[:3])
                size = (x, y, z)
            elif which in _WANTS:
                raise UnsupportedError(f"the kernel needs {_WANTS[which]}, which is not provided")
        entries = {name: EntryPoint(name, buffers[name], tuple(scalars[name])) for name in names.values()}
        return Reflection(entries, size, self._shared(), self._features())

    def _shared(self) -> int:
        pointees = [self.types[w[1]][1][1] for op, w in self.instructions if op == _VARIABLE and w[3] == _WORKGROUP]
        return sum(self._size(type_) for type_ in pointees)

    def _size(self, type_: int) -> int:
        op, operands = self.types[type_]
        if op in (_TYPE_INT, _TYPE_FLOAT):
            return operands[0] // 8
        if op == _TYPE_VECTOR:
            return self._size(operands[0]) * operands[1]
        if op == _TYPE_ARRAY:  # the length may be a specialisation constant: unknown here
            return self._size(operands[0]) * self.constants.get(operands[1], 0)
        return sum(self._size(member) for member in operands) if op == _TYPE_STRUCT else 4

    def _features(self) -> tuple[str, ...]:
        needed = set()
        for op, words in self.instructions:
            if op != _CAPABILITY or words[1] in _FREE:
                continue
            if words[1] not in _FEATURES:
                raise UnsupportedError(f"the SPIR-V capability {words[1]}, for which no Vulkan feature is known")
            needed.add(_FEATURES[words[1]])
        for op, words in self.types.values():  # Int8 is capability enough for SPIR-V; Vulkan wants the storage feature
            if op == _TYPE_POINTER and words[0] == _STORAGE_BUFFER:
                widths = self._widths(words[1])
                needed |= {f"storageBuffer{w}BitAccess" for w in (8, 16) if w in widths}
        return tuple(sorted(needed))

    def _widths(self, type_: int) -> set[int]:
        op, operands = self.types[type_]
        if op in (_TYPE_INT, _TYPE_FLOAT):
            return {operands[0]}
        if op in (_TYPE_VECTOR, _TYPE_ARRAY, _TYPE_RUNTIME_ARRAY):
            return self._widths(operands[0])
        return set().union(*(self._widths(member) for member in operands)) if op == _TYPE_STRUCT else set()


def _text(words: tuple[int, ...]) -> str:
    return struct.pack(f"<{len(words)}I", *words).split(b"\0")[0].decode(errors="replace")


def _pack(instructions: list[tuple[int, ...]]) -> bytes:
    flat = [word for words in instructions for word in words]
    return struct.pack(f"<{len(flat)}I", *flat)
