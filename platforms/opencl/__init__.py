"""OpenCL, through pyopencl and whatever drivers are installed (PoCL for the CPU)."""

from tapml.platforms.opencl.platform import OpenclPlatform

PLATFORM = OpenclPlatform()
