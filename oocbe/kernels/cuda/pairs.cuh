// Pairs of rows of matched groups, numbered through: group g has counts1[g] * counts2[g] pairs from places[g] on, and
// its pair t is row t mod counts1[g] of table 1 with row t div counts1[g] of table 2. A block takes PAIRS of them,
// which may be a part of one large group or many small groups. Needs integers.cuh.

#define PAIR_THREADS 256
#define PAIRS_A_THREAD 8
#define PAIRS (PAIR_THREADS * PAIRS_A_THREAD)

struct Pair { i64 row1, row2; };

// The groups of a block's pairs, in shared memory.
struct PairGroups {
    i32 places[PAIRS + 2];  // where each group begins, from the block's first pair; each group has a pair at least
    i64 first, base1, base2;  // first group, and which rows of it the block's first pair has
    i32 groups;
};

// places i64 (groups + 1,) strictly ascending; tiles i64 (blocks + 1,): group of each block's first pair, last group.
__device__ __forceinline__ void find_groups(PairGroups &held, const i64 *places, const i64 *tiles, const i64 *counts1) {
    i64 start = (i64)blockIdx.x * PAIRS, first = tiles[blockIdx.x];
    i32 groups = (i32)(tiles[blockIdx.x + 1] - first) + 1;
    for (i32 i = threadIdx.x; i < groups; i += PAIR_THREADS) {
        i64 place = places[first + i] - start;
        held.places[i] = i == 0 ? 0 : place < PAIRS ? (i32)place : PAIRS;
    }
    if (threadIdx.x == 0) {
        i64 into = start - places[first], count = counts1[first];
        held.first = first;
        held.groups = groups;
        held.base1 = into % count;
        held.base2 = into / count;
    }
    __syncthreads();
}

// Rows of the block's pair number t.
__device__ __forceinline__ Pair pair_of(const PairGroups &held, u32 t, const i64 *starts1, const i64 *counts1,
                                        const i64 *starts2) {
    i32 low = 0, high = held.groups;
    while (high - low > 1) {
        i32 middle = (low + high) >> 1;
        if (held.places[middle] <= (i32)t) low = middle; else high = middle;
    }
    i64 group = held.first + low, count = counts1[group];
    Pair pair = {starts1[group], starts2[group]};
    i64 into = t - held.places[low];
    if (low == 0) {
        into += held.base1;
        pair.row2 += held.base2;
    }
    // A division of 32 bits takes a quarter of the time; a group of so many rows is rare.
    if (((u64)into | (u64)count) >> 32) {
        pair.row1 += into % count;
        pair.row2 += into / count;
    } else {
        u32 quotient = (u32)into / (u32)count;
        pair.row1 += (u32)into - quotient * (u32)count;
        pair.row2 += quotient;
    }
    return pair;
}
