// The backward pass of a layer: through its normalisation, its convolution, and the activation before it; and the
// gradient of its weights.
#pragma once

#include <primitives.cuh>
#include <products.cuh>
#include <tiles.cuh>

struct BackwardParams {
    const void *grad, *z, *coefficients, *x, *scale_shift, *weights, *shortcut_grad, *previous_z;
    void *out, *sums, *weight_grads;
    int images, tiles_per_block;
};

namespace {

// As in the forward pass. Some warps compute the gradient of the input, and the others that of the weights. Each kind
// loads its own operand of the products (SEPARATE_LOADS), or all warps load both. Operands of the epilogue are loaded
// before the products (EARLY_EPILOGUE_LOADS) where there are registers for them.
template <int CHANNELS>
struct BackwardConfig;
template <>
struct BackwardConfig<16> {
    static constexpr int IMAGES = 1, MMA_M = 4, MMA_N = 2, BLOCKS_PER_SM = 2;
    static constexpr int INPUT_GRAD_WARPS = 4, WEIGHT_GRAD_WARPS = 4;
    static constexpr bool SEPARATE_LOADS = true, EARLY_EPILOGUE_LOADS = true;
};
template <>
struct BackwardConfig<32> {
    static constexpr int IMAGES = 1, MMA_M = 4, MMA_N = 4, BLOCKS_PER_SM = 2;
    static constexpr int INPUT_GRAD_WARPS = 4, WEIGHT_GRAD_WARPS = 4;
    static constexpr bool SEPARATE_LOADS = false, EARLY_EPILOGUE_LOADS = false;
};
template <>
struct BackwardConfig<64> {
    static constexpr int IMAGES = 4, MMA_M = 4, MMA_N = 4, BLOCKS_PER_SM = 1;
    static constexpr int INPUT_GRAD_WARPS = 4, WEIGHT_GRAD_WARPS = 8;
    static constexpr bool SEPARATE_LOADS = true, EARLY_EPILOGUE_LOADS = true;
};

template <int CHANNELS>
struct BackwardMemory {  // offsets in shared memory
    using Config = BackwardConfig<CHANNELS>;
    using Maps = Tile<CHANNELS, Config::IMAGES>;
    // The last row of zeros of the gradient is the first one of the samples.
    static constexpr int GRADIENT = 0, SAMPLES = Maps::BYTES - Maps::ROW_BYTES;
    static constexpr int WEIGHTS = SAMPLES + Maps::BYTES;
    static constexpr int COEFFICIENTS = WEIGHTS + TAPS * CHANNELS * Maps::PIXEL_BYTES;
    static constexpr int SCALE_SHIFT = COEFFICIENTS + coefficient_bytes(CHANNELS),
                         WARP_SUMS = SCALE_SHIFT + coefficient_bytes(CHANNELS);
    static constexpr int BYTES = WARP_SUMS + Config::INPUT_GRAD_WARPS * 2 * CHANNELS * 4;
};

// The work of a block in the backward pass.
template <int CHANNELS>
struct BackwardBlock {
    using Config = BackwardConfig<CHANNELS>;
    using Maps = Tile<CHANNELS, Config::IMAGES>;
    using Memory = BackwardMemory<CHANNELS>;
    using Warp = WarpTile<CHANNELS, Config::MMA_M>;
    static constexpr int INPUT_GRAD_THREADS = Config::INPUT_GRAD_WARPS * WARP_SIZE;
    static constexpr int WEIGHT_GRAD_THREADS = Config::WEIGHT_GRAD_WARPS * WARP_SIZE;
    static constexpr int THREADS = INPUT_GRAD_THREADS + WEIGHT_GRAD_THREADS;
    static constexpr int GROUPS = CHANNELS / (8 * Config::MMA_N), PAIRS = Config::MMA_N;
    static constexpr int WARP_TILES = Config::IMAGES * Warp::PER_IMAGE;
    // The gradient of the weights is split into tiles of 16 output times 16 input channels. A warp computes
    // TILES_PER_WARP of them; or SPLIT_K warps share one, each with a part of the pixels.
    static constexpr int TILES_PER_SIDE = CHANNELS / 16, WEIGHT_TILES = TILES_PER_SIDE * TILES_PER_SIDE;
    static constexpr int TILES_PER_WARP =
        WEIGHT_TILES > Config::WEIGHT_GRAD_WARPS ? WEIGHT_TILES / Config::WEIGHT_GRAD_WARPS : 1;
    static constexpr int SPLIT_K = TILES_PER_WARP * Config::WEIGHT_GRAD_WARPS / WEIGHT_TILES;
    using WeightAccumulator = float[TILES_PER_WARP][TAPS][2][4];

