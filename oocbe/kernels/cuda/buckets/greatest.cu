// Greatest of counts of several limbs, the least significant limb first.
// variants: LIMBS=2|8
#include "integers.cuh"

#define THREADS 256

__device__ __forceinline__ bool is_less(const u64 *a, const u64 *b) {
    #pragma unroll
    for (int limb = LIMBS - 1; limb >= 0; limb--)
        if (a[limb] != b[limb]) return a[limb] < b[limb];
    return false;
}

__device__ __forceinline__ void copy_count(u64 *target, const u64 *source) {
    #pragma unroll
    for (int limb = 0; limb < LIMBS; limb++) target[limb] = source[limb];
}

// values u64 (rows, LIMBS), at least one row; greatest u64 (blocks, LIMBS), of each block's rows.
extern "C" __global__ void __launch_bounds__(THREADS) find_greatest(const u64 *values, i64 rows, u64 *greatest) {
    __shared__ u64 held[THREADS * LIMBS];
    u64 best[LIMBS], *mine = held + threadIdx.x * LIMBS;
    // The first row belongs to every block, so that no block is without rows.
    copy_count(best, values);
    i64 step = (i64)gridDim.x * THREADS;
    for (i64 row = (i64)blockIdx.x * THREADS + threadIdx.x; row < rows; row += step) {
        u64 own[LIMBS];
        copy_count(own, values + row * LIMBS);
        if (is_less(best, own)) copy_count(best, own);
    }
    copy_count(mine, best);
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half && is_less(mine, mine + half * LIMBS)) copy_count(mine, mine + half * LIMBS);
    }
    if (threadIdx.x == 0) copy_count(greatest + blockIdx.x * LIMBS, mine);
}
