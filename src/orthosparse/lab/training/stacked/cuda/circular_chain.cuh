// Many layers of circular convolutions with their activations, forward or backward, in one launch.
//
// A cluster of two blocks takes two images of a network through all layers; each block computes half of the channels
// and copies them to the other one. A consumer warpgroup computes each image, so that one can run wgmma while the other
// applies activations. A producer warp loads the weights, which are all that is read from outside.
//
// The three taps of a row are columns of one product: the same pixels times three kernels. Their results belong to
// neighboring pixels, which are in lanes of the same warp: shuffles add them up.
#pragma once

#include <activations.cuh>
#include <circular_layout.cuh>

struct ChainParams {
    const uint4* x;                // the input of the first layer
    const unsigned char* weights;  // of the first layer, in the order of `weight_index`
    const float* bias;             // of the first layer; forward only
    const uint32_t* y;             // what the first layer read in the forward pass, an output; backward only
    uint32_t* out;                 // the output of the first layer; null if only that of the last layer is stored
    uint32_t* last_out;            // the output of the last layer, or null; backward, it gets the gradient of an output
    int images, networks, layers;
    int direction;  // 1 if layers follow each other in memory, -1 if they are in reverse order
};

namespace {

// A stage of the weight pipeline holds a row of taps for half of the input channels. A layer has as many as there are:
// first those of the input channels that the block itself has computed, which need not wait for the other block.
constexpr int WEIGHT_STAGES = 2 * KERNEL_SIDE, STAGE_GROUPS = GROUPS / 2;
constexpr int STAGE_GROUP_BYTES = KERNEL_SIDE * HALF * 16;  // of a group of input channels
constexpr int STAGE_BYTES = STAGE_GROUPS * STAGE_GROUP_BYTES;
constexpr int HALF_MAP_BYTES = STAGE_GROUPS * GROUP_BYTES;  // of half of the channels

struct ChainMemory {
    static constexpr int MAPS = WEIGHT_STAGES * STAGE_BYTES;  // two of each of two images
    static constexpr int BARRIERS = MAPS + 4 * MAP_BYTES;
    static constexpr int BYTES = BARRIERS + (2 * WEIGHT_STAGES + 4) * 8;
    unsigned char* memory;
    Barrier* barriers;
    __device__ explicit ChainMemory(unsigned char* memory)
        : memory(memory), barriers(reinterpret_cast<Barrier*>(memory + BARRIERS)) {}
    __device__ unsigned char* weights(int stage) const { return memory + stage * STAGE_BYTES; }
    // The map that a layer reads; the next layer reads the other one.
    __device__ unsigned char* map(int image, int layer) const {
        return memory + MAPS + (image * 2 + (layer & 1)) * MAP_BYTES;
    }
    __device__ Barrier* full(int stage) const { return barriers + stage; }
    __device__ Barrier* empty(int stage) const { return barriers + WEIGHT_STAGES + stage; }
    // The half of the output map of a layer that the other block computes is there. Consecutive layers alternate
    // between two barriers, so that the bytes of a copy are never counted for another layer.
    __device__ Barrier* ready(int image, int layer) const {
        return barriers + 2 * WEIGHT_STAGES + image * 2 + (layer & 1);
    }
};

constexpr int CHAIN_CONSUMER_WARPS = 8, CHAIN_THREADS = (CHAIN_CONSUMER_WARPS + 1) * WARP_SIZE;

// Which row of taps a stage holds, and which half of the input channels.
__device__ inline int tap_row_of(int stage) { return stage % KERNEL_SIDE; }
__device__ inline unsigned input_half_of(int stage, unsigned rank) { return stage / KERNEL_SIDE ^ rank; }

// The producer.
__device__ inline void load_weights(const ChainMemory& memory, const ChainParams& params, unsigned rank) {
    const long long layer_stride = static_cast<long long>(params.direction) * params.networks * WEIGHTS * 2;
    const unsigned char* weights = params.weights + (blockIdx.y * 2LL + rank) * (WEIGHTS / 2) * 2;
    for (int layer = 0; layer < params.layers; ++layer) {
        for (int stage = 0; stage < WEIGHT_STAGES; ++stage) {
            wait_for_phase(memory.empty(stage), (layer & 1) ^ 1);
            arrive_and_expect_bytes(memory.full(stage), STAGE_BYTES);
            const unsigned index = tap_row_of(stage) * 2 + input_half_of(stage, rank);
            bulk_copy(memory.weights(stage), weights + index * STAGE_BYTES, STAGE_BYTES, memory.full(stage));
        }
        weights += layer_stride;
    }
}

// Loads the map of an image with its halo, by the warpgroup that computes it; zeros for an image that does not exist.
__device__ inline void load_map(unsigned char* map, const uint4* x, bool exists) {
    for (unsigned unit = threadIdx.x % WARPGROUP_SIZE; unit < GROUPS * PIXELS; unit += WARPGROUP_SIZE) {
        const uint4 value = exists ? x[unit] : make_uint4(0, 0, 0, 0);
        const unsigned row = unit % PIXELS / SIDE;
        unsigned char* group = map + unit / PIXELS * GROUP_BYTES + unit % SIDE * PIXEL_BYTES;
        *reinterpret_cast<uint4*>(group + (row + 1) * ROW_BYTES) = value;
        if (row == 0) *reinterpret_cast<uint4*>(group + (SIDE + 1) * ROW_BYTES) = value;
        if (row == SIDE - 1) *reinterpret_cast<uint4*>(group) = value;
    }
}

// The main loop of a layer: convolves the map of an image, and releases the stages of the weights. The half of the map
// that the other block has computed is waited for as late as possible.
__device__ inline void convolve_map(float (&accumulator)[96], const ChainMemory& memory, int image, int layer,
                                    unsigned rank, unsigned lane) {
    const SharedAddress map = shared_address(memory.map(image, layer));
#pragma unroll
    for (int stage = 0; stage < WEIGHT_STAGES; ++stage) {
        if (stage == KERNEL_SIDE && layer > 0) wait_for_phase(memory.ready(image, layer - 1), (layer - 1) >> 1 & 1);
        wait_for_phase(memory.full(stage), layer & 1);
        const SharedAddress weights = shared_address(memory.weights(stage));
        const SharedAddress pixels =
            map + tap_row_of(stage) * ROW_BYTES + input_half_of(stage, rank) * HALF_MAP_BYTES;
        wgmma_fence();
#pragma unroll
        for (int group = 0; group < STAGE_GROUPS; group += 2) {
            const MatrixDescriptor a = matrix_descriptor(pixels + group * GROUP_BYTES, GROUP_BYTES, ROW_BYTES);
            const MatrixDescriptor b =
                matrix_descriptor(weights + group * STAGE_GROUP_BYTES, STAGE_GROUP_BYTES, 8 * 16);
            wgmma_m64n192k16(accumulator, a, b, stage + group > 0);
        }
        wgmma_commit_group();
        if (stage > 0) {
            wgmma_wait_group<1>();
            if (lane == 0) arrive(memory.empty(stage - 1));
        }
    }
    wgmma_wait_group<0>();
    fence_accumulator(accumulator);
    if (lane == 0) arrive(memory.empty(WEIGHT_STAGES - 1));
}

// A consumer: takes an image through all layers.
template <bool BACKWARD>
__device__ void compute_layers(const ChainMemory& memory, const ChainParams& params, unsigned rank) {
    const unsigned warp = threadIdx.x / WARP_SIZE % 4, lane = threadIdx.x % WARP_SIZE, column = lane / 4;
    const int image = threadIdx.x / WARPGROUP_SIZE;
    const int image_index = blockIdx.x / 2 * 2 + image;  // in the batch
    const bool exists = image_index < params.images;
    // Offsets in pairs of numbers: two channels of a pixel. A thread starts at this one.
    const long long layer_stride =
        static_cast<long long>(params.direction) * params.networks * params.images * (IMAGE_SIZE / 2);
    const long long start = (static_cast<long long>(blockIdx.y) * params.images + image_index) * (IMAGE_SIZE / 2) +
                            rank * (IMAGE_SIZE / 4) + (warp * 2 * SIDE + column) * 4 + lane % 4;
    const unsigned left = (column + SIDE - 1) % SIDE * 4 + lane % 4, right = (column + 1) % SIDE * 4 + lane % 4;
    const uint32_t* y = params.y + start;
    const float* bias = params.bias + blockIdx.y * CHANNELS + rank * HALF + lane % 4 * 2;
    uint32_t* out = params.out + start;
    float accumulator[96];
    for (int layer = 0; layer < params.layers; ++layer) {
        const bool is_last = layer == params.layers - 1, is_separate = is_last && params.last_out != nullptr;
        // The operands of the epilogue, loaded before the main loop.
        uint32_t y_pairs[16];
        float2 bias_pairs[8];
        if (BACKWARD) {
            // Zeros if there is no activation, for which tanh has a derivative of one.
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                y_pairs[i] = exists && !is_separate ? y[i / 2 * PIXELS * 4 + i % 2 * SIDE * 4] : 0;
            }
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) bias_pairs[i] = *reinterpret_cast<const float2*>(bias + i * 8);
        }
        convolve_map(accumulator, memory, image, layer, rank, lane);
        unsigned char* half_map = memory.map(image, layer + 1) + rank * HALF_MAP_BYTES;
        unsigned char* pixels = half_map + column * PIXEL_BYTES + lane % 4 * 4;
        uint32_t* to = is_separate ? params.last_out + start : params.out == nullptr ? nullptr : out;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int group = i / 2, second_row = i % 2;  // a warp computes rows 2 * warp and 2 * warp + 1
            float values[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                const int entry = group * 4 + second_row * 2 + c;
                const float value = shuffle(accumulator[entry], left) + accumulator[32 + entry] +
                                    shuffle(accumulator[64 + entry], right);
                if (BACKWARD) {
                    values[c] = activation_grad(value, c ? unpack_high(y_pairs[i]) : unpack_low(y_pairs[i]));
                } else {
                    values[c] = activate(value + (c ? bias_pairs[group].y : bias_pairs[group].x));
                }
            }
            const uint32_t pair = pack_bf16(values[0], values[1]);
            if (exists && to != nullptr) to[group * PIXELS * 4 + second_row * SIDE * 4] = pair;
            if (is_last) continue;
            const unsigned row = warp * 2 + second_row;
            unsigned char* pixel = pixels + group * GROUP_BYTES;
            *reinterpret_cast<uint32_t*>(pixel + (row + 1) * ROW_BYTES) = pair;
            if (row == 0) *reinterpret_cast<uint32_t*>(pixel + (SIDE + 1) * ROW_BYTES) = pair;
            if (row == SIDE - 1) *reinterpret_cast<uint32_t*>(pixel) = pair;
        }
        if (!is_last) {
            fence_async_proxy();
            sync_warpgroup(image + 1);
            if (warp == 0 && lane == 0) {
                Barrier* ready = memory.ready(image, layer);
                arrive_and_expect_bytes(ready, HALF_MAP_BYTES);
                const SharedAddress to = address_in_rank(rank ^ 1, shared_address(half_map));
                bulk_copy_to_rank(to, half_map, HALF_MAP_BYTES, address_in_rank(rank ^ 1, shared_address(ready)));
            }
        }
        y += layer_stride;
        out += layer_stride;
        bias += params.direction * params.networks * CHANNELS;
    }
}

