// Pairs of rows of matched groups, numbered consecutively: group g has counts1[g] * counts2[g] pairs from places[g] on,
// and its pair t is row t mod counts1[g] of table 1 with row t div counts1[g] of table 2. A block handles PAIRS of
// them, which may be part of one large group or many small groups. Needs integers.cuh, and STAGED: the maximum number
// of groups whose data a block keeps in shared memory.

#define PAIR_THREADS 128
#define PAIRS_A_THREAD 8
#define PAIRS (PAIR_THREADS * PAIRS_A_THREAD)

#define AT_ONCE 4  // pairs of a thread with loads in flight

struct Pair { i64 row1, row2; };

// One group of a block, read in two pieces.
struct alignas(16) Staged {
    i64 start1, start2;
    u32 count1, inverse;  // floor((2^32 - 1) / count1), 0 if the count has more than 31 bits
    i32 place;  // start of the group relative to the block's first pair; negative or 0 for the first group
    u32 unused;
};

// The groups of a block's pairs, in shared memory.
struct PairGroups {
    unsigned short owner[PAIRS];  // group of each pair, relative to the block's first group
    i32 places[PAIRS + 2];  // start of each group relative to the block's first pair; groups have at least one pair
    Staged staged[STAGED];
    u32 warp_last[PAIR_THREADS / 32];
    i64 first, base1, base2;  // first group, and rows of the block's first pair in it
    i32 groups;
};

// places i64 (groups + 1,) strictly ascending; tiles i64 (blocks + 1,): group of each block's first pair, last group.
__device__ __forceinline__ void find_groups(PairGroups &held, const i64 *places, const i64 *tiles, const i64 *starts1,
                                            const i64 *counts1, const i64 *starts2) {
    i64 start = (i64)blockIdx.x * PAIRS, first = tiles[blockIdx.x];
    i32 groups = (i32)(tiles[blockIdx.x + 1] - first) + 1;
    if (groups > 1) ((uint4 *)held.owner)[threadIdx.x] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    for (i32 i = threadIdx.x; i < groups; i += PAIR_THREADS) {
        i64 place = places[first + i] - start;
        held.places[i] = i == 0 ? 0 : (i32)place;
        if (i > 0 && place < PAIRS) held.owner[place] = (unsigned short)i;
        if (i < STAGED) {
            i64 count = counts1[first + i];
            u32 inverse = (u64)count >> 31 ? 0 : 0xFFFFFFFFu / (u32)count;
            held.staged[i] = {starts1[first + i], starts2[first + i], (u32)count, inverse, (i32)place, 0};
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        i64 into = start - places[first], count = counts1[first];
        held.first = first;
        held.groups = groups;
        if (((u64)into | (u64)count) >> 32) {
            held.base1 = into % count;
            held.base2 = into / count;
        } else {
            held.base1 = (u32)into % (u32)count;
            held.base2 = (u32)into / (u32)count;
        }
        // The block's first pair may be anywhere in its group: the staged group begins with its row of table 2.
        held.staged[0].place = -(i32)held.base1;
        held.staged[0].start2 += held.base2;
    }
    __syncthreads();
    if (groups == 1) return;
    // Only the first pair of a group is marked: a prefix maximum extends the marks to the others.
    uint4 mine = ((uint4 *)held.owner)[threadIdx.x];
    u32 parts[4] = {mine.x, mine.y, mine.z, mine.w}, last = 0;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 low = parts[i] & 0xFFFF, high = parts[i] >> 16;
        low = low > last ? low : last;
        high = high > low ? high : low;
        parts[i] = low | high << 16;
        last = high;
    }
    u32 lane = lane_number(), before = last;
    #pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(ALL_LANES, before, step);
        if (lane >= step && other > before) before = other;
    }
    if (lane == 31) held.warp_last[threadIdx.x / 32] = before;
    before = __shfl_up_sync(ALL_LANES, before, 1);
    if (lane == 0) before = 0;
    __syncthreads();
    for (u32 warp = 0; warp < threadIdx.x / 32; warp++)
        if (held.warp_last[warp] > before) before = held.warp_last[warp];
    #pragma unroll
    for (int i = 0; i < 4; i++) parts[i] = __vmaxu2(parts[i], before | before << 16);
    ((uint4 *)held.owner)[threadIdx.x] = make_uint4(parts[0], parts[1], parts[2], parts[3]);
    __syncthreads();
}

// Rows of the block's pair number t.
__device__ __forceinline__ Pair pair_of(const PairGroups &held, u32 t, const i64 *starts1, const i64 *counts1,
                                        const i64 *starts2) {
    i32 low = held.groups == 1 ? 0 : held.owner[t];
    if (held.groups <= STAGED) {
        Staged group = held.staged[low];
        if (group.inverse) {
            // `rest` is below PAIRS plus the count, so below 2^32, and the quotient is at most one too small.
            u32 rest = t - (u32)group.place, quotient = __umulhi(rest, group.inverse);
            rest -= quotient * group.count1;
            if (rest >= group.count1) {
                rest -= group.count1;
                quotient++;
            }
            return {group.start1 + rest, group.start2 + quotient};
        }
    }
    i64 into = (i32)t - held.places[low], skipped = 0;
    if (low == 0) {
        into += held.base1;
        skipped = held.base2;
    }
    i64 group = held.first + low, count = counts1[group];
    if (((u64)into | (u64)count) >> 32) return {starts1[group] + into % count, starts2[group] + skipped + into / count};
    return {starts1[group] + (u32)into % (u32)count, starts2[group] + skipped + (u32)into / (u32)count};
}
