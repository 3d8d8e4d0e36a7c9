"""The CPU, through TVM's LLVM code generator."""
