// avx2 kernels.
