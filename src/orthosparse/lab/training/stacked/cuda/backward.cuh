// The backward pass through a layer: the normalisation, the convolution, and the gradient of its weights.
#pragma once

#include <primitives.cuh>
#include <products.cuh>
#include <tiles.cuh>

struct BackwardArguments {
    const void *v, *z, *coefficients, *x, *scale_shift, *weights, *add, *below;
    void *out, *sums, *products;
    int images, tiles_of_block;
};

namespace {

// As in the forward pass. Some warps convolve the gradient, and others take the gradient of the weights. Either each
// kind reads its own operand (APART), or all warps read both. What is added to the gradient is read before it is
// computed (EARLY) where there are registers for it.
template <int CHANNELS>
struct Backward;
template <>
struct Backward<16> {
    static constexpr int IMAGES = 1, INPUT_WARPS = 4, WEIGHT_WARPS = 4, MATRICES = 4, COLUMNS = 2, BLOCKS = 2;
    static constexpr bool APART = true, EARLY = true;
};
template <>
struct Backward<32> {
    static constexpr int IMAGES = 1, INPUT_WARPS = 4, WEIGHT_WARPS = 4, MATRICES = 4, COLUMNS = 4, BLOCKS = 2;
    static constexpr bool APART = false, EARLY = false;
};
template <>
struct Backward<64> {
    static constexpr int IMAGES = 4, INPUT_WARPS = 4, WEIGHT_WARPS = 8, MATRICES = 4, COLUMNS = 4, BLOCKS = 1;
    static constexpr bool APART = true, EARLY = true;
};

template <int CHANNELS>
struct BackwardMemory {
    using Own = Backward<CHANNELS>;
    using Maps = Tile<CHANNELS, Own::IMAGES>;
    // The last row of zeros of the gradient is the first of the samples.
    static constexpr int GRADIENT = 0, SAMPLES = Maps::BYTES - Maps::WIDE * Maps::PITCH;
    static constexpr int WEIGHTS = SAMPLES + Maps::BYTES, COEFFICIENTS = WEIGHTS + 9 * CHANNELS * Maps::PITCH;
    static constexpr int SCALE_SHIFT = COEFFICIENTS + bytes_of_coefficients(CHANNELS),
                         PARTS = SCALE_SHIFT + bytes_of_coefficients(CHANNELS);
    static constexpr int BYTES = PARTS + Own::INPUT_WARPS * 2 * CHANNELS * 4;
};

// What the warps of a block share in the backward pass.
template <int CHANNELS>
struct BackwardBlock {
    using Own = Backward<CHANNELS>;
    using Maps = Tile<CHANNELS, Own::IMAGES>;
    using Memory = BackwardMemory<CHANNELS>;
    using Strips = Strip<CHANNELS, Own::MATRICES>;
    static constexpr int THREADS = (Own::INPUT_WARPS + Own::WEIGHT_WARPS) * WARP;
    static constexpr int GROUPS = CHANNELS / (8 * Own::COLUMNS), COUNT = Own::COLUMNS;
    static constexpr int STRIPS = Own::IMAGES * Strips::COUNT;
    // Gradients of weights are of PAIRS times PAIRS roles. A warp has OWN of them; or SPLIT warps share the rows of
    // one.
    static constexpr int PAIRS = CHANNELS / 16, ROLES = PAIRS * PAIRS;
    static constexpr int OWN = ROLES > Own::WEIGHT_WARPS ? ROLES / Own::WEIGHT_WARPS : 1,
                         SPLIT = OWN * Own::WEIGHT_WARPS / ROLES;
    using Products = float[OWN][9][2][4];

    const BackwardArguments& given;
    unsigned char* memory;
    unsigned thread, network;
    int tiles;

    __device__ int rows_of(int tile) const {
        const int left = given.images - tile * Own::IMAGES;
        return (left < Own::IMAGES ? left : Own::IMAGES) * Maps::SIDE * Maps::SIDE;
    }

    __device__ int64_t start_of(int tile) const {
        return (static_cast<int64_t>(network) * given.images + tile * Own::IMAGES) * (512 * 512 / CHANNELS);
    }

    template <int READERS, int AT_ONCE>
    __device__ void read_x(int tile, unsigned reader) const {
        const auto* scale_shift = reinterpret_cast<const float4*>(memory + Memory::SCALE_SHIFT);
        read_samples<CHANNELS, Own::IMAGES, READERS, AT_ONCE>(
            memory + Memory::SAMPLES, static_cast<const Chunk*>(given.x) + start_of(tile) / 8,
            rows_of(tile) * Maps::CHUNKS, given.scale_shift == nullptr ? nullptr : scale_shift, reader);
    }

