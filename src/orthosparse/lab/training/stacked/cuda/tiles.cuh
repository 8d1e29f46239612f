// Tiles of samples and weights in shared memory: their layout, and loading them from global memory.
#pragma once

#include <activations.cuh>
#include <primitives.cuh>

namespace {

constexpr int TAPS = 9;
constexpr int CHANNELS_TIMES_SIDE = 512;  // of all maps

struct alignas(16) Chunk {  // eight numbers in bfloat16, the unit of loads and stores
    uint32_t pair[4];
};

__device__ inline Chunk load(const Chunk* from) {
    const uint4 value = *reinterpret_cast<const uint4*>(from);
    return {{value.x, value.y, value.z, value.w}};
}

// The maps of a tile in shared memory, one image after the other, with a halo of zeros. A column of zeros is the halo
// on the right of a row and on the left of the next one, a row of zeros that below an image and above the next one. 16
// bytes of padding after the channels of a pixel avoid bank conflicts: eight neighboring pixels use all banks.
template <int CHANNELS, int IMAGES>
struct Tile {
    static constexpr int SIDE = CHANNELS_TIMES_SIDE / CHANNELS, HALO_SIDE = SIDE + 1, CHUNKS = CHANNELS / 8;
    static constexpr int IMAGE_SIZE = CHANNELS * SIDE * SIDE;  // in numbers
    static constexpr int PIXEL_BYTES = CHANNELS * 2 + 16, ROW_BYTES = HALO_SIDE * PIXEL_BYTES;
    static constexpr int BYTES = ((IMAGES * HALO_SIDE + 1) * HALO_SIDE + 1) * PIXEL_BYTES;
    static constexpr int PIXELS = IMAGES * SIDE * SIDE, TILE_CHUNKS = PIXELS * CHUNKS;  // without the halo

    // The offset in bytes of a pixel.
    __device__ static unsigned offset(unsigned pixel) {
        const unsigned image = pixel / (SIDE * SIDE), row = pixel / SIDE % SIDE, column = pixel % SIDE;
        return ((image * HALO_SIDE + row + 1) * HALO_SIDE + column + 1) * PIXEL_BYTES;
    }
};

// The pixels that a warp computes at once: MMA_M operands of 16 pixels. An operand is a part of a row of a map, or two
// rows of eight pixels. The operands of a warp lie below each other, so that what is loaded serves three rows of taps.
template <int CHANNELS, int MMA_M>
struct WarpTile {
    static constexpr int SIDE = CHANNELS_TIMES_SIDE / CHANNELS, WIDTH = SIDE < 16 ? SIDE : 16;
    static constexpr int MMA_ROWS = 16 / WIDTH, HEIGHT = MMA_M * MMA_ROWS;  // rows of a map: of an operand, and of all
    static constexpr int PER_IMAGE = SIDE / WIDTH * (SIDE / HEIGHT);
    static constexpr int MMA_PIXELS = MMA_ROWS * SIDE;  // from an operand to the one below it

    __device__ static unsigned first_pixel(unsigned index) {
        const unsigned image = index / PER_IMAGE, within = index % PER_IMAGE;
        const unsigned row = image * SIDE + within / (SIDE / WIDTH) * HEIGHT;
        return row * SIDE + within % (SIDE / WIDTH) * WIDTH;
    }
};

// Coefficients of channels are float4, padded so that reading every eighth channel uses all banks.
__device__ inline unsigned coefficient_index(unsigned channel) { return channel + channel / 8; }
constexpr int coefficient_bytes(int channels) { return (channels + channels / 8) * 16; }

// The column of an output channel in the products: permuted so that the 2 * MMA_N channels that a thread computes are
// adjacent in memory. MMA_N is the number of operands of eight columns of a warp.
template <int MMA_N>
__device__ inline int permuted_column(unsigned channel) {
    const unsigned within = channel % (8 * MMA_N);
    return channel - within + within % (2 * MMA_N) / 2 * 8 + within / (2 * MMA_N) * 2 + within % 2;
}

// Loads the weights of a network as [taps, out, in], output channels permuted by `permuted_column`. BACKWARD, in which
// input channels are the columns of the products, these are permuted.
template <int CHANNELS, int MMA_N, bool BACKWARD>
__device__ void load_weights(unsigned char* to, const Chunk* weights, unsigned thread, int threads) {
    constexpr int CHUNKS = CHANNELS / 8, ROW_BYTES = Tile<CHANNELS, 1>::PIXEL_BYTES;
#pragma unroll 4
    for (unsigned i = thread; i < TAPS * CHANNELS * CHUNKS; i += threads) {
        const unsigned out = i / (TAPS * CHUNKS), tap = i / CHUNKS % TAPS, in = i % CHUNKS * 8;
        if (!BACKWARD) {
            cp_async(to + (tap * CHANNELS + permuted_column<MMA_N>(out)) * ROW_BYTES + in * 2, weights + i);
            continue;
        }
        const Chunk chunk = load(weights + i);
        unsigned char* row = to + (tap * CHANNELS + out) * ROW_BYTES;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            *reinterpret_cast<uint32_t*>(row + permuted_column<MMA_N>(in + 2 * n) * 2) = chunk.pair[n];
        }
    }
}

