// Layer after layer of circular convolutions with their activations, or back through them, in one launch.
//
// A cluster of two blocks takes two images of a network through all layers; each block computes half of the channels and
// copies them to the other. Four warps have an image; those of one image compute products while those
// of the other activate. One more warp fetches the weights, which are all that comes from outside.
//
// A product has a row of three taps in its columns: the same pixels times three kernels. What they give belongs to
// pixels side by side, which lie in lanes of one warp: the sum is taken by shuffles.
#pragma once

#include <activations.cuh>
#include <circular_maps.cuh>

struct ChainArguments {
    const uint4* x;                // what the first layer reads
    const unsigned char* weights;  // of the first layer, in the order of `place_of_weight`
    const float* bias;             // of the first layer; forward
    const uint32_t* below;         // what the first layer read in the forward pass; backward
    uint32_t* out;                 // of the first layer; null where only the last layer is written
    uint32_t* last;                // of the last layer, or null; backward, it is the gradient after an activation
    int images, networks, layers;
    int down;  // from a layer to the next: 1, or -1 if they lie the other way round
};

namespace {

constexpr int CHUNKS = 6, CHUNK_GROUPS = GROUPS / 2;  // of the weights of a layer: rows of taps, and halves of inputs
constexpr int CHUNK_COLUMNS = 3 * HALF * 16;          // bytes of all outputs and a group of inputs
constexpr int CHUNK_BYTES = CHUNK_GROUPS * CHUNK_COLUMNS;
constexpr int HALF_BYTES = CHUNK_GROUPS * GROUP_BYTES;  // of a map, half of its channels

struct ChainMemory {
    static constexpr int MAPS = CHUNKS * CHUNK_BYTES;  // two of each of two images
    static constexpr int BARRIERS = MAPS + 4 * MAP_BYTES;
    static constexpr int BYTES = BARRIERS + (2 * CHUNKS + 4) * 8;
    unsigned char* begin;
    Barrier* barriers;
    __device__ explicit ChainMemory(unsigned char* memory)
        : begin(memory), barriers(reinterpret_cast<Barrier*>(memory + BARRIERS)) {}
    __device__ unsigned char* chunk(int which) const { return begin + which * CHUNK_BYTES; }
    __device__ unsigned char* map(int image, int turn) const { return begin + MAPS + (image * 2 + turn) * MAP_BYTES; }
    __device__ Barrier* full(int chunk) const { return barriers + chunk; }
    __device__ Barrier* empty(int chunk) const { return barriers + CHUNKS + chunk; }
    // The map that a layer has given is there: of layers one after the other, so that no copy is counted for another.
    __device__ Barrier* ready(int image, int layer) const { return barriers + 2 * CHUNKS + image * 2 + (layer & 1); }
};

constexpr int CHAIN_WARPS = 8, CHAIN_THREADS = (CHAIN_WARPS + 1) * WARP;

__device__ inline void fetch_weights(const ChainMemory& memory, const ChainArguments& given, unsigned half) {
    const long long step = static_cast<long long>(given.down) * given.networks * WEIGHTS * 2;
    const unsigned char* from = given.weights + (blockIdx.y * 2LL + half) * (WEIGHTS / 2) * 2;
    for (int layer = 0; layer < given.layers; ++layer) {
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            wait_for(memory.empty(chunk), (layer & 1) ^ 1);
            arrive_for_bytes(memory.full(chunk), CHUNK_BYTES);
            copy_in_bulk(memory.chunk(chunk), from + chunk * CHUNK_BYTES, CHUNK_BYTES, memory.full(chunk));
        }
        from += step;
    }
}

// Reads the map of an image, by the warps that have it.
__device__ inline void fill_map(unsigned char* map, const uint4* x, bool live) {
    for (unsigned unit = threadIdx.x % GROUP_OF_WARPS; unit < GROUPS * PIXELS; unit += GROUP_OF_WARPS) {
        const uint4 value = live ? x[unit] : make_uint4(0, 0, 0, 0);
        const unsigned row = unit % PIXELS / SIDE;
        unsigned char* group = map + unit / PIXELS * GROUP_BYTES + unit % SIDE * PIXEL_BYTES;
        *reinterpret_cast<uint4*>(group + (row + 1) * ROW_BYTES) = value;
        if (row == 0) *reinterpret_cast<uint4*>(group + (SIDE + 1) * ROW_BYTES) = value;
        if (row == SIDE - 1) *reinterpret_cast<uint4*>(group) = value;
    }
}

// Convolves the map of an image, a row of taps and half of the inputs at a time; lets go of the weights.
__device__ inline void convolve_map(float (&sum)[96], const ChainMemory& memory, int image, int layer, unsigned lane) {
    const Address map = address_of(memory.map(image, layer & 1));
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        wait_for(memory.full(chunk), layer & 1);
        const Address weights = address_of(memory.chunk(chunk));
        const Address seen = map + chunk / 2 * ROW_BYTES + chunk % 2 * CHUNK_GROUPS * GROUP_BYTES;
        begin_products();
#pragma unroll
        for (int group = 0; group < CHUNK_GROUPS; group += 2) {
            const Operand pixels = operand(seen + group * GROUP_BYTES, GROUP_BYTES, ROW_BYTES);
            const Operand kernels = operand(weights + group * CHUNK_COLUMNS, CHUNK_COLUMNS, 8 * 16);
            multiply_64_192(sum, pixels, kernels, chunk + group > 0);
        }
        end_products();
        if (chunk > 0) {
            wait_for_products<1>();
            if (lane == 0) arrive(memory.empty(chunk - 1));
        }
    }
    wait_for_products<0>();
    settle(sum);
    if (lane == 0) arrive(memory.empty(CHUNKS - 1));
}