    template <int READERS, int AT_ONCE>
    __device__ void read_grad(int tile, unsigned reader) const {
        const int64_t start = start_of(tile) / 8;
        read_gradient<CHANNELS, Own::IMAGES, READERS, AT_ONCE>(
            memory + Memory::GRADIENT, static_cast<const Chunk*>(given.v) + start,
            static_cast<const Chunk*>(given.z) + start, rows_of(tile) * Maps::CHUNKS,
            reinterpret_cast<const float4*>(memory + Memory::COEFFICIENTS), reader);
    }

    // Warps that convolve read the gradient, and the others the samples (APART); or all of them read both.
    __device__ void read_for_input_grad(int tile) const {
        if constexpr (Own::APART) {
            read_grad<Own::INPUT_WARPS * WARP, 8>(tile, thread);
        } else {
            read_x<THREADS, 4>(tile, thread);
            read_grad<THREADS, 4>(tile, thread);
        }
    }

    __device__ void read_for_weight_grad(int tile) const {
        constexpr int READERS = Own::WEIGHT_WARPS * WARP;
        if constexpr (Own::APART) {
            const unsigned reader = thread - Own::INPUT_WARPS * WARP;
            ask_for<READERS>(tile, given.below, reader);
            ask_for<READERS>(tile, given.add, reader);
            read_x<READERS, OWN == 1 ? 8 : 2>(tile, reader);
        } else {
            read_x<THREADS, 4>(tile, thread);
            read_grad<THREADS, 4>(tile, thread);
        }
    }

    // Asks for what the convolution of a tile reads, or for what its weights' gradient does, while another is computed.
    __device__ void ask_for_input_grad(int tile) const {
        ask_for<Own::INPUT_WARPS * WARP>(tile, given.v, thread);
        ask_for<Own::INPUT_WARPS * WARP>(tile, given.z, thread);
    }

    __device__ void ask_for_weight_grad(int tile) const {
        ask_for<Own::WEIGHT_WARPS * WARP>(tile, given.x, thread - Own::INPUT_WARPS * WARP);
    }

    // Asks for what is needed of a tile later.
    template <int READERS>
    __device__ void ask_for(int tile, const void* from, unsigned reader) const {
        if (from == nullptr) return;
        const auto* start = static_cast<const unsigned char*>(from) + 2 * start_of(tile);
        prefetch<READERS>(start, rows_of(tile) * CHANNELS * 2, reader);
    }

    // Rows from the first of a strip to the first of half a matrix.
    __device__ static constexpr int further(int half) { return half / 2 * Strips::NEXT + half % 2 * 8; }

    // Writes the gradient before the activation that gave the samples, and its sums.
    __device__ void convolve(int tile, unsigned warp, unsigned lane) const {
        constexpr int AT_ONCE = 16 / COUNT;  // rows whose numbers are read before the first is used
        static_assert(2 * Own::MATRICES % AT_ONCE == 0 || 2 * Own::MATRICES < AT_ONCE);
        constexpr int HALVES = 2 * Own::MATRICES, PART = AT_ONCE < HALVES ? AT_ONCE : HALVES;
        const unsigned rows = rows_of(tile), first = warp % GROUPS * 8 * Own::COLUMNS;
        const unsigned channel = first + lane % 4 * (2 * COUNT);
        const int64_t start = 2 * (start_of(tile) + lane / 4 * CHANNELS + channel);
        const auto *add = static_cast<const unsigned char*>(given.add),
                   *below = static_cast<const unsigned char*>(given.below);
        auto* out = static_cast<unsigned char*>(given.out);
        Sums<COUNT> sums;
        sums.clear();
        for (unsigned strip = warp / GROUPS; strip < STRIPS; strip += Own::INPUT_WARPS / GROUPS) {
            const unsigned row = Strips::row(strip);
            const int64_t place = start + 2 * row * CHANNELS;
            const bool live = Own::IMAGES == 1 || row < rows;
            ChannelRun<COUNT> others[PART], inputs[PART];
            const auto read_others = [&](int part) {
#pragma unroll
                for (int m = 0; m < PART; ++m) {
                    const int64_t own = place + 2 * further(part + m) * CHANNELS;
                    others[m] = live && add != nullptr ? ChannelRun<COUNT>::read(add + own) : ChannelRun<COUNT>{};
                    inputs[m] = live ? ChannelRun<COUNT>::read(below + own) : ChannelRun<COUNT>{};
                }
            };
            if (Own::EARLY) read_others(0);
            float found[Own::MATRICES][Own::COLUMNS][4] = {};
            convolve_strip<CHANNELS, Own::IMAGES, Own::MATRICES, Own::COLUMNS, true>(
                found, address_of(memory + Memory::GRADIENT), address_of(memory + Memory::WEIGHTS), row, first, lane);
#pragma unroll
            for (int part = 0; part < HALVES; part += PART) {
                if (part > 0 || !Own::EARLY) read_others(part);
#pragma unroll
                for (int m = 0; m < PART; ++m) {
                    if (Own::IMAGES > 1 && row >= rows) break;
                    const unsigned char* samples = memory + Memory::SAMPLES + channel * 2;
                    const auto y = ChannelRun<COUNT>::read(samples + Maps::offset(row + further(part + m) + lane / 4));
                    ChannelRun<COUNT> run;
#pragma unroll
                    for (int i = 0; i < COUNT; ++i) {
                        const float* values = found[(part + m) / 2][i] + m % 2 * 2;
                        const float one = values[0] + first_of(others[m].pair[i]);
                        const float two = values[1] + second_of(others[m].pair[i]);
                        run.pair[i] = packed(activation_grad(one, first_of(y.pair[i])),
                                             activation_grad(two, second_of(y.pair[i])));
                        sums.add(2 * i, first_of(run.pair[i]), first_of(inputs[m].pair[i]));
                        sums.add(2 * i + 1, second_of(run.pair[i]), second_of(inputs[m].pair[i]));
                    }
                    run.write(out + place + 2 * further(part + m) * CHANNELS);
                }
            }
        }
        float* parts = reinterpret_cast<float*>(memory + Memory::PARTS);
        sums.template write<CHANNELS>(parts + warp * 2 * CHANNELS, first, lane);
    }

