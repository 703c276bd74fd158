// Substitution dominance over a message's rows; see oocbe/kernels/cpu/buckets/dominance.py.
// variants: WORDS=2 VALUE=int|double
#include "integers.cuh"
#include "flags.cuh"

// Substitution dominance, all variables at once; arrays as in oocbe/kernels/cpu/buckets/dominance.py. Flags survivors.
struct Substitutions {
    const i64 *word; const u64 *shift, *mask; const i64 *start_offset;
    i64 variables;
    const i64 *start, *target;
    const wide *penalty;
    i64 sign;
};

__device__ __forceinline__ bool is_below(const u64 *keys, i64 rows, i64 row, const u64 *wanted) {
    #pragma unroll
    for (int w = WORDS - 1; w >= 0; w--) {
        u64 here = keys[w * rows + row];
        if (here != wanted[w]) return here < wanted[w];
    }
    return false;
}

extern "C" __global__ void __launch_bounds__(THREADS)
flag_undominated(const u64 *keys, const VALUE *values, i64 rows, Substitutions p, u32 *ballots) {
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    bool stays = row < rows;
    u64 wanted[WORDS];
    if (stays) {
        #pragma unroll
        for (int w = 0; w < WORDS; w++) wanted[w] = keys[w * rows + row];
    }
    for (i64 v = 0; v < p.variables && stays; v++) {
        u64 shift = p.shift[v], mask = p.mask[v], saved = 0;
        #pragma unroll
        for (int w = 0; w < WORDS; w++) if (p.word[v] == w) saved = wanted[w];
        i64 a = (i64)((saved >> shift) & mask);
        for (i64 pair = p.start[p.start_offset[v] + a]; pair < p.start[p.start_offset[v] + a + 1] && stays; pair++) {
            i64 b = p.target[pair];
            u64 changed = (saved & ~(mask << shift)) | ((u64)b << shift);
            #pragma unroll
            for (int w = 0; w < WORDS; w++) if (p.word[v] == w) wanted[w] = changed;
            // The target row is on a known side, and close if the variable is of low significance.
            i64 low, high, step = 1;
            if (b < a) {
                high = row;
                while (step <= row && !is_below(keys, rows, row - step, wanted)) { high = row - step; step += step; }
                low = step <= row ? row - step + 1 : 0;
            } else {
                low = row + 1;
                while (row + step < rows && is_below(keys, rows, row + step, wanted)) { low = row + step + 1; step += step; }
                high = min(row + step, rows);
            }
            while (low < high) {
                i64 middle = (low + high) >> 1;
                if (is_below(keys, rows, middle, wanted)) low = middle + 1; else high = middle;
            }
            bool equal = low < rows;
            #pragma unroll
            for (int w = 0; w < WORDS; w++) equal = equal && keys[w * rows + low] == wanted[w];
            if (equal) {
                wide gain = p.sign * ((wide)values[row] - (wide)values[low]) - p.penalty[pair];
                if (gain > 0 || (gain == 0 && b < a)) stays = false;
            }
        }
        #pragma unroll
        for (int w = 0; w < WORDS; w++) if (p.word[v] == w) wanted[w] = saved;
    }
    record(stays, row, ballots);
}
