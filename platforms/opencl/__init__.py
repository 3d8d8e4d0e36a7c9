"""OpenCL, through pyopencl and whatever drivers are installed (PoCL for the CPU)."""
