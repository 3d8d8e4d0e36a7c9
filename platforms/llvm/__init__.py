"""The CPU, through TVM's LLVM code generator."""

from tapml.platforms.llvm.platform import LlvmPlatform

PLATFORM = LlvmPlatform()
