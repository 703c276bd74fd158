// Groups of neighbouring rows with equal masked keys: where they start, and which occur in two tables. What is selected
// is marked as a bit a row first, counted, and written by the counts' prefix sum.
#include "integers.cuh"
#include "moves.cuh"

#define THREADS 256
#define ROWS_A_THREAD 4

// bits u32 (ceil(rows / 32),): rows that differ from the one before in a masked bit, and the first row.
extern "C" __global__ void __launch_bounds__(THREADS)
mark_heads(const u64 *keys, i64 rows, Masks masks, i64 words, u32 *bits) {
    i64 first = (i64)blockIdx.x * (THREADS * ROWS_A_THREAD) + threadIdx.x;
    u64 differences[ROWS_A_THREAD];
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) differences[i] = first + i * THREADS == 0;
    // Blocks that neither begin nor end the table have loads without a condition, all in flight at the same time.
    bool whole = blockIdx.x > 0 && (i64)(blockIdx.x + 1) * (THREADS * ROWS_A_THREAD) <= rows;
    for (int word = 0; word < words; word++) {
        const u64 *column = keys + word * rows + first;
        u64 mask = masks.words[word], here[ROWS_A_THREAD], last[ROWS_A_THREAD];
        if (whole) {
            #pragma unroll
            for (int i = 0; i < ROWS_A_THREAD; i++) here[i] = column[i * THREADS], last[i] = column[i * THREADS - 1];
            #pragma unroll
            for (int i = 0; i < ROWS_A_THREAD; i++) differences[i] |= (here[i] ^ last[i]) & mask;
        } else {
            for (int i = 0; i < ROWS_A_THREAD; i++) {
                i64 row = first + i * THREADS;
                if (row > 0 && row < rows) differences[i] |= (column[i * THREADS] ^ column[i * THREADS - 1]) & mask;
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) {
        i64 row = first + i * THREADS;
        u32 found = __ballot_sync(ALL_LANES, row < rows && differences[i] != 0);
        if (lane_number() == 0 && row < rows) bits[row >> 5] = found;
    }
}

// Calls write(marked row, place) for each marked row, neighbouring places by neighbouring lanes. A warp takes 32 words.
template <typename Write>
__device__ __forceinline__ void for_marked(const u32 *bits, const i64 *before, i64 words, Write write) {
    i64 first = ((i64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * 32;
    if (first >= words) return;
    u32 lane = lane_number(), below = lanes_below();
    u32 mine = first + lane < words ? bits[first + lane] : 0;
    i64 place = before[first];
    for (u32 left = __ballot_sync(ALL_LANES, mine != 0); left; left &= left - 1) {
        int from = __ffs(left) - 1;
        u32 word = __shfl_sync(ALL_LANES, mine, from);
        if (word >> lane & 1) write((first + from) * 32 + lane, place + __popc(word & below));
        place += __popc(word);
    }
}

// out i64 (marked rows + 1,): the marked rows, and the number of rows last.
extern "C" __global__ void __launch_bounds__(THREADS)
write_starts(const u32 *bits, const i64 *before, i64 words, i64 rows, i64 *out) {
    if (blockIdx.x == 0 && threadIdx.x == 0) out[before[words]] = rows;
    for_marked(bits, before, words, [=](i64 row, i64 place) { out[place] = row; });
}

// Sign of masked key 1 minus masked key 2, the last word most significant.
__device__ __forceinline__ int compare(const u64 *keys1, i64 rows1, i64 row1, const u64 *keys2, i64 rows2, i64 row2,
                                       const Masks &masks, int words) {
    for (int word = words - 1; word >= 0; word--) {
        u64 a = keys1[word * rows1 + row1] & masks.words[word], b = keys2[word * rows2 + row2] & masks.words[word];
        if (a != b) return a < b ? -1 : 1;
    }
    return 0;
}

// First group of table 2, between low and high, whose key is not below that of a row of table 1.
__device__ __forceinline__ i64 first_not_below(const u64 *keys1, i64 rows1, i64 row1, const u64 *keys2, i64 rows2,
                                               const i64 *starts2, i64 low, i64 high, const Masks &masks, int words) {
    while (low < high) {
        i64 middle = (low + high) >> 1;
        if (compare(keys1, rows1, row1, keys2, rows2, starts2[middle], masks, words) > 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

// bounds i64 (tiles + 1,): where in table 2 to search for each tile of THREADS groups of table 1.
extern "C" __global__ void find_bounds(const u64 *keys1, i64 rows1, const i64 *starts1, i64 groups1, const u64 *keys2,
                                       i64 rows2, const i64 *starts2, i64 groups2, Masks masks, i64 words, i64 tiles,
                                       i64 *bounds) {
    i64 tile = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (tile < tiles)
        bounds[tile] = first_not_below(keys1, rows1, starts1[tile * THREADS], keys2, rows2, starts2, 0, groups2, masks,
                                       words);
    if (tile == tiles) bounds[tile] = groups2;
}

// bits u32 (ceil(groups1 / 32),): groups of table 1 that table 2 has; found i64 (groups1,): which one it is there.
extern "C" __global__ void __launch_bounds__(THREADS)
mark_matches(const u64 *keys1, i64 rows1, const i64 *starts1, i64 groups1, const u64 *keys2, i64 rows2,
             const i64 *starts2, i64 groups2, Masks masks, i64 words, const i64 *bounds, u32 *bits, i64 *found) {
    i64 group = (i64)blockIdx.x * THREADS + threadIdx.x;
    bool matches = false;
    if (group < groups1) {
        i64 row = starts1[group], low = bounds[blockIdx.x], high = bounds[blockIdx.x + 1];
        i64 at = first_not_below(keys1, rows1, row, keys2, rows2, starts2, low, high, masks, words);
        matches = at < groups2 && compare(keys1, rows1, row, keys2, rows2, starts2[at], masks, words) == 0;
        if (matches) found[group] = at;
    }
    u32 word = __ballot_sync(ALL_LANES, matches);
    if (lane_number() == 0 && group < groups1) bits[group >> 5] = word;
}

extern "C" __global__ void __launch_bounds__(THREADS)
write_matches(const u32 *bits, const i64 *before, i64 words, const i64 *found, i64 *out1, i64 *out2) {
    for_marked(bits, before, words, [=](i64 group, i64 place) {
        out1[place] = group;
        out2[place] = found[group];
    });
}
