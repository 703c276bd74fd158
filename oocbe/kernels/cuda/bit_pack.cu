// Packed chunks (oocbe/tables/codec.py has the format): a thread block takes one block of BLOCK rows. To unpack, a thread
// reads four neighbouring numbers; differences become rows by a prefix sum over the block. To pack, a block's header is
// found by reductions; once a prefix sum has said where payloads go, a thread makes whole payload words.
// variants: ITEM=int|unsigned long long
#include "integers.cuh"

#define BLOCK 1024
#define THREADS 256
#define ROWS_A_THREAD (BLOCK / THREADS)
#define HEADER_WORDS 3
#define OFFSET_BITS 40
#define SIGN (1ull << 63)

struct Header { u64 base, step; i64 place; u32 width, shift; bool deltas; };

__device__ __forceinline__ Header header_of(const u64 *headers, i64 block) {
    u64 packed = headers[block * HEADER_WORDS + 2];
    return {headers[block * HEADER_WORDS], headers[block * HEADER_WORDS + 1], (i64)(packed & ((1ull << OFFSET_BITS) - 1)),
            (u32)(packed >> 40) & 0xFF, (u32)(packed >> 48) & 0xFF, packed >> 56 != 0};
}

__device__ __forceinline__ u64 turned_left(u64 word, u32 rotation) {
    return rotation ? word << rotation | word >> (64 - rotation) : word;
}

// Item as a 64-bit word, sign-extended where it has four bytes, rotated to the right.
__device__ __forceinline__ u64 turned_right(ITEM item, u32 rotation) {
    u64 word = (u64)(i64)item;
    return rotation ? word >> rotation | word << (64 - rotation) : word;
}

// front, the chunk's first word; headers u64 (blocks, 3) and payload as in the chunk, checked before; rows, in these
// blocks; out ITEM (wanted,), the rows behind the first skipped ones.
extern "C" __global__ void __launch_bounds__(THREADS)
unpack_blocks(const u64 *front, const u64 *headers, const u64 *payload, i64 rows, i64 skipped, i64 wanted, ITEM *out) {
    __shared__ u64 warp_sums[THREADS / 32];
    Header header = header_of(headers, blockIdx.x);
    u32 rotation = (u32)(*front >> 48) & 0xFF;
    i64 start = (i64)blockIdx.x * BLOCK;
    u32 first = threadIdx.x * ROWS_A_THREAD, count = rows - start < BLOCK ? (u32)(rows - start) : BLOCK;
    const u64 *source = payload + header.place;
    u64 numbers[ROWS_A_THREAD], mask = header.width ? ~0ull >> (64 - header.width) : 0;
    u64 added = header.deltas ? header.step : header.base;
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) {
        numbers[i] = added;
        if (header.width && first + i < count) {
            u32 bit = (first + i) * header.width, word = bit >> 6, offset = bit & 63;
            u64 bits = source[word] >> offset | source[word + 1] << 1 << (63 - offset);
            numbers[i] += (bits & mask) << header.shift;
        }
    }
    if (header.deltas) {
        // The first row is the base itself.
        if (threadIdx.x == 0) numbers[0] = header.base;
        #pragma unroll
        for (int i = 1; i < ROWS_A_THREAD; i++) numbers[i] += numbers[i - 1];
        u64 own = numbers[ROWS_A_THREAD - 1], sum = own;
        u32 lane = lane_number(), warp = threadIdx.x / 32;
        #pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            u64 other = __shfl_up_sync(ALL_LANES, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) warp_sums[warp] = sum;
        __syncthreads();
        u64 before = sum - own;
        for (u32 w = 0; w < warp; w++) before += warp_sums[w];
        #pragma unroll
        for (int i = 0; i < ROWS_A_THREAD; i++) numbers[i] += before;
    }
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) {
        i64 at = start + first + i - skipped;
        if (first + i < count && at >= 0 && at < wanted) out[at] = (ITEM)turned_left(numbers[i], rotation);
    }
}

// Least of all threads' numbers, or all their ones.
template <bool LEAST>
__device__ __forceinline__ u64 over_block(u64 value, u64 *held) {
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        u64 other = __shfl_xor_sync(ALL_LANES, value, step);
        value = LEAST ? (other < value ? other : value) : (value | other);
    }
    if (lane_number() == 0) held[threadIdx.x / 32] = value;
    __syncthreads();
    value = held[0];
    for (int w = 1; w < THREADS / 32; w++) value = LEAST ? (held[w] < value ? held[w] : value) : (value | held[w]);
    __syncthreads();
    return value;
}

