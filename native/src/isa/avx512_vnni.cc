// avx512_vnni kernels.
