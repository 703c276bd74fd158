"""CPU kernels: Numba loops without the interpreter lock, spread over row ranges by a shared thread pool."""
