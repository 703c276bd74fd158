// Join and marginalise at once: one output row for each pair of runs (runs.cu) of a group that have an eliminated value
// in common, its value marginalised over those values, in registers. Pairs are counted first, then written.
// Up to 64 different eliminated values are sets of bits; with SET_BITS 0 the two runs' ascending lists are merged.
// variants: SET_BITS=0|32|64 VALUE=int|long long|float|double
// variants: COMBINATION=0|1 MARGINALISATION=0|1|2|3
#include "integers.cuh"
#include "values.cuh"
#define STAGED 256
#include "pairs.cuh"

// One table's runs: where their rows start, their eliminated values as a set or a list, and the rows' values.
struct Side {
    const i64 *starts;
    const void *sets;
    const u64 *eliminated;
    const VALUE *values;
    const u64 *keys;
    i64 runs;
};

#if SET_BITS == 0
__device__ __forceinline__ bool first_common(const Side &a, i64 run_a, const Side &b, i64 run_b, i64 &i, i64 &j) {
    i64 stop_a = a.starts[run_a + 1], stop_b = b.starts[run_b + 1];
    while (i < stop_a && j < stop_b) {
        u64 x = a.eliminated[i], y = b.eliminated[j];
        if (x == y) return true;
        if (x < y) i++; else j++;
    }
    return false;
}

__device__ __forceinline__ bool have_common(const Side &a, i64 run_a, const Side &b, i64 run_b) {
    i64 i = a.starts[run_a], j = b.starts[run_b];
    return first_common(a, run_a, b, run_b, i, j);
}

// Values of AT_ONCE pairs of runs, marginalised over the eliminated values in common, of which each has one at least.
__device__ __forceinline__ void over_common(const Side &a, const u32 *runs_a, const Side &b, const u32 *runs_b,
                                            VALUE *results) {
    for (int p = 0; p < AT_ONCE; p++) {
        u32 run_a = runs_a[p], run_b = runs_b[p];
        i64 i = a.starts[run_a], j = b.starts[run_b];
        first_common(a, run_a, b, run_b, i, j);
        VALUE result = combine(a.values[i++], b.values[j++]);
        while (first_common(a, run_a, b, run_b, i, j))
            result = marginalise(result, combine(a.values[i++], b.values[j++]));
        results[p] = result;
    }
}
#else
#if SET_BITS == 32
typedef u32 SET;
#else
typedef u64 SET;
#endif

__device__ __forceinline__ int ones(u32 set) { return __popc(set); }
__device__ __forceinline__ int ones(u64 set) { return __popcll(set); }

__device__ __forceinline__ bool have_common(const Side &a, i64 run_a, const Side &b, i64 run_b) {
    return ((const SET *)a.sets)[run_a] & ((const SET *)b.sets)[run_b];
}

// As above. The first values of all pairs are in flight at the same time; later ones are in the first-level cache.
__device__ __forceinline__ void over_common(const Side &a, const u32 *runs_a, const Side &b, const u32 *runs_b,
                                            VALUE *results) {
    SET sets_a[AT_ONCE], sets_b[AT_ONCE];
    const VALUE *values_a[AT_ONCE], *values_b[AT_ONCE];
    #pragma unroll
    for (int p = 0; p < AT_ONCE; p++) {
        sets_a[p] = ((const SET *)a.sets)[runs_a[p]];
        sets_b[p] = ((const SET *)b.sets)[runs_b[p]];
        values_a[p] = a.values + a.starts[runs_a[p]];
        values_b[p] = b.values + b.starts[runs_b[p]];
    }
    // A run's rows ascend by eliminated value: as many come before one as the set has lower bits.
    #pragma unroll
    for (int p = 0; p < AT_ONCE; p++) {
        SET common = sets_a[p] & sets_b[p], below = (common & -common) - 1;
        results[p] = combine(values_a[p][ones(sets_a[p] & below)], values_b[p][ones(sets_b[p] & below)]);
    }
    #pragma unroll
    for (int p = 0; p < AT_ONCE; p++) {
        SET common = sets_a[p] & sets_b[p];
        for (common &= common - 1; common; common &= common - 1) {
            SET below = (common & -common) - 1;
            VALUE value = combine(values_a[p][ones(sets_a[p] & below)], values_b[p][ones(sets_b[p] & below)]);
            results[p] = marginalise(results[p], value);
        }
    }
}
#endif

