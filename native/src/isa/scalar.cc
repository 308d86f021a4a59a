// scalar kernels.
