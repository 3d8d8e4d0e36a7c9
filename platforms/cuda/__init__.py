"""CUDA, on GPUs of NVIDIA."""

from tapml.platforms.cuda.platform import CudaPlatform

PLATFORM = CudaPlatform()
