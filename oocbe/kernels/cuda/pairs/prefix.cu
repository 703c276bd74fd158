// Exclusive prefix sums in one pass over memory (Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled
// Look-back, 2016), and searches in them.
// variants: TERM=0|1|2|3|4
#include "integers.cuh"

// Many small blocks: while one waits for earlier tiles, others load entries.
#define ITEMS 16
#define THREADS 96
#define TILE (ITEMS * THREADS)
// Adjacent entries per lane at a time: they are summed in registers, which saves steps between lanes.
#define TOGETHER 4

// A tile's state: two status bits, and a sum: of this tile alone, or of all tiles up to it.
#define ALONE (1ull << 62)
#define UP_TO (2ull << 62)
#define SUM (ALONE - 1)

// Summands: TERM 0 counts i64, 1 products of two counts i64, 2 set bits of u32 words, 3 counts u32; 4, of the counts of
// outer and inner runs of a group, units of work of `part` outer runs (segments of join_reduce.cu: of 1).
#define CHUNK 512
#if TERM == 2 || TERM == 3
typedef u32 ENTRY;
#else
typedef u64 ENTRY;
#endif
#define ENTRIES_A_LOAD (16 / sizeof(ENTRY))
struct alignas(16) Load { ENTRY entries[ENTRIES_A_LOAD]; };

__device__ __forceinline__ u64 term(ENTRY first, ENTRY second, u64 part) {
#if TERM == 0 || TERM == 3
    return first;
#elif TERM == 1
    return first * second;
#elif TERM == 2
    return __popc(first);
#else
    return (part == 1 ? first : (first + part - 1) / part) * ((second + CHUNK - 1) / CHUNK);
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

// Sum of all tiles before this one, by one warp. States are written and read atomically, so no fence is needed.
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

// One sum: first, second ENTRY (n,), 16-byte aligned; out i64 (n + 1,), the total last.
struct Sum {
    const ENTRY *first, *second;
    u64 *out;
    i64 n;
    u64 part;
};

// One sum or two; totals in the host's memory, or null.
struct Sums {
    Sum one, two;
    u64 *totals;
};

// states u64 (tiles of all sums,) and counter u32 (1,) are zero. Tiles are assigned in the order in which blocks start,
// so that a tile never waits for one without a block.
extern "C" __global__ void __launch_bounds__(THREADS, 10) prefix_sum(Sums of, u64 *states, u32 *counter) {
    __shared__ u64 warp_sums[THREADS / 32], before;
    __shared__ i64 taken;
    if (threadIdx.x == 0) taken = atomicAdd(counter, 1u);
    __syncthreads();
    i64 tile = taken, tiles = of.one.n > 0 ? (of.one.n + TILE - 1) / TILE : 1;
    bool is_second = tile >= tiles;
    if (is_second) tile -= tiles, states += tiles;
    Sum sum_of = is_second ? of.two : of.one;
    const ENTRY *first = sum_of.first, *second = sum_of.second;
    u64 *out = sum_of.out, part = sum_of.part;
    i64 n = sum_of.n;
    u32 lane = lane_number(), warp = threadIdx.x / 32;
    i64 start = tile * TILE + warp * (32 * ITEMS) + lane * TOGETHER;
    bool whole = (tile + 1) * TILE <= n;
    u64 sums[ITEMS], total = 0;
    // Full tiles have unconditional loads, all in flight at the same time.
    if (whole) {
        #pragma unroll
        for (int i = 0; i < ITEMS; i += ENTRIES_A_LOAD) {
            i64 at = start + i / TOGETHER * (32 * TOGETHER) + i % TOGETHER;
            Load a = *(const Load *)(first + at), b = a;
            if (TERM == 1 || TERM > 3) b = *(const Load *)(second + at);
            #pragma unroll
            for (int k = 0; k < ENTRIES_A_LOAD; k++) sums[i + k] = term(a.entries[k], b.entries[k], part);
        }
    } else {
        #pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            i64 at = start + i / TOGETHER * (32 * TOGETHER) + i % TOGETHER;
            sums[i] = at < n ? term(first[at], second[at], part) : 0;
        }
    }
    #pragma unroll
    for (int i = 0; i < ITEMS; i += TOGETHER) {
        u64 own = 0;
        #pragma unroll
        for (int k = 0; k < TOGETHER; k++) own += sums[i + k];
        u64 sum = inclusive_in_warp(own, lane), before_mine = total + sum - own;
        #pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            u64 next = before_mine + sums[i + k];
            sums[i + k] = before_mine;
            before_mine = next;
        }
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
            if ((tile + 1) * TILE >= n) {
                out[n] = found + tile_sum;
                if (of.totals) of.totals[is_second] = found + tile_sum;
            }
        }
    }
    __syncthreads();
    u64 base = before + warp_sums[warp];
    #pragma unroll
    for (int i = 0; i < ITEMS; i += 2) {
        i64 at = start + i / TOGETHER * (32 * TOGETHER) + i % TOGETHER;
        if (whole) {
            *(ulonglong2 *)(out + at) = make_ulonglong2(base + sums[i], base + sums[i + 1]);
        } else {
            if (at < n) out[at] = base + sums[i];
            if (at + 1 < n) out[at + 1] = base + sums[i + 1];
        }
    }
}

// Group of the first row of each tile; places i64 (groups + 1,) ascending, out i64 (tiles + 1,), the last group last.
extern "C" __global__ void find_tiles(const i64 *places, i64 groups, i64 tile_rows, i64 tiles, i64 *out) {
    i64 tile = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (tile < tiles) out[tile] = upper_bound(places, (i64)0, groups, tile * tile_rows) - 1;
    if (tile == tiles) out[tile] = groups - 1;
}
