// Convolutions of 3 x 3 taps and stride 1 on maps that pad with zeros, of as many channels as they see, for all networks
// of a stack at once; with what comes before and after them in a residual network. bfloat16, sums in float32.
//
// Samples are [networks, images, side, side, channels], weights [networks, out, taps, in]. A block takes some images of
// one network, a tile at a time: it reads the maps of a tile into shared memory, once, inside a border of zeros. A tap is
// then only another address there, and tensor cores read their operands from it as they are.
//
// Sums over rows are taken by tile and added up later in one order: they depend neither on when a block ran nor on the
// other networks.
#include <primitives.cuh>

struct ForwardArguments {
    const void *x, *scale_shift, *weights;
    void *out, *sums;
    int images, tiles_of_block;
};

struct BackwardArguments {
    const void *v, *z, *coefficients, *x, *scale_shift, *weights, *add, *below;
    void *out, *sums, *products;
    int images, tiles_of_block;
};

namespace {

enum Activation { linear, relu, leaky_relu, tanh, hardtanh, selu };
constexpr Activation KIND = ACTIVATION;  // of all networks; `cuda_launches.py` builds a library for each

constexpr float SELU_ALPHA = 1.6732632423543772848170429916717f, SELU_SCALE = 1.0507009873554804934193349852946f;

__device__ inline float tanh_of(float z) {
    const float far = 1 - quotient(2, exponential(2 * fminf(fmaxf(z, -15.0f), 15.0f)) + 1);
    const float bent = fabsf(z) < 0.01f ? z * (1 - z * z * 0.3333333333f) : far;
    return z == z ? bent : z;  // what is not a number stays so
}

__device__ inline float activated(float z) {
    switch (KIND) {
        case relu: return larger(z, 0.0f);
        case leaky_relu: return z < 0 ? 0.01f * z : z;
        case tanh: return tanh_of(z);
        case hardtanh: return z > 1 ? 1.0f : z < -1 ? -1.0f : z;
        case selu: return SELU_SCALE * (z < 0 ? SELU_ALPHA * (exponential(fminf(z, 0.0f)) - 1) : z);
        default: return z;
    }
}

// The gradient before an activation, which gave y.
__device__ inline float activation_grad(float v, float y) {
    switch (KIND) {
        case relu: return y <= 0 ? 0.0f : v;
        case leaky_relu: return y <= 0 ? 0.01f * v : v;
        case tanh: return v * (1 - y * y);
        case hardtanh: return y <= -1 || y >= 1 ? 0.0f : v;
        case selu: return v * (y <= 0 ? y + SELU_SCALE * SELU_ALPHA : SELU_SCALE);
        default: return v;
    }
}

struct alignas(16) Eight {  // bfloat16, as they lie in memory
    uint32_t pair[4];
};

__device__ inline Eight read(const Eight* from) {
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    return {{all.x, all.y, all.z, all.w}};
}

// The maps of a tile in shared memory, one image below the other. A column of zeros is both to the right of a row and to
// the left of the next, a row of zeros both below an image and above the next. Behind the channels of a pixel are 16 bytes
// more, so that the same 16 bytes of eight pixels side by side lie in all banks.
template <int CHANNELS, int IMAGES>
struct Tile {
    static constexpr int SIDE = 512 / CHANNELS, WIDE = SIDE + 1, CHUNKS = CHANNELS / 8, PITCH = CHANNELS * 2 + 16;
    static constexpr int PIXELS = (IMAGES * WIDE + 1) * WIDE + 1, BYTES = PIXELS * PITCH;
    static constexpr int ROWS = IMAGES * SIDE * SIDE, COPIES = ROWS * CHUNKS;  // without borders