    const BackwardParams& params;
    unsigned char* memory;
    unsigned thread, network;
    int tiles;

    // The pixels of a tile, of images that exist.
    __device__ int pixels_of(int tile) const {
        const int images_left = params.images - tile * Config::IMAGES;
        return (images_left < Config::IMAGES ? images_left : Config::IMAGES) * Maps::SIDE * Maps::SIDE;
    }

    // The index of the first number of a tile in global memory.
    __device__ int64_t start_of(int tile) const {
        return (static_cast<int64_t>(network) * params.images + tile * Config::IMAGES) * Maps::IMAGE_SIZE;
    }

    template <int LOADERS, int UNROLL>
    __device__ void load_x(int tile, unsigned loader) const {
        const auto* scale_shift = reinterpret_cast<const float4*>(memory + Memory::SCALE_SHIFT);
        load_samples<CHANNELS, Config::IMAGES, LOADERS, UNROLL>(
            memory + Memory::SAMPLES, static_cast<const Chunk*>(params.x) + start_of(tile) / 8,
            pixels_of(tile) * Maps::CHUNKS, params.scale_shift == nullptr ? nullptr : scale_shift, loader);
    }

    template <int LOADERS, int UNROLL>
    __device__ void load_grad(int tile, unsigned loader) const {
        const int64_t start = start_of(tile) / 8;
        load_gradient<CHANNELS, Config::IMAGES, LOADERS, UNROLL>(
            memory + Memory::GRADIENT, static_cast<const Chunk*>(params.grad) + start,
            static_cast<const Chunk*>(params.z) + start, pixels_of(tile) * Maps::CHUNKS,
            reinterpret_cast<const float4*>(memory + Memory::COEFFICIENTS), loader);
    }

    // What the warps of either kind load of a tile; see SEPARATE_LOADS.
    __device__ void load_for_input_grad(int tile) const {
        if constexpr (Config::SEPARATE_LOADS) {
            load_grad<INPUT_GRAD_THREADS, 8>(tile, thread);
        } else {
            load_x<THREADS, 4>(tile, thread);
            load_grad<THREADS, 4>(tile, thread);
        }
    }

    __device__ void load_for_weight_grad(int tile) const {
        if constexpr (Config::SEPARATE_LOADS) {
            const unsigned loader = thread - INPUT_GRAD_THREADS;
            prefetch_tile<WEIGHT_GRAD_THREADS>(tile, params.previous_z, loader);
            prefetch_tile<WEIGHT_GRAD_THREADS>(tile, params.shortcut_grad, loader);
            load_x<WEIGHT_GRAD_THREADS, TILES_PER_WARP == 1 ? 8 : 2>(tile, loader);
        } else {
            load_x<THREADS, 4>(tile, thread);
            load_grad<THREADS, 4>(tile, thread);
        }
    }

    // Prefetches a tile of a tensor, unless that is null.
    template <int LOADERS>
    __device__ void prefetch_tile(int tile, const void* tensor, unsigned loader) const {
        if (tensor == nullptr) return;
        const auto* start = static_cast<const unsigned char*>(tensor) + 2 * start_of(tile);
        prefetch<LOADERS>(start, pixels_of(tile) * CHANNELS * 2, loader);
    }

    // Pixels from the first one of a warp to the first one of half an operand.
    __device__ static constexpr int half_offset(int half) { return half / 2 * Warp::MMA_PIXELS + half % 2 * 8; }

