// Reduction and scattering of a complete table that is read once, in memory order (Bistaffa, Farinelli and Bombieri,
// algorithm 2). A block handles runs of contiguous cells with the same axes.
// variants: VALUE=short|int|long long|float|double COMBINATION=0|1|1|0|1 MARGINALISATION=0|1|2|3|2 CELLS=1|2|5|7|8
#include "integers.cuh"
#include "values.cuh"
#include "complete.cuh"

#define THREADS 256
#define MOST_RUN (THREADS * CELLS)
#define WARPS (THREADS / 32)

// Start of a run, from its number over some axes, the first axis fastest. Divisions are slow: the threads compute
// THREADS numbers at a time, one each, and all read them from shared memory.
__device__ __forceinline__ i64 place_of(u64 count, const i64 *sizes, const i64 *strides, int axes) {
    i64 place = 0;
    for (int axis = 0; axis < axes; axis++) {
        u64 size = sizes[axis], digit;
        if (count >> 32) digit = count % size, count /= size;
        else digit = (u32)count % (u32)size, count = (u32)count / (u32)size;
        place += (i64)digit * strides[axis];
    }
    return place;
}

// The plan, i64 entries: this head; offset of each kept cell of a run in the run, and in the result; offset of each
// eliminated one; sizes of the outer kept axes, their strides in the table and in the result; sizes of the outer
// eliminated axes, and their strides in the table.
struct ReduceHead {
    i64 run, kept, gone;            // cells of a run: kept times eliminated ones
    i64 is_next;                    // whether kept cells of a run are contiguous in the result
    i64 outer_kept, outer_gone;     // axes
    i64 kept_runs, gone_runs;       // cells that these axes span
    i64 slices, result;             // parts of the outer eliminated cells; cells of the result
};

