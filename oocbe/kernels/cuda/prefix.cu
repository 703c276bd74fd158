// Exclusive prefix sums in one pass over memory (Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled
// Look-back, 2016), and searches in them.
// variants: TERM=0|1|2
#include "integers.cuh"

// A warp looks back over 32 tiles at a time, about a microsecond each time. Tiles of 8,192 entries keep that ahead of the
// rate at which memory brings them.
#define ITEMS 16
#define THREADS 512
#define TILE (ITEMS * THREADS)

// A tile's state: two bits that say what is known, and the sum, of this tile alone or of all up to it.
#define ALONE (1ull << 62)
#define UP_TO (2ull << 62)
#define SUM (ALONE - 1)

// What is summed: TERM 0 counts i64, 1 products of two counts i64, 2 ones of u32 words.
__device__ __forceinline__ u64 term(const void *first, const void *second, i64 i) {
#if TERM == 0
    return ((const u64 *)first)[i];
#elif TERM == 1
    return ((const u64 *)first)[i] * ((const u64 *)second)[i];
#else
    return __popc(((const u32 *)first)[i]);
#endif
}

__device__ __forceinline__ u64 inclusive_in_warp(u64 value, u32 lane) {
    #pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        u64 other = __shfl_up_sync(ALL_LANES, value, step);
        if (lane >= step) value += other;
    }
    return value;
}

// Sum of all tiles before this one, by one warp. States are written and read whole, so no fence is needed.
__device__ u64 sum_before(u64 *states, i64 tile, u64 own, u32 lane) {
    if (lane == 0) store_relaxed(&states[tile], (tile == 0 ? UP_TO : ALONE) | own);
    u64 before = 0;
    for (i64 last = tile - 1; last >= 0; last -= 32) {
        i64 at = last - lane;
        u64 state;
        do state = at >= 0 ? load_relaxed(&states[at]) : UP_TO;
        while (__any_sync(ALL_LANES, state < ALONE));
        u32 known = __ballot_sync(ALL_LANES, state >= UP_TO);
        u64 part = known == 0 || lane <= __ffs(known) - 1 ? state & SUM : 0;
        #pragma unroll
        for (int step = 16; step > 0; step /= 2) part += __shfl_xor_sync(ALL_LANES, part, step);
        before += part;
        if (known) break;
    }
    if (lane == 0 && tile > 0) store_relaxed(&states[tile], UP_TO | (before + own));
    return before;
}

// out i64 (n + 1,), the sum of all last. states u64 (tiles,) and counter u32 (1,) are zero; tiles are taken in the order
// in which blocks start, so that a tile never waits for one that has no block yet.
extern "C" __global__ void __launch_bounds__(THREADS)
prefix_sum(const void *first, const void *second, u64 *out, i64 n, u64 *states, u32 *counter) {
    __shared__ u64 warp_sums[THREADS / 32], before;
    __shared__ i64 taken;
    if (threadIdx.x == 0) taken = atomicAdd(counter, 1u);
    __syncthreads();
    i64 tile = taken;
    u32 lane = lane_number(), warp = threadIdx.x / 32;
    i64 start = tile * TILE + warp * (32 * ITEMS) + lane;
    u64 sums[ITEMS], total = 0;
    // Whole tiles have loads without a condition, all in flight at the same time.
    if ((tile + 1) * TILE <= n) {
        #pragma unroll
        for (int i = 0; i < ITEMS; i++) sums[i] = term(first, second, start + i * 32);
    } else {
        #pragma unroll
        for (int i = 0; i < ITEMS; i++) sums[i] = start + i * 32 < n ? term(first, second, start + i * 32) : 0;
    }
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        u64 sum = inclusive_in_warp(sums[i], lane);
        sums[i] = total + sum - sums[i];
        total += __shfl_sync(ALL_LANES, sum, 31);
    }
    if (lane == 0) warp_sums[warp] = total;
    __syncthreads();
    if (warp == 0) {
        u64 mine = lane < THREADS / 32 ? warp_sums[lane] : 0;
        u64 sum = inclusive_in_warp(mine, lane);
        u64 tile_sum = __shfl_sync(ALL_LANES, sum, 31);
        u64 found = sum_before(states, tile, tile_sum, lane);
        if (lane < THREADS / 32) warp_sums[lane] = sum - mine;
        if (lane == 0) {
            before = found;
            if ((tile + 1) * TILE >= n) out[n] = found + tile_sum;
        }
    }
    __syncthreads();
    u64 base = before + warp_sums[warp];
    #pragma unroll
    for (int i = 0; i < ITEMS; i++)
        if (start + i * 32 < n) out[start + i * 32] = base + sums[i];
}

// Group of the first row of each tile; places i64 (groups + 1,) strictly ascending, out i64 (tiles + 1,), the last
// group last.
extern "C" __global__ void find_tiles(const i64 *places, i64 groups, i64 tile_rows, i64 tiles, i64 *out) {
    i64 tile = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (tile < tiles) out[tile] = upper_bound(places, (i64)0, groups, tile * tile_rows) - 1;
    if (tile == tiles) out[tile] = groups - 1;
}