    // Where the pixel of a row of samples lies.
    __device__ static unsigned offset(unsigned row) {
        const unsigned image = row / (SIDE * SIDE), down = row / SIDE % SIDE, across = row % SIDE;
        return ((image * WIDE + down + 1) * WIDE + across + 1) * PITCH;
    }

};

// Where in the products output channel `channel` is: in such an order a thread has 2 * COLUMNS channels that are side by
// side in memory. COLUMNS are the matrices of eight columns that a warp computes.
template <int COLUMNS>
__device__ inline int place_of(unsigned channel) {
    const unsigned own = channel % (8 * COLUMNS);
    return channel - own + own % (2 * COLUMNS) / 2 * 8 + own / (2 * COLUMNS) * 2 + own % 2;
}

// Reads the weights of a network into shared memory, by tap: [out, in], output channels in the order of `place_of`;
// BACKWARD, where they change roles, the input channels are.
template <int CHANNELS, int COLUMNS, bool BACKWARD>
__device__ void read_weights(unsigned char* to, const Eight* weights, unsigned thread, int threads) {
    constexpr int CHUNKS = CHANNELS / 8, PITCH = Tile<CHANNELS, 1>::PITCH;
#pragma unroll 4
    for (unsigned i = thread; i < 9 * CHANNELS * CHUNKS; i += threads) {
        const unsigned out = i / (9 * CHUNKS), tap = i / CHUNKS % 9, in = i % CHUNKS * 8;
        if (!BACKWARD) {
            copy(to + (tap * CHANNELS + place_of<COLUMNS>(out)) * PITCH + in * 2, weights + i);
            continue;
        }
        const Eight found = read(weights + i);
        unsigned char* row = to + (tap * CHANNELS + out) * PITCH;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            *reinterpret_cast<uint32_t*>(row + place_of<COLUMNS>(in + 2 * n) * 2) = found.pair[n];
        }
    }
}

// 16 rows of samples that go through a product together: of one line of a map, or of two where lines have eight pixels.
// Those that a warp takes at once, MATRICES of them, lie below each other, so that what it reads serves three taps.
template <int CHANNELS, int MATRICES>
struct Strip {
    static constexpr int SIDE = 512 / CHANNELS, ACROSS = SIDE < 16 ? SIDE : 16, LINES = 16 / ACROSS;
    static constexpr int HIGH = MATRICES * LINES, COUNT = SIDE / ACROSS * (SIDE / HIGH);  // of an image
    static constexpr int NEXT = LINES * SIDE;  // rows from one matrix to the next

    // The first row of a strip.
    __device__ static unsigned row(unsigned strip) {
        const unsigned image = strip / COUNT, own = strip % COUNT;
        return (image * SIDE + own / (SIDE / ACROSS) * HIGH) * SIDE + own % (SIDE / ACROSS) * ACROSS;
    }
};

// Adds the convolution of a strip of a tile, for 8 * COLUMNS output channels from `first` on.
template <int CHANNELS, int IMAGES, int MATRICES, int COLUMNS, bool BACKWARD>
__device__ void convolve_strip(float (&sums)[MATRICES][COLUMNS][4], Address maps, Address weights, unsigned row, unsigned first,
                               unsigned lane) {
    using Maps = Tile<CHANNELS, IMAGES>;
    using Own = Strip<CHANNELS, MATRICES>;
    constexpr int LINE = Maps::WIDE * Maps::PITCH, SEEN = MATRICES + 2 / Own::LINES;
    // Of the lines that a strip sees, the first is the one above it.
    maps += Maps::offset(row) - LINE + (lane % Own::ACROSS) * Maps::PITCH + lane % 16 / Own::ACROSS * LINE + lane / 16 * 16;
    // Rows 0 to 7 of weights come in two matrices for one product, then in two for the next.
    weights += BACKWARD ? lane % 16 * Maps::PITCH + (first / 8 + lane / 16) * 16
                        : (first + lane / 16 * 8 + lane % 8) * Maps::PITCH + lane / 8 % 2 * 16;
#pragma unroll
    for (int across = 0; across < 3; ++across) {
#pragma unroll
        for (int inner = 0; inner < CHANNELS; inner += 16) {
            const int step = (BACKWARD ? 1 - across : across - 1) * Maps::PITCH + inner * 2;
            uint32_t seen[SEEN][4];
#pragma unroll
            for (int m = 0; m < SEEN; ++m) load_matrices(seen[m], maps + m * Own::LINES * LINE + step);
#pragma unroll
            for (int down = 0; down < 3; ++down) {
                const int tap = (down * 3 + across) * CHANNELS * Maps::PITCH, line = BACKWARD ? 2 - down : down;
#pragma unroll
                for (int column = 0; column < COLUMNS; column += 2) {
                    uint32_t b[4];
                    if (BACKWARD) {
                        load_matrices_transposed(b, weights + tap + inner * Maps::PITCH + column * 16);
                    } else {
                        load_matrices(b, weights + tap + column * 8 * Maps::PITCH + inner * 2);
                    }
#pragma unroll
                    for (int m = 0; m < MATRICES; ++m) {
                        const uint32_t(&above)[4] = seen[m + line / Own::LINES];
                        if (line % Own::LINES == 0) {
                            multiply(sums[m][column], above, b[0], b[1]);
                            multiply(sums[m][column + 1], above, b[2], b[3]);
                        } else {  // the second line of one matrix, and the first of the next
                            const uint32_t(&below)[4] = seen[m + line / Own::LINES + 1];
                            const uint32_t both[] = {above[1], below[0], above[3], below[2]};
                            multiply(sums[m][column], both, b[0], b[1]);
                            multiply(sums[m][column + 1], both, b[2], b[3]);
                        }
                    }
                }
            }
        }
    }
}

