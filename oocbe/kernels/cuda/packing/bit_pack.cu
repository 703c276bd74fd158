// Packed chunks (format: oocbe/tables/packed_codec.py), many columns in one launch: a thread block handles one block of
// BLOCK rows and finds its column by its number. To unpack, a thread reads some adjacent numbers; differences become
// rows by a prefix sum over the block. To pack, reductions compute a block's header; after a prefix sum of the payload
// sizes, threads assemble whole payload words.
#include "integers.cuh"

#define BLOCK 1024
#define THREADS 128
#define ROWS_A_THREAD (BLOCK / THREADS)
#define FRONT_WORDS 4
#define HEADER_WORDS 3
#define OFFSET_BITS 40
#define SIGN (1ull << 63)
#define MOST_PARTS 64

// Rows of a chunk from `start` on, unpacked to `out`; first_block: first block of the grid for them.
struct Source { const u64 *chunk; void *out; i64 rows, start, wanted; u32 first_block, item_bytes; };

// A column to be measured.
struct Column { const void *column; i64 rows; u32 first_block, item_bytes, rotation, is_signed; };

// A measured column to be packed, and its destination.
struct Target {
    const void *column;
    u64 *chunk;
    i64 rows, payload_words;
    u64 front;
    u32 first_block, item_bytes, rotation, unused;
};

static_assert(sizeof(Source) == 48 && sizeof(Column) == 32 && sizeof(Target) == 56, "as in bit_pack.py");

struct Sources { Source parts[MOST_PARTS]; };
struct Columns { Column parts[MOST_PARTS]; };
struct Targets { Target parts[MOST_PARTS]; };

// Summary of each measured column for the host: its first and last item, and, for signed ones (which are not rotated),
// the complement of the least and the greatest, both shifted by SIGN so that they start at zero.
#define SUMMARY_WORDS 4
#define FIRST_ITEM 0
#define LAST_ITEM 1
#define LEAST_ITEM 2
#define GREATEST_ITEM 3

// The part of this block: the last one that does not begin behind it.
template <typename Part>
__device__ __forceinline__ u32 own_part(const Part *parts, u32 count) {
    u32 low = 0;
    while (count - low > 1) {
        u32 middle = (low + count) / 2;
        if (parts[middle].first_block <= blockIdx.x) low = middle; else count = middle;
    }
    return low;
}

struct Header { u64 base, step; i64 place; u32 width, shift; bool deltas; };

__device__ __forceinline__ Header header_of(const u64 *headers, i64 block) {
    u64 packed = headers[block * HEADER_WORDS + 2];
    i64 place = (i64)(packed & ((1ull << OFFSET_BITS) - 1));
    return {headers[block * HEADER_WORDS], headers[block * HEADER_WORDS + 1], place, (u32)(packed >> 40) & 0xFF,
            (u32)(packed >> 48) & 0xFF, packed >> 56 != 0};
}

__device__ __forceinline__ u64 turned_left(u64 word, u32 rotation) {
    return rotation ? word << rotation | word >> (64 - rotation) : word;
}

// An item as a 64-bit word, sign-extended if it has four bytes.
__device__ __forceinline__ u64 item_of(const void *column, u32 item_bytes, i64 row) {
    return item_bytes == 4 ? (u64)(i64)((const i32 *)column)[row] : ((const u64 *)column)[row];
}

__device__ __forceinline__ u64 turned_right(u64 word, u32 rotation) {
    return rotation ? word >> rotation | word << (64 - rotation) : word;
}

// Index of a row in shared memory: rows a few apart, written at the same time, are in different banks.
__device__ __forceinline__ u32 in_banks(u32 row) { return row ^ (row >> 4 & 15); }

