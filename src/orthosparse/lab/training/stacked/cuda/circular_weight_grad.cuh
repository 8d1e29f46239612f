// The gradients of the weights of circular convolutions: products of gradients and samples, summed over all pixels.
//
// A block computes a row of three taps of one layer of one network. The producer warpgroup loads image after image. The
// samples get a halo of one pixel on the left and on the right: a tap beside another one is then only an offset of the
// address. The two consumer warpgroups compute half of the output channels each.
#pragma once

#include <circular_layout.cuh>

struct WeightGradParams {
    const unsigned char *grad, *x;  // [layers * networks, images, groups, pixels, 8 channels]
    const unsigned char* off;       // 1 where a mask is 0: [layers * networks, out, taps, in]
    float* weight_grad;             // of the same shape
    float* squares;                 // sums of squares of the gradients: [layers * networks, taps]
    int images;
};

namespace {

constexpr int HALO_SIDE = SIDE + 2;  // pixels of a row with its halo
constexpr int HALO_ROW_BYTES = HALO_SIDE * PIXEL_BYTES, HALO_GROUP_BYTES = SIDE * HALO_ROW_BYTES;
constexpr int GRAD_BYTES = IMAGE_SIZE * 2, X_BYTES = GROUPS * HALO_GROUP_BYTES;  // of an image in shared memory
constexpr int IMAGE_STAGES = 6;
constexpr int COPIES = X_BYTES / PIXEL_BYTES / WARPGROUP_SIZE;  // of a producer thread for an image
constexpr int CONSUMER_WARPS = 8, WEIGHT_GRAD_THREADS = (CONSUMER_WARPS + 4) * WARP_SIZE;
// Registers of a thread. Twelve warps start with 168 each; the producer frees most of its own for the consumers.
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;

struct WeightGradMemory {
    static constexpr int BARRIERS = IMAGE_STAGES * (GRAD_BYTES + X_BYTES);
    static constexpr int SQUARES = BARRIERS + 2 * IMAGE_STAGES * 8;
    static constexpr int BYTES = SQUARES + KERNEL_SIDE * CONSUMER_WARPS * 4;
    unsigned char* memory;
    Barrier* barriers;
    float* squares;
    __device__ explicit WeightGradMemory(unsigned char* memory)
        : memory(memory), barriers(reinterpret_cast<Barrier*>(memory + BARRIERS)),
          squares(reinterpret_cast<float*>(memory + SQUARES)) {}
    __device__ unsigned char* grad(int stage) const { return memory + stage * (GRAD_BYTES + X_BYTES); }
    __device__ unsigned char* x(int stage) const { return grad(stage) + GRAD_BYTES; }
    __device__ Barrier* full(int stage) const { return barriers + stage; }
    __device__ Barrier* empty(int stage) const { return barriers + IMAGE_STAGES + stage; }
};

// The producer: loads the gradient and the samples of every image, the samples from the row that `tap_row` sees.
__device__ inline void load_images(const WeightGradMemory& memory, const WeightGradParams& params, unsigned tap_row) {
    const unsigned thread = threadIdx.x % WARPGROUP_SIZE;
    const unsigned char* grad = params.grad + static_cast<long long>(blockIdx.y) * params.images * GRAD_BYTES;
    const unsigned char* x = params.x + static_cast<long long>(blockIdx.y) * params.images * GRAD_BYTES;
    unsigned offsets[COPIES];
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
        const unsigned unit = i * WARPGROUP_SIZE + thread, group = unit / (SIDE * HALO_SIDE);
        const unsigned row = (unit % (SIDE * HALO_SIDE) / HALO_SIDE + tap_row + SIDE - 1) % SIDE;
        const unsigned column = (unit % (SIDE * HALO_SIDE) % HALO_SIDE + SIDE - 1) % SIDE;
        offsets[i] = ((group * SIDE + row) * SIDE + column) * PIXEL_BYTES;
    }
    for (int image = 0; image < params.images; ++image) {
        const int stage = image % IMAGE_STAGES;
        wait_for_phase(memory.empty(stage), (image / IMAGE_STAGES & 1) ^ 1);
        if (thread == 0) {
            arrive_and_expect_bytes(memory.full(stage), GRAD_BYTES);
            bulk_copy(memory.grad(stage), grad, GRAD_BYTES, memory.full(stage));
        }
        sync_warp();
        unsigned char* to = memory.x(stage) + thread * PIXEL_BYTES;
#pragma unroll
        for (int i = 0; i < COPIES; ++i) cp_async(to + i * WARPGROUP_SIZE * PIXEL_BYTES, x + offsets[i]);
        arrive_after_cp_async(memory.full(stage));
        grad += GRAD_BYTES;
        x += GRAD_BYTES;
    }
}

