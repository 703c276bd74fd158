// Join any number of complete functions and marginalise axes, one thread per result cell. A block handles a tile of
// cells, the same low axes of the result for one index of the high axes after another: offsets of low axes are computed
// once for the tile, those of high axes once per index.
// variants: VALUE=short|int|long long|float|double COMBINATION=0|1 MARGINALISATION=0|1|2|3 FUNCTIONS=1|2|3|4|8
// variants: CELLS=1|2|4 STAGED=0|1
#include "integers.cuh"
#include "values.cuh"
#include "complete.cuh"

#define MOST_THREADS 256

struct Functions { const VALUE *values[FUNCTIONS]; };

// The plan, i64 entries: this head; then sizes of the low axes and each function's strides along them; sizes of the
// high axes and strides along them of each function and of the result; sizes of the outer eliminated axes and each
// function's strides; each function's stride along the inner eliminated axis; each function's staged values, 0 if it is
// read in place, and whether the low axis that may be cut is one of its own.
struct Head {
    i64 lows, highs, outers;     // axes
    i64 low_cells, high_cells, outer_cells, inner_cells;
    i64 prefix;                  // cells below the last low axis, which the first high axis may cut
    i64 chunk, whole;            // values of that axis in a tile, and in total
};

#define VALUES_A_VECTOR (16 / (u32)sizeof(VALUE))

// Asynchronous copies from memory to shared memory without registers; not available for 2-byte values.
#if __CUDA_ARCH__ >= 800
template <int bytes> __device__ __forceinline__ void copy_async(void *target, const void *source) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::
                 "r"((u32)__cvta_generic_to_shared(target)), "l"(source), "n"(bytes) : "memory");
}
template <> __device__ __forceinline__ void copy_async<2>(void *target, const void *source) {
    *(short *)target = __ldg((const short *)source);
}
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void wait_but_last() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
#else
template <int bytes> __device__ __forceinline__ void copy_async(void *target, const void *source) {
    if (bytes == 16) *(int4 *)target = __ldg((const int4 *)source);
    else *(VALUE *)target = __ldg((const VALUE *)source);
}
__device__ __forceinline__ void end_copies() {}
__device__ __forceinline__ void wait_but_last() {}
#endif

#if STAGED
#define READ(place) (*(place))
#else
#define READ(place) __ldg(place)
#endif

// A place: element offsets of the functions and of the result, then the number of values of the cut axis.
#define PLACE (FUNCTIONS + 2)