// Chunks have been validated.
extern "C" __global__ void __launch_bounds__(THREADS)
unpack_blocks(const __grid_constant__ Sources sources, i64 parts) {
    __shared__ u64 warp_sums[THREADS / 32], staged[BLOCK];
    const Source &part = sources.parts[own_part(sources.parts, (u32)parts)];
    i64 block = part.start / BLOCK + blockIdx.x - part.first_block, start = block * BLOCK;
    const u64 *headers = part.chunk + FRONT_WORDS;
    Header header = header_of(headers, block);
    u32 rotation = (u32)(part.chunk[0] >> 48) & 0xFF;
    u32 first = threadIdx.x * ROWS_A_THREAD, count = part.rows - start < BLOCK ? (u32)(part.rows - start) : BLOCK;
    const u64 *source = headers + HEADER_WORDS * ((part.rows + BLOCK - 1) / BLOCK) + header.place;
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
    // Through shared memory, so that adjacent threads write adjacent rows.
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) staged[in_banks(first + i)] = numbers[i];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) {
        u32 own = threadIdx.x + i * THREADS;
        i64 at = start + own - part.start;
        if (own >= count || at < 0 || at >= part.wanted) continue;
        u64 item = turned_left(staged[in_banks(own)], rotation);
        if (part.item_bytes == 4) ((u32 *)part.out)[at] = (u32)item; else ((u64 *)part.out)[at] = item;
    }
}

__device__ __forceinline__ u64 shuffled(u64 value, int step) { return __shfl_xor_sync(ALL_LANES, value, step); }

__device__ __forceinline__ u32 bit_length(u64 word) { return 64 - __clzll(word); }
__device__ __forceinline__ u32 trailing_zeros(u64 word) { return word ? __ffsll(word) - 1 : 0; }

// Load the block's rows, rotated, into shared memory; returns their number.
__device__ __forceinline__ u32 load_block(const void *column, u32 item_bytes, i64 rows, i64 start, u32 rotation,
                                          u64 *words) {
    u32 count = rows - start < BLOCK ? (u32)(rows - start) : BLOCK;
    for (u32 i = threadIdx.x; i < count; i += THREADS)
        words[i] = turned_right(item_of(column, item_bytes, start + i), rotation);
    __syncthreads();
    return count;
}

// headers u64 (blocks, 3), without payload offsets; sizes i64 (blocks,), words of each payload; summaries u64 (parts,
// SUMMARY_WORDS), zero before.
extern "C" __global__ void __launch_bounds__(THREADS)
measure_blocks(const __grid_constant__ Columns columns, i64 parts, u64 *headers, i64 *sizes, u64 *summaries) {
    __shared__ u64 words[BLOCK], held[5][THREADS / 32];
    u32 number = own_part(columns.parts, (u32)parts), warp = threadIdx.x / 32;
    const Column &part = columns.parts[number];
    i64 start = (i64)(blockIdx.x - part.first_block) * BLOCK;
    u32 count = load_block(part.column, part.item_bytes, part.rows, start, part.rotation, words);
    // Least and greatest row and least difference, first over this thread's rows.
    u64 bias = part.is_signed ? SIGN : 0, least = ~0ull, greatest = 0, least_step = ~0ull;
    u64 own[ROWS_A_THREAD], steps[ROWS_A_THREAD];
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) {
        u32 at = threadIdx.x + i * THREADS;
        if (at >= count) continue;
        own[i] = words[at];
        steps[i] = at > 0 ? own[i] - words[at - 1] : 0;
        least = min(least, own[i] ^ bias);
        greatest = max(greatest, own[i] ^ bias);
        if (at > 0) least_step = min(least_step, steps[i] ^ SIGN);
    }
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        least = min(least, shuffled(least, step));
        least_step = min(least_step, shuffled(least_step, step));
        if (part.is_signed) greatest = max(greatest, shuffled(greatest, step));
    }
    if (lane_number() == 0) held[0][warp] = least, held[1][warp] = least_step, held[2][warp] = greatest;
    __syncthreads();
    #pragma unroll
    for (int w = 0; w < THREADS / 32; w++) {
        least = min(least, held[0][w]);
        least_step = min(least_step, held[1][w]);
        greatest = max(greatest, held[2][w]);
    }
    // Set bits of the differences from the least row, and from the least difference.
    u64 base = least ^ bias, found = least_step ^ SIGN, ones = 0, delta_ones = 0;
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) {
        u32 at = threadIdx.x + i * THREADS;
        if (at >= count) continue;
        ones |= own[i] - base;
        if (at > 0) delta_ones |= steps[i] - found;
    }
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        ones |= shuffled(ones, step);
        delta_ones |= shuffled(delta_ones, step);
    }
    if (lane_number() == 0) held[3][warp] = ones, held[4][warp] = delta_ones;
    __syncthreads();
    if (threadIdx.x) return;
    #pragma unroll
    for (int w = 0; w < THREADS / 32; w++) ones |= held[3][w], delta_ones |= held[4][w];
    u32 shift = trailing_zeros(ones), width = ones ? bit_length(ones) - shift : 0;
    u64 step = 0;
    bool deltas = false;
    if (width > 0 && count > 1) {
        u32 delta_shift = trailing_zeros(delta_ones);
        u32 delta_width = delta_ones ? bit_length(delta_ones) - delta_shift : 0;
        if (delta_width < width) {
            deltas = true;
            base = words[0];
            step = found;
            width = delta_width;
            shift = delta_shift;
        }
    }
    u64 *header = headers + (i64)blockIdx.x * HEADER_WORDS;
    header[0] = base;
    header[1] = step;
    header[2] = (u64)width << 40 | (u64)shift << 48 | (u64)deltas << 56;
    sizes[blockIdx.x] = ((i64)count * width + 63) >> 6;
    u64 *summary = summaries + number * SUMMARY_WORDS;
    if (start == 0) summary[FIRST_ITEM] = item_of(part.column, part.item_bytes, 0);
    if (start + count == part.rows) summary[LAST_ITEM] = item_of(part.column, part.item_bytes, part.rows - 1);
    if (!part.is_signed) return;
    // A load first: few blocks improve the summary, and atomics on one word are serialised.
    if (~least > load_relaxed(summary + LEAST_ITEM)) atomicMax(summary + LEAST_ITEM, ~least);
    if (greatest > load_relaxed(summary + GREATEST_ITEM)) atomicMax(summary + GREATEST_ITEM, greatest);
}

