// Gradients of the weights of circular convolutions: products of gradients and samples, summed over all pixels.
//
// A block computes a row of three taps of one layer of one network. It reads image after image, the samples inside a
// border on the left and the right that comes from the other side: a tap is then only another address.
#pragma once

#include <circular_maps.cuh>

struct WeightGradArguments {
    const unsigned char *grad, *x;  // [layers * networks, images, ...]
    const unsigned char* off;       // not zero where a mask is: [layers * networks, out, taps, in]
    float* out;                     // likewise
    float* squares;                 // sums of squares of the gradients: [layers * networks, taps]
    int images;
};

namespace {

constexpr int WIDE_ROW_BYTES = (SIDE + 2) * PIXEL_BYTES, WIDE_GROUP_BYTES = SIDE * WIDE_ROW_BYTES;
constexpr int GRAD_BYTES = MAP * 2, WIDE_BYTES = GROUPS * WIDE_GROUP_BYTES, STAGES = 6;
constexpr int COPIES = WIDE_BYTES / PIXEL_BYTES / GROUP_OF_WARPS;  // of a thread that fetches
constexpr int WEIGHT_GRAD_WARPS = 8, WEIGHT_GRAD_THREADS = (WEIGHT_GRAD_WARPS + 4) * WARP;
constexpr int FETCHING = 40, MULTIPLYING = 232;  // registers of a thread: what twelve warps get at first, shared out anew

struct WeightGradMemory {
    static constexpr int BARRIERS = STAGES * (GRAD_BYTES + WIDE_BYTES);
    static constexpr int SQUARES = BARRIERS + 2 * STAGES * 8;
    static constexpr int BYTES = SQUARES + 3 * WEIGHT_GRAD_WARPS * 4;
    unsigned char* begin;
    Barrier* barriers;
    float* squares;
    __device__ explicit WeightGradMemory(unsigned char* memory)
        : begin(memory), barriers(reinterpret_cast<Barrier*>(memory + BARRIERS)),
          squares(reinterpret_cast<float*>(memory + SQUARES)) {}
    __device__ unsigned char* grad(int stage) const { return begin + stage * (GRAD_BYTES + WIDE_BYTES); }
    __device__ unsigned char* x(int stage) const { return grad(stage) + GRAD_BYTES; }
    __device__ Barrier* full(int stage) const { return barriers + stage; }
    __device__ Barrier* empty(int stage) const { return barriers + STAGES + stage; }
};

__device__ inline void fetch_images(const WeightGradMemory& memory, const WeightGradArguments& given, unsigned down) {
    const unsigned thread = threadIdx.x % GROUP_OF_WARPS;
    const unsigned char* grad = given.grad + static_cast<long long>(blockIdx.y) * given.images * GRAD_BYTES;
    const unsigned char* x = given.x + static_cast<long long>(blockIdx.y) * given.images * GRAD_BYTES;
    unsigned seen[COPIES];
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
        const unsigned unit = i * GROUP_OF_WARPS + thread, group = unit / (SIDE * (SIDE + 2)), rest = unit % (SIDE * (SIDE + 2));
        const unsigned row = (rest / (SIDE + 2) + down + SIDE - 1) % SIDE, pixel = (rest % (SIDE + 2) + SIDE - 1) % SIDE;
        seen[i] = ((group * SIDE + row) * SIDE + pixel) * PIXEL_BYTES;
    }
    for (int image = 0; image < given.images; ++image) {
        const int stage = image % STAGES;
        wait_for(memory.empty(stage), (image / STAGES & 1) ^ 1);
        if (thread == 0) {
            arrive_for_bytes(memory.full(stage), GRAD_BYTES);
            copy_in_bulk(memory.grad(stage), grad, GRAD_BYTES, memory.full(stage));
        }
        converge();
        unsigned char* to = memory.x(stage) + thread * PIXEL_BYTES;
#pragma unroll
        for (int i = 0; i < COPIES; ++i) copy(to + i * GROUP_OF_WARPS * PIXEL_BYTES, x + seen[i]);
        arrive_after_copies(memory.full(stage));
        grad += GRAD_BYTES;
        x += GRAD_BYTES;
    }
}

