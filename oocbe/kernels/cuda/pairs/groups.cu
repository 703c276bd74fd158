// Groups of adjacent rows with equal masked keys: their starts, and the common groups of two tables. Selected rows are
// first marked in a bit mask and counted, then written at the prefix sums of the counts.
#include "integers.cuh"
#include "moves.cuh"

#define THREADS 256
#define STEPS 4
#define WARP_ROWS (64 * STEPS)

// Spread bits 0 to 15 to the even positions.
__device__ __forceinline__ u32 spread(u32 bits) {
    bits = (bits | bits << 8) & 0x00FF00FF;
    bits = (bits | bits << 4) & 0x0F0F0F0F;
    bits = (bits | bits << 2) & 0x33333333;
    return (bits | bits << 1) & 0x55555555;
}

// bits u32 (ceil(rows / 32),): rows that differ from the previous one in a masked bit, and the first row. A warp
// handles WARP_ROWS rows, a lane two adjacent ones at a time.
extern "C" __global__ void __launch_bounds__(THREADS)
mark_heads(const u64 *keys, i64 rows, Masks masks, i64 words, u32 *bits) {
    i64 first = ((i64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * WARP_ROWS;
    if (first >= rows) return;
    u32 lane = lane_number();
    u32 differs = first + lane == 0;  // two bits a step: the even row and the odd one
    for (int word = 0; word < words; word++) {
        const u64 *column = keys + word * rows + first;
        u64 mask = masks.words[word], even[STEPS], odd[STEPS], last = first > 0 ? column[-1] : column[0];
        if (first + WARP_ROWS <= rows && ((u64)column & 15) == 0) {
            #pragma unroll
            for (int i = 0; i < STEPS; i++) {
                ulonglong2 both = ((const ulonglong2 *)column)[i * 32 + lane];
                even[i] = both.x;
                odd[i] = both.y;
            }
        } else {
            #pragma unroll
            for (int i = 0; i < STEPS; i++) {
                i64 row = first + i * 64 + 2 * lane;
                even[i] = row < rows ? column[row - first] : 0;
                odd[i] = row + 1 < rows ? column[row + 1 - first] : 0;
            }
        }
        // An even row's predecessor is in the previous lane; for the first lane, in the last lane of the previous step.
        #pragma unroll
        for (int i = 0; i < STEPS; i++) {
            u64 before = __shfl_sync(ALL_LANES, odd[i], (lane + 31) & 31);
            if (((even[i] ^ (lane == 0 ? last : before)) & mask) != 0) differs |= 1u << 2 * i;
            if (((even[i] ^ odd[i]) & mask) != 0) differs |= 2u << 2 * i;
            last = before;
        }
    }
    u32 evens = 0, odds = 0;
    #pragma unroll
    for (int i = 0; i < STEPS; i++) {
        i64 row = first + i * 64 + 2 * lane;
        u32 found_even = __ballot_sync(ALL_LANES, row < rows && differs >> 2 * i & 1);
        u32 found_odd = __ballot_sync(ALL_LANES, row + 1 < rows && differs >> 2 * i & 2);
        // A step yields two words, written by lanes 2 i and 2 i + 1.
        if (lane / 2 == i) evens = found_even, odds = found_odd;
    }
    u32 half = lane % 2 * 16;
    i64 word = (first >> 5) + lane;
    if (lane < 2 * STEPS && word * 32 < rows)
        bits[word] = spread(evens >> half & 0xFFFF) | spread(odds >> half & 0xFFFF) << 1;
}

// Call write(marked row, place) for each marked row, adjacent places by adjacent threads. A block handles THREADS
// words: each thread lists the marked rows of its own word in shared memory, in order, PLACES at a time.
#define PLACES 4096
template <typename Write>
__device__ __forceinline__ void for_marked(const u32 *bits, const i64 *before, i64 words, Write write) {
    __shared__ unsigned short noted[PLACES];
    i64 first = (i64)blockIdx.x * THREADS, word = first + threadIdx.x;
    u32 left = word < words ? bits[word] : 0;
    i64 base = before[first];
    i64 stop = first + THREADS < words ? before[first + THREADS] : before[words];
    u32 place = word < words ? (u32)(before[word] - base) : 0, count = (u32)(stop - base);
    for (u32 done = 0; done < count; done += PLACES) {
        while (left && place < done + PLACES) {
            noted[place - done] = (unsigned short)(threadIdx.x * 32 + __ffs(left) - 1);
            left &= left - 1;
            place++;
        }
        __syncthreads();
        u32 here = count - done < PLACES ? count - done : PLACES;
        for (u32 i = threadIdx.x; i < here; i += THREADS) write(first * 32 + noted[i], base + done + i);
        __syncthreads();
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

// First group of table 2, between low and high, with a key not below that of a row of table 1.
__device__ __forceinline__ i64 first_not_below(const u64 *keys1, i64 rows1, i64 row1, const u64 *keys2, i64 rows2,
                                               const i64 *starts2, i64 low, i64 high, const Masks &masks, int words) {
    while (low < high) {
        i64 middle = (low + high) >> 1;
        if (compare(keys1, rows1, row1, keys2, rows2, starts2[middle], masks, words) > 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

// bounds i64 (tiles + 1,): search bounds in table 2 for each tile of THREADS groups of table 1.
extern "C" __global__ void find_bounds(const u64 *keys1, i64 rows1, const i64 *starts1, i64 groups1, const u64 *keys2,
                                       i64 rows2, const i64 *starts2, i64 groups2, Masks masks, i64 words, i64 tiles,
                                       i64 *bounds) {
    i64 tile = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (tile < tiles)
        bounds[tile] = first_not_below(keys1, rows1, starts1[tile * THREADS], keys2, rows2, starts2, 0, groups2, masks,
                                       words);
    if (tile == tiles) bounds[tile] = groups2;
}

// With bits u32 (ceil(groups1 / 32),): groups of table 1 that occur in table 2, and where, first2 i64 (groups1,). With
// null: of each group, i64 (groups1,) each, the number of rows, and first row and number of rows in table 2, 0 where it
// does not occur there.
extern "C" __global__ void __launch_bounds__(THREADS)
mark_matches(const u64 *keys1, i64 rows1, const i64 *starts1, i64 groups1, const u64 *keys2, i64 rows2,
             const i64 *starts2, i64 groups2, Masks masks, i64 words, const i64 *bounds, u32 *bits, i64 *count1,
             i64 *first2, i64 *count2) {
    i64 group = (i64)blockIdx.x * THREADS + threadIdx.x;
    bool matches = false;
    if (group < groups1) {
        i64 row = starts1[group], low = bounds[blockIdx.x], high = bounds[blockIdx.x + 1];
        i64 at = first_not_below(keys1, rows1, row, keys2, rows2, starts2, low, high, masks, words);
        matches = at < groups2 && compare(keys1, rows1, row, keys2, rows2, starts2[at], masks, words) == 0;
        if (bits) {
            first2[group] = at;
        } else {
            count1[group] = starts1[group + 1] - row;
            first2[group] = matches ? starts2[at] : 0;
            count2[group] = matches ? starts2[at + 1] - starts2[at] : 0;
        }
    }
    if (!bits) return;
    u32 word = __ballot_sync(ALL_LANES, matches);
    if (lane_number() == 0 && group < groups1) bits[group >> 5] = word;
}

// First row and number of rows of each matched group in both tables, i64 (matches,) each. partners i64 (groups1,): the
// group of table 2 of each one.
extern "C" __global__ void __launch_bounds__(THREADS)
write_matches(const u32 *bits, const i64 *before, i64 words, const i64 *starts1, const i64 *starts2,
              const i64 *partners, i64 *first1, i64 *count1, i64 *first2, i64 *count2) {
    for_marked(bits, before, words, [=](i64 group, i64 place) {
        i64 partner = partners[group], row1 = starts1[group], row2 = starts2[partner];
        i64 stop1 = starts1[group + 1], stop2 = starts2[partner + 1];
        first1[place] = row1;
        count1[place] = stop1 - row1;
        first2[place] = row2;
        count2[place] = stop2 - row2;
    });
}