// The channels that a thread has of one row, 2 * COUNT of them, side by side.
template <int COUNT>
struct Run {
    uint32_t pair[COUNT];

    __device__ static Run read(const unsigned char* from) {
        if constexpr (COUNT == 4) {
            const uint4 all = *reinterpret_cast<const uint4*>(from);
            return {{all.x, all.y, all.z, all.w}};
        } else {
            static_assert(COUNT == 2);
            const uint2 all = *reinterpret_cast<const uint2*>(from);
            return {{all.x, all.y}};
        }
    }

    __device__ void write(unsigned char* to) const {
        if constexpr (COUNT == 4) {
            *reinterpret_cast<uint4*>(to) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
        } else {
            *reinterpret_cast<uint2*>(to) = make_uint2(pair[0], pair[1]);
        }
    }
};

// Sums of some channels over the rows of a thread, of two kinds.
template <int COUNT>
struct Sums {
    float one[2 * COUNT], two[2 * COUNT];

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < 2 * COUNT; ++i) one[i] = two[i] = 0;
    }

    __device__ void add(int i, float value, float other) { one[i] += value, two[i] += value * other; }

    // Writes the sums of a warp, [2, CHANNELS], for its channels from `first` on.
    template <int CHANNELS>
    __device__ void write(float* to, unsigned first, unsigned lane) {
#pragma unroll
        for (int i = 0; i < 2 * COUNT; ++i) {
#pragma unroll
            for (int distance = 4; distance < WARP; distance *= 2) {
                one[i] += shuffled(one[i], distance);
                two[i] += shuffled(two[i], distance);
            }
            if (lane < 4) {
                to[first + lane * 2 * COUNT + i] = one[i];
                to[CHANNELS + first + lane * 2 * COUNT + i] = two[i];
            }
        }
    }
};

// Adds up what warps have written of a tile, those that have a channel, in order. GROUPS of warps share the channels.
template <int CHANNELS, int WARPS, int GROUPS>
__device__ void gather(float* to, const float* parts, unsigned thread, int threads) {
    for (unsigned i = thread; i < 2 * CHANNELS; i += threads) {
        float sum = 0;
        for (unsigned warp = i % CHANNELS / (CHANNELS / GROUPS); warp < WARPS; warp += GROUPS) {
            sum += parts[warp * 2 * CHANNELS + i];
        }
        to[i] = sum;
    }
}

// Where numbers of a channel are among those that threads read by eight channels: in all banks.
__device__ inline unsigned slot_of(unsigned channel) { return channel + channel / 8; }
constexpr int bytes_of_lines(int channels) { return (channels + channels / 8) * 16; }

// Reads a tile without its border, several chunks of 16 bytes at once, and writes what `change` makes of them. A thread has
// the same channels of all its pixels; `change` gets all the chunks and the first channel.
template <int CHANNELS, int IMAGES, int THREADS, int AT_ONCE, int SOURCES, typename Change>
__device__ void read_changed(unsigned char* to, const Eight* const (&from)[SOURCES], unsigned copies, unsigned thread,
                             Change change) {
    using Maps = Tile<CHANNELS, IMAGES>;
    static_assert(Maps::COPIES % (AT_ONCE * THREADS) == 0 && THREADS % Maps::CHUNKS == 0);
    const unsigned chunk = thread % Maps::CHUNKS;
#pragma unroll 1
    for (unsigned start = thread; start < Maps::COPIES; start += AT_ONCE * THREADS) {
        Eight found[SOURCES][AT_ONCE];
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) {
#pragma unroll
            for (int source = 0; source < SOURCES; ++source) {
                const unsigned i = start + n * THREADS;
                found[source][n] = IMAGES == 1 || i < copies ? read(from[source] + i) : Eight{};
            }
        }
        change(found, chunk * 8);
#pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) {
            const unsigned i = start + n * THREADS;
            *reinterpret_cast<Eight*>(to + Maps::offset(i / Maps::CHUNKS) + chunk * 16) =
                IMAGES == 1 || i < copies ? found[0][n] : Eight{};
        }
    }
}

