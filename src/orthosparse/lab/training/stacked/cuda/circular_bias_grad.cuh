// The gradients of the biases of circular convolutions: sums over images and pixels.
#pragma once

#include <circular_layout.cuh>

struct BiasGradParams {
    const uint4* grad;  // [layers * networks, images, groups, pixels, 8 channels]
    float* bias_grad;   // [layers * networks, channels]
    int images;
};

namespace {

constexpr int BIAS_GRAD_THREADS = 256, BIAS_GRAD_WARPS = BIAS_GRAD_THREADS / WARP_SIZE;
constexpr int BIAS_GRAD_BYTES = BIAS_GRAD_WARPS * 8 * 4;

// A block sums 8 channels of one layer of one network.
__global__ void __launch_bounds__(BIAS_GRAD_THREADS) bias_grad_kernel(const BiasGradParams params) {
    float* partial = reinterpret_cast<float*>(shared_memory());
    const int group = blockIdx.x, warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
    const uint4* grad = params.grad + (static_cast<long long>(blockIdx.y) * params.images * GROUPS + group) * PIXELS;
    float sums[8] = {};
    for (int i = threadIdx.x; i < params.images * PIXELS; i += BIAS_GRAD_THREADS) {
        const uint4 eight = grad[static_cast<long long>(i / PIXELS) * GROUPS * PIXELS + i % PIXELS];
        const uint32_t pairs[] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int c = 0; c < 8; ++c) sums[c] += c % 2 ? unpack_high(pairs[c / 2]) : unpack_low(pairs[c / 2]);
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) {
        for (int mask = 1; mask < static_cast<int>(WARP_SIZE); mask *= 2) sums[c] += shuffle_xor(sums[c], mask);
        if (lane == 0) partial[warp * 8 + c] = sums[c];
    }
    sync_threads();
    if (threadIdx.x < 8) {
        float total = 0;
        for (int w = 0; w < BIAS_GRAD_WARPS; ++w) total += partial[w * 8 + threadIdx.x];
        params.bias_grad[blockIdx.y * CHANNELS + group * 8 + threadIdx.x] = total;
    }
}

}  // namespace
