"""CUDA kernels: CUDA C++ sources compiled at run time by NVRTC, launched through CuPy on its current stream.

Arrays are CuPy's, in device memory, from CuPy's default memory pool (:mod:`oocbe.kernels.cuda.transfer.memory`). A call
queues its kernels on CuPy's current stream and returns; it waits for the device only if it needs the number of result
rows. Nothing here is imported when only the CPU is used.
"""
