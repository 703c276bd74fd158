// A few numbers for the host, written to its pinned memory by a kernel. A copy would be queued behind results on the
// bus (32 MB take 0.7 ms) and delay the host.
#include "integers.cuh"

#define PARTS 16

// Addresses of the parts, their starts in the target, in words of 32 bits, and the end of the last one.
struct Parts { u64 from[PARTS]; u64 begin[PARTS + 1]; };

extern "C" __global__ void read_back(Parts parts, u32 *target) {
    for (int part = 0; part < PARTS; part++) {
        const u32 *from = (const u32 *)parts.from[part];
        for (u64 i = threadIdx.x; i < parts.begin[part + 1] - parts.begin[part]; i += blockDim.x)
            target[parts.begin[part] + i] = from[i];
    }
}
