// Maps and weights in shared memory: where they lie, and how they are read from global memory.
#pragma once

#include <activations.cuh>
#include <primitives.cuh>

namespace {

struct alignas(16) Chunk {  // eight numbers, as they lie in memory
    uint32_t pair[4];
};

__device__ inline Chunk read(const Chunk* from) {
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    return {{all.x, all.y, all.z, all.w}};
}

// The maps of a tile in shared memory, one image below the other. A column of zeros is both to the right of a row and
// to the left of the next, a row of zeros both below an image and above the next. Behind the channels of a pixel are 16
// bytes more, so that the same 16 bytes of eight pixels side by side lie in all banks.
template <int CHANNELS, int IMAGES>
struct Tile {
    static constexpr int SIDE = 512 / CHANNELS, WIDE = SIDE + 1, CHUNKS = CHANNELS / 8, PITCH = CHANNELS * 2 + 16;
    static constexpr int DOWN = WIDE * PITCH;  // bytes from a pixel to the one below it
    static constexpr int PIXELS = (IMAGES * WIDE + 1) * WIDE + 1, BYTES = PIXELS * PITCH;
    static constexpr int ROWS = IMAGES * SIDE * SIDE, COPIES = ROWS * CHUNKS;  // without borders

    // Where the pixel of a row of samples lies.
    __device__ static unsigned offset(unsigned row) {
        const unsigned image = row / (SIDE * SIDE), down = row / SIDE % SIDE, across = row % SIDE;
        return ((image * WIDE + down + 1) * WIDE + across + 1) * PITCH;
    }
};

// 16 rows of samples that go through a product together: of one row of a map, or of two where rows have eight pixels.
// Those that a warp takes at once, MATRICES of them, lie below each other, so that what it reads serves three taps.
template <int CHANNELS, int MATRICES>
struct Strip {
    static constexpr int SIDE = 512 / CHANNELS, ACROSS = SIDE < 16 ? SIDE : 16, MAP_ROWS = 16 / ACROSS;
    static constexpr int HIGH = MATRICES * MAP_ROWS, COUNT = SIDE / ACROSS * (SIDE / HIGH);  // of an image
    static constexpr int NEXT = MAP_ROWS * SIDE;  // samples from one matrix to the next

    // The first row of a strip.
    __device__ static unsigned row(unsigned strip) {
        const unsigned image = strip / COUNT, own = strip % COUNT;
        return (image * SIDE + own / (SIDE / ACROSS) * HIGH) * SIDE + own % (SIDE / ACROSS) * ACROSS;
    }
};

// Where numbers of a channel are among those that threads read by eight channels: in all banks.
__device__ inline unsigned slot_of(unsigned channel) { return channel + channel / 8; }
constexpr int bytes_of_coefficients(int channels) { return (channels + channels / 8) * 16; }

// Where in the products output channel `channel` is: in such an order a thread has 2 * COLUMNS channels that are side
// by side in memory. COLUMNS are the matrices of eight columns that a warp computes.
template <int COLUMNS>
__device__ inline int place_of(unsigned channel) {
    const unsigned own = channel % (8 * COLUMNS);
    return channel - own + own % (2 * COLUMNS) / 2 * 8 + own / (2 * COLUMNS) * 2 + own % 2;
}

// Reads the weights of a network into shared memory, by tap: [out, in], output channels in the order of `place_of`;
// BACKWARD, where they change roles, the input channels are.
template <int CHANNELS, int COLUMNS, bool BACKWARD>
__device__ void read_weights(unsigned char* to, const Chunk* weights, unsigned thread, int threads) {
    constexpr int CHUNKS = CHANNELS / 8, PITCH = Tile<CHANNELS, 1>::PITCH;
#pragma unroll 4
    for (unsigned i = thread; i < 9 * CHANNELS * CHUNKS; i += threads) {
        const unsigned out = i / (9 * CHUNKS), tap = i / CHUNKS % 9, in = i % CHUNKS * 8;
        if (!BACKWARD) {
            copy(to + (tap * CHANNELS + place_of<COLUMNS>(out)) * PITCH + in * 2, weights + i);
            continue;
        }
        const Chunk found = read(weights + i);
        unsigned char* row = to + (tap * CHANNELS + out) * PITCH;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            *reinterpret_cast<uint32_t*>(row + place_of<COLUMNS>(in + 2 * n) * 2) = found.pair[n];
        }
    }
}

