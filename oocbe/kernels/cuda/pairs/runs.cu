// Tables as runs: adjacent rows that differ in the eliminated variables only become one entry with a set of eliminated
// values. join_reduce.cu joins runs of two tables.
// variants: SET_BITS=32|64 DENSE=0|2|4|8 PAYLOAD=unsigned int|unsigned long long
#include "integers.cuh"
#include "moves.cuh"

#define THREADS 256

#if SET_BITS == 32
typedef u32 SET;
#else
typedef u64 SET;
#endif

// Rows of a block: limited by its runs' values in shared memory.
#define ROWS_A_THREAD (DENSE * sizeof(PAYLOAD) <= 16 ? 4 : DENSE * sizeof(PAYLOAD) <= 32 ? 2 : 1)
#define ROWS_A_BLOCK (THREADS * ROWS_A_THREAD)

// bits, before: the first row of each run. sets SET (runs,), zero before: a bit per eliminated value; run_keys u64
// (words, runs) after the moves of a plan; a plan with too many moves takes several launches, of which all but the
// first add. DENSE: values_of VALUE (runs, DENSE), the values by eliminated value; otherwise starts i64 (runs + 1,),
// and unsorted u32 (1,) is set if eliminated values do not ascend within a run.
extern "C" __global__ void __launch_bounds__(THREADS)
write_runs(const u64 *keys, const PAYLOAD *values, i64 rows, const u32 *bits, const i64 *before, i64 runs,
           Plan eliminated, i64 eliminated_moves, Plan plan, i64 moves, i64 add, i64 words, i64 *starts, SET *sets,
           PAYLOAD *values_of, u64 *run_keys, u32 *unsorted) {
    __shared__ SET held_sets[ROWS_A_BLOCK];
#if DENSE
    __shared__ PAYLOAD held[ROWS_A_BLOCK * DENSE];
#endif
    i64 base = (i64)blockIdx.x * ROWS_A_BLOCK, stop = base + ROWS_A_BLOCK < rows ? base + ROWS_A_BLOCK : rows;
    u32 lane = lane_number(), own = lanes_below() | 1u << lane;
    bool heads[ROWS_A_THREAD];
    i64 places[ROWS_A_THREAD];
    // A warp's rows correspond to one word of marks.
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) {
        i64 row = base + i * THREADS + threadIdx.x;
        u32 marks = row < rows ? bits[row >> 5] : 0;
        heads[i] = row < rows && marks >> lane & 1;
        places[i] = row < rows ? before[row >> 5] + __popc(marks & own) - 1 : 0;
    }
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) {
        if (!heads[i]) continue;
        i64 row = base + i * THREADS + threadIdx.x;
        int move = 0;
        for (int word = 0; word < words; word++) {
            u64 result = add ? run_keys[word * runs + places[i]] : 0;
            for (; move < moves && plan.moves[move].to == word; move++)
                result |= moved(keys[plan.moves[move].from * rows + row], plan.moves[move]);
            run_keys[word * runs + places[i]] = result;
        }
    }
    if (add) return;

    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) {
        held_sets[i * THREADS + threadIdx.x] = 0;
#if DENSE
        #pragma unroll
        for (int d = 0; d < DENSE; d++) held[(i * DENSE + d) * THREADS + threadIdx.x] = 0;
#endif
    }
    // The block's first and last run may begin before it or continue after it.
    bool begins = bits[base >> 5] & 1, ends = stop == rows || bits[stop >> 5] & 1;
    i64 first = before[base >> 5] + begins - 1;
    i64 last = (stop == rows ? runs : before[stop >> 5]) - 1;
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ROWS_A_THREAD; i++) {
        i64 row = base + i * THREADS + threadIdx.x;
        if (row >= rows) break;
        u64 value = moved_word(keys, rows, row, eliminated, eliminated_moves);
        u32 local = (u32)(places[i] - first);
        if (sets) atomicOr(&held_sets[local], (SET)1 << value);
#if DENSE
        held[local * DENSE + value] = values[row];
#else
        if (heads[i]) starts[places[i]] = row;
        else if (moved_word(keys, rows, row - 1, eliminated, eliminated_moves) >= value) *unsorted = 1;
#endif
    }
#if !DENSE
    if (base == 0 && threadIdx.x == 0) starts[runs] = rows;
#endif
    if (!sets) return;
    __syncthreads();
    u32 count = (u32)(last - first) + 1;
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        bool whole = (i > 0 || begins) && (i + 1 < count || ends);
        if (whole) sets[first + i] = held_sets[i];
        else atomicOr(&sets[first + i], held_sets[i]);
    }
#if DENSE
    // Complete records at a time, including gaps: partial writes would cause reads.
    for (u32 i = threadIdx.x; i < count * DENSE; i += THREADS) {
        u32 run = i / DENSE;
        bool whole = (run > 0 || begins) && (run + 1 < count || ends);
        if (whole || held_sets[run] >> i % DENSE & 1) values_of[first * DENSE + i] = held[i];
    }
#endif
}

// Eliminated value and run of each row: out u64 (2, rows).
extern "C" __global__ void __launch_bounds__(THREADS)
read_eliminated(const u64 *keys, i64 rows, const u32 *bits, const i64 *before, Plan eliminated, i64 moves, u64 *out,
                u32 *unsorted) {
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (row >= rows) return;
    bool head = bits[row >> 5] >> (row & 31) & 1;
    out[row] = moved_word(keys, rows, row, eliminated, moves);
    out[rows + row] = marked_before(bits, before, row, rows) - !head;
    if (!head && moved_word(keys, rows, row - 1, eliminated, moves) >= out[row]) *unsorted = 1;
}