// Reads the samples of a tile as they are.
template <int CHANNELS, int IMAGES, int THREADS>
__device__ void read_plain(unsigned char* to, const Eight* from, unsigned copies, unsigned thread) {
    using Maps = Tile<CHANNELS, IMAGES>;
    for (unsigned i = thread; i < Maps::COPIES; i += THREADS) {
        unsigned char* place = to + Maps::offset(i / Maps::CHUNKS) + i % Maps::CHUNKS * 16;
        if (IMAGES == 1 || i < copies) copy(place, from + i);
        else *reinterpret_cast<Eight*>(place) = Eight{};
    }
}

// Reads the samples of a tile: as they are, or normalised by `lines` (scale, shift and mean by channel) and activated.
template <int CHANNELS, int IMAGES, int THREADS, int AT_ONCE>
__device__ void read_samples(unsigned char* to, const Eight* from, unsigned copies, const float4* lines, unsigned thread) {
    if (lines == nullptr) return read_plain<CHANNELS, IMAGES, THREADS>(to, from, copies, thread);
    const Eight* const sources[] = {from};
    read_changed<CHANNELS, IMAGES, THREADS, AT_ONCE>(to, sources, copies, thread, [lines](auto& found, unsigned channel) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float4 one = lines[slot_of(channel) + 2 * i], two = lines[slot_of(channel) + 2 * i + 1];
            for (Eight& z : found[0]) {
                z.pair[i] = packed(activated((first_of(z.pair[i]) - one.z) * one.x + one.y),
                                   activated((second_of(z.pair[i]) - two.z) * two.x + two.y));
            }
        }
    });
}