template <bool BACKWARD>
__global__ void CLUSTER_OF_TWO __launch_bounds__(CHAIN_THREADS, 1) chain_kernel(const ChainParams params) {
    const ChainMemory memory(shared_memory());
    const unsigned warp = threadIdx.x / WARP_SIZE, rank = cluster_rank();
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < WEIGHT_STAGES; ++stage) {
            init_barrier(memory.full(stage), 1);
            init_barrier(memory.empty(stage), CHAIN_CONSUMER_WARPS);
        }
        for (int i = 0; i < 4; ++i) init_barrier(memory.ready(i / 2, i), 1);
        fence_barrier_init();
    }
    if (warp < CHAIN_CONSUMER_WARPS) {
        const int image = warp / 4, image_index = blockIdx.x / 2 * 2 + image;
        const long long index = static_cast<long long>(blockIdx.y) * params.images + image_index;
        const uint4* x = params.x + index * (IMAGE_SIZE / 8);
        load_map(memory.map(image, 0), x, image_index < params.images);
        fence_async_proxy();
    }
    sync_threads();
    sync_cluster();
    if (warp < CHAIN_CONSUMER_WARPS) {
        compute_layers<BACKWARD>(memory, params, rank);
    } else if (threadIdx.x % WARP_SIZE == 0) {
        load_weights(memory, params, rank);
    }
    sync_warp();
    sync_cluster();  // a block must not exit while the other one copies to it
}

}  // namespace
