// Least and greatest values of integer columns, and the greatest of counts of several limbs.
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

// One limb of the greatest count: the greatest among the rows whose higher limbs equal those in found.
// values u64 (rows, limbs); found u64 (limbs,), the greatest count's above `limb`, initially 0 from `limb` down.
extern "C" __global__ void __launch_bounds__(THREADS)
find_greatest_limb(const u64 *values, i64 rows, i64 limb, i64 limbs, u64 *found) {
    u64 best = 0;
    i64 step = (i64)gridDim.x * THREADS;
    #pragma unroll 4
    for (i64 row = (i64)blockIdx.x * THREADS + threadIdx.x; row < rows; row += step) {
        const u64 *own = values + row * limbs;
        bool is_most = true;
        for (i64 higher = limb + 1; higher < limbs; higher++) is_most &= own[higher] == found[higher];
        if (is_most && own[limb] > best) best = own[limb];
    }
    for (int distance = 16; distance; distance /= 2) {
        u64 other = __shfl_down_sync(ALL_LANES, best, distance);
        if (other > best) best = other;
    }
    if (lane_number() == 0) atomicMax(found + limb, best);
}