// Stores the accumulator of a tap, zero off the mask; returns the sum of the squares of this warp.
__device__ inline float store_tap(const float (&accumulator)[64], const WeightGradParams& params, int tap,
                                  unsigned first_channel) {
    const unsigned lane = threadIdx.x % WARP_SIZE;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const unsigned out = first_channel + lane / 4 + i % 2 * 8, in = i / 2 * 8 + lane % 4 * 2;
        const long long index = ((static_cast<long long>(blockIdx.y) * CHANNELS + out) * TAPS + tap) * CHANNELS + in;
        const uchar2 off = *reinterpret_cast<const uchar2*>(params.off + index);
        const float first = off.x ? 0 : accumulator[i * 2], second = off.y ? 0 : accumulator[i * 2 + 1];
        *reinterpret_cast<float2*>(params.weight_grad + index) = make_float2(first, second);
        squares += first * first + second * second;
    }
#pragma unroll
    for (int mask = 1; mask < static_cast<int>(WARP_SIZE); mask *= 2) squares += shuffle_xor(squares, mask);
    return squares;
}

// A consumer: accumulates the products of all images and stores them.
__device__ inline void sum_products(const WeightGradMemory& memory, const WeightGradParams& params, unsigned tap_row) {
    const unsigned warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
    float left[64], center[64], right[64];  // accumulators of the three taps
    for (int image = 0; image < params.images; ++image) {
        const int stage = image % IMAGE_STAGES;
        wait_for_phase(memory.full(stage), image / IMAGE_STAGES & 1);
        fence_async_proxy();
        const SharedAddress grad = shared_address(memory.grad(stage)) + warp / 4 * (HALF / 8) * PIXELS * PIXEL_BYTES;
        const SharedAddress x = shared_address(memory.x(stage));
        wgmma_fence();
#pragma unroll
        for (int row = 0; row < SIDE; row += 2) {
            const MatrixDescriptor a = matrix_descriptor(grad + row * ROW_BYTES, ROW_BYTES, PIXELS * PIXEL_BYTES);
            const auto b = [&](int tap_column) {
                const SharedAddress start = x + row * HALO_ROW_BYTES + tap_column * PIXEL_BYTES;
                return matrix_descriptor(start, HALO_ROW_BYTES, HALO_GROUP_BYTES);
            };
            const int accumulate = image + row > 0;
            wgmma_m64n128k16_transposed(left, a, b(0), accumulate);
            wgmma_m64n128k16_transposed(center, a, b(1), accumulate);
            wgmma_m64n128k16_transposed(right, a, b(2), accumulate);
        }
        wgmma_commit_group();
        if (image > 0) {
            wgmma_wait_group<1>();
            if (lane == 0) arrive(memory.empty((image - 1) % IMAGE_STAGES));
        }
    }
    wgmma_wait_group<0>();
    fence_accumulator(left);
    fence_accumulator(center);
    fence_accumulator(right);
    const float squares[] = {store_tap(left, params, tap_row * KERNEL_SIDE, warp * 16),
                             store_tap(center, params, tap_row * KERNEL_SIDE + 1, warp * 16),
                             store_tap(right, params, tap_row * KERNEL_SIDE + 2, warp * 16)};
    if (lane == 0) {
        for (int i = 0; i < KERNEL_SIDE; ++i) memory.squares[i * CONSUMER_WARPS + warp] = squares[i];
    }
}

__global__ void __launch_bounds__(WEIGHT_GRAD_THREADS, 1) weight_grad_kernel(const WeightGradParams params) {
    const WeightGradMemory memory(shared_memory());
    const unsigned tap_row = blockIdx.x;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < IMAGE_STAGES; ++stage) {
            init_barrier(memory.full(stage), WARPGROUP_SIZE + 1);
            init_barrier(memory.empty(stage), CONSUMER_WARPS);
        }
        fence_barrier_init();
    }
    sync_threads();
    if (threadIdx.x / WARP_SIZE < CONSUMER_WARPS) {
        increase_registers<CONSUMER_REGISTERS>();
        sum_products(memory, params, tap_row);
    } else {
        decrease_registers<PRODUCER_REGISTERS>();
        load_images(memory, params, tap_row);
    }
    sync_threads();
    if (threadIdx.x < KERNEL_SIDE) {
        float total = 0;
        for (int warp = 0; warp < CONSUMER_WARPS; ++warp) total += memory.squares[threadIdx.x * CONSUMER_WARPS + warp];
        params.squares[blockIdx.y * TAPS + tap_row * KERNEL_SIDE + threadIdx.x] = total;
    }
}

}  // namespace