    // Stores the gradient before the activation whose output the samples are, and its sums.
    __device__ void input_grad(int tile, unsigned warp, unsigned lane) const {
        constexpr int HALVES = 2 * Config::MMA_M;  // of operands, as an accumulator has two rows
        constexpr int MAX_BATCH = 16 / PAIRS, BATCH = MAX_BATCH < HALVES ? MAX_BATCH : HALVES;  // loaded at once
        static_assert(HALVES % BATCH == 0);
        const unsigned pixels = pixels_of(tile), first_channel = warp % GROUPS * 8 * Config::MMA_N;
        const unsigned channel = first_channel + lane % 4 * (2 * PAIRS);
        const int64_t start = 2 * (start_of(tile) + lane / 4 * CHANNELS + channel);
        const auto *shortcut_grad = static_cast<const unsigned char*>(params.shortcut_grad),
                   *previous_z = static_cast<const unsigned char*>(params.previous_z);
        auto* out = static_cast<unsigned char*>(params.out);
        ChannelSums<PAIRS> sums;
        sums.clear();
        for (unsigned index = warp / GROUPS; index < WARP_TILES; index += Config::INPUT_GRAD_WARPS / GROUPS) {
            const unsigned pixel = Warp::first_pixel(index);
            const int64_t offset = start + 2 * pixel * CHANNELS;
            const bool exists = Config::IMAGES == 1 || pixel < pixels;
            ChannelPairs<PAIRS> shortcut[BATCH], previous[BATCH];
            const auto load_epilogue = [&](int first_half) {
#pragma unroll
                for (int m = 0; m < BATCH; ++m) {
                    const int64_t half = offset + 2 * half_offset(first_half + m) * CHANNELS;
                    shortcut[m] = exists && shortcut_grad != nullptr ? ChannelPairs<PAIRS>::load(shortcut_grad + half)
                                                                     : ChannelPairs<PAIRS>{};
                    previous[m] = exists ? ChannelPairs<PAIRS>::load(previous_z + half) : ChannelPairs<PAIRS>{};
                }
            };
            if (Config::EARLY_EPILOGUE_LOADS) load_epilogue(0);
            float accumulator[Config::MMA_M][Config::MMA_N][4] = {};
            convolve_warp_tile<CHANNELS, Config::IMAGES, Config::MMA_M, Config::MMA_N, true>(
                accumulator, shared_address(memory + Memory::GRADIENT), shared_address(memory + Memory::WEIGHTS), pixel,
                first_channel, lane);
#pragma unroll
            for (int first_half = 0; first_half < HALVES; first_half += BATCH) {
                if (first_half > 0 || !Config::EARLY_EPILOGUE_LOADS) load_epilogue(first_half);
#pragma unroll
                for (int m = 0; m < BATCH; ++m) {
                    if (Config::IMAGES > 1 && pixel >= pixels) break;
                    const int half = half_offset(first_half + m);
                    const unsigned char* samples = memory + Memory::SAMPLES + channel * 2;
                    const auto y = ChannelPairs<PAIRS>::load(samples + Maps::offset(pixel + half + lane / 4));
                    ChannelPairs<PAIRS> grad;
#pragma unroll
                    for (int i = 0; i < PAIRS; ++i) {
                        const float* values = accumulator[(first_half + m) / 2][i] + m % 2 * 2;
                        const float low = values[0] + unpack_low(shortcut[m].pair[i]);
                        const float high = values[1] + unpack_high(shortcut[m].pair[i]);
                        grad.pair[i] = pack_bf16(activation_grad(low, unpack_low(y.pair[i])),
                                                 activation_grad(high, unpack_high(y.pair[i])));
                        sums.add(2 * i, unpack_low(grad.pair[i]), unpack_low(previous[m].pair[i]));
                        sums.add(2 * i + 1, unpack_high(grad.pair[i]), unpack_high(previous[m].pair[i]));
                    }
                    grad.store(out + offset + 2 * half * CHANNELS);
                }
            }
        }
        float* warp_sums = reinterpret_cast<float*>(memory + Memory::WARP_SUMS);
        sums.template store<CHANNELS>(warp_sums + warp * 2 * CHANNELS, first_channel, lane);
    }

