// The activation that the library is built for, and its derivative.
#pragma once

#include <primitives.cuh>

namespace {

enum Activation { linear, relu, leaky_relu, tanh, hardtanh, selu };
constexpr Activation KIND = ACTIVATION;  // a macro: `cuda_library.py` builds a library for each activation

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LEAKY_SLOPE = 0.01f;
constexpr float SELU_ALPHA = 1.6732632423543772848170429916717f, SELU_SCALE = 1.0507009873554804934193349852946f;

// One or minus one where the exponential is infinite or zero; NaN for NaN.
__device__ inline float tanh_of(float z) {
    const float exact = 1 - 2 * fast_reciprocal(fast_exp2(z * (2 * LOG2_E)) + 1);
    return fabsf(z) < 0.01f ? z * (1 - z * z * 0.3333333333f) : exact;  // the Taylor series near zero
}

__device__ inline float activate(float z) {
    switch (KIND) {
        case relu: return max_nan(z, 0.0f);
        case leaky_relu: return z < 0 ? LEAKY_SLOPE * z : z;
        case tanh: return tanh_of(z);
        case hardtanh: return z > 1 ? 1.0f : z < -1 ? -1.0f : z;
        case selu: return SELU_SCALE * (z < 0 ? SELU_ALPHA * (fast_exp2(fminf(z, 0.0f) * LOG2_E) - 1) : z);
        default: return z;
    }
}

// The gradient of the input of an activation, from the gradient of its output and the output `y` itself.
__device__ inline float activation_grad(float grad, float y) {
    switch (KIND) {
        case relu: return y <= 0 ? 0.0f : grad;
        case leaky_relu: return y <= 0 ? LEAKY_SLOPE * grad : grad;
        case tanh: return grad * (1 - y * y);
        case hardtanh: return y <= -1 || y >= 1 ? 0.0f : grad;
        case selu: return grad * (y <= 0 ? y + SELU_SCALE * SELU_ALPHA : SELU_SCALE);
        default: return grad;
    }
}

}  // namespace
