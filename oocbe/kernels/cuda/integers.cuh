// Short names of the integer types, and common functions for lanes, warps and bits.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef long long i64;
typedef int i32;

#define ALL_LANES 0xFFFFFFFFu

__device__ __forceinline__ u32 lane_number() { return threadIdx.x & 31u; }

// Ones below this thread's lane.
__device__ __forceinline__ u32 lanes_below() {
    u32 mask;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
    return mask;
}

// First index of an ascending array whose entry exceeds `wanted` (u64 or i64 alike), between low and high.
template <typename Index>
__device__ __forceinline__ i64 upper_bound(const Index *entries, i64 low, i64 high, Index wanted) {
    while (low < high) {
        i64 middle = (low + high) >> 1;
        if (entries[middle] <= wanted) low = middle + 1; else high = middle;
    }
    return low;
}

// Atomic loads and stores of one word shared with other blocks; unordered with respect to other words.
__device__ __forceinline__ u64 load_relaxed(const u64 *place) {
    u64 value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(place));
    return value;
}

__device__ __forceinline__ u32 load_relaxed(const u32 *place) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(place));
    return value;
}

__device__ __forceinline__ void store_relaxed(u64 *place, u64 value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" :: "l"(place), "l"(value) : "memory");
}

__device__ __forceinline__ void store_relaxed(u32 *place, u32 value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(place), "r"(value) : "memory");
}

// Number of marked rows before `row`; bits u32, a bit a row, before i64: marked rows before each word, the total last.
__device__ __forceinline__ i64 marked_before(const u32 *bits, const i64 *before, i64 row, i64 rows) {
    if (row >= rows) return before[(rows + 31) / 32];
    return before[row >> 5] + __popc(bits[row >> 5] & ((1u << (row & 31)) - 1));
}

// Grid barrier of a cooperative launch, for the `times`-th time; arrived u32 (1,) is initially zero.
__device__ __forceinline__ void wait_for_all(u32 *arrived, u32 times) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (load_relaxed(arrived) < times * gridDim.x);
        __threadfence();
    }
    __syncthreads();
}
