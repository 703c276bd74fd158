// Counts of LIMBS limbs (oocbe/tables/numbers.py), 64 bits each, the least significant first. Results are truncated; the
// caller excludes overflow. Needs integers.cuh.

// product *= factor, which has `limbs` limbs.
__device__ __forceinline__ void multiply(u64 (&product)[LIMBS], const u64 *factor, i64 limbs) {
    u64 result[LIMBS] = {};
    #pragma unroll
    for (int j = 0; j < LIMBS; j++) {
        u64 by = j < limbs ? factor[j] : 0, carry = 0;
        if (by == 0) continue;
        #pragma unroll
        for (int i = 0; i + j < LIMBS; i++) {
            u64 low = product[i] * by, high = __umul64hi(product[i], by);
            low += carry;
            high += low < carry;
            result[i + j] += low;
            high += result[i + j] < low;
            carry = high;
        }
    }
    #pragma unroll
    for (int i = 0; i < LIMBS; i++) product[i] = result[i];
}

// sum += term.
__device__ __forceinline__ void add(u64 (&sum)[LIMBS], const u64 (&term)[LIMBS]) {
    u64 carry = 0;
    #pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        u64 added = sum[i] + carry;
        carry = added < carry;
        sum[i] = added + term[i];
        carry += sum[i] < added;
    }
}
