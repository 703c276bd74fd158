// One pass over memory a digit: least-significant-digit radix sort with decoupled look-back (Adinets and Merrill,
// Onesweep: A Faster Least Significant Digit Radix Sort for GPUs, 2022). A tile of rows is ranked by its digit in
// shared memory, written there in order, and from there to its final place in long runs, payload after keys.
// variants: PAYLOAD=unsigned int|unsigned long long TOTAL=unsigned int|unsigned long long PLACES=1|2
#include "integers.cuh"

#define DIGIT_BITS 8
#define BINS (1 << DIGIT_BITS)
#define THREADS 384
#define WARPS (THREADS / 32)
// Keys in registers and a tile within 48 KiB of shared memory; the sizes that CUB found best for these widths.
#define ITEMS (sizeof(PAYLOAD) == 4 ? 15 : 12)
#define TILE (THREADS * ITEMS)

// States of a digit's count in a tile, in the upper two bits: this tile's alone, or the place of its first row.
#define ALONE ((TOTAL)1 << (sizeof(TOTAL) * 8 - 2))
#define UP_TO ((TOTAL)2 << (sizeof(TOTAL) * 8 - 2))
#define COUNT (ALONE - 1)

// Up to eight bits from one or two places of a key; those of the second place go above those of the first.
struct Digit { unsigned char shift, bits, second_shift, second_bits; };
struct Digits { Digit digits[8]; };

__device__ __forceinline__ u32 digit_of(u64 key, Digit d) {
    u32 low = (u32)(key >> d.shift) & ((1u << d.bits) - 1);
#if PLACES == 2
    low |= ((u32)(key >> d.second_shift) & ((1u << d.second_bits) - 1)) << d.bits;
#endif
    return low;
}

#define PARTS 4

