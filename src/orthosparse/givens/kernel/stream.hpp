// The random words of stream.py.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "task.hpp"

namespace givens {

constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15u;
enum Purpose : uint64_t { FOR_ROTATIONS = 1, FOR_START = 2, FOR_EXTRA = 3 };

inline uint64_t mixed(uint64_t word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}

struct Stream {
    uint64_t key;

    Stream(uint64_t seed, uint64_t member, Purpose purpose)
        : key(mixed(mixed(seed + (member + 1) * GOLDEN) + purpose * GOLDEN)) {}

    uint64_t word(uint64_t counter) const { return mixed(key + (counter + 1) * GOLDEN); }
};

inline uint64_t below(uint64_t half, uint64_t bound) { return half * bound >> 32; }

inline std::pair<uint32_t, uint32_t> pair_of(uint64_t word, uint64_t width) {
    uint64_t one = below(word >> 32, width), other = below(word & 0xFFFFFFFFu, width - 1);
    other += other >= one;
    return {static_cast<uint32_t>(std::min(one, other)), static_cast<uint32_t>(std::max(one, other))};
}

// Taylor's series by Horner's rule on [-pi/4, pi/4], operation by operation as in stream.py.
inline std::pair<double, double> turn_of(uint64_t word) {
    static const double SINE[] = {-1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0,
                                  -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
    static const double COSINE[] = {1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
                                    1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0};
    constexpr double QUARTER = 1.5707963267948966;
    const uint64_t inside = (word & 0x3FFFFFFFFFFFFFFFu) >> 10;
    const double angle = (static_cast<double>(2 * inside + 1) * 0x1p-53 - 0.5) * QUARTER, square = angle * angle;
    double sine = SINE[0], cosine = COSINE[0];
    for (int k = 1; k < 7; ++k) {
        sine = sine * square + SINE[k];
        cosine = cosine * square + COSINE[k];
    }
    cosine = 1.0 - (0.5 * square - square * square * cosine);
    sine = angle + angle * square * sine;
    const bool odd = word >> 62 & 1;
    const double sign = word >> 63 ? -1.0 : 1.0;
    return {sign * (odd ? -sine : cosine), sign * (odd ? cosine : sine)};
}

}  // namespace givens
