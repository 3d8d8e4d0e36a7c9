"""A TVM module -> a plan: kernels, their arguments, their order."""
