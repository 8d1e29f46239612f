// The GPU instructions that all kernels use: tensor cores (mma), asynchronous copies, barriers, and launches.
// The tests have a header of the same name that implements them on a CPU.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

constexpr unsigned WARP_SIZE = 32;

// Dynamic shared memory of the block, of the size given at launch.
__device__ inline unsigned char* shared_memory() {
    extern __shared__ __align__(128) unsigned char memory[];
    return memory;
}

// Barrier of all threads of the block. Unlike `__syncthreads`, warps may reach it at different points of the code.
__device__ inline void sync_threads() { asm volatile("bar.sync 0;" ::: "memory"); }

__device__ inline float shuffle_xor(float value, int lane_mask) {
    return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}

// An address in shared memory, as PTX instructions take it.
using SharedAddress = uint32_t;

__device__ inline SharedAddress shared_address(const void* pointer) {
    return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}

// Loads four 8 x 8 matrices of bfloat16. Lane i passes the address of row i % 8 of matrix i / 8, and gets elements
// 2 * (i % 4) and the next one of row i / 4 of each matrix (transposed: of column i / 4).
__device__ inline void ldmatrix_x4(uint32_t (&fragment)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(row)
                 : "memory");
}

__device__ inline void ldmatrix_x4_transposed(uint32_t (&fragment)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(row)
                 : "memory");
}

// accumulator += a @ b, of a 16 x 16 and a 16 x 8 matrix of bfloat16. Lane i holds rows i / 4 and i / 4 + 8 of the
// accumulator, columns 2 * (i % 4) and the next one.
__device__ inline void mma_m16n8k16(float (&accumulator)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(accumulator[0]), "+f"(accumulator[1]), "+f"(accumulator[2]), "+f"(accumulator[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rounds two numbers to bfloat16 and packs them, the first one in the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ inline float unpack_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float unpack_high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// The maximum; NaN if either argument is NaN.
__device__ inline float max_nan(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}

// Exact to a few units in the last place of float32, far below the precision of bfloat16. Subnormal numbers become zero,
// without which each of these would be several instructions.
__device__ inline float fast_exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ inline float fast_reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// Copies 16 bytes from global to shared memory; they are visible after `cp_async_wait_all` and `sync_threads`.
__device__ inline void cp_async(void* to, const void* from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

__device__ inline void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Prefetches a cache line of 128 bytes into L2.
__device__ inline void prefetch_l2(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

// The bytes of shared memory that a block may use on a device; 0 if CUDA reports an error.
inline int max_shared_memory(int device) {
    int bytes = 0;
    const auto error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return error == cudaSuccess ? bytes : 0;
}

// Launches a kernel with `shared_bytes` of dynamic shared memory; returns CUDA's error code, 0 for success.
template <typename Kernel, typename... Arguments>
int launch(Kernel kernel, dim3 grid, int threads, int shared_bytes, void* stream, Arguments... arguments) {
    const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != cudaSuccess) return error;
    kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(arguments...);
    return cudaGetLastError();
}