// values: functions, with all values within reach of their strides. out (result cells,). batch: places of high axes
// that a block computes at a time. infeasible and limit: see complete.cuh. Shared memory: i64 (batch, PLACE), then
// twice the staged values.
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 3)
eliminate(Functions functions, const i64 *plan, i64 batch, VALUE *out, VALUE infeasible, VALUE limit) {
    extern __shared__ __align__(16) i64 places[];
    const Head head = *(const Head *)plan;
    const i64 *low_sizes = plan + sizeof(Head) / sizeof(i64), *low_strides = low_sizes + head.lows;
    const i64 *high_sizes = low_strides + FUNCTIONS * head.lows, *high_strides = high_sizes + head.highs;
    const i64 *outer_sizes = high_strides + (FUNCTIONS + 1) * head.highs, *outer_strides = outer_sizes + head.outers;
    const i64 *inner_strides = outer_strides + FUNCTIONS * head.outers;

    u32 low[CELLS][FUNCTIONS];
    #pragma unroll
    for (int i = 0; i < CELLS; i++) {
        u32 rest = threadIdx.x + i * blockDim.x;
        #pragma unroll
        for (int f = 0; f < FUNCTIONS; f++) low[i][f] = 0;
        if (rest >= head.low_cells) continue;
        for (int axis = 0; axis < head.lows; axis++) {
            u32 size = (u32)low_sizes[axis], digit = rest % size;
            rest /= size;
            #pragma unroll
            for (int f = 0; f < FUNCTIONS; f++) low[i][f] += digit * (u32)low_strides[f * head.lows + axis];
        }
    }
    u32 inner_stride[FUNCTIONS];
    #pragma unroll
    for (int f = 0; f < FUNCTIONS; f++) inner_stride[f] = (u32)inner_strides[f];
#if STAGED
    const i64 *staged = inner_strides + FUNCTIONS, *cut = staged + FUNCTIONS;
    // A function's values at one place, followed by a buffer for those at the next one.
    VALUE *rooms[FUNCTIONS], *next_room = (VALUE *)(places + (batch * PLACE + 1) / 2 * 2);
    u32 staged_values[FUNCTIONS], room_values[FUNCTIONS], turn[FUNCTIONS];
    #pragma unroll
    for (int f = 0; f < FUNCTIONS; f++) {
        staged_values[f] = (u32)staged[f] * (cut[f] ? (u32)head.chunk : 1);
        rooms[f] = next_room;
        room_values[f] = (staged_values[f] + VALUES_A_VECTOR - 1) / VALUES_A_VECTOR * VALUES_A_VECTOR;
        next_room += 2 * room_values[f];
        turn[f] = 0;
    }
    auto fetch = [&](const i64 *place, bool first) {
        #pragma unroll
        for (int f = 0; f < FUNCTIONS; f++) {
            if (!staged_values[f] || (!first && place[f] == place[f - PLACE])) continue;
            turn[f] ^= 1;
            u32 wanted = cut[f] ? (u32)staged[f] * (u32)place[FUNCTIONS + 1] : staged_values[f];
            VALUE *target = rooms[f] + turn[f] * room_values[f];
            const VALUE *source = functions.values[f] + place[f];
            // Sixteen bytes at a time if the source is aligned; buffers are.
            u32 vectors = ((u64)source & 15) == 0 ? wanted / VALUES_A_VECTOR : 0;
            for (u32 i = threadIdx.x; i < vectors; i += blockDim.x)
                copy_async<16>(target + i * VALUES_A_VECTOR, source + i * VALUES_A_VECTOR);
            for (u32 i = vectors * VALUES_A_VECTOR + threadIdx.x; i < wanted; i += blockDim.x)
                copy_async<sizeof(VALUE)>(target + i, source + i);
        }
        end_copies();
    };
    // Adjacent cells are inner_cells apart: staggered starts avoid bank conflicts.
    u32 inner = (u32)head.inner_cells, first_inner[CELLS];
    #pragma unroll
    for (int i = 0; i < CELLS; i++) {
        u32 cell = threadIdx.x + i * blockDim.x;
        first_inner[i] = (inner < 32 ? cell * inner / 32 : cell) % inner;
    }
#endif
    for (i64 begin = (i64)blockIdx.x * batch; begin < head.high_cells; begin += (i64)gridDim.x * batch) {
        i64 here = head.high_cells - begin < batch ? head.high_cells - begin : batch;
        __syncthreads();
        for (i64 at = threadIdx.x; at < here; at += blockDim.x) {
            i64 *place = places + at * PLACE;
            for (int f = 0; f <= FUNCTIONS; f++) place[f] = 0;
            place[FUNCTIONS + 1] = head.chunk;
            u64 rest = begin + at;
            for (int axis = 0; axis < head.highs; axis++) {
                u64 size = high_sizes[axis], digit;
                if (rest >> 32) digit = rest % size, rest /= size;
                else digit = (u32)rest % (u32)size, rest = (u32)rest / (u32)size;
                for (int f = 0; f <= FUNCTIONS; f++) place[f] += digit * high_strides[f * head.highs + axis];
                if (axis == 0 && head.whole - (i64)digit * head.chunk < head.chunk && head.whole)
                    place[FUNCTIONS + 1] = head.whole - digit * head.chunk;
            }
        }
        __syncthreads();
#if STAGED
        fetch(places, true);
#endif
        for (i64 at = 0; at < here; at++) {
            const i64 *place = places + at * PLACE;
            u32 valid = (u32)(place[FUNCTIONS + 1] * head.prefix);
            const VALUE *source[FUNCTIONS];
            #pragma unroll
            for (int f = 0; f < FUNCTIONS; f++) source[f] = functions.values[f] + place[f];
#if STAGED
            #pragma unroll
            for (int f = 0; f < FUNCTIONS; f++)
                if (staged_values[f]) source[f] = rooms[f] + turn[f] * room_values[f];
            if (at + 1 < here) fetch(place + PLACE, false);
            else end_copies();
            wait_but_last();
            __syncthreads();
#endif
            VALUE found[CELLS];
            auto joined = [&](int i, u32 e) {
#if STAGED
                e += first_inner[i];
                if (e >= inner) e -= inner;
#endif
                VALUE value = READ(source[0] + low[i][0] + e * inner_stride[0]);
                #pragma unroll
                for (int f = 1; f < FUNCTIONS; f++) {
#if COMBINATION == 0 && FUNCTIONS > 4
                    if (f >= SUMMANDS) value = clamped(value, infeasible, limit);
#endif
                    value = combine(value, READ(source[f] + low[i][f] + e * inner_stride[f]));
                }
                return value;
            };
            #pragma unroll
            for (int i = 0; i < CELLS; i++)
                if (threadIdx.x + i * blockDim.x < valid) found[i] = joined(i, 0);
            for (i64 outer = 0; outer < head.outer_cells; outer++) {
                if (outer > 0) {
                    i64 rest = outer;
                    for (int axis = 0; axis < head.outers; axis++) {
                        i64 size = outer_sizes[axis], digit = rest % size;
                        rest /= size;
                        #pragma unroll
                        for (int f = 0; f < FUNCTIONS; f++) {
                            i64 step = outer_strides[f * head.outers + axis];
                            source[f] += digit == 0 ? -(size - 1) * step : step;
                        }
                        if (digit) break;
                    }
                }
                #pragma unroll 4
                for (u32 e = outer == 0; e < (u32)head.inner_cells; e++) {
                    #pragma unroll
                    for (int i = 0; i < CELLS; i++)
                        if (threadIdx.x + i * blockDim.x < valid) found[i] = marginalise(found[i], joined(i, e));
                }
            }
            #pragma unroll
            for (int i = 0; i < CELLS; i++) {
                u32 cell = threadIdx.x + i * blockDim.x;
                if (cell < valid) out[place[FUNCTIONS] + cell] = clamped(found[i], infeasible, limit);
            }
#if STAGED
            __syncthreads();
#endif
        }
    }
}
