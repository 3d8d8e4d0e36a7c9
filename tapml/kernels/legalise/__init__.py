"""Device functions as TVM lowers them -> device functions that a shading language can express, meaning the same."""
