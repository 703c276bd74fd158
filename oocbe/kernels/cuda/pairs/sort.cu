// One pass over memory a digit: least-significant-digit radix sort with decoupled look-back (Adinets and Merrill,
// Onesweep: A Faster Least Significant Digit Radix Sort for GPUs, 2022). A tile of rows is ranked by its digit in
// shared memory, written there in order, and from there to its final place in long runs, payload after keys.
// variants: PAYLOAD=unsigned int|unsigned long long TOTAL=unsigned int|unsigned long long PLACES=1|2 ITEMS=8|10|12|15
#include "integers.cuh"

#define DIGIT_BITS 8
#define BINS (1 << DIGIT_BITS)
#define THREADS 384
#define WARPS (THREADS / 32)
// ITEMS rows a thread: keys in registers, and a tile within 48 KiB of shared memory.
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

struct Histogram { u32 counts[8 * BINS * PARTS]; };

// counts u64 (digits, BINS), zero before: rows of each value of each digit. A block counts in PARTS copies, so that
// neighbouring rows of one value wait for each other less. seen u64 (2,), zero before: bits that are one in some key, and
// bits that are zero in some key.
__device__ __forceinline__ void count_all(Histogram &held, const u64 *keys, i64 rows, const Digits &digits, i64 count,
                                          u64 *counts, u64 *seen) {
    for (int i = threadIdx.x; i < count * BINS * PARTS; i += blockDim.x) held.counts[i] = 0;
    __syncthreads();
    u32 part = threadIdx.x % PARTS;
    u64 ones = 0, zeros = 0;
    i64 stride = (i64)gridDim.x * 4 * blockDim.x;
    // A block sees fewer than 2^32 rows as long as there are more than a few blocks.
    for (i64 first = (i64)blockIdx.x * 4 * blockDim.x + threadIdx.x; first < rows; first += stride) {
        u64 read[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) read[i] = first + i * blockDim.x < rows ? keys[first + i * blockDim.x] : 0;
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            if (first + i * blockDim.x >= rows) break;
            ones |= read[i];
            zeros |= ~read[i];
            #pragma unroll
            for (int d = 0; d < 8; d++) {
                if (d >= count) break;
                atomicAdd(&held.counts[(d * BINS + digit_of(read[i], digits.digits[d])) * PARTS + part], 1u);
            }
        }
    }
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        ones |= __shfl_xor_sync(ALL_LANES, ones, step);
        zeros |= __shfl_xor_sync(ALL_LANES, zeros, step);
    }
    if (lane_number() == 0 && seen) {
        atomicOr(&seen[0], ones);
        atomicOr(&seen[1], zeros);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * BINS; i += blockDim.x) {
        u64 sum = 0;
        for (int p = 0; p < PARTS; p++) sum += held.counts[i * PARTS + p];
        if (sum) atomicAdd(&counts[i], sum);
    }
}

extern "C" __global__ void __launch_bounds__(256)
count_digits(const u64 *keys, i64 rows, Digits digits, i64 count, u64 *counts, u64 *seen) {
    __shared__ Histogram held;
    count_all(held, keys, rows, digits, count, counts, seen);
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

// The warps' counts are done with when keys are put into the same memory, and keys when the payload is.
struct Tile {
    union { u32 counts[WARPS][BINS]; u64 keys[TILE]; PAYLOAD payload[TILE]; Histogram histogram; };
    i64 places[BINS];
    u32 warp_sums[BINS / 32];
    u64 warp_counts[BINS / 32];
    u32 taken;
};

// One tile of keys u64 (rows,) and payload (rows,) to their places by one digit. counts u64 (BINS,): rows of each of its
// values. states TOTAL (tiles, BINS) is zero before the digit's first tile; tiles are taken in ascending order.
__device__ __forceinline__ void scatter_tile(Tile &held, i64 tile, const u64 *keys, const PAYLOAD *payload, u64 *out_keys,
                                             PAYLOAD *out_payload, i64 rows, Digit digit, const u64 *counts,
                                             TOTAL *states) {
    u32 thread = threadIdx.x, lane = lane_number(), warp = thread / 32;
    for (u32 i = lane; i < BINS; i += 32) held.counts[warp][i] = 0;
    __syncwarp();
    i64 base = tile * TILE;
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
    // Where the rows of each value begin: only the first tile needs to know.
    u64 rows_before = 0;
    if (tile == 0 && thread < BINS) {
        u64 own_rows = counts[thread], sum = own_rows;
        #pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            u64 other = __shfl_up_sync(ALL_LANES, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) held.warp_counts[warp] = sum;
        rows_before = sum - own_rows;
    }
    if (tile == 0) {
        __syncthreads();
        if (thread < BINS)
            for (u32 w = 0; w < warp; w++) rows_before += held.warp_counts[w];
    }
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
        if (lane == 31) held.warp_sums[warp] = sum;
        start = sum - count;
        if (thread == BINS - 1) count -= TILE - valid;
        TOTAL state = tile == 0 ? UP_TO | (TOTAL)(rows_before + count) : ALONE | (TOTAL)count;
        store_relaxed(&states[tile * BINS + thread], state);
    }
    __syncthreads();
    if (thread < BINS) {
        for (u32 w = 0; w < warp; w++) start += held.warp_sums[w];
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
            before = (TOTAL)rows_before;
        } else {
            for (i64 at = tile - 1;; at--) {
                TOTAL state;
                do state = load_relaxed(&states[at * BINS + thread]); while (state < ALONE);
                before += state & COUNT;
                if (state >= UP_TO) break;
            }
            store_relaxed(&states[tile * BINS + thread], UP_TO | (before + (TOTAL)count));
        }
        held.places[thread] = (i64)before - start;
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
            out_keys[held.places[values[i]] + place] = sorted;
        }
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) held.payload[rank[i]] = carried[i];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        u32 place = thread + i * THREADS;
        if (place < valid) out_payload[held.places[values[i]] + place] = held.payload[place];
    }
}

