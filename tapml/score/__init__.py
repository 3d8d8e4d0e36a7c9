"""The score of a suite: defects planted in lowered modules and emitted kernels, and what of them its cases catch."""