// Loads a tile from one or more sources, UNROLL chunks at a time, and stores the result of `transform`: it gets the
// chunks, [SOURCES][UNROLL], and their first channel, and leaves the result in those of source 0. A thread has the same
// channels of all its pixels. Chunks from `valid_chunks` on, of images that do not exist, are zeros.
template <int CHANNELS, int IMAGES, int THREADS, int UNROLL, int SOURCES, typename Transform>
__device__ void load_transformed(unsigned char* to, const Chunk* const (&sources)[SOURCES], unsigned valid_chunks,
                                 unsigned thread, Transform transform) {
    using Maps = Tile<CHANNELS, IMAGES>;
    static_assert(Maps::TILE_CHUNKS % (UNROLL * THREADS) == 0 && THREADS % Maps::CHUNKS == 0);
    const unsigned chunk = thread % Maps::CHUNKS;
#pragma unroll 1
    for (unsigned start = thread; start < Maps::TILE_CHUNKS; start += UNROLL * THREADS) {
        Chunk chunks[SOURCES][UNROLL];
#pragma unroll
        for (int n = 0; n < UNROLL; ++n) {
#pragma unroll
            for (int source = 0; source < SOURCES; ++source) {
                const unsigned i = start + n * THREADS;
                chunks[source][n] = IMAGES == 1 || i < valid_chunks ? load(sources[source] + i) : Chunk{};
            }
        }
        transform(chunks, chunk * 8);
#pragma unroll
        for (int n = 0; n < UNROLL; ++n) {
            const unsigned i = start + n * THREADS;
            *reinterpret_cast<Chunk*>(to + Maps::offset(i / Maps::CHUNKS) + chunk * 16) =
                IMAGES == 1 || i < valid_chunks ? chunks[0][n] : Chunk{};
        }
    }
}

// Loads the samples of a tile as they are.
template <int CHANNELS, int IMAGES, int THREADS>
__device__ void load_plain(unsigned char* to, const Chunk* x, unsigned valid_chunks, unsigned thread) {
    using Maps = Tile<CHANNELS, IMAGES>;
    for (unsigned i = thread; i < Maps::TILE_CHUNKS; i += THREADS) {
        unsigned char* chunk = to + Maps::offset(i / Maps::CHUNKS) + i % Maps::CHUNKS * 16;
        if (IMAGES == 1 || i < valid_chunks) cp_async(chunk, x + i);
        else *reinterpret_cast<Chunk*>(chunk) = Chunk{};
    }
}

// Loads the samples of a tile: as they are, or normalised (by scale, shift and mean of each channel) and activated.
template <int CHANNELS, int IMAGES, int THREADS, int UNROLL>
__device__ void load_samples(unsigned char* to, const Chunk* x, unsigned valid_chunks, const float4* scale_shift,
                             unsigned thread) {
    if (scale_shift == nullptr) return load_plain<CHANNELS, IMAGES, THREADS>(to, x, valid_chunks, thread);
    const Chunk* const sources[] = {x};
    load_transformed<CHANNELS, IMAGES, THREADS, UNROLL>(
        to, sources, valid_chunks, thread, [scale_shift](auto& chunks, unsigned channel) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float4 low = scale_shift[coefficient_index(channel) + 2 * i],
                             high = scale_shift[coefficient_index(channel) + 2 * i + 1];
                for (Chunk& z : chunks[0]) {
                    z.pair[i] = pack_bf16(activate((unpack_low(z.pair[i]) - low.z) * low.x + low.y),
                                          activate((unpack_high(z.pair[i]) - high.z) * high.x + high.y));
                }
            }
        });
}

// Loads a tile of the gradient of the input `z` of a normalisation, computed from the gradient of its output.
template <int CHANNELS, int IMAGES, int THREADS, int UNROLL>
__device__ void load_gradient(unsigned char* to, const Chunk* grad, const Chunk* z, unsigned valid_chunks,
                              const float4* coefficients, unsigned thread) {
    const Chunk* const sources[] = {grad, z};
    load_transformed<CHANNELS, IMAGES, THREADS, UNROLL>(
        to, sources, valid_chunks, thread, [coefficients](auto& chunks, unsigned channel) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float4 low = coefficients[coefficient_index(channel) + 2 * i];
                const float4 high = coefficients[coefficient_index(channel) + 2 * i + 1];
#pragma unroll
                for (int n = 0; n < UNROLL; ++n) {
                    const uint32_t v = chunks[0][n].pair[i], z = chunks[1][n].pair[i];
                    chunks[0][n].pair[i] =
                        pack_bf16(unpack_low(v) * low.x + ((unpack_low(z) - low.w) * low.y - low.z),
                                  unpack_high(v) * high.x + ((unpack_high(z) - high.w) * high.y - high.z));
                }
            }
        });
}

// Loads COUNT coefficients of every channel of a network, [COUNT, networks, channels]; those of a channel become one
// float4. Of a gradient, a * (v - c) + b * (z - mean), a * c is stored: a * v + (b * (z - mean) - a * c).
template <int CHANNELS, int COUNT>
__device__ void load_coefficients(float4* to, const void* from, unsigned network, int networks, unsigned thread) {
    if (thread >= CHANNELS) return;
    const float* values = static_cast<const float*>(from) + network * CHANNELS + thread;
    const int stride = networks * CHANNELS;
    to[coefficient_index(thread)] =
        COUNT == 3 ? make_float4(values[0], values[stride], values[2 * stride], 0.0f)
                   : make_float4(values[0], values[stride], values[0] * values[2 * stride], values[3 * stride]);
}

// Prefetches bytes into L2, by so many threads.
template <int THREADS>
__device__ void prefetch(const unsigned char* from, int bytes, unsigned thread) {
    constexpr int LINE = 128;  // bytes
    for (int i = LINE * thread; i < bytes; i += LINE * THREADS) prefetch_l2(from + i);
}

__device__ inline void fill_with_zeros(unsigned char* memory, int bytes, unsigned thread, int threads) {
    for (unsigned i = thread; i < bytes / 16; i += threads) reinterpret_cast<Chunk*>(memory)[i] = Chunk{};
}

}  // namespace
