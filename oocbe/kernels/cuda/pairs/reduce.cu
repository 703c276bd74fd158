// Marginalise groups of adjacent rows. A block handles TILE rows of any groups: one thread per short group, one warp
// per long one. The part of a group that began in an earlier tile is a carry, added afterwards.
// With LOOKUP, a row's value is combined with that of the cell of an array to which a plan moves its key.
// variants: VALUE=int|long long|float|double MARGINALISATION=0|1|2|3 LOOKUP=0|1 COMBINATION=0|1
#include "integers.cuh"
#include "values.cuh"
#include "moves.cuh"

#define THREADS 256
// Keys that are looked up are read again for the result, from the second-level cache where the tiles are small.
#define ROWS_A_BLOCK 4096
#define LOOKED_UP_A_BLOCK 1024
#define TILE (LOOKUP ? LOOKED_UP_A_BLOCK : ROWS_A_BLOCK)
#define SHORT 32
// Reduction over the first `lanes` lanes of a warp, converged; the result is in lane 0.
__device__ __forceinline__ VALUE over_lanes(VALUE value, u32 lanes) {
    u32 together = lanes == 32 ? ALL_LANES : (1u << lanes) - 1;
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        VALUE other = __shfl_down_sync(together, value, step);
        if (lane_number() + step < lanes) value = marginalise(value, other);
    }
    return value;
}

// cells (2 ^ bits of a key,): the rows' values at their keys of one word, which differ.
extern "C" __global__ void __launch_bounds__(THREADS)
write_cells(const u64 *keys, const VALUE *values, i64 rows, VALUE *cells) {
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (row < rows) cells[keys[row]] = values[row];
}

// values (rows,); starts i64 (groups + 1,) strictly ascending, 0 first, rows last; tiles i64 (blocks + 1,): group of
// each block's first row, last group. out_keys u64 (words, groups): the first row's key, masked. carries (blocks,) and
// carried i64 (blocks,): value of the part of a group that began before the block, and that group, or -1.
extern "C" __global__ void __launch_bounds__(THREADS)
reduce_tiles(const u64 *keys, const VALUE *values, i64 rows, const i64 *starts, i64 groups, Masks masks, i64 words,
             const i64 *tiles, u64 *out_keys, VALUE *out_values, VALUE *carries, i64 *carried
#if LOOKUP
             , Plan place, i64 moves, const VALUE *cells
#endif
) {
    __shared__ VALUE held[TILE];
    __shared__ i32 long_groups[TILE / SHORT];
    __shared__ i32 longs;
    i64 begin = (i64)blockIdx.x * TILE, end = begin + TILE < rows ? begin + TILE : rows;
    i64 first = tiles[blockIdx.x], last = tiles[blockIdx.x + 1];
    if (starts[last] >= end) last--;
    if (threadIdx.x == 0) {
        longs = 0;
        carried[blockIdx.x] = starts[first] < begin ? first : -1;
    }
#if LOOKUP
    u64 cell[TILE / THREADS];
    #pragma unroll
    for (int i = 0; i < TILE / THREADS; i++) {
        i64 row = begin + i * THREADS + threadIdx.x;
        if (row < end) cell[i] = moved_word(keys, rows, row, place, moves);
    }
    #pragma unroll
    for (int i = 0; i < TILE / THREADS; i++) {
        i64 row = begin + i * THREADS + threadIdx.x;
        if (row < end) held[row - begin] = combine(values[row], cells[cell[i]]);
    }
#else
    #pragma unroll 4
    for (i64 row = begin + threadIdx.x; row < end; row += THREADS) held[row - begin] = values[row];
#endif
    __syncthreads();

    auto write = [&](i64 group, i64 start, VALUE value) {
        if (start < begin) {
            carries[blockIdx.x] = value;
            return;
        }
        out_values[group] = value;
        for (int word = 0; word < words; word++)
            out_keys[word * groups + group] = keys[word * rows + start] & masks.words[word];
    };
    for (i64 group = first + threadIdx.x; group <= last; group += THREADS) {
        i64 start = starts[group], stop = starts[group + 1];
        i32 low = start < begin ? 0 : (i32)(start - begin), high = (i32)((stop < end ? stop : end) - begin);
        if (high - low > SHORT) {
            long_groups[atomicAdd(&longs, 1)] = (i32)(group - first);
            continue;
        }
        VALUE value = held[low];
        for (i32 row = low + 1; row < high; row++) value = marginalise(value, held[row]);
        write(group, start, value);
    }
    __syncthreads();
    for (i32 i = threadIdx.x / 32; i < longs; i += THREADS / 32) {
        i64 group = first + long_groups[i], start = starts[group], stop = starts[group + 1];
        i32 low = start < begin ? 0 : (i32)(start - begin), high = (i32)((stop < end ? stop : end) - begin);
        VALUE value = held[low + lane_number()];
        for (i32 row = low + lane_number() + 32; row < high; row += 32) value = marginalise(value, held[row]);
        value = over_lanes(value, 32);
        if (lane_number() == 0) write(group, start, value);
    }
}

#define AT_ONCE 8

// One warp for each tile with the first carry of a group: adds all carries of the group to out_values in row order.
extern "C" __global__ void __launch_bounds__(THREADS)
add_carries(const VALUE *carries, const i64 *carried, i64 tile_count, const i64 *starts, VALUE *out_values) {
    i64 tile = (i64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (tile >= tile_count) return;
    i64 group = carried[tile];
    if (group < 0 || (tile > 0 && carried[tile - 1] == group)) return;
    i64 stop = (starts[group + 1] - 1) / TILE + 1;
    u32 lane = lane_number();
    if (tile + lane < stop) {
        VALUE value = carries[tile + lane];
        i64 at = tile + lane + 32;
        for (; at + 32 * (AT_ONCE - 1) < stop; at += 32 * AT_ONCE) {
            VALUE read[AT_ONCE];
            #pragma unroll
            for (int i = 0; i < AT_ONCE; i++) read[i] = carries[at + 32 * i];
            #pragma unroll
            for (int i = 0; i < AT_ONCE; i++) value = marginalise(value, read[i]);
        }
        for (; at < stop; at += 32) value = marginalise(value, carries[at]);
        value = over_lanes(value, stop - tile < 32 ? (u32)(stop - tile) : 32);
        if (lane == 0) out_values[group] = marginalise(out_values[group], value);
    }
}
