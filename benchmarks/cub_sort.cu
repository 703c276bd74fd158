// CUB's device-wide radix sort of (uint64, int32) pairs behind a C function, as the peer of our own; compiled with nvcc
// where the benchmark finds one.
#include <cub/device/device_radix_sort.cuh>

// Bytes of temporary memory where `temporary` is null, else sorts and returns 0; negative: CUDA's error code.
extern "C" long long sort_pairs(void *temporary, long long bytes, const unsigned long long *keys,
                                unsigned long long *out_keys, const int *values, int *out_values, long long rows,
                                int begin_bit, int end_bit) {
    size_t size = (size_t)bytes;
    cudaError_t code = cub::DeviceRadixSort::SortPairs(temporary, size, keys, out_keys, values, out_values, rows,
                                                       begin_bit, end_bit);
    if (code != cudaSuccess) return -(long long)code;
    return temporary ? 0 : (long long)size;
}
