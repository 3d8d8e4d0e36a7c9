"""An emulator for kernels in Metal's and CUDA's languages: the source itself, executed by this machine's CPU."""