// Writes what a thread has of a tap, zero off the mask; returns the sum of its squares.
__device__ inline float write_tap(const float (&sum)[64], const WeightGradArguments& given, int tap, unsigned first) {
    const unsigned lane = threadIdx.x % WARP;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const unsigned output = first + lane / 4 + i % 2 * 8, input = i / 2 * 8 + lane % 4 * 2;
        const long long place = ((static_cast<long long>(blockIdx.y) * CHANNELS + output) * TAPS + tap) * CHANNELS + input;
        const uchar2 off = *reinterpret_cast<const uchar2*>(given.off + place);
        const float one = off.x ? 0 : sum[i * 2], two = off.y ? 0 : sum[i * 2 + 1];
        *reinterpret_cast<float2*>(given.out + place) = make_float2(one, two);
        squares += one * one + two * two;
    }
#pragma unroll
    for (int distance = 1; distance < static_cast<int>(WARP); distance *= 2) squares += shuffled(squares, distance);
    return squares;
}

__device__ inline void sum_products(const WeightGradMemory& memory, const WeightGradArguments& given, unsigned down) {
    const unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float left[64], centre[64], right[64];
    for (int image = 0; image < given.images; ++image) {
        const int stage = image % STAGES;
        wait_for(memory.full(stage), image / STAGES & 1);
        publish_memory();
        const Address grad = address_of(memory.grad(stage)) + warp / 4 * (HALF / 8) * PIXELS * PIXEL_BYTES;
        const Address x = address_of(memory.x(stage));
        begin_products();
#pragma unroll
        for (int row = 0; row < SIDE; row += 2) {
            const Operand a = operand(grad + row * ROW_BYTES, ROW_BYTES, PIXELS * PIXEL_BYTES);
            const Address seen = x + row * WIDE_ROW_BYTES;
            const int add = image + row > 0;
            multiply_64_128_transposed(left, a, operand(seen, WIDE_ROW_BYTES, WIDE_GROUP_BYTES), add);
            multiply_64_128_transposed(centre, a, operand(seen + PIXEL_BYTES, WIDE_ROW_BYTES, WIDE_GROUP_BYTES), add);
            multiply_64_128_transposed(right, a, operand(seen + 2 * PIXEL_BYTES, WIDE_ROW_BYTES, WIDE_GROUP_BYTES), add);
        }
        end_products();
        if (image > 0) {
            wait_for_products<1>();
            if (lane == 0) arrive(memory.empty((image - 1) % STAGES));
        }
    }
    wait_for_products<0>();
    settle(left);
    settle(centre);
    settle(right);
    const float squares[] = {write_tap(left, given, down * 3, warp * 16), write_tap(centre, given, down * 3 + 1, warp * 16),
                             write_tap(right, given, down * 3 + 2, warp * 16)};
    if (lane == 0) {
        for (int i = 0; i < 3; ++i) memory.squares[i * WEIGHT_GRAD_WARPS + warp] = squares[i];
    }
}

__global__ void __launch_bounds__(WEIGHT_GRAD_THREADS, 1) weight_grad_kernel(const WeightGradArguments given) {
    const WeightGradMemory memory(shared_memory());
    const unsigned down = blockIdx.x;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            prepare(memory.full(stage), GROUP_OF_WARPS + 1);
            prepare(memory.empty(stage), WEIGHT_GRAD_WARPS);
        }
        publish_barriers();
    }
    synchronize();
    if (threadIdx.x / WARP < WEIGHT_GRAD_WARPS) {
        get_registers<MULTIPLYING>();
        sum_products(memory, given, down);
    } else {
        keep_registers<FETCHING>();
        fetch_images(memory, given, down);
    }
    synchronize();
    if (threadIdx.x < 3) {
        float total = 0;
        for (int warp = 0; warp < WEIGHT_GRAD_WARPS; ++warp) {
            total += memory.squares[threadIdx.x * WEIGHT_GRAD_WARPS + warp];
        }
        given.squares[blockIdx.y * TAPS + down * 3 + threadIdx.x] = total;
    }
}

}  // namespace
