"""An ATen operator -> a TVM module."""