// Pairs are of an inner (fast) and an outer run; the groups as in pairs.cuh, of runs. counts i64 (blocks,): output rows.
extern "C" __global__ void __launch_bounds__(PAIR_THREADS)
count_pairs(Side inner, Side outer, const i64 *inner_starts, const i64 *inner_counts, const i64 *outer_starts,
            const i64 *places, const i64 *tiles, i64 pairs, i64 *counts) {
    __shared__ PairGroups held;
    __shared__ u32 total;
    if (threadIdx.x == 0) total = 0;
    find_groups(held, places, tiles, inner_starts, inner_counts, outer_starts);
    i64 start = (i64)blockIdx.x * PAIRS;
    u32 count = 0;
    #pragma unroll
    for (int i = 0; i < PAIRS_A_THREAD; i++) {
        u32 t = threadIdx.x + i * PAIR_THREADS;
        bool inside = start + t < pairs;
        Pair pair = pair_of(held, inside ? t : 0, inner_starts, inner_counts, outer_starts);
        count += have_common(outer, pair.row2, inner, pair.row1) && inside;
    }
    for (int step = 16; step > 0; step /= 2) count += __shfl_xor_sync(ALL_LANES, count, step);
    if (lane_number() == 0) atomicAdd(&total, count);
    __syncthreads();
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// Tables have fewer than 2^32 runs. row_places i64 (blocks + 1,): the counts' prefix sum. out_keys u64 (words, rows), out_values (rows,), in the order of
// the pairs.
extern "C" __global__ void __launch_bounds__(PAIR_THREADS)
write_pairs(Side inner, Side outer, const i64 *inner_starts, const i64 *inner_counts, const i64 *outer_starts,
            const i64 *places, const i64 *tiles, i64 pairs, const i64 *row_places, i64 words, u64 *out_keys,
            VALUE *out_values, i64 rows) {
    const int warps = PAIR_THREADS / 32;
    __shared__ PairGroups held;
    __shared__ u32 before[PAIRS_A_THREAD * warps + 1], found_inner[PAIRS], found_outer[PAIRS];
    find_groups(held, places, tiles, inner_starts, inner_counts, outer_starts);
    i64 start = (i64)blockIdx.x * PAIRS;
    u32 lane = lane_number(), warp = threadIdx.x / 32, found[PAIRS_A_THREAD];
    u32 inner_runs[PAIRS_A_THREAD], outer_runs[PAIRS_A_THREAD];
    #pragma unroll
    for (int i = 0; i < PAIRS_A_THREAD; i++) {
        u32 t = threadIdx.x + i * PAIR_THREADS;
        bool inside = start + t < pairs;
        Pair pair = pair_of(held, inside ? t : 0, inner_starts, inner_counts, outer_starts);
        bool common = have_common(outer, pair.row2, inner, pair.row1) && inside;
        inner_runs[i] = (u32)pair.row1;
        outer_runs[i] = (u32)pair.row2;
        found[i] = __ballot_sync(ALL_LANES, common);
        if (lane == 0) before[i * warps + warp] = __popc(found[i]);
    }
    __syncthreads();
    if (warp == 0) {
        // Exclusive prefix sum of the warps' counts, two a lane.
        u32 a = before[2 * lane], b = before[2 * lane + 1], sum = a + b;
        #pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            u32 other = __shfl_up_sync(ALL_LANES, sum, step);
            if (lane >= step) sum += other;
        }
        before[2 * lane] = sum - a - b;
        before[2 * lane + 1] = sum - b;
        if (lane == 31) before[64] = sum;
    }
    __syncthreads();
    // The pairs that are output rows, side by side: no thread idles where pairs without a common value are many.
    #pragma unroll
    for (int i = 0; i < PAIRS_A_THREAD; i++) {
        if (!(found[i] >> lane & 1)) continue;
        u32 place = before[i * warps + warp] + __popc(found[i] & lanes_below());
        found_inner[place] = inner_runs[i];
        found_outer[place] = outer_runs[i];
    }
    __syncthreads();
    i64 base = row_places[blockIdx.x];
    u32 count = before[64];
    for (u32 first = threadIdx.x; first < count; first += AT_ONCE * PAIR_THREADS) {
        u32 inners[AT_ONCE], outers[AT_ONCE];
        VALUE results[AT_ONCE];
        #pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            u32 place = first + i * PAIR_THREADS < count ? first + i * PAIR_THREADS : first;
            inners[i] = found_inner[place];
            outers[i] = found_outer[place];
        }
        for (int word = 0; word < words; word++) {
            u64 keys[AT_ONCE];
            #pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                keys[i] = outer.keys[word * outer.runs + outers[i]] | inner.keys[word * inner.runs + inners[i]];
            #pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (first + i * PAIR_THREADS < count) out_keys[word * rows + base + first + i * PAIR_THREADS] = keys[i];
        }
        over_common(outer, outers, inner, inners, results);
        #pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i * PAIR_THREADS < count) out_values[base + first + i * PAIR_THREADS] = results[i];
    }
}