// Reads a tile of the gradient before a normalisation: of v, that after it, and of z, its input.
template <int CHANNELS, int IMAGES, int THREADS, int AT_ONCE>
__device__ void read_gradient(unsigned char* to, const Eight* v, const Eight* z, unsigned copies, const float4* coefficients,
                              unsigned thread) {
    const Eight* const sources[] = {v, z};
    read_changed<CHANNELS, IMAGES, THREADS, AT_ONCE>(to, sources, copies, thread, [coefficients](auto& found, unsigned channel) {
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

// Puts what is by line and channel, [lines, networks, channels], side by side for every channel.
template <int CHANNELS, int LINES>
__device__ void read_lines(float4* to, const void* from, unsigned network, int networks, unsigned thread) {
    if (thread >= CHANNELS) return;
    const float* own = static_cast<const float*>(from) + network * CHANNELS + thread;
    const int next = networks * CHANNELS;
    // Of gradients a * (v - c) + b * (z - mean), which is a * v + (b * (z - mean) - a * c).
    to[slot_of(thread)] = LINES == 3 ? make_float4(own[0], own[next], own[2 * next], 0.0f)
                            : make_float4(own[0], own[next], own[0] * own[2 * next], own[3 * next]);
}

// Asks for so many bytes before they are needed.
template <int THREADS>
__device__ void prefetch(const unsigned char* from, int bytes, unsigned thread) {
    for (int i = 128 * thread; i < bytes; i += 128 * THREADS) prefetch_line(from + i);
}

__device__ inline void clear(unsigned char* memory, int bytes, unsigned thread, int threads) {
    for (unsigned i = thread; i < bytes / 16; i += threads) reinterpret_cast<Eight*>(memory)[i] = Eight{};
}

// How blocks share the work out: IMAGES of a tile; warps, of which each takes MATRICES times 16 rows by 8 * COLUMNS
// channels at a time. In the backward pass some convolve and some take the gradients of weights, or all do both.
template <int CHANNELS>
struct Forward;
template <>
struct Forward<16> {
    static constexpr int IMAGES = 1, WARPS = 8, MATRICES = 4, COLUMNS = 2, BLOCKS = 3;
};
template <>
struct Forward<32> {
    static constexpr int IMAGES = 2, WARPS = 8, MATRICES = 4, COLUMNS = 4, BLOCKS = 2;
};
template <>
struct Forward<64> {
    static constexpr int IMAGES = 2, WARPS = 8, MATRICES = 2, COLUMNS = 4, BLOCKS = 2;
};

template <int CHANNELS>
struct Backward;
template <>
struct Backward<16> {
    static constexpr int IMAGES = 1, CONVOLVING = 4, WEIGHING = 4, MATRICES = 4, COLUMNS = 2, BLOCKS = 2;
    static constexpr bool APART = true, EARLY = true;
};
template <>
struct Backward<32> {
    static constexpr int IMAGES = 1, CONVOLVING = 4, WEIGHING = 4, MATRICES = 4, COLUMNS = 4, BLOCKS = 2;
    static constexpr bool APART = false, EARLY = false;
};
template <>
struct Backward<64> {
    static constexpr int IMAGES = 4, CONVOLVING = 4, WEIGHING = 8, MATRICES = 4, COLUMNS = 4, BLOCKS = 1;
    static constexpr bool APART = true, EARLY = true;
};

template <int CHANNELS>
struct ForwardMemory {
    using Own = Forward<CHANNELS>;
    static constexpr int MAPS = 0, WEIGHTS = MAPS + Tile<CHANNELS, Own::IMAGES>::BYTES;
    static constexpr int LINES = WEIGHTS + 9 * CHANNELS * Tile<CHANNELS, 1>::PITCH;
    static constexpr int PARTS = LINES + bytes_of_lines(CHANNELS), BYTES = PARTS + Own::WARPS * 2 * CHANNELS * 4;
};

template <int CHANNELS>
__global__ void __launch_bounds__(Forward<CHANNELS>::WARPS* WARP, Forward<CHANNELS>::BLOCKS)
    convolve(ForwardArguments given) {
    using Own = Forward<CHANNELS>;
    using Maps = Tile<CHANNELS, Own::IMAGES>;
    using Memory = ForwardMemory<CHANNELS>;
    constexpr int THREADS = Own::WARPS * WARP, GROUPS = CHANNELS / (8 * Own::COLUMNS);
    constexpr int COUNT = Own::COLUMNS, STRIPS = Own::IMAGES * Strip<CHANNELS, Own::MATRICES>::COUNT;
    using Strips = Strip<CHANNELS, Own::MATRICES>;
    unsigned char* memory = shared_memory();
    const unsigned thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    const unsigned network = blockIdx.y, networks = gridDim.y, tiles = (given.images + Own::IMAGES - 1) / Own::IMAGES;
    float4* lines = reinterpret_cast<float4*>(memory + Memory::LINES);
    float* parts = reinterpret_cast<float*>(memory + Memory::PARTS);
    clear(memory, Maps::BYTES, thread, THREADS);
    const Eight* weights = static_cast<const Eight*>(given.weights) + network * (9 * CHANNELS * CHANNELS / 8);
    read_weights<CHANNELS, Own::COLUMNS, false>(memory + Memory::WEIGHTS, weights, thread, THREADS);
    if (given.scale_shift != nullptr) read_lines<CHANNELS, 3>(lines, given.scale_shift, network, networks, thread);
    wait_for_copies();
    synchronize();
    const int begin = blockIdx.x * given.tiles_of_block, first = warp % GROUPS * 8 * Own::COLUMNS;
    for (int tile = begin; tile < tiles && tile < begin + given.tiles_of_block; ++tile) {
        const int image = tile * Own::IMAGES, left = given.images - image;
        const unsigned rows = (left < Own::IMAGES ? left : Own::IMAGES) * Maps::SIDE * Maps::SIDE;
        const int64_t start = (static_cast<int64_t>(network) * given.images + image) * (512 * 512 / CHANNELS);
        read_samples<CHANNELS, Own::IMAGES, THREADS, 4>(
            memory, static_cast<const Eight*>(given.x) + start / 8, rows * Maps::CHUNKS,
            given.scale_shift == nullptr ? nullptr : lines, thread);
        wait_for_copies();
        synchronize();
        if (tile + 1 < tiles && tile + 1 < begin + given.tiles_of_block) {
            constexpr int BYTES = Maps::ROWS * CHANNELS * 2;
            const auto* next = static_cast<const unsigned char*>(given.x) + 2 * start + BYTES;
            prefetch<THREADS>(next, left < 2 * Own::IMAGES ? BYTES / Own::IMAGES * (left - Own::IMAGES) : BYTES, thread);
        }
        Sums<COUNT> sums;
        sums.clear();
        for (unsigned strip = warp / GROUPS; strip < STRIPS; strip += Own::WARPS / GROUPS) {
            const unsigned row = Strips::row(strip);
            float found[Own::MATRICES][Own::COLUMNS][4] = {};
            convolve_strip<CHANNELS, Own::IMAGES, Own::MATRICES, Own::COLUMNS, false>(
                found, address_of(memory), address_of(memory + Memory::WEIGHTS), row, first, lane);
            unsigned char* to = static_cast<unsigned char*>(given.out) +
                                2 * (start + (row + lane / 4) * CHANNELS + first + lane % 4 * (2 * COUNT));
#pragma unroll
            for (int m = 0; m < 2 * Own::MATRICES; ++m) {
                if (Own::IMAGES > 1 && row >= rows) break;
                Run<COUNT> run;
#pragma unroll
                for (int i = 0; i < COUNT; ++i) {
                    const float* values = found[m / 2][i] + m % 2 * 2;
                    run.pair[i] = packed(values[0], values[1]);
                    sums.add(2 * i, first_of(run.pair[i]), first_of(run.pair[i]));
                    sums.add(2 * i + 1, second_of(run.pair[i]), second_of(run.pair[i]));
                }
                run.write(to + 2 * (m / 2 * Strips::NEXT + m % 2 * 8) * CHANNELS);
            }
        }
        if (given.sums != nullptr) sums.template write<CHANNELS>(parts + warp * 2 * CHANNELS, first, lane);
        synchronize();
        if (given.sums != nullptr) {
            float* to = static_cast<float*>(given.sums) + (static_cast<int64_t>(network) * tiles + tile) * 2 * CHANNELS;
            gather<CHANNELS, Own::WARPS, GROUPS>(to, parts, thread, THREADS);
        }
    }
}

template <int CHANNELS>
struct BackwardMemory {
    using Own = Backward<CHANNELS>;
    using Maps = Tile<CHANNELS, Own::IMAGES>;
    // The last row of zeros of the gradient is the first of the samples.
    static constexpr int GRADIENT = 0, SAMPLES = Maps::BYTES - Maps::WIDE * Maps::PITCH;
    static constexpr int WEIGHTS = SAMPLES + Maps::BYTES, COEFFICIENTS = WEIGHTS + 9 * CHANNELS * Maps::PITCH;
    static constexpr int LINES = COEFFICIENTS + bytes_of_lines(CHANNELS), PARTS = LINES + bytes_of_lines(CHANNELS);
    static constexpr int BYTES = PARTS + Own::CONVOLVING * 2 * CHANNELS * 4;
};

// What the warps of a block share in the backward pass.
template <int CHANNELS>
struct BackwardBlock {
    using Own = Backward<CHANNELS>;
    using Maps = Tile<CHANNELS, Own::IMAGES>;
    using Memory = BackwardMemory<CHANNELS>;
    using Strips = Strip<CHANNELS, Own::MATRICES>;
    static constexpr int THREADS = (Own::CONVOLVING + Own::WEIGHING) * WARP;
    static constexpr int GROUPS = CHANNELS / (8 * Own::COLUMNS), COUNT = Own::COLUMNS;
    static constexpr int STRIPS = Own::IMAGES * Strips::COUNT;
    // Gradients of weights are of PAIRS times PAIRS roles. A warp has OWN of them; or SPLIT warps share the lines of one.
    static constexpr int PAIRS = CHANNELS / 16, ROLES = PAIRS * PAIRS;
    static constexpr int OWN = ROLES > Own::WEIGHING ? ROLES / Own::WEIGHING : 1, SPLIT = OWN * Own::WEIGHING / ROLES;
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
        const auto* lines = reinterpret_cast<const float4*>(memory + Memory::LINES);
        read_samples<CHANNELS, Own::IMAGES, READERS, AT_ONCE>(
            memory + Memory::SAMPLES, static_cast<const Eight*>(given.x) + start_of(tile) / 8,
            rows_of(tile) * Maps::CHUNKS, given.scale_shift == nullptr ? nullptr : lines, reader);
    }

    template <int READERS, int AT_ONCE>
    __device__ void read_grad(int tile, unsigned reader) const {
        const int64_t start = start_of(tile) / 8;
        read_gradient<CHANNELS, Own::IMAGES, READERS, AT_ONCE>(
            memory + Memory::GRADIENT, static_cast<const Eight*>(given.v) + start,
            static_cast<const Eight*>(given.z) + start, rows_of(tile) * Maps::CHUNKS,
            reinterpret_cast<const float4*>(memory + Memory::COEFFICIENTS), reader);
    }

    // Warps that convolve read the gradient, and the others the samples (APART); or all of them read both.
    __device__ void read_for_convolving(int tile) const {
        if constexpr (Own::APART) {
            read_grad<Own::CONVOLVING * WARP, 8>(tile, thread);
        } else {
            read_x<THREADS, 4>(tile, thread);
            read_grad<THREADS, 4>(tile, thread);
        }
    }

    __device__ void read_for_weighing(int tile) const {
        constexpr int READERS = Own::WEIGHING * WARP;
        if constexpr (Own::APART) {
            const unsigned reader = thread - Own::CONVOLVING * WARP;
            ask_for<READERS>(tile, given.below, reader);
            ask_for<READERS>(tile, given.add, reader);
            read_x<READERS, OWN == 1 ? 8 : 2>(tile, reader);
        } else {
            read_x<THREADS, 4>(tile, thread);
            read_grad<THREADS, 4>(tile, thread);
        }
    }

    // Asks for what is needed at the end of a tile.
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
        for (unsigned strip = warp / GROUPS; strip < STRIPS; strip += Own::CONVOLVING / GROUPS) {
            const unsigned row = Strips::row(strip);
            const int64_t place = start + 2 * row * CHANNELS;
            const bool live = Own::IMAGES == 1 || row < rows;
            Run<COUNT> others[PART], inputs[PART];
            const auto read_others = [&](int part) {
#pragma unroll
                for (int m = 0; m < PART; ++m) {
                    const int64_t own = place + 2 * further(part + m) * CHANNELS;
                    others[m] = live && add != nullptr ? Run<COUNT>::read(add + own) : Run<COUNT>{};
                    inputs[m] = live ? Run<COUNT>::read(below + own) : Run<COUNT>{};
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
                    const auto y = Run<COUNT>::read(samples + Maps::offset(row + further(part + m) + lane / 4));
                    Run<COUNT> run;
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

    // Adds the product of the gradient with the samples at every tap: 16 output channels by OWN times 16 input channels.
    __device__ void weigh(Products& sums, unsigned warp, unsigned lane) const {
        using One = Strip<CHANNELS, 1>;
        constexpr int LINE = Maps::WIDE * Maps::PITCH, LINES = One::LINES, COLUMNS = Maps::SIDE / One::ACROSS;
        constexpr int HIGH = Maps::SIDE * COLUMNS / SPLIT;  // lines of an image that a warp takes
        static_assert(SPLIT % COLUMNS == 0 && HIGH % LINES == 0);
        const unsigned role = OWN * warp % ROLES, part = OWN * warp / ROLES;
        const unsigned across = part % COLUMNS * One::ACROSS, down = part / COLUMNS * HIGH;
        // Matrices of the gradient come in pairs of output channels, those of the samples in pairs of lines or of halves.
        Address gradient = address_of(memory + Memory::GRADIENT) + (role / PAIRS * 2 + lane / 8 % 2) * 16;
        Address samples = address_of(memory + Memory::SAMPLES) + (role % PAIRS * 2 + lane / 16) * 16;
        gradient += LINES == 1 ? (lane / 16 * 8 + lane % 8) * Maps::PITCH : lane / 16 * LINE + lane % 8 * Maps::PITCH;
        samples += lane % One::ACROSS * Maps::PITCH + lane % 16 / One::ACROSS * LINE;
#pragma unroll 1
        for (int image = 0; image < Own::IMAGES; ++image) {
            const unsigned start = Maps::offset((image * Maps::SIDE + down) * Maps::SIDE + across);
            uint32_t above[4], own[4], next[4];  // of the gradient
            load_matrices_transposed(above, gradient + start - LINE);
            if (LINES == 1) load_matrices_transposed(own, gradient + start);
#pragma unroll 1
            for (int line = 0; line < HIGH; line += LINES) {
                const unsigned place = start + line * LINE;
                load_matrices_transposed(next, gradient + place + LINE);
                if (LINES == 2) own[0] = above[2], own[1] = above[3], own[2] = next[0], own[3] = next[1];
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
                    above[i] = LINES == 1 ? own[i] : next[i];
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
        gather<CHANNELS, Own::CONVOLVING, GROUPS>(to, reinterpret_cast<const float*>(memory + Memory::PARTS), thread,
                                                  Own::CONVOLVING * WARP);
    }
};

template <int CHANNELS>
__global__ void __launch_bounds__(BackwardBlock<CHANNELS>::THREADS, Backward<CHANNELS>::BLOCKS)
    convolve_backward(BackwardArguments given) {
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
    const Eight* weights = static_cast<const Eight*>(given.weights) + network * (WEIGHTS / 8);
    read_weights<CHANNELS, Own::COLUMNS, true>(memory + Memory::WEIGHTS, weights, thread, THREADS);
    read_lines<CHANNELS, 4>(reinterpret_cast<float4*>(memory + Memory::COEFFICIENTS), given.coefficients, network,
                            networks, thread);
    if (given.scale_shift != nullptr) {
        read_lines<CHANNELS, 3>(reinterpret_cast<float4*>(memory + Memory::LINES), given.scale_shift, network, networks,
                                thread);
    }
    synchronize();

    float* products =
        static_cast<float*>(given.products) + (static_cast<int64_t>(network) * gridDim.x + blockIdx.x) * WEIGHTS;
    if (warp < Own::CONVOLVING) {
        for (int tile = begin; tile < end; ++tile) {
            block.read_for_convolving(tile);
            wait_for_copies();
            synchronize();
            block.convolve(tile, warp, lane);
            synchronize();
            block.gather_sums(tile);
        }
        if constexpr (SPLIT > 1) synchronize();
    } else {
        const unsigned own = warp - Own::CONVOLVING;
        typename Block::Products sums = {};
        for (int tile = begin; tile < end; ++tile) {
            block.read_for_weighing(tile);
            wait_for_copies();
            synchronize();
            block.weigh(sums, own, lane);
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

template <int CHANNELS>
int run_forward(const ForwardArguments& given, dim3 grid, void* stream) {
    const int threads = Forward<CHANNELS>::WARPS * WARP;
    return launch(convolve<CHANNELS>, grid, threads, ForwardMemory<CHANNELS>::BYTES, stream, given);
}

template <int CHANNELS>
int run_backward(const BackwardArguments& given, dim3 grid, void* stream) {
    const int threads = BackwardBlock<CHANNELS>::THREADS;
    return launch(convolve_backward<CHANNELS>, grid, threads, BackwardMemory<CHANNELS>::BYTES, stream, given);
}

constexpr int NO_SUCH_CHANNELS = -1;

}  // namespace

// For every number of channels: images of a tile and blocks that a multiprocessor runs at once, there and back.
extern "C" void plan_of(int channels, int (&plan)[4]) {
    const auto fill = [&plan](auto forward, auto backward) {
        plan[0] = forward.IMAGES, plan[1] = forward.BLOCKS, plan[2] = backward.IMAGES, plan[3] = backward.BLOCKS;
    };
    if (channels == 16) fill(Forward<16>{}, Backward<16>{});
    if (channels == 32) fill(Forward<32>{}, Backward<32>{});
    if (channels == 64) fill(Forward<64>{}, Backward<64>{});
}

// Writes the convolution of x, and unless null its sums: [networks, tiles, 2, channels]. Unless null, scale_shift is what
// normalises x first, before its activation.
extern "C" int convolve_forward(int channels, int networks, int blocks, ForwardArguments given, void* stream) {
    const dim3 grid(blocks, networks, 1);
    if (channels == 16) return run_forward<16>(given, grid, stream);
    if (channels == 32) return run_forward<32>(given, grid, stream);
    if (channels == 64) return run_forward<64>(given, grid, stream);
    return NO_SUCH_CHANNELS;
}

// Takes the gradient v after the normalisation of z, which is a convolution of x, back to before the activation that gave
// x: that, its sums with `below`, and the products whose sum over blocks is the gradient of the weights.
extern "C" int convolve_back(int channels, int networks, int blocks, BackwardArguments given, void* stream) {
    const dim3 grid(blocks, networks, 1);
    if (channels == 16) return run_backward<16>(given, grid, stream);
    if (channels == 32) return run_backward<32>(given, grid, stream);
    if (channels == 64) return run_backward<64>(given, grid, stream);
    return NO_SUCH_CHANNELS;
}
