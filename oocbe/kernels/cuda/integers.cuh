// Short names of the integer types, and what all kernels know of lanes, warps and bits.

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
