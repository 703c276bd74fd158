// Filter by forbidden tuples, and compaction of surviving rows.
// variants: PAYLOAD=unsigned int|unsigned long long
#include "integers.cuh"

#define THREADS 256

// table u32 (2 ^ bits / 32, at least 1,), zero before: a bit for each tuple.
extern "C" __global__ void set_bits(const u64 *tuples, i64 count, u32 *table) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicOr(&table[tuples[i] >> 5], 1u << (tuples[i] & 31));
}

// bits u32 (ceil(rows / 32),): rows whose part u64 (rows,) has the bit `wanted` in the table.
extern "C" __global__ void __launch_bounds__(THREADS)
mark_parts(const u64 *parts, i64 rows, const u32 *table, i64 wanted, u32 *bits) {
    i64 first = (i64)blockIdx.x * (THREADS * 4) + threadIdx.x;
    u64 read[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) read[i] = first + i * THREADS < rows ? parts[first + i * THREADS] : 0;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        i64 row = first + i * THREADS;
        u32 word = __ballot_sync(ALL_LANES, row < rows && (table[read[i] >> 5] >> (read[i] & 31) & 1) == wanted);
        if (lane_number() == 0 && row < rows) bits[row >> 5] = word;
    }
}

// mark_parts of unset bits by bisection: parts u64 (words, rows), tuples u64 (words, count) ascending.
extern "C" __global__ void __launch_bounds__(THREADS)
mark_absent(const u64 *parts, i64 rows, const u64 *tuples, i64 count, i64 words, u32 *bits) {
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    bool stays = row < rows;
    i64 low = 0, high = stays ? count : 0;
    while (low < high) {
        i64 middle = (low + high) >> 1;
        int sign = 0;
        for (i64 word = words - 1; word >= 0 && sign == 0; word--) {
            u64 here = tuples[word * count + middle], wanted = parts[word * rows + row];
            sign = here < wanted ? -1 : here > wanted;
        }
        if (sign == 0) { stays = false; break; }
        if (sign < 0) low = middle + 1; else high = middle;
    }
    __syncwarp();
    u32 word = __ballot_sync(ALL_LANES, stays);
    if (lane_number() == 0 && row < rows) bits[row >> 5] = word;
}

// keys u64 (words, rows) and payload (rows,) of the marked rows, in their order, to (words, count) and (count,).
extern "C" __global__ void __launch_bounds__(THREADS)
write_marked(const u64 *keys, const PAYLOAD *payload, i64 rows, i64 words, const u32 *bits, const i64 *before, i64 count,
             u64 *out_keys, PAYLOAD *out_payload) {
    i64 first = (i64)blockIdx.x * (THREADS * 4) + threadIdx.x, places[4];
    bool stays[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        i64 row = first + i * THREADS;
        u32 mine = row < rows ? bits[row >> 5] : 0;
        stays[i] = mine >> (row & 31) & 1;
        places[i] = stays[i] ? before[row >> 5] + __popc(mine & lanes_below()) : 0;
    }
    PAYLOAD carried[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) if (stays[i]) carried[i] = payload[first + i * THREADS];
    for (i64 word = 0; word < words; word++) {
        u64 read[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) if (stays[i]) read[i] = keys[word * rows + first + i * THREADS];
        #pragma unroll
        for (int i = 0; i < 4; i++) if (stays[i]) out_keys[word * count + places[i]] = read[i];
    }
    #pragma unroll
    for (int i = 0; i < 4; i++) if (stays[i]) out_payload[places[i]] = carried[i];
}
