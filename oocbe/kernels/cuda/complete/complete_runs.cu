// Reduction and scattering of a complete table that is read once, in the order in which its cells lie in memory (Bistaffa,
// Farinelli and Bombieri, algorithm 2). A block takes a run of neighbouring cells, the same axes of it again and again.
// variants: VALUE=short|int|long long|float|double COMBINATION=0|1|1|0|1 MARGINALISATION=0|1|2|3|2 CELLS=1|2|5|7|8
#include "integers.cuh"
#include "values.cuh"
#include "complete.cuh"

#define THREADS 256
#define MOST_RUN (THREADS * CELLS)

// The plan, i64 entries: this head; where each kept cell of a run lies in it, and where in the result; where each
// eliminated one lies; sizes of the outer kept axes, their strides in the table and in the result; sizes of the outer
// eliminated axes, and their strides in the table.
struct ReduceHead {
    i64 run, kept, gone;            // cells of a run; kept times eliminated ones
    i64 is_next;                    // whether kept cells of a run are neighbours in the result
    i64 outer_kept, outer_gone;     // axes
    i64 kept_runs, gone_runs;       // cells that these axes span
    i64 slices, result;             // parts of the outer eliminated cells; cells of the result
};

// out (slices, result): cells of the result, marginalised over the outer eliminated cells of each slice.
extern "C" __global__ void __launch_bounds__(THREADS)
reduce_runs(const VALUE *table, const i64 *plan, VALUE *out) {
    __shared__ VALUE room[MOST_RUN];
    __shared__ unsigned short kept_place[MOST_RUN], gone_place[MOST_RUN];
    const ReduceHead head = *(const ReduceHead *)plan;
    const i64 *kept_places = plan + sizeof(ReduceHead) / sizeof(i64), *out_places = kept_places + head.kept;
    const i64 *gone_places = out_places + head.kept, *kept_sizes = gone_places + head.gone;
    const i64 *kept_strides = kept_sizes + head.outer_kept, *out_strides = kept_strides + head.outer_kept;
    const i64 *gone_sizes = out_strides + head.outer_kept, *gone_strides = gone_sizes + head.outer_gone;
    const u32 run = (u32)head.run, kept = (u32)head.kept, gone = (u32)head.gone;
    for (u32 k = threadIdx.x; k < kept; k += THREADS) kept_place[k] = (unsigned short)kept_places[k];
    for (u32 e = threadIdx.x; e < gone; e += THREADS) gone_place[e] = (unsigned short)gone_places[e];
    // Lanes that add up the eliminated cells of one kept cell together: as many as there are threads for.
    u32 lanes = 1;
    while (lanes < 32 && 2 * lanes * kept <= THREADS && 2 * lanes <= gone) lanes *= 2;
    const u32 lane = threadIdx.x % lanes;
    for (i64 item = blockIdx.x; item < head.kept_runs * head.slices; item += gridDim.x) {
        i64 slice = item / head.kept_runs, rest = item % head.kept_runs;
        const VALUE *from = table;
        VALUE *to = out + slice * head.result;
        for (int axis = 0; axis < head.outer_kept; axis++) {
            i64 digit = rest % kept_sizes[axis];
            rest /= kept_sizes[axis];
            from += digit * kept_strides[axis];
            to += digit * out_strides[axis];
        }
        const u32 first = (u32)(head.gone_runs * slice / head.slices);
        const u32 last = (u32)(head.gone_runs * (slice + 1) / head.slices);
        VALUE found[CELLS];
        for (u32 e = first; e < last; e++) {
            const VALUE *here = from;
            u32 left = e;
            for (int axis = 0; axis < head.outer_gone; axis++) {
                u32 size = (u32)gone_sizes[axis];
                here += (i64)(left % size) * gone_strides[axis];
                left /= size;
            }
            #pragma unroll
            for (int i = 0; i < CELLS; i++) {
                u32 cell = threadIdx.x + i * THREADS;
                if (cell < run) {
                    VALUE value = __ldg(here + cell);
                    found[i] = e == first ? value : marginalise(found[i], value);
                }
            }
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < CELLS; i++) {
            u32 cell = threadIdx.x + i * THREADS;
            if (cell < run) room[cell] = found[i];
        }
        __syncthreads();
        for (u32 base = 0; base < kept; base += THREADS / lanes) {
            u32 k = base + threadIdx.x / lanes;
            VALUE value = room[0];
            if (k < kept) {
                value = room[kept_place[k] + gone_place[lane]];
                for (u32 e = lane + lanes; e < gone; e += lanes)
                    value = marginalise(value, room[kept_place[k] + gone_place[e]]);
            }
            for (u32 distance = lanes / 2; distance > 0; distance /= 2)
                value = marginalise(value, __shfl_down_sync(ALL_LANES, value, distance, lanes));
            if (k < kept && lane == 0) to[head.is_next ? k : out_places[k]] = value;
        }
    }
}

// The plan, i64 entries: this head; sizes of the axes of a run, and the other function's strides along them; the same of
// the outer axes.
struct ScatterHead {
    i64 run, lows, highs, runs;
};

// table and out (runs * run,) lie alike; the other function is one value for many of their cells.
extern "C" __global__ void __launch_bounds__(THREADS)
scatter_runs(const VALUE *table, const VALUE *other, const i64 *plan, VALUE *out, VALUE infeasible, VALUE limit) {
    const ScatterHead head = *(const ScatterHead *)plan;
    const i64 *low_sizes = plan + sizeof(ScatterHead) / sizeof(i64), *low_strides = low_sizes + head.lows;
    const i64 *high_sizes = low_strides + head.lows, *high_strides = high_sizes + head.highs;
    const u32 run = (u32)head.run;
    i64 low[CELLS];
    #pragma unroll
    for (int i = 0; i < CELLS; i++) {
        u32 rest = threadIdx.x + i * THREADS;
        low[i] = 0;
        for (int axis = 0; axis < head.lows; axis++) {
            u32 size = (u32)low_sizes[axis];
            low[i] += (i64)(rest % size) * low_strides[axis];
            rest /= size;
        }
    }
    for (i64 place = blockIdx.x; place < head.runs; place += gridDim.x) {
        const VALUE *from = table + place * head.run, *by = other;
        VALUE *to = out + place * head.run;
        u64 rest = place;
        for (int axis = 0; axis < head.highs; axis++) {
            u64 size = high_sizes[axis], digit;
            if (rest >> 32) digit = rest % size, rest /= size;
            else digit = (u32)rest % (u32)size, rest = (u32)rest / (u32)size;
            by += digit * high_strides[axis];
        }
        VALUE value[CELLS];
        #pragma unroll
        for (int i = 0; i < CELLS; i++)
            if (threadIdx.x + i * THREADS < run) value[i] = __ldg(from + threadIdx.x + i * THREADS);
        #pragma unroll
        for (int i = 0; i < CELLS; i++)
            if (threadIdx.x + i * THREADS < run)
                to[threadIdx.x + i * THREADS] = clamped(combine(value[i], __ldg(by + low[i])), infeasible, limit);
    }
}