// headers as measured; places i64 (blocks + 1,): the prefix sum of the sizes. Writes complete chunks.
extern "C" __global__ void __launch_bounds__(THREADS)
pack_blocks(const __grid_constant__ Targets targets, i64 parts, const i64 *places, const u64 *headers) {
    __shared__ u64 words[BLOCK];
    const Target &part = targets.parts[own_part(targets.parts, (u32)parts)];
    i64 block = blockIdx.x - part.first_block, blocks = (part.rows + BLOCK - 1) / BLOCK;
    u32 count = load_block(part.column, part.item_bytes, part.rows, block * BLOCK, part.rotation, words);
    Header header = header_of(headers, blockIdx.x);
    header.place = places[blockIdx.x] - places[part.first_block];
    u64 *made_headers = part.chunk + FRONT_WORDS, *payload = made_headers + blocks * HEADER_WORDS;
    u64 *own_header = made_headers + block * HEADER_WORDS;
    if (threadIdx.x < 2) own_header[threadIdx.x] = headers[(i64)blockIdx.x * HEADER_WORDS + threadIdx.x];
    if (threadIdx.x == 2) own_header[2] = headers[(i64)blockIdx.x * HEADER_WORDS + 2] | (u64)header.place;
    if (block == 0 && threadIdx.x == 3) {
        part.chunk[0] = part.front;
        part.chunk[1] = (u64)part.rows;
        part.chunk[2] = (u64)part.payload_words;
        part.chunk[3] = 0;
        payload[part.payload_words] = 0;
    }
    if (header.width == 0) return;
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
    u32 size = (count * header.width + 63) >> 6;
    for (u32 word = threadIdx.x; word < size; word += THREADS) {
        // The numbers with bits in this word; the first may contribute only its upper bits.
        u32 begin = word * 64, number = begin / header.width;
        u64 made = words[number] >> (begin - number * header.width);
        u32 filled = (number + 1) * header.width - begin;
        for (number++; filled < 64 && number < count; number++, filled += header.width) made |= words[number] << filled;
        payload[header.place + word] = made;
    }
}
