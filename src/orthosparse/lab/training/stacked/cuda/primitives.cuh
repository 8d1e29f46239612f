// What the kernels need of a GPU, in one place: instructions of tensor cores, copies, barriers and launches.
// The tests have a header of the same name that does all of it on a CPU.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

constexpr unsigned WARP = 32;

// Shared memory of the block, as much as the launch asked for.
__device__ inline unsigned char* shared_memory() {
    extern __shared__ __align__(128) unsigned char memory[];
    return memory;
}

// All threads of the block wait for each other; warps may do so at different lines of the code.
__device__ inline void synchronize() { asm volatile("bar.sync 0;" ::: "memory"); }

__device__ inline float shuffled(float value, int distance) { return __shfl_xor_sync(0xffffffffu, value, distance); }

// An address in shared memory, as instructions of tensor cores take it.
using Address = uint32_t;

__device__ inline Address address_of(const void* place) {
    return static_cast<Address>(__cvta_generic_to_shared(place));
}

// Four 8 x 8 matrices of bfloat16: lane i gives the address of row i % 8 of matrix i / 8, and gets entries
// 2 * (i % 4) and the next of row i / 4 of each matrix; of each column if transposed.
__device__ inline void load_matrices(uint32_t (&found)[4], Address row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(found[0]), "=r"(found[1]), "=r"(found[2]), "=r"(found[3])
                 : "r"(row)
                 : "memory");
}

__device__ inline void load_matrices_transposed(uint32_t (&found)[4], Address row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(found[0]), "=r"(found[1]), "=r"(found[2]), "=r"(found[3])
                 : "r"(row)
                 : "memory");
}

// Adds the product of a 16 x 16 and a 16 x 8 matrix of bfloat16. Lane i holds of the sum rows i / 4 and i / 4 + 8,
// columns 2 * (i % 4) and the next.
__device__ inline void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers rounded to bfloat16, the first in the lower half.
__device__ inline uint32_t packed(float first, float second) {
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

__device__ inline float first_of(uint32_t both) { return __uint_as_float(both << 16); }
__device__ inline float second_of(uint32_t both) { return __uint_as_float(both & 0xffff0000u); }

// The larger of two numbers; what is not a number stays so.
__device__ inline float larger(float one, float two) {
    float found;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(one), "f"(two));
    return found;
}

// To a few units of float32's last place, far below what bfloat16 keeps.
__device__ inline float exponential(float value) { return __expf(value); }
__device__ inline float quotient(float above, float below) { return __fdividef(above, below); }

// 16 bytes from global to shared memory; they are there after `wait_for_copies` and `synchronize`.
__device__ inline void copy(void* to, const void* from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Has 128 bytes of global memory brought nearer.
__device__ inline void prefetch_line(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

// The bytes of shared memory that a block may have on a device; zero where CUDA does not say.
inline int room_on(int device) {
    int bytes = 0;
    const auto problem = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return problem == cudaSuccess ? bytes : 0;
}

// Runs a kernel on a grid of blocks; returns CUDA's error, zero where there is none.
template <typename Kernel, typename... Arguments>
int launch(Kernel kernel, dim3 grid, int threads, int bytes, void* stream, Arguments... arguments) {
    const auto problem = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (problem != cudaSuccess) return problem;
    kernel<<<grid, threads, bytes, static_cast<cudaStream_t>(stream)>>>(arguments...);
    return cudaGetLastError();
}