// Reads a tile without its border, several chunks of 16 bytes at once, and writes what `change` makes of them. A thread
// has the same channels of all its pixels; `change` gets all the chunks and the first channel.
template <int CHANNELS, int IMAGES, int THREADS, int AT_ONCE, int SOURCES, typename Change>
__device__ void read_changed(unsigned char* to, const Chunk* const (&from)[SOURCES], unsigned copies, unsigned thread,
                             Change change) {
    using Maps = Tile<CHANNELS, IMAGES>;
    static_assert(Maps::COPIES % (AT_ONCE * THREADS) == 0 && THREADS % Maps::CHUNKS == 0);
    const unsigned chunk = thread % Maps::CHUNKS;
#pragma unroll 1
    for (unsigned start = thread; start < Maps::COPIES; start += AT_ONCE * THREADS) {
        Chunk found[SOURCES][AT_ONCE];
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) {
#pragma unroll
            for (int source = 0; source < SOURCES; ++source) {
                const unsigned i = start + n * THREADS;
                found[source][n] = IMAGES == 1 || i < copies ? read(from[source] + i) : Chunk{};
            }
        }
        change(found, chunk * 8);
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) {
            const unsigned i = start + n * THREADS;
            *reinterpret_cast<Chunk*>(to + Maps::offset(i / Maps::CHUNKS) + chunk * 16) =
                IMAGES == 1 || i < copies ? found[0][n] : Chunk{};
        }
    }
}

// Reads the samples of a tile as they are.
template <int CHANNELS, int IMAGES, int THREADS>
__device__ void read_plain(unsigned char* to, const Chunk* from, unsigned copies, unsigned thread) {
    using Maps = Tile<CHANNELS, IMAGES>;
    for (unsigned i = thread; i < Maps::COPIES; i += THREADS) {
        unsigned char* place = to + Maps::offset(i / Maps::CHUNKS) + i % Maps::CHUNKS * 16;
        if (IMAGES == 1 || i < copies) copy(place, from + i);
        else *reinterpret_cast<Chunk*>(place) = Chunk{};
    }
}

// Reads the samples of a tile: as they are, or normalised (scale, shift and mean by channel) and activated.
template <int CHANNELS, int IMAGES, int THREADS, int AT_ONCE>
__device__ void read_samples(unsigned char* to, const Chunk* from, unsigned copies, const float4* scale_shift,
                             unsigned thread) {
    if (scale_shift == nullptr) return read_plain<CHANNELS, IMAGES, THREADS>(to, from, copies, thread);
    const Chunk* const sources[] = {from};
    read_changed<CHANNELS, IMAGES, THREADS, AT_ONCE>(
        to, sources, copies, thread, [scale_shift](auto& found, unsigned channel) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float4 one = scale_shift[slot_of(channel) + 2 * i],
                             two = scale_shift[slot_of(channel) + 2 * i + 1];
                for (Chunk& z : found[0]) {
                    z.pair[i] = packed(activated((first_of(z.pair[i]) - one.z) * one.x + one.y),
                                       activated((second_of(z.pair[i]) - two.z) * two.x + two.y));
                }
            }
        });
}

// Reads a tile of the gradient before a normalisation: of v, that after it, and of z, its input.
template <int CHANNELS, int IMAGES, int THREADS, int AT_ONCE>
__device__ void read_gradient(unsigned char* to, const Chunk* v, const Chunk* z, unsigned copies,
                              const float4* coefficients, unsigned thread) {
    const Chunk* const sources[] = {v, z};
    read_changed<CHANNELS, IMAGES, THREADS, AT_ONCE>(
        to, sources, copies, thread, [coefficients](auto& found, unsigned channel) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float4 one = coefficients[slot_of(channel) + 2 * i];
                const float4 two = coefficients[slot_of(channel) + 2 * i + 1];
#pragma unroll
                for (int n = 0; n < AT_ONCE; ++n) {
                    const uint32_t v = found[0][n].pair[i], z = found[1][n].pair[i];
                    found[0][n].pair[i] = packed(first_of(v) * one.x + ((first_of(z) - one.w) * one.y - one.z),
                                                 second_of(v) * two.x + ((second_of(z) - two.w) * two.y - two.z));
                }
            }
        });
}

// Reads COUNT coefficients of every channel of a network, [COUNT, networks, channels], and puts them side by side.
template <int CHANNELS, int COUNT>
__device__ void read_coefficients(float4* to, const void* from, unsigned network, int networks, unsigned thread) {
    if (thread >= CHANNELS) return;
    const float* own = static_cast<const float*>(from) + network * CHANNELS + thread;
    const int next = networks * CHANNELS;
    // Of gradients a * (v - c) + b * (z - mean), which is a * v + (b * (z - mean) - a * c).
    to[slot_of(thread)] = COUNT == 3 ? make_float4(own[0], own[next], own[2 * next], 0.0f)
                                     : make_float4(own[0], own[next], own[0] * own[2 * next], own[3 * next]);
}

// Asks for so many bytes before they are needed.
template <int THREADS>
__device__ void prefetch(const unsigned char* from, int bytes, unsigned thread) {
    for (int i = 128 * thread; i < bytes; i += 128 * THREADS) prefetch_line(from + i);
}

__device__ inline void clear(unsigned char* memory, int bytes, unsigned thread, int threads) {
    for (unsigned i = thread; i < bytes / 16; i += threads) reinterpret_cast<Chunk*>(memory)[i] = Chunk{};
}

}  // namespace
