// Conversion between rows of incomplete tables and cells of complete ones; see
// oocbe/kernels/cpu/complete/complete_copy.py.
// variants: VALUE=short|int|long long|float|double
#include "integers.cuh"

#define THREADS 256
#define UNITS 4

// out VALUE (cells,), initially infeasible: values of rows with keys u64 (words, rows) are written to their cells. Each
// field of a key is bits of a word, with a stride in cells.
extern "C" __global__ void __launch_bounds__(THREADS)
write_rows(const u64 *keys, const VALUE *values, i64 rows, const u64 *word, const u64 *shift, const u64 *mask,
           const u64 *step, i64 fields, VALUE *out) {
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (row >= rows) return;
    u64 cell = 0;
    for (i64 f = 0; f < fields; f++) cell += (keys[word[f] * rows + row] >> shift[f] & mask[f]) * step[f];
    out[cell] = values[row];
}

// Feasible values by test: 0 different from `limit`, 1 at most `limit`, 2 at least.
__device__ __forceinline__ bool is_feasible(VALUE value, i64 test, VALUE limit) {
    return test == 0 ? value != limit : test == 1 ? value <= limit : value >= limit;
}

// bits u32 (ceil(cells / 32),): feasible cells.
extern "C" __global__ void __launch_bounds__(THREADS)
mark_feasible(const VALUE *values, i64 cells, i64 test, VALUE limit, u32 *bits) {
    i64 first = (i64)blockIdx.x * (THREADS * UNITS) + threadIdx.x;
    VALUE read[UNITS];
    #pragma unroll
    for (int i = 0; i < UNITS; i++) read[i] = first + i * THREADS < cells ? values[first + i * THREADS] : limit;
    #pragma unroll
    for (int i = 0; i < UNITS; i++) {
        i64 cell = first + i * THREADS;
        u32 ones = __ballot_sync(ALL_LANES, cell < cells && is_feasible(read[i], test, limit));
        if (lane_number() == 0 && cell < cells) bits[cell >> 5] = ones;
    }
}

// count u64 (1,), zero before: feasible cells.
extern "C" __global__ void __launch_bounds__(THREADS)
count_feasible(const VALUE *values, i64 cells, i64 test, VALUE limit, u64 *count) {
    i64 step = (i64)gridDim.x * THREADS * UNITS;
    u64 found = 0;
    for (i64 first = (i64)blockIdx.x * (THREADS * UNITS) + threadIdx.x; first < cells; first += step) {
        VALUE read[UNITS];
        #pragma unroll
        for (int i = 0; i < UNITS; i++) read[i] = first + i * THREADS < cells ? values[first + i * THREADS] : limit;
        #pragma unroll
        for (int i = 0; i < UNITS; i++) found += first + i * THREADS < cells && is_feasible(read[i], test, limit);
    }
    for (int lanes = 16; lanes > 0; lanes >>= 1) found += __shfl_down_sync(ALL_LANES, found, lanes);
    if (lane_number() == 0 && found) atomicAdd(count, found);
}

// keys u64 (words, count) and values (count,) of the marked cells, in order. `before`: marked cells before each word of
// bits. A variable has a size and a field of a key (word and shift); the first variable is the fastest.
extern "C" __global__ void __launch_bounds__(THREADS)
list_cells(const VALUE *values, i64 cells, const u32 *bits, const i64 *before, i64 count, const u64 *size,
           const u64 *word, const u64 *shift, i64 variables, i64 words, u64 *keys, VALUE *kept) {
    i64 first = (i64)blockIdx.x * (THREADS * UNITS) + threadIdx.x;
    for (int i = 0; i < UNITS; i++) {
        i64 cell = first + i * THREADS;
        if (cell >= cells) return;
        u32 mine = bits[cell >> 5];
        if (!(mine >> (cell & 31) & 1)) continue;
        i64 row = before[cell >> 5] + __popc(mine & lanes_below());
        kept[row] = values[cell];
        u64 rest = (u64)cell, key = 0, at = 0;
        for (i64 v = 0; v < variables; v++) {
            // Fields are in the order of their words, so each word is completed before the next.
            if (word[v] != at) {
                keys[at * count + row] = key;
                for (at++; at < word[v]; at++) keys[at * count + row] = 0;
                key = 0;
            }
            u64 digit;
            if ((rest | size[v]) >> 32) {
                digit = rest % size[v];
                rest /= size[v];
            } else {
                digit = (u32)rest % (u32)size[v];
                rest = (u32)rest / (u32)size[v];
            }
            key |= digit << shift[v];
        }
        for (; at < (u64)words; at++, key = 0) keys[at * count + row] = key;
    }
}