template <bool BACKWARD>
__device__ void compute_layers(const ChainMemory& memory, const ChainArguments& given, unsigned half) {
    const unsigned warp = threadIdx.x / WARP % 4, lane = threadIdx.x % WARP, column = lane / 4;
    const int image = threadIdx.x / GROUP_OF_WARPS;
    const int place = blockIdx.x / 2 * 2 + image;
    const bool live = place < given.images;
    const long long step = static_cast<long long>(given.down) * given.networks * given.images * (MAP / 2);
    // Of this thread's first number, in pairs of numbers: two channels of a pixel.
    const long long own = (static_cast<long long>(blockIdx.y) * given.images + place) * (MAP / 2) +
                          half * (MAP / 4) + (warp * 2 * SIDE + column) * 4 + lane % 4;
    const unsigned left = (column + SIDE - 1) % SIDE * 4 + lane % 4, right = (column + 1) % SIDE * 4 + lane % 4;
    const uint32_t* below = given.below + own;
    const float* bias = given.bias + blockIdx.y * CHANNELS + half * HALF + lane % 4 * 2;
    uint32_t* out = given.out + own;
    float sum[96];
    for (int layer = 0; layer < given.layers; ++layer) {
        const bool is_last = layer == given.layers - 1, is_apart = is_last && given.last != nullptr;
        if (layer > 0) wait_for(memory.ready(image, layer - 1), (layer - 1) >> 1 & 1);
        uint32_t seen[16];
        float2 added[8];
        if (BACKWARD) {
            // Where nothing was activated, zeros: the derivative of tanh there is one.
#pragma unroll
            for (int i = 0; i < 16; ++i) seen[i] = live && !is_apart ? below[i / 2 * PIXELS * 4 + i % 2 * SIDE * 4] : 0;
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) added[i] = *reinterpret_cast<const float2*>(bias + i * 8);
        }
        convolve_map(sum, memory, image, layer, lane);
        unsigned char* given_half = memory.map(image, (layer + 1) & 1) + half * HALF_BYTES;
        unsigned char* map = given_half + column * PIXEL_BYTES + lane % 4 * 4;
        uint32_t* to = is_apart ? given.last + own : given.out == nullptr ? nullptr : out;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int group = i / 2, below_first = i % 2;  // rows 2 * warp, and the next
            float both[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                const int entry = group * 4 + below_first * 2 + c;
                const float value = from_lane(sum[entry], left) + sum[32 + entry] + from_lane(sum[64 + entry], right);
                if (BACKWARD) {
                    const float y = c ? second_of(seen[i]) : first_of(seen[i]);
                    both[c] = activation_grad(value, y);
                } else {
                    both[c] = activated(value + (c ? added[group].y : added[group].x));
                }
            }
            const uint32_t pair = packed(both[0], both[1]);
            if (live && to != nullptr) to[group * PIXELS * 4 + below_first * SIDE * 4] = pair;
            if (is_last) continue;
            const unsigned row = warp * 2 + below_first;
            unsigned char* place = map + group * GROUP_BYTES;
            *reinterpret_cast<uint32_t*>(place + (row + 1) * ROW_BYTES) = pair;
            if (row == 0) *reinterpret_cast<uint32_t*>(place + (SIDE + 1) * ROW_BYTES) = pair;
            if (row == SIDE - 1) *reinterpret_cast<uint32_t*>(place) = pair;
        }
        if (!is_last) {
            publish_memory();
            synchronize_four_warps(image + 1);
            if (warp == 0 && lane == 0) {
                Barrier* ready = memory.ready(image, layer);
                arrive_for_bytes(ready, HALF_BYTES);
                const Address there = address_in(half ^ 1, address_of(given_half));
                copy_to_block(there, given_half, HALF_BYTES, address_in(half ^ 1, address_of(ready)));
            }
        }
        below += step;
        out += step;
        bias += given.down * given.networks * CHANNELS;
    }
}

template <bool BACKWARD>
__global__ void CLUSTER_OF_TWO __launch_bounds__(CHAIN_THREADS, 1) chain_kernel(const ChainArguments given) {
    const ChainMemory memory(shared_memory());
    const unsigned warp = threadIdx.x / WARP, half = rank_in_cluster();
    if (threadIdx.x == 0) {
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            prepare(memory.full(chunk), 1);
            prepare(memory.empty(chunk), CHAIN_WARPS);
        }
        for (int each = 0; each < 4; ++each) prepare(memory.ready(each / 2, each), 1);
        publish_barriers();
    }
    if (warp < CHAIN_WARPS) {
        const int image = warp / 4, place = blockIdx.x / 2 * 2 + image;
        const uint4* x = given.x + (static_cast<long long>(blockIdx.y) * given.images + place) * (MAP / 8);
        fill_map(memory.map(image, 0), x, place < given.images);
        publish_memory();
    }
    synchronize();
    synchronize_cluster();
    if (warp < CHAIN_WARPS) {
        compute_layers<BACKWARD>(memory, given, half);
    } else if (threadIdx.x % WARP == 0) {
        fetch_weights(memory, given, half);
    }
    converge();
    synchronize_cluster();  // nobody leaves while others copy to them
}

}  // namespace
