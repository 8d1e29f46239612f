// The forward pass: a convolution of samples, which may be normalised and activated first, and its sums.
#pragma once

#include <primitives.cuh>
#include <products.cuh>
#include <tiles.cuh>

struct ForwardParams {
    const void *x, *scale_shift, *weights;
    void *out, *sums;
    int images, tiles_per_block;
};

namespace {

// IMAGES of a tile; MMA_M operands of 16 pixels and MMA_N of 8 channels, which a warp computes at a time.
template <int CHANNELS>
struct ForwardConfig;
template <>
struct ForwardConfig<16> {
    static constexpr int IMAGES = 1, WARPS = 8, MMA_M = 4, MMA_N = 2, BLOCKS_PER_SM = 3;
};
template <>
struct ForwardConfig<32> {
    static constexpr int IMAGES = 2, WARPS = 8, MMA_M = 4, MMA_N = 4, BLOCKS_PER_SM = 2;
};
template <>
struct ForwardConfig<64> {
    static constexpr int IMAGES = 2, WARPS = 8, MMA_M = 2, MMA_N = 4, BLOCKS_PER_SM = 2;
};

template <int CHANNELS>
struct ForwardMemory {  // offsets in shared memory
    using Config = ForwardConfig<CHANNELS>;
    static constexpr int MAPS = 0, WEIGHTS = MAPS + Tile<CHANNELS, Config::IMAGES>::BYTES;
    static constexpr int SCALE_SHIFT = WEIGHTS + TAPS * CHANNELS * Tile<CHANNELS, 1>::PIXEL_BYTES;
    static constexpr int WARP_SUMS = SCALE_SHIFT + coefficient_bytes(CHANNELS),
                         BYTES = WARP_SUMS + Config::WARPS * 2 * CHANNELS * 4;
};

template <int CHANNELS>
__global__ void __launch_bounds__(ForwardConfig<CHANNELS>::WARPS* WARP_SIZE, ForwardConfig<CHANNELS>::BLOCKS_PER_SM)
    forward_kernel(ForwardParams params) {
    using Config = ForwardConfig<CHANNELS>;
    using Maps = Tile<CHANNELS, Config::IMAGES>;
    using Memory = ForwardMemory<CHANNELS>;
    using Warp = WarpTile<CHANNELS, Config::MMA_M>;
    constexpr int THREADS = Config::WARPS * WARP_SIZE, PAIRS = Config::MMA_N;
    constexpr int GROUPS = CHANNELS / (8 * Config::MMA_N);  // of channels, shared out to warps
    constexpr int WARP_TILES = Config::IMAGES * Warp::PER_IMAGE;
    unsigned char* memory = shared_memory();
    const unsigned thread = threadIdx.x, warp = thread / WARP_SIZE, lane = thread % WARP_SIZE;
    const unsigned network = blockIdx.y, networks = gridDim.y;
    const unsigned tiles = (params.images + Config::IMAGES - 1) / Config::IMAGES;
    float4* scale_shift = reinterpret_cast<float4*>(memory + Memory::SCALE_SHIFT);
    float* warp_sums = reinterpret_cast<float*>(memory + Memory::WARP_SUMS);
    fill_with_zeros(memory, Maps::BYTES, thread, THREADS);
    const Chunk* weights = static_cast<const Chunk*>(params.weights) + network * (TAPS * CHANNELS * CHANNELS / 8);
    load_weights<CHANNELS, Config::MMA_N, false>(memory + Memory::WEIGHTS, weights, thread, THREADS);
    if (params.scale_shift != nullptr)
        load_coefficients<CHANNELS, 3>(scale_shift, params.scale_shift, network, networks, thread);
    cp_async_wait_all();
    sync_threads();
    const int begin = blockIdx.x * params.tiles_per_block, first_channel = warp % GROUPS * 8 * Config::MMA_N;
    for (int tile = begin; tile < tiles && tile < begin + params.tiles_per_block; ++tile) {
        const int image = tile * Config::IMAGES, images_left = params.images - image;
        const unsigned pixels = (images_left < Config::IMAGES ? images_left : Config::IMAGES) * Maps::SIDE * Maps::SIDE;
        const int64_t start = (static_cast<int64_t>(network) * params.images + image) * Maps::IMAGE_SIZE;
        load_samples<CHANNELS, Config::IMAGES, THREADS, 4>(
            memory, static_cast<const Chunk*>(params.x) + start / 8, pixels * Maps::CHUNKS,
            params.scale_shift == nullptr ? nullptr : scale_shift, thread);
        cp_async_wait_all();
        sync_threads();
        if (tile + 1 < tiles && tile + 1 < begin + params.tiles_per_block) {
            constexpr int TILE_BYTES = Maps::PIXELS * CHANNELS * 2;
            const auto* next = static_cast<const unsigned char*>(params.x) + 2 * start + TILE_BYTES;
            prefetch<THREADS>(next,
                              images_left < 2 * Config::IMAGES
                                  ? TILE_BYTES / Config::IMAGES * (images_left - Config::IMAGES)
                                  : TILE_BYTES,
                              thread);
        }
        ChannelSums<PAIRS> sums;
        sums.clear();
        for (unsigned index = warp / GROUPS; index < WARP_TILES; index += Config::WARPS / GROUPS) {
            const unsigned pixel = Warp::first_pixel(index);
            float accumulator[Config::MMA_M][Config::MMA_N][4] = {};
            convolve_warp_tile<CHANNELS, Config::IMAGES, Config::MMA_M, Config::MMA_N, false>(
                accumulator, shared_address(memory), shared_address(memory + Memory::WEIGHTS), pixel, first_channel,
                lane);
            unsigned char* out = static_cast<unsigned char*>(params.out) +
                                 2 * (start + (pixel + lane / 4) * CHANNELS + first_channel + lane % 4 * (2 * PAIRS));
#pragma unroll
            for (int m = 0; m < 2 * Config::MMA_M; ++m) {  // halves of operands, as an accumulator has two rows
                if (Config::IMAGES > 1 && pixel >= pixels) break;
                ChannelPairs<PAIRS> rounded;
#pragma unroll
                for (int i = 0; i < PAIRS; ++i) {
                    const float* values = accumulator[m / 2][i] + m % 2 * 2;
                    rounded.pair[i] = pack_bf16(values[0], values[1]);
                    sums.add(2 * i, unpack_low(rounded.pair[i]), unpack_low(rounded.pair[i]));
                    sums.add(2 * i + 1, unpack_high(rounded.pair[i]), unpack_high(rounded.pair[i]));
                }
                rounded.store(out + 2 * (m / 2 * Warp::MMA_PIXELS + m % 2 * 8) * CHANNELS);
            }
        }
        if (params.sums != nullptr) {
            sums.template store<CHANNELS>(warp_sums + warp * 2 * CHANNELS, first_channel, lane);
        }
        sync_threads();
        if (params.sums != nullptr) {
            const int64_t index = static_cast<int64_t>(network) * tiles + tile;
            float* to = static_cast<float*>(params.sums) + index * 2 * CHANNELS;
            reduce_warp_sums<CHANNELS, Config::WARPS, GROUPS>(to, warp_sums, thread, THREADS);
        }
    }
}

}  // namespace
