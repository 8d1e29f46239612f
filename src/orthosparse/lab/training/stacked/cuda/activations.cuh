// The activation of the networks, for which the library is built, and its derivative.
#pragma once

#include <primitives.cuh>

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

}  // namespace