    // Adds the products of the gradient with the samples at every tap: 16 output channels times TILES_PER_WARP times 16
    // input channels.
    __device__ void weight_grad(WeightAccumulator& accumulator, unsigned warp, unsigned lane) const {
        using Operand = WarpTile<CHANNELS, 1>;
        constexpr int MMA_ROWS = Operand::MMA_ROWS, PARTS_PER_ROW = Maps::SIDE / Operand::WIDTH;
        constexpr int HEIGHT = Maps::SIDE * PARTS_PER_ROW / SPLIT_K;  // rows of a map that a warp reads
        static_assert(SPLIT_K % PARTS_PER_ROW == 0 && HEIGHT % MMA_ROWS == 0);
        const unsigned weight_tile = TILES_PER_WARP * warp % WEIGHT_TILES, part = TILES_PER_WARP * warp / WEIGHT_TILES;
        const unsigned column = part % PARTS_PER_ROW * Operand::WIDTH, row = part / PARTS_PER_ROW * HEIGHT;
        // The addresses of this lane for ldmatrix. The four matrices of the gradient are two groups of output channels
        // at two groups of pixels, those of the samples two groups of pixels of two groups of input channels.
        SharedAddress gradient =
            shared_address(memory + Memory::GRADIENT) + (weight_tile / TILES_PER_SIDE * 2 + lane / 8 % 2) * 16;
        SharedAddress samples =
            shared_address(memory + Memory::SAMPLES) + (weight_tile % TILES_PER_SIDE * 2 + lane / 16) * 16;
        gradient += MMA_ROWS == 1 ? (lane / 16 * 8 + lane % 8) * Maps::PIXEL_BYTES
                                  : lane / 16 * Maps::ROW_BYTES + lane % 8 * Maps::PIXEL_BYTES;
        samples += lane % Operand::WIDTH * Maps::PIXEL_BYTES + lane % 16 / Operand::WIDTH * Maps::ROW_BYTES;
#pragma unroll 1
        for (int image = 0; image < Config::IMAGES; ++image) {
            const unsigned start = Maps::offset((image * Maps::SIDE + row) * Maps::SIDE + column);
            uint32_t above[4], current[4], below[4];  // operands of the gradient
            ldmatrix_x4_transposed(above, gradient + start - Maps::ROW_BYTES);
            if (MMA_ROWS == 1) ldmatrix_x4_transposed(current, gradient + start);
#pragma unroll 1
            for (int map_row = 0; map_row < HEIGHT; map_row += MMA_ROWS) {
                const unsigned offset = start + map_row * Maps::ROW_BYTES;
                ldmatrix_x4_transposed(below, gradient + offset + Maps::ROW_BYTES);
                if (MMA_ROWS == 2) {
                    current[0] = above[2], current[1] = above[3], current[2] = below[0], current[3] = below[1];
                }
#pragma unroll
                for (int i = 0; i < TILES_PER_WARP; ++i) {
#pragma unroll
                    for (int tap = 0; tap < 3; ++tap) {
                        uint32_t b[4];
                        ldmatrix_x4_transposed(b, samples + offset + i * 32 + (tap - 1) * Maps::PIXEL_BYTES);
#pragma unroll
                        for (int half = 0; half < 2; ++half) {
                            mma_m16n8k16(accumulator[i][tap][half], below, b[2 * half], b[2 * half + 1]);
                            mma_m16n8k16(accumulator[i][3 + tap][half], current, b[2 * half], b[2 * half + 1]);
                            mma_m16n8k16(accumulator[i][6 + tap][half], above, b[2 * half], b[2 * half + 1]);
                        }
                    }
                }
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    above[i] = MMA_ROWS == 1 ? current[i] : below[i];
                    current[i] = below[i];
                }
            }
        }
    }

    // Stores what a warp has accumulated in [out, taps, in].
    __device__ void store_weight_grad(float* to, const WeightAccumulator& accumulator, unsigned warp,
                                      unsigned lane) const {
        const unsigned weight_tile = TILES_PER_WARP * warp % WEIGHT_TILES;
        const unsigned out = weight_tile / TILES_PER_SIDE * 16 + lane / 4;
        const unsigned in = weight_tile % TILES_PER_SIDE * 16 + lane % 4 * 2;
#pragma unroll
        for (int tap = 0; tap < TAPS * TILES_PER_WARP; ++tap) {  // of one tile after the other
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float* values = accumulator[tap / TAPS][tap % TAPS][i % 2] + i / 2 * 2;
                float* row = to + ((out + i / 2 * 8) * TAPS + tap % TAPS) * CHANNELS;
                float* pair = row + in + tap / TAPS * 16 + i % 2 * 8;
                pair[0] = values[0];
                pair[1] = values[1];
            }
        }
    }

    // Adds up the sums that the warps have stored for a tile.
    __device__ void reduce_sums(int tile) const {
        float* to = static_cast<float*>(params.sums) + (static_cast<int64_t>(network) * tiles + tile) * 2 * CHANNELS;
        reduce_warp_sums<CHANNELS, Config::INPUT_GRAD_WARPS, GROUPS>(
            to, reinterpret_cast<const float*>(memory + Memory::WARP_SUMS), thread, INPUT_GRAD_THREADS);
    }
};