// counts u64 (digits, BINS), zero before: rows of each value of each digit. A block counts in PARTS copies, so that
// neighbouring rows of one value wait for each other less.
extern "C" __global__ void __launch_bounds__(256)
count_digits(const u64 *keys, i64 rows, Digits digits, i64 count, u64 *counts) {
    __shared__ u32 held[8 * BINS * PARTS];
    for (int i = threadIdx.x; i < 8 * BINS * PARTS; i += 256) held[i] = 0;
    __syncthreads();
    u32 part = threadIdx.x % PARTS;
    i64 stride = (i64)gridDim.x * 1024;
    // A block sees fewer than 2^32 rows as long as there are more than a few blocks.
    for (i64 first = (i64)blockIdx.x * 1024 + threadIdx.x; first < rows; first += stride) {
        u64 read[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) read[i] = first + i * 256 < rows ? keys[first + i * 256] : 0;
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            if (first + i * 256 >= rows) break;
            #pragma unroll
            for (int d = 0; d < 8; d++) {
                if (d >= count) break;
                atomicAdd(&held[(d * BINS + digit_of(read[i], digits.digits[d])) * PARTS + part], 1u);
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * BINS; i += 256) {
        u64 sum = 0;
        for (int p = 0; p < PARTS; p++) sum += held[i * PARTS + p];
        if (sum) atomicAdd(&counts[i], sum);
    }
}

// Lanes with the same digit as this one.
__device__ __forceinline__ u32 peers_of(u32 digit) {
    u32 peers = ALL_LANES;
    #pragma unroll
    for (int bit = 0; bit < DIGIT_BITS; bit++) {
        u32 ones = __ballot_sync(ALL_LANES, digit >> bit & 1);
        peers &= digit >> bit & 1 ? ones : ~ones;
    }
    return peers;
}

// keys u64 (rows,), payload (rows,) to their places by one digit. starts u64 (BINS,): where each value's rows begin.
// states TOTAL (tiles, BINS) and counter u32 (1,) are zero.
extern "C" __global__ void __launch_bounds__(THREADS)
scatter_by_digit(const u64 *keys, const PAYLOAD *payload, u64 *out_keys, PAYLOAD *out_payload, i64 rows, Digit digit,
                 const u64 *starts, TOTAL *states, u32 *counter) {
    // The warps' counts are done with when keys are put into the same memory, and keys when the payload is.
    __shared__ union { u32 counts[WARPS][BINS]; u64 keys[TILE]; PAYLOAD payload[TILE]; } held;
    __shared__ i64 places[BINS];
    __shared__ u32 warp_sums[BINS / 32];
    __shared__ u32 taken;
    u32 thread = threadIdx.x, lane = lane_number(), warp = thread / 32;
    if (thread == 0) taken = atomicAdd(counter, 1u);
    for (u32 i = lane; i < BINS; i += 32) held.counts[warp][i] = 0;
    __syncthreads();
    i64 tile = taken, base = tile * TILE;
    i64 remaining = rows - base;
    u32 valid = remaining < TILE ? (u32)remaining : TILE;
    u32 own = warp * (32 * ITEMS) + lane;

    u64 key[ITEMS];
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) key[i] = own + i * 32 < valid ? keys[base + own + i * 32] : ~0ull;
    // Rows beyond the table count as of the last value: they come last in it, since they are last in the tile.
    u32 rank[ITEMS];
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        rank[i] = own + i * 32 < valid ? digit_of(key[i], digit) : BINS - 1;
        atomicAdd(&held.counts[warp][rank[i]], 1u);
    }
    __syncthreads();

    u32 count = 0, start = 0;
    if (thread < BINS) {
        #pragma unroll
        for (int w = 0; w < WARPS; w++) {
            u32 here = held.counts[w][thread];
            held.counts[w][thread] = count;
            count += here;
        }
        u32 sum = count;
        #pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            u32 other = __shfl_up_sync(ALL_LANES, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) warp_sums[warp] = sum;
        start = sum - count;
        if (thread == BINS - 1) count -= TILE - valid;
        TOTAL state = tile == 0 ? UP_TO | (TOTAL)(starts[thread] + count) : ALONE | (TOTAL)count;
        store_relaxed(&states[tile * BINS + thread], state);
    }
    __syncthreads();
    if (thread < BINS) {
        for (u32 w = 0; w < warp; w++) start += warp_sums[w];
        #pragma unroll
        for (int w = 0; w < WARPS; w++) held.counts[w][thread] += start;
    }
    __syncthreads();

    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        u32 value = rank[i], peers = peers_of(value), before = 0;
        u32 leader = __ffs(peers) - 1;
        if (lane == leader) before = atomicAdd(&held.counts[warp][value], __popc(peers));
        rank[i] = __shfl_sync(ALL_LANES, before, leader) + __popc(peers & lanes_below());
        __syncwarp();
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) held.keys[rank[i]] = key[i];

    if (thread < BINS) {
        TOTAL before = 0;
        if (tile == 0) {
            before = (TOTAL)starts[thread];
        } else {
            for (i64 at = tile - 1;; at--) {
                TOTAL state;
                do state = load_relaxed(&states[at * BINS + thread]); while (state < ALONE);
                before += state & COUNT;
                if (state >= UP_TO) break;
            }
            store_relaxed(&states[tile * BINS + thread], UP_TO | (before + (TOTAL)count));
        }
        places[thread] = (i64)before - start;
    }
    __syncthreads();

    PAYLOAD carried[ITEMS];
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) if (own + i * 32 < valid) carried[i] = payload[base + own + i * 32];
    u32 values[ITEMS];
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        u32 place = thread + i * THREADS;
        if (place < valid) {
            u64 sorted = held.keys[place];
            values[i] = digit_of(sorted, digit);
            out_keys[places[values[i]] + place] = sorted;
        }
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) held.payload[rank[i]] = carried[i];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        u32 place = thread + i * THREADS;
        if (place < valid) out_payload[places[values[i]] + place] = held.payload[place];
    }
}