// One pass: a block takes one tile. counter u32 (1,) is zero.
extern "C" __global__ void __launch_bounds__(THREADS)
scatter_by_digit(const u64 *keys, const PAYLOAD *payload, u64 *out_keys, PAYLOAD *out_payload, i64 rows, Digit digit,
                 const u64 *counts, TOTAL *states, u32 *counter) {
    __shared__ Tile held;
    if (threadIdx.x == 0) held.taken = atomicAdd(counter, 1u);
    __syncthreads();
    scatter_tile(held, held.taken, keys, payload, out_keys, out_payload, rows, digit, counts, states);
}

// Waits until all blocks have come here `times` times; arrived u32 (1,) is zero at first.
__device__ __forceinline__ void wait_for_all(u32 *arrived, u32 times) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (load_relaxed(arrived) < times * gridDim.x);
        __threadfence();
    }
    __syncthreads();
}

// All passes in one cooperative launch, for tables that do not repay a launch a pass. Digits that have one value only are
// passed over. The rows end in `last` (keys and payload), by way of `other`. counts u64 (digits, BINS), states TOTAL
// (digits, tiles, BINS) and counters u32 (1 + digits,) are zero.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
sort_at_once(const u64 *keys, const PAYLOAD *payload, u64 *last_keys, PAYLOAD *last_payload, u64 *other_keys,
             PAYLOAD *other_payload, i64 rows, Digits digits, i64 count, u64 *counts, TOTAL *states, u32 *counters) {
    __shared__ Tile held;
    count_all(held.histogram, keys, rows, digits, count, counts, 0);
    u32 waits = 1;
    wait_for_all(counters, waits);
    u32 used = 0;
    for (int d = 0; d < count; d++) {
        // Counts were added to in the second-level cache.
        bool all = threadIdx.x < BINS && load_relaxed(&counts[d * BINS + threadIdx.x]) == (u64)rows;
        if (!__syncthreads_or(all)) used |= 1u << d;
    }
    i64 tiles = (rows + TILE - 1) / TILE;
    if (!used) {
        for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < rows; i += (i64)gridDim.x * THREADS) {
            last_keys[i] = keys[i];
            last_payload[i] = payload[i];
        }
        return;
    }
    for (int d = 0; d < count; d++) {
        if (!(used >> d & 1)) continue;
        bool into_last = __popc(used >> d) & 1;
        u64 *out_keys = into_last ? last_keys : other_keys;
        PAYLOAD *out_payload = into_last ? last_payload : other_payload;
        while (true) {
            __syncthreads();
            if (threadIdx.x == 0) held.taken = atomicAdd(&counters[1 + d], 1u);
            __syncthreads();
            i64 tile = held.taken;
            if (tile >= tiles) break;
            scatter_tile(held, tile, keys, payload, out_keys, out_payload, rows, digits.digits[d], counts + d * BINS,
                         states + d * tiles * BINS);
        }
        keys = out_keys;
        payload = out_payload;
        if (used >> d > 1) wait_for_all(counters, ++waits);
    }
}