    // Adds the product of the gradient with the samples at every tap: 16 output channels by OWN times 16 input
    // channels.
    __device__ void weight_grad(Products& sums, unsigned warp, unsigned lane) const {
        using One = Strip<CHANNELS, 1>;
        constexpr int MAP_ROWS = One::MAP_ROWS, COLUMNS = Maps::SIDE / One::ACROSS;
        constexpr int HIGH = Maps::SIDE * COLUMNS / SPLIT;  // rows of a map that a warp takes
        static_assert(SPLIT % COLUMNS == 0 && HIGH % MAP_ROWS == 0);
        const unsigned role = OWN * warp % ROLES, part = OWN * warp / ROLES;
        const unsigned across = part % COLUMNS * One::ACROSS, down = part / COLUMNS * HIGH;
        // Matrices of the gradient come in pairs of output channels, those of the samples in pairs of rows or of
        // halves.
        Address gradient = address_of(memory + Memory::GRADIENT) + (role / PAIRS * 2 + lane / 8 % 2) * 16;
        Address samples = address_of(memory + Memory::SAMPLES) + (role % PAIRS * 2 + lane / 16) * 16;
        gradient +=
            MAP_ROWS == 1 ? (lane / 16 * 8 + lane % 8) * Maps::PITCH : lane / 16 * Maps::DOWN + lane % 8 * Maps::PITCH;
        samples += lane % One::ACROSS * Maps::PITCH + lane % 16 / One::ACROSS * Maps::DOWN;
#pragma unroll 1
        for (int image = 0; image < Own::IMAGES; ++image) {
            const unsigned start = Maps::offset((image * Maps::SIDE + down) * Maps::SIDE + across);
            uint32_t above[4], own[4], next[4];  // of the gradient
            load_matrices_transposed(above, gradient + start - Maps::DOWN);
            if (MAP_ROWS == 1) load_matrices_transposed(own, gradient + start);
#pragma unroll 1
            for (int map_row = 0; map_row < HIGH; map_row += MAP_ROWS) {
                const unsigned place = start + map_row * Maps::DOWN;
                load_matrices_transposed(next, gradient + place + Maps::DOWN);
                if (MAP_ROWS == 2) own[0] = above[2], own[1] = above[3], own[2] = next[0], own[3] = next[1];
#pragma unroll
                for (int i = 0; i < OWN; ++i) {
#pragma unroll
                    for (int tap = 0; tap < 3; ++tap) {
                        uint32_t b[4];
                        load_matrices_transposed(b, samples + place + i * 32 + (tap - 1) * Maps::PITCH);
#pragma unroll
                        for (int half = 0; half < 2; ++half) {
                            multiply(sums[i][tap][half], next, b[2 * half], b[2 * half + 1]);
                            multiply(sums[i][3 + tap][half], own, b[2 * half], b[2 * half + 1]);
                            multiply(sums[i][6 + tap][half], above, b[2 * half], b[2 * half + 1]);
                        }
                    }
                }
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    above[i] = MAP_ROWS == 1 ? own[i] : next[i];
                    own[i] = next[i];
                }
            }
        }
    }

