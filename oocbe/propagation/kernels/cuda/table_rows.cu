// One pass over a table's packed rows: which rows have only values that are left, and which values such rows have.
// variants: COLUMNS=1|6|10 WORDS=1|2|3
#include "integers.cuh"

#define THREADS 256
// Rows whose keys a thread has loaded at once.
#define ITEMS (WORDS == 1 ? 8 : WORDS == 2 ? 4 : 2)
#define TILE (ITEMS * THREADS)
// Of a multiprocessor, that registers are shared among.
#define RESIDENT_BLOCKS 6

// Flags of a value: it is left; and no row seen so far by this block has it.
#define LEFT 1
#define WANTED 2

typedef unsigned char u8;

// Where a column is in a key, and the first of its values' flags; each has mask + 1 of them.
struct Column { u32 word, shift, mask, offset; };
struct Columns { Column of[COLUMNS]; };

__device__ __forceinline__ u32 slot_of(const u64 *key, const Column &column) {
    u64 word = key[0];
    #pragma unroll
    for (int w = 1; w < WORDS; w++)
        if (column.word == w) word = key[w];
    return column.offset + ((u32)(word >> column.shift) & column.mask);
}

// keys u64 (WORDS, stride), the first `rows` of each word; alive u8 (slots,), 1 for each value that is left; supported
// u32, a bit a slot, those of values that rows have are set; ballots u32 (rows / 32, rounded up to whole tiles), a bit a
// row that is left, or null; count u64 (1,), added to: rows that are left. In shared memory: flags u8 (slots,), rounded up
// to 4, and a bit for each that some row has.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS)
scan_rows(const u64 *keys, i64 rows, i64 stride, const __grid_constant__ Columns columns, const u8 *alive, i64 slots,
          u32 *supported, u32 *ballots, u64 *count) {
    extern __shared__ u32 shared[];
    u8 *flags = (u8 *)shared;
    u32 *seen = shared + (slots + 3) / 4;
    i64 words = (slots + 31) / 32;
    for (i64 slot = threadIdx.x; slot < slots; slot += THREADS) {
        bool is_known = supported[slot >> 5] >> (slot & 31) & 1;
        flags[slot] = alive[slot] ? (is_known ? LEFT : LEFT | WANTED) : 0;
    }
    for (i64 word = threadIdx.x; word < words; word += THREADS) seen[word] = 0;
    __syncthreads();
    u32 mine = 0, done = 0;
    for (i64 start = (i64)blockIdx.x * TILE; start < rows; start += (i64)gridDim.x * TILE) {
        u64 held[ITEMS][WORDS];
        #pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            i64 row = start + i * THREADS + threadIdx.x;
            #pragma unroll
            for (int w = 0; w < WORDS; w++) held[i][w] = row < rows ? keys[w * stride + row] : 0;
        }
        #pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            u32 all = start + i * THREADS + threadIdx.x < rows ? LEFT : 0, any = 0;
            #pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                u32 found = flags[slot_of(held[i], columns.of[c])];
                all &= found;
                any |= found;
            }
            bool is_left = all & LEFT;
            if (is_left && (any & WANTED)) {
                #pragma unroll 1
                for (int c = 0; c < COLUMNS; c++) {
                    u32 slot = slot_of(held[i], columns.of[c]);
                    if (flags[slot] & WANTED) atomicOr(&seen[slot >> 5], 1u << (slot & 31));
                }
            }
            mine += is_left;
            if (ballots) {
                u32 bits = __ballot_sync(ALL_LANES, is_left);
                if (lane_number() == 0) ballots[(start + i * THREADS + threadIdx.x) >> 5] = bits;
            }
        }
        // Values that have been seen are wanted no more. Most are seen soon: after twice as many tiles each time.
        done++;
        if ((done & (done - 1)) == 0) {
            __syncthreads();
            for (i64 slot = threadIdx.x; slot < slots; slot += THREADS)
                if (seen[slot >> 5] >> (slot & 31) & 1) flags[slot] &= ~WANTED;
            __syncthreads();
        }
    }
    __syncthreads();
    for (i64 word = threadIdx.x; word < words; word += THREADS)
        if (seen[word] & ~load_relaxed(supported + word)) atomicOr(supported + word, seen[word]);
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(ALL_LANES, mine, step);
    if (lane_number() == 0 && mine) atomicAdd(count, (u64)mine);
}
