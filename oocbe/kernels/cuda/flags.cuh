// Flags of units of work: they are recorded and counted, and flagged rows are written in order. WORDS, VALUE: key words
// and type of the rows. LIMBS, if nonzero: number of adjacent values of each row. Needs integers.cuh.

#ifndef LIMBS
#define LIMBS 0
#endif

#define THREADS 256

// Type of penalties, gains and bounds: differences of two values may exceed the values' type.
template <typename Type> struct Widened { typedef i64 type; };
template <> struct Widened<double> { typedef double type; };
template <> struct Widened<float> { typedef double type; };
typedef Widened<VALUE>::type wide;

// Write a warp's flags: one bit a unit. A block needs no barrier for it.
__device__ __forceinline__ void record(bool flag, i64 unit, u32 *ballots) {
    u32 ones = __ballot_sync(ALL_LANES, flag);
    if (lane_number() == 0) ballots[unit >> 5] = ones;
}

// Place of a flagged unit among all flagged ones; before: flagged units before each warp's.
__device__ __forceinline__ i64 place_of(i64 unit, const u32 *ballots, const i64 *before) {
    return before[unit >> 5] + __popc(ballots[unit >> 5] & lanes_below());
}

// Rows whose flag is set, in order, written at the prefix sums of the flags.
extern "C" __global__ void __launch_bounds__(THREADS)
keep_flagged(const u64 *keys, const VALUE *values, i64 rows, const u32 *ballots, const i64 *before,
             u64 *kept_keys, VALUE *kept_values, i64 kept) {
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (row >= rows || !(ballots[row >> 5] >> lane_number() & 1)) return;
    i64 place = place_of(row, ballots, before);
    #pragma unroll
    for (int w = 0; w < WORDS; w++) kept_keys[w * kept + place] = keys[w * rows + row];
#if LIMBS
    #pragma unroll
    for (int i = 0; i < LIMBS; i++) kept_values[place * LIMBS + i] = values[row * LIMBS + i];
#else
    kept_values[place] = values[row];
#endif
}