    // Writes what a warp has summed up, [out, taps, in].
    __device__ void write_products(float* to, const Products& sums, unsigned warp, unsigned lane) const {
        const unsigned role = OWN * warp % ROLES, out = role / PAIRS * 16 + lane / 4;
        const unsigned in = role % PAIRS * 16 + lane % 4 * 2;
#pragma unroll
        for (int tap = 0; tap < 9 * OWN; ++tap) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float* place = to + ((out + i / 2 * 8) * 9 + tap % 9) * CHANNELS + in + tap / 9 * 16 + i % 2 * 8;
                place[0] = sums[tap / 9][tap % 9][i % 2][i / 2 * 2];
                place[1] = sums[tap / 9][tap % 9][i % 2][i / 2 * 2 + 1];
            }
        }
    }

    __device__ void gather_sums(int tile) const {
        float* to = static_cast<float*>(given.sums) + (static_cast<int64_t>(network) * tiles + tile) * 2 * CHANNELS;
        gather<CHANNELS, Own::INPUT_WARPS, GROUPS>(to, reinterpret_cast<const float*>(memory + Memory::PARTS), thread,
                                                   Own::INPUT_WARPS * WARP);
    }
};

template <int CHANNELS>
__global__ void __launch_bounds__(BackwardBlock<CHANNELS>::THREADS, Backward<CHANNELS>::BLOCKS)
    backward_kernel(BackwardArguments given) {
    using Own = Backward<CHANNELS>;
    using Block = BackwardBlock<CHANNELS>;
    using Memory = BackwardMemory<CHANNELS>;
    constexpr int THREADS = Block::THREADS, WEIGHTS = 9 * CHANNELS * CHANNELS, SPLIT = Block::SPLIT;
    unsigned char* memory = shared_memory();
    const unsigned thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP, networks = gridDim.y;
    const int tiles = (given.images + Own::IMAGES - 1) / Own::IMAGES, begin = blockIdx.x * given.tiles_of_block;
    const int end = tiles < begin + given.tiles_of_block ? tiles : begin + given.tiles_of_block;
    const unsigned network = blockIdx.y;
    const Block block{given, memory, thread, network, tiles};

    clear(memory, Memory::WEIGHTS, thread, THREADS);
    const Chunk* weights = static_cast<const Chunk*>(given.weights) + network * (WEIGHTS / 8);
    read_weights<CHANNELS, Own::COLUMNS, true>(memory + Memory::WEIGHTS, weights, thread, THREADS);
    read_coefficients<CHANNELS, 4>(reinterpret_cast<float4*>(memory + Memory::COEFFICIENTS), given.coefficients,
                                   network, networks, thread);
    if (given.scale_shift != nullptr) {
        read_coefficients<CHANNELS, 3>(reinterpret_cast<float4*>(memory + Memory::SCALE_SHIFT), given.scale_shift,
                                       network, networks, thread);
    }
    synchronize();

    float* products =
        static_cast<float*>(given.products) + (static_cast<int64_t>(network) * gridDim.x + blockIdx.x) * WEIGHTS;
    if (warp < Own::INPUT_WARPS) {
        for (int tile = begin; tile < end; ++tile) {
            block.read_for_input_grad(tile);
            wait_for_copies();
            synchronize();
            if (tile + 1 < end) block.ask_for_input_grad(tile + 1);
            block.convolve(tile, warp, lane);
            synchronize();
            block.gather_sums(tile);
        }
        if constexpr (SPLIT > 1) synchronize();
    } else {
        const unsigned own = warp - Own::INPUT_WARPS;
        typename Block::Products sums = {};
        for (int tile = begin; tile < end; ++tile) {
            block.read_for_weight_grad(tile);
            wait_for_copies();
            synchronize();
            if (tile + 1 < end) block.ask_for_weight_grad(tile + 1);
            block.weight_grad(sums, own, lane);
            synchronize();
        }
        if constexpr (SPLIT > 1) {  // by rows: warps add up what they have
            static_assert(SPLIT * WEIGHTS * 4 <= Memory::WEIGHTS);
            float* shared = reinterpret_cast<float*>(memory);
            block.write_products(shared + own / Block::ROLES * WEIGHTS, sums, own, lane);
            synchronize();
        } else {
            block.write_products(products, sums, own, lane);
        }
    }
    if constexpr (SPLIT > 1) {
        const float* shared = reinterpret_cast<const float*>(memory);
        for (unsigned i = thread; i < WEIGHTS; i += THREADS) {
            float sum = 0;
            for (int part = 0; part < SPLIT; ++part) sum += shared[part * WEIGHTS + i];
            products[i] = sum;
        }
    }
}

}  // namespace
