// What kernels for Hopper need of it, beside what `primitives.cuh` has: products of four warps, copies in bulk, barriers
// that count, and clusters of blocks. The tests have a header of the same name that does all of it on a CPU.
#pragma once

#include <cstdint>

#include <primitives.cuh>

#define CLUSTER_OF_TWO __cluster_dims__(2, 1, 1)

// A matrix of bfloat16 in shared memory, in pieces of 8 x 8, each in 128 bytes in a row. `leading` is the distance in
// bytes between pieces along k, over which products sum, and `stride` that along the other side.
using Operand = uint64_t;

__device__ inline Operand operand(Address begin, unsigned leading, unsigned stride) {
    return static_cast<uint64_t>((begin & 0x3ffff) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
           static_cast<uint64_t>(stride >> 4) << 32;
}

// Adds to a sum of 64 x 192 the product of 64 x 16 and 16 x 192, or begins the sum with it unless `add`. Four warps do
// it together, in the background: see `begin_products`. Lane i of warp w holds rows 16 w + i / 4 and that + 8: of each
// eight columns 2 (i % 4) and the next, of the first row and then of the second.
__device__ inline void multiply_64_192(float (&sum)[96], Operand a, Operand b, int add) {
    asm volatile("{\n"
                 ".reg .pred added;\n"
                 "setp.ne.b32 added, %98, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
                 "%96, %97, added, 1, 1, 0, 0;\n"
                 "}\n"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]),
                   "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]),
                   "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]),
                   "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]), "+f"(sum[30]), "+f"(sum[31]),
                   "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]), "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]),
                   "+f"(sum[40]), "+f"(sum[41]), "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]),
                   "+f"(sum[48]), "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]), "+f"(sum[55]),
                   "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]), "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63]),
                   "+f"(sum[64]), "+f"(sum[65]), "+f"(sum[66]), "+f"(sum[67]), "+f"(sum[68]), "+f"(sum[69]), "+f"(sum[70]), "+f"(sum[71]),
                   "+f"(sum[72]), "+f"(sum[73]), "+f"(sum[74]), "+f"(sum[75]), "+f"(sum[76]), "+f"(sum[77]), "+f"(sum[78]), "+f"(sum[79]),
                   "+f"(sum[80]), "+f"(sum[81]), "+f"(sum[82]), "+f"(sum[83]), "+f"(sum[84]), "+f"(sum[85]), "+f"(sum[86]), "+f"(sum[87]),
                   "+f"(sum[88]), "+f"(sum[89]), "+f"(sum[90]), "+f"(sum[91]), "+f"(sum[92]), "+f"(sum[93]), "+f"(sum[94]), "+f"(sum[95])
                 : "l"(a), "l"(b), "r"(add));
}

// The same for 64 x 128, of matrices that have rows and columns innermost in their pieces instead of k.
__device__ inline void multiply_64_128_transposed(float (&sum)[64], Operand a, Operand b, int add) {
    asm volatile("{\n"
                 ".reg .pred added;\n"
                 "setp.ne.b32 added, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, added, 1, 1, 1, 1;\n"
                 "}\n"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]),
                   "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]),
                   "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]),
                   "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]), "+f"(sum[30]), "+f"(sum[31]),
                   "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]), "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]),
                   "+f"(sum[40]), "+f"(sum[41]), "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]),
                   "+f"(sum[48]), "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]), "+f"(sum[55]),
                   "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]), "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63])
                 : "l"(a), "l"(b), "r"(add));
}

// Before the first product, after anything else has written the sums.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends a group of products.
__device__ inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most so many groups are not done.
template <int LEFT>
__device__ inline void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Sums that products have written are read only below this line.
template <int COUNT>
__device__ inline void settle(float (&sum)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}

// What threads have written to the shared memory of their block is seen by products and bulk copies after this. (A fence
// of more than the block's memory would wait for everything that was written to global memory.)
__device__ inline void publish_memory() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A barrier in shared memory. It has a phase, which ends when all arrivals have come, and all bytes that were announced.
struct Barrier {
    uint64_t state;
};

__device__ inline void prepare(Barrier* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(barrier)), "r"(arrivals) : "memory");
}

__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(address_of(barrier)) : "memory");
}

__device__ inline void arrive_for_bytes(Barrier* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Arrives when the copies of this thread (`copy`) are there.
__device__ inline void arrive_after_copies(Barrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address_of(barrier)) : "memory");
}

// Waits for the end of a phase, whose number is even (0) or odd (1).
__device__ inline void wait_for(Barrier* barrier, unsigned parity) {
    asm volatile("{\n"
                 ".reg .pred ended;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
                 "@!ended bra again;\n"
                 "}\n" ::"r"(address_of(barrier)),
                 "r"(parity)
                 : "memory");
}

// Copies to shared memory; the barrier counts the bytes that have come.
__device__ inline void copy_in_bulk(void* to, const void* from, int bytes, Barrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address_of(to)),
                 "l"(from), "r"(bytes), "r"(address_of(barrier))
                 : "memory");
}

__device__ inline unsigned rank_in_cluster() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of a cluster wait for each other.
__device__ inline void synchronize_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// An address in the shared memory of another block of the cluster, which has there what this block has at `own`.
__device__ inline Address address_in(unsigned rank, Address own) {
    Address found;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(found) : "r"(own), "r"(rank));
    return found;
}

// Copies from this block to another one of the cluster; its barrier counts the bytes that have come. Both by their
// addresses there.
__device__ inline void copy_to_block(Address to, const void* from, int bytes, Address barrier) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "r"(address_of(from)), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Four warps wait for each other; `number` is from 1 on, and another one for each four.
__device__ inline void synchronize_four_warps(int number) {
    asm volatile("bar.sync %0, 128;" ::"r"(number) : "memory");
}

// Four warps, who must be the first of a block or begin at a multiple of four, keep so many registers a thread, or get them.
template <int COUNT>
__device__ inline void keep_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ inline void get_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

__device__ inline void converge() { __syncwarp(); }

__device__ inline float from_lane(float value, unsigned lane) { return __shfl_sync(0xffffffffu, value, lane); }

// Runs a kernel that is declared to have clusters of two blocks; see `launch`.
template <typename Kernel, typename... Arguments>
int launch_pairs(Kernel kernel, dim3 grid, int threads, int bytes, void* stream, Arguments... arguments) {
    return launch(kernel, grid, threads, bytes, stream, arguments...);
}
