"""CUDA, on GPUs of NVIDIA."""