__device__ __forceinline__ u32 bit_length(u64 word) { return 64 - __clzll(word); }
__device__ __forceinline__ u32 trailing_zeros(u64 word) { return word ? __ffsll(word) - 1 : 0; }

// The block's rows, turned, in shared memory; how many there are.
__device__ __forceinline__ u32 load_block(const ITEM *column, i64 rows, u32 rotation, u64 *words) {
    i64 start = (i64)blockIdx.x * BLOCK;
    u32 count = rows - start < BLOCK ? (u32)(rows - start) : BLOCK;
    for (u32 i = threadIdx.x; i < count; i += THREADS) words[i] = turned_right(column[start + i], rotation);
    __syncthreads();
    return count;
}

// headers u64 (blocks, 3), payloads' places left out, and sizes i64 (blocks,), words of each payload.
extern "C" __global__ void __launch_bounds__(THREADS)
measure_blocks(const ITEM *column, i64 rows, i64 rotation, i64 is_signed, u64 *headers, i64 *sizes) {
    __shared__ u64 words[BLOCK], held[THREADS / 32];
    u32 count = load_block(column, rows, (u32)rotation, words);
    u64 bias = is_signed ? SIGN : 0, least = ~0ull, ones = 0, least_step = ~0ull, delta_ones = 0;
    for (u32 i = threadIdx.x; i < count; i += THREADS) least = min(least, words[i] ^ bias);
    u64 base = over_block<true>(least, held) ^ bias;
    for (u32 i = threadIdx.x; i < count; i += THREADS) ones |= words[i] - base;
    ones = over_block<false>(ones, held);
    u32 shift = trailing_zeros(ones), width = ones ? bit_length(ones) - shift : 0;
    u64 step = 0;
    bool deltas = false;
    if (width > 0 && count > 1) {
        for (u32 i = threadIdx.x; i < count; i += THREADS)
            if (i > 0) least_step = min(least_step, (words[i] - words[i - 1]) ^ SIGN);
        u64 found = over_block<true>(least_step, held) ^ SIGN;
        for (u32 i = threadIdx.x; i < count; i += THREADS) if (i > 0) delta_ones |= words[i] - words[i - 1] - found;
        delta_ones = over_block<false>(delta_ones, held);
        u32 delta_shift = trailing_zeros(delta_ones), delta_width = delta_ones ? bit_length(delta_ones) - delta_shift : 0;
        if (delta_width < width) {
            deltas = true;
            base = words[0];
            step = found;
            width = delta_width;
            shift = delta_shift;
        }
    }
    if (threadIdx.x) return;
    u64 *header = headers + (i64)blockIdx.x * HEADER_WORDS;
    header[0] = base;
    header[1] = step;
    header[2] = (u64)width << 40 | (u64)shift << 48 | (u64)deltas << 56;
    sizes[blockIdx.x] = ((i64)count * width + 63) >> 6;
}

// places i64 (blocks + 1,): the prefix sum of the sizes; completes the headers and writes the payload.
extern "C" __global__ void __launch_bounds__(THREADS)
pack_blocks(const ITEM *column, i64 rows, i64 rotation, const i64 *places, u64 *headers, u64 *payload) {
    __shared__ u64 words[BLOCK];
    u32 count = load_block(column, rows, (u32)rotation, words);
    Header header = header_of(headers, blockIdx.x);
    header.place = places[blockIdx.x];
    u64 numbers[ROWS_A_THREAD];
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) {
        u32 at = threadIdx.x + i * THREADS;
        numbers[i] = 0;
        if (at >= count) continue;
        if (!header.deltas) numbers[i] = words[at] - header.base;
        else if (at > 0) numbers[i] = words[at] - words[at - 1] - header.step;
        numbers[i] >>= header.shift;
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++)
        if (threadIdx.x + i * THREADS < count) words[threadIdx.x + i * THREADS] = numbers[i];
    __syncthreads();
    if (threadIdx.x == 0) headers[(i64)blockIdx.x * HEADER_WORDS + 2] |= (u64)header.place;
    if (header.width == 0) return;
    u32 size = (count * header.width + 63) >> 6;
    for (u32 word = threadIdx.x; word < size; word += THREADS) {
        // The numbers that have bits in this word, the first of them perhaps only its upper ones.
        u32 begin = word * 64, number = begin / header.width;
        u64 made = words[number] >> (begin - number * header.width);
        u32 filled = (number + 1) * header.width - begin;
        for (number++; filled < 64 && number < count; number++, filled += header.width) made |= words[number] << filled;
        payload[header.place + word] = made;
    }
}