// out (slices, result): the result, marginalised over the outer eliminated cells of each slice.
extern "C" __global__ void __launch_bounds__(THREADS)
reduce_runs(const VALUE *table, const i64 *plan, VALUE *out) {
    __shared__ VALUE room[MOST_RUN], of_warp[WARPS];
    __shared__ unsigned short kept_place[MOST_RUN + 1]; // and gone_place behind it: their product is the run
    __shared__ i64 from_ahead[THREADS], to_ahead[THREADS], gone_ahead[THREADS];
    const ReduceHead head = *(const ReduceHead *)plan;
    const i64 *kept_places = plan + sizeof(ReduceHead) / sizeof(i64), *out_places = kept_places + head.kept;
    const i64 *gone_places = out_places + head.kept, *kept_sizes = gone_places + head.gone;
    const i64 *kept_strides = kept_sizes + head.outer_kept, *out_strides = kept_strides + head.outer_kept;
    const i64 *gone_sizes = out_strides + head.outer_kept, *gone_strides = gone_sizes + head.outer_gone;
    const u32 run = (u32)head.run, kept = (u32)head.kept, gone = (u32)head.gone;
    unsigned short *gone_place = kept_place + kept;
    for (u32 k = threadIdx.x; k < kept; k += THREADS) kept_place[k] = (unsigned short)kept_places[k];
    for (u32 e = threadIdx.x; e < gone; e += THREADS) gone_place[e] = (unsigned short)gone_places[e];
    // Lanes that share the eliminated cells of one kept cell: as many as threads allow; several warps share if kept
    // cells are fewer than warps.
    u32 lanes = 1, warps = 1;
    while (lanes < 32 && 2 * lanes * kept <= THREADS && 2 * lanes <= gone) lanes *= 2;
    if (lanes == 32)
        while (2 * warps * kept <= WARPS && 64 * warps <= gone) warps *= 2;
    const u32 sharers = lanes * warps, lane = threadIdx.x % sharers;
    const i64 items = head.kept_runs * head.slices;
    i64 number = 0;
    u32 held = 0xFFFFFFFF; // the first number in gone_ahead
    for (i64 item = blockIdx.x; item < items; item += gridDim.x, number++) {
        const u32 turn = (u32)(number % THREADS);
        if (turn == 0) {
            __syncthreads();
            i64 ahead = item + (i64)threadIdx.x * gridDim.x;
            if (ahead < items) {
                from_ahead[threadIdx.x] = place_of(ahead % head.kept_runs, kept_sizes, kept_strides, (int)head.outer_kept);
                to_ahead[threadIdx.x] = place_of(ahead % head.kept_runs, kept_sizes, out_strides, (int)head.outer_kept);
            }
            __syncthreads();
        }
        const i64 slice = item / head.kept_runs;
        const VALUE *from = table + from_ahead[turn];
        VALUE *to = out + slice * head.result + to_ahead[turn];
        const u32 first = (u32)(head.gone_runs * slice / head.slices);
        const u32 last = (u32)(head.gone_runs * (slice + 1) / head.slices);
        VALUE found[CELLS];
        for (u32 e = first; e < last; e++) {
            const u32 place = (e - first) % THREADS;
            if (place == 0 && held != e) {
                __syncthreads();
                if (threadIdx.x < last - e)
                    gone_ahead[threadIdx.x] = place_of(e + threadIdx.x, gone_sizes, gone_strides, (int)head.outer_gone);
                __syncthreads();
                held = e;
            }
            const VALUE *here = from + gone_ahead[place];
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
        for (u32 base = 0; base < kept; base += THREADS / sharers) {
            u32 k = base + threadIdx.x / sharers;
            VALUE value = room[0];
            if (k < kept) {
                value = room[kept_place[k] + gone_place[lane]];
                for (u32 e = lane + sharers; e < gone; e += sharers)
                    value = marginalise(value, room[kept_place[k] + gone_place[e]]);
            }
            for (u32 distance = lanes / 2; distance > 0; distance /= 2)
                value = marginalise(value, __shfl_down_sync(ALL_LANES, value, distance, lanes));
            if (warps > 1) { // all kept cells are then handled at once
                if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
                __syncthreads();
                if (k < kept && lane == 0)
                    for (u32 other = 1; other < warps; other++)
                        value = marginalise(value, of_warp[threadIdx.x / 32 + other]);
            }
            if (k < kept && lane == 0) to[head.is_next ? k : out_places[k]] = value;
        }
    }
}

// The plan, i64 entries: this head; sizes of the axes of a run, and the other function's strides along them; likewise
// for the outer axes.
struct ScatterHead {
    i64 run, lows, highs, runs;
};

// table and out (runs * run,) have the same layout; each value of the other function, of less than 2^32 cells, is used
// for many of their cells. A block handles MOST_RUN contiguous cells regardless of runs: its accesses are aligned.
extern "C" __global__ void __launch_bounds__(THREADS)
scatter_cells(const VALUE *table, const VALUE *other, const i64 *plan, VALUE *out, VALUE infeasible, VALUE limit) {
    __shared__ u32 low_place[MOST_RUN], by_place[MOST_RUN + 1]; // of a run's cells; of the runs that a block has cells of
    __shared__ u32 begins;
    const ScatterHead head = *(const ScatterHead *)plan;
    const i64 *low_sizes = plan + sizeof(ScatterHead) / sizeof(i64), *low_strides = low_sizes + head.lows;
    const i64 *high_sizes = low_strides + head.lows, *high_strides = high_sizes + head.highs;
    const u32 run = (u32)head.run;
    const i64 total = head.runs * head.run;
    for (u32 k = threadIdx.x; k < run; k += THREADS)
        low_place[k] = (u32)place_of(k, low_sizes, low_strides, (int)head.lows);
    for (i64 base = (i64)blockIdx.x * MOST_RUN; base < total; base += (i64)gridDim.x * MOST_RUN) {
        const VALUE *from = table + base;
        VALUE *to = out + base;
        const u32 count = total - base < MOST_RUN ? (u32)(total - base) : MOST_RUN;
        VALUE value[CELLS];
        #pragma unroll
        for (int i = 0; i < CELLS; i++)
            if (threadIdx.x + i * THREADS < count) value[i] = __ldg(from + threadIdx.x + i * THREADS);
        __syncthreads(); // the previous cells' places are no longer read
        for (u32 k = threadIdx.x; k <= (MOST_RUN - 1) / run + 1; k += THREADS) {
            i64 first = base / head.run, number = first + k;
            if (number < head.runs) by_place[k] = (u32)place_of(number, high_sizes, high_strides, (int)head.highs);
            if (k == 0) begins = (u32)(base - first * head.run);
        }
        __syncthreads();
        u32 place = begins + threadIdx.x, which = 0;
        #pragma unroll
        for (int i = 0; i < CELLS; i++, place += THREADS) {
            while (place >= run) place -= run, which++;
            if (threadIdx.x + i * THREADS < count)
                to[threadIdx.x + i * THREADS] =
                    clamped(combine(value[i], __ldg(other + by_place[which] + low_place[place])), infeasible, limit);
        }
    }
}
