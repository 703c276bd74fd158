// Move fields of keys to other positions.
#include "integers.cuh"
#include "moves.cuh"

#define ROWS_A_THREAD 4

// keys u64 (source words, rows), out u64 (words, rows). A plan with too many moves takes several launches; all but the
// first add to the output. A thread reads ROWS_A_THREAD rows at once, to have several loads in flight.
extern "C" __global__ void __launch_bounds__(256)
permute_rows(const u64 *keys, u64 *out, i64 rows, i64 words, Plan plan, i64 moves, i64 add) {
    i64 first = (i64)blockIdx.x * (256 * ROWS_A_THREAD) + threadIdx.x;
    int move = 0;
    for (int word = 0; word < words; word++) {
        u64 result[ROWS_A_THREAD], source[ROWS_A_THREAD];
        int held = -1;
        #pragma unroll
        for (int i = 0; i < ROWS_A_THREAD; i++) {
            i64 row = first + i * 256;
            result[i] = add && row < rows ? out[word * rows + row] : 0;
            source[i] = 0;
        }
        for (; move < moves && plan.moves[move].to == word; move++) {
            Move step = plan.moves[move];
            if (step.from != held) {
                held = step.from;
                #pragma unroll
                for (int i = 0; i < ROWS_A_THREAD; i++) {
                    i64 row = first + i * 256;
                    if (row < rows) source[i] = keys[held * rows + row];
                }
            }
            #pragma unroll
            for (int i = 0; i < ROWS_A_THREAD; i++) result[i] |= moved(source[i], step);
        }
        #pragma unroll
        for (int i = 0; i < ROWS_A_THREAD; i++) {
            i64 row = first + i * 256;
            if (row < rows) out[word * rows + row] = result[i];
        }
    }
}
