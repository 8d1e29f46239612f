// The instructions that Hopper adds to `primitives.cuh`: products of a warpgroup (wgmma), bulk copies, transaction
// barriers (mbarrier), and clusters. The tests have a header of the same name that implements them on a CPU.
#pragma once

#include <cstdint>

#include <primitives.cuh>

#define CLUSTER_OF_TWO __cluster_dims__(2, 1, 1)

// The descriptor of a bfloat16 matrix in shared memory, which consists of core matrices: 8 x 8 elements in 128
// contiguous bytes, not swizzled. Strides are in bytes between neighboring core matrices: `leading` along k, the
// dimension that is summed over, and `stride` along the other one.
using MatrixDescriptor = uint64_t;

__device__ inline MatrixDescriptor matrix_descriptor(SharedAddress start, unsigned leading, unsigned stride) {
    return static_cast<uint64_t>((start & 0x3ffff) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
           static_cast<uint64_t>(stride >> 4) << 32;
}

// Operands of an asm statement: 8 or 32 accumulators from `i` on, and the names of 64 and 96, which start at %0.
#define ACCUMULATORS_8(i)                                                                                    \
    "+f"(accumulator[i]), "+f"(accumulator[i + 1]), "+f"(accumulator[i + 2]), "+f"(accumulator[i + 3]),      \
        "+f"(accumulator[i + 4]), "+f"(accumulator[i + 5]), "+f"(accumulator[i + 6]), "+f"(accumulator[i + 7])
#define ACCUMULATORS_32(i) ACCUMULATORS_8(i), ACCUMULATORS_8(i + 8), ACCUMULATORS_8(i + 16), ACCUMULATORS_8(i + 24)
#define NAMES_0_TO_63                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "      \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "      \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_64_TO_95                                                                      \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "      \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

// accumulator += a @ b, of 64 x 16 and 16 x 192 matrices; accumulator = a @ b if `accumulate` is 0. The four warps of a
// warpgroup compute it together and asynchronously, see `wgmma_fence`. Lane i of warp w holds rows 16 w + i / 4 and
// 16 w + i / 4 + 8: of each group of eight columns 2 (i % 4) and the next one, of the first row and then of the second.
__device__ inline void wgmma_m64n192k16(float (&accumulator)[96], MatrixDescriptor a, MatrixDescriptor b,
                                        int accumulate) {
    asm volatile("{\n"
                 ".reg .pred accumulate;\n"
                 "setp.ne.b32 accumulate, %98, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
                 "{" NAMES_0_TO_63 ", " NAMES_64_TO_95 "}, %96, %97, accumulate, 1, 1, 0, 0;\n"
                 "}\n"
                 : ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_32(64)
                 : "l"(a), "l"(b), "r"(accumulate));
}

// The same for n = 128, with both operands transposed in shared memory: within a core matrix, k is the outer dimension.
__device__ inline void wgmma_m64n128k16_transposed(float (&accumulator)[64], MatrixDescriptor a, MatrixDescriptor b,
                                                   int accumulate) {
    asm volatile("{\n"
                 ".reg .pred accumulate;\n"
                 "setp.ne.b32 accumulate, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{" NAMES_0_TO_63 "}, %64, %65, accumulate, 1, 1, 1, 1;\n"
                 "}\n"
                 : ACCUMULATORS_32(0), ACCUMULATORS_32(32)
                 : "l"(a), "l"(b), "r"(accumulate));
}

#undef ACCUMULATORS_8
#undef ACCUMULATORS_32
#undef NAMES_0_TO_63
#undef NAMES_64_TO_95

// Orders accesses to the accumulators before the first product of a group.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends a group of products.
__device__ inline void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most PENDING groups have not completed.
template <int PENDING>
__device__ inline void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from moving reads of an accumulator above this point.
template <int COUNT>
__device__ inline void fence_accumulator(float (&accumulator)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(accumulator[i])::"memory");
}

// Makes what this thread wrote to the shared memory of its block visible to the async proxy: wgmma and bulk copies. (A
// fence of more than the block's shared memory would wait for all writes to global memory.)
__device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A barrier in shared memory. A phase completes when all arrivals and all expected bytes have come.
struct Barrier {
    uint64_t state;
};

__device__ inline void init_barrier(Barrier* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialized barriers visible to the cluster and to the async proxy.
__device__ inline void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ inline void arrive_and_expect_bytes(Barrier* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Arrives once all copies that this thread started by `cp_async` have completed.
__device__ inline void arrive_after_cp_async(Barrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Waits until the phase of this parity (0: even, 1: odd) has completed.
__device__ inline void wait_for_phase(Barrier* barrier, unsigned parity) {
    asm volatile("{\n"
                 ".reg .pred completed;\n"
                 "retry:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 completed, [%0], %1;\n"
                 "@!completed bra retry;\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

// Copies from global to shared memory; the barrier counts the bytes.
__device__ inline void bulk_copy(void* to, const void* from, int bytes, Barrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

__device__ inline unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Barrier of all threads of the cluster.
__device__ inline void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address that corresponds to `address` in the shared memory of the block of this rank in the cluster.
__device__ inline SharedAddress address_in_rank(unsigned rank, SharedAddress address) {
    SharedAddress mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

// Copies from the shared memory of this block to that of another block of the cluster, whose barrier counts the bytes.
// `to` and `barrier` are from `address_in_rank`.
__device__ inline void bulk_copy_to_rank(SharedAddress to, const void* from, int bytes, SharedAddress barrier) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     to),
                 "r"(shared_address(from)), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Barrier of the threads of a warpgroup; `barrier_id` is its own, and at least 1 (see `sync_threads`).
__device__ inline void sync_warpgroup(int barrier_id) {
    asm volatile("bar.sync %0, 128;" ::"r"(barrier_id) : "memory");
}

// Set the maximum number of registers of each thread of a warpgroup. The warpgroups that decrease theirs free the
// registers that others wait for.
template <int COUNT>
__device__ inline void decrease_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ inline void increase_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

__device__ inline void sync_warp() { __syncwarp(); }

__device__ inline float shuffle(float value, unsigned lane) { return __shfl_sync(0xffffffffu, value, lane); }

// Launches a kernel that is declared CLUSTER_OF_TWO; see `launch`.
template <typename Kernel, typename... Arguments>
int launch_clusters_of_two(Kernel kernel, dim3 grid, int threads, int shared_bytes, void* stream,
                           Arguments... arguments) {
    return launch(kernel, grid, threads, shared_bytes, stream, arguments...);
}
