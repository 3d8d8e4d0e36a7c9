"""One sentence: which target this is, and by what its kernels are compiled and executed."""