template <int CHANNELS>
__global__ void __launch_bounds__(BackwardBlock<CHANNELS>::THREADS, BackwardConfig<CHANNELS>::BLOCKS_PER_SM)
    backward_kernel(BackwardParams params) {
    using Config = BackwardConfig<CHANNELS>;
    using Block = BackwardBlock<CHANNELS>;
    using Memory = BackwardMemory<CHANNELS>;
    constexpr int THREADS = Block::THREADS, WEIGHTS = TAPS * CHANNELS * CHANNELS, SPLIT_K = Block::SPLIT_K;
    unsigned char* memory = shared_memory();
    const unsigned thread = threadIdx.x, warp = thread / WARP_SIZE, lane = thread % WARP_SIZE, networks = gridDim.y;
    const int tiles = (params.images + Config::IMAGES - 1) / Config::IMAGES;
    const int begin = blockIdx.x * params.tiles_per_block;
    const int end = tiles < begin + params.tiles_per_block ? tiles : begin + params.tiles_per_block;
    const unsigned network = blockIdx.y;
    const Block block{params, memory, thread, network, tiles};

    fill_with_zeros(memory, Memory::WEIGHTS, thread, THREADS);
    const Chunk* weights = static_cast<const Chunk*>(params.weights) + network * (WEIGHTS / 8);
    load_weights<CHANNELS, Config::MMA_N, true>(memory + Memory::WEIGHTS, weights, thread, THREADS);
    load_coefficients<CHANNELS, 4>(reinterpret_cast<float4*>(memory + Memory::COEFFICIENTS), params.coefficients,
                                   network, networks, thread);
    if (params.scale_shift != nullptr) {
        load_coefficients<CHANNELS, 3>(reinterpret_cast<float4*>(memory + Memory::SCALE_SHIFT), params.scale_shift,
                                       network, networks, thread);
    }
    sync_threads();

    float* weight_grad =
        static_cast<float*>(params.weight_grads) + (static_cast<int64_t>(network) * gridDim.x + blockIdx.x) * WEIGHTS;
    if (warp < Config::INPUT_GRAD_WARPS) {
        for (int tile = begin; tile < end; ++tile) {
            block.load_for_input_grad(tile);
            cp_async_wait_all();
            sync_threads();
            block.input_grad(tile, warp, lane);
            sync_threads();
            block.reduce_sums(tile);
        }
        if constexpr (SPLIT_K > 1) sync_threads();
    } else {
        const unsigned weight_warp = warp - Config::INPUT_GRAD_WARPS;
        typename Block::WeightAccumulator accumulator = {};
        for (int tile = begin; tile < end; ++tile) {
            block.load_for_weight_grad(tile);
            cp_async_wait_all();
            sync_threads();
            block.weight_grad(accumulator, weight_warp, lane);
            sync_threads();
        }
        if constexpr (SPLIT_K > 1) {  // the parts are added up below
            static_assert(SPLIT_K * WEIGHTS * 4 <= Memory::WEIGHTS);
            float* parts = reinterpret_cast<float*>(memory);
            float* part = parts + weight_warp / Block::WEIGHT_TILES * WEIGHTS;
            block.store_weight_grad(part, accumulator, weight_warp, lane);
            sync_threads();
        } else {
            block.store_weight_grad(weight_grad, accumulator, weight_warp, lane);
        }
    }
    if constexpr (SPLIT_K > 1) {
        const float* parts = reinterpret_cast<const float*>(memory);
        for (unsigned i = thread; i < WEIGHTS; i += THREADS) {
            float sum = 0;
            for (int part = 0; part < SPLIT_K; ++part) sum += parts[part * WEIGHTS + i];
            weight_grad[i] = sum;
        }
    }
}

}  // namespace
