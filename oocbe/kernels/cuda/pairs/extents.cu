// Least and greatest values of integer columns.
// variants: VALUE=int|long long
#include "integers.cuh"

#define THREADS 256

// values (rows,), at least one; extents i64 (2 * blocks,), which may be the host's:
// least and greatest value of each block's rows.
extern "C" __global__ void __launch_bounds__(THREADS) find_extents(const VALUE *values, i64 rows, i64 *extents) {
    __shared__ VALUE least[THREADS / 32], greatest[THREADS / 32];
    // The first value belongs to every block, so that no block is without rows.
    VALUE low = values[0], high = low;
    i64 step = (i64)gridDim.x * THREADS;
    #pragma unroll 4
    for (i64 row = (i64)blockIdx.x * THREADS + threadIdx.x; row < rows; row += step) {
        VALUE value = values[row];
        if (value < low) low = value;
        if (value > high) high = value;
    }
    for (int distance = 16; distance; distance /= 2) {
        VALUE other = __shfl_down_sync(ALL_LANES, low, distance);
        if (other < low) low = other;
        other = __shfl_down_sync(ALL_LANES, high, distance);
        if (other > high) high = other;
    }
    if (lane_number() == 0) {
        least[threadIdx.x / 32] = low;
        greatest[threadIdx.x / 32] = high;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < THREADS / 32; warp++) {
            if (least[warp] < low) low = least[warp];
            if (greatest[warp] > high) high = greatest[warp];
        }
        extents[2 * blockIdx.x] = low;
        extents[2 * blockIdx.x + 1] = high;
    }
}
