// Prefix sums of short lists by one block: their time is that of the launch, not of memory.
#include "integers.cuh"

#define THREADS 1024

// counts, out i64 (n,), which may be the same: out[i] = counts[0] + ... + counts[i].
extern "C" __global__ void __launch_bounds__(THREADS)
inclusive_sum(const i64 *counts, i64 *out, i64 n) {
    __shared__ i64 warp_sums[32];
    u32 lane = lane_number(), warp = threadIdx.x / 32;
    i64 before = 0;
    for (i64 first = 0; first < n; first += THREADS) {
        i64 at = first + threadIdx.x;
        i64 sum = at < n ? counts[at] : 0;
        #pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            i64 other = __shfl_up_sync(ALL_LANES, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) warp_sums[warp] = sum;
        __syncthreads();
        if (warp == 0) {
            i64 own = warp_sums[lane];
            #pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                i64 other = __shfl_up_sync(ALL_LANES, own, step);
                if (lane >= step) own += other;
            }
            warp_sums[lane] = own;
        }
        __syncthreads();
        if (at < n) out[at] = before + (warp > 0 ? warp_sums[warp - 1] : 0) + sum;
        before += warp_sums[31];
        __syncthreads(); // warp_sums is written again
    }
}
