// Dense values, 64 rows at a time.

#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "../../threads.hpp"
#include "plan.hpp"
#include "supports.hpp"

namespace givens {

constexpr int64_t LANES = 64;  // rows of a block: one bit each in a word
constexpr int CROWDED = 16;    // from so many live rows on, rotating all 64 is quicker than finding them

// Zeros may come with either sign, as may what is rounded to zero: give them all one.
template <class Real>
Real cast(double value) {
    return static_cast<Real>(value) + Real{0};
}

// Four columns of the block, four rows long, into four rows of the result.
template <class Real>
void transpose(const double* from, Real* to, int64_t width) {
    for (int row = 0; row < 4; ++row)
        for (int column = 0; column < 4; ++column) to[row * width + column] = cast<Real>(from[LANES * column + row]);
}

#if defined(__SSE2__)
template <>
inline void transpose(const double* from, float* to, int64_t width) {
    __m128 lines[4];
    for (int k = 0; k < 4; ++k) {
        const __m128 low = _mm_cvtpd_ps(_mm_loadu_pd(from + LANES * k));
        const __m128 high = _mm_cvtpd_ps(_mm_loadu_pd(from + LANES * k + 2));
        lines[k] = _mm_add_ps(_mm_movelh_ps(low, high), _mm_setzero_ps());
    }
    _MM_TRANSPOSE4_PS(lines[0], lines[1], lines[2], lines[3]);
    for (int k = 0; k < 4; ++k) _mm_storeu_ps(to + k * width, lines[k]);
}
#endif

// The transpose of an 8 x 8 matrix of bits, one byte a row: swap off-diagonal squares of size 1, 2 and 4.
inline uint64_t transposed(uint64_t square) {
    uint64_t swap = (square ^ (square >> 7)) & 0x00AA00AA00AA00AAu;
    square ^= swap ^ (swap << 7);
    swap = (square ^ (square >> 14)) & 0x0000CCCC0000CCCCu;
    square ^= swap ^ (swap << 14);
    swap = (square ^ (square >> 28)) & 0x00000000F0F0F0F0u;
    return square ^ swap ^ (swap << 28);
}

// Eight bits as eight bytes 0 or 1: bit k stays in byte k alone, and any bit carries into the highest.
inline uint64_t spread(uint64_t bits) {
    const uint64_t alone = bits * 0x0101010101010101u & 0x8040201008040201u;
    return ((alone + 0x7F7F7F7F7F7F7F7Fu) >> 7) & 0x0101010101010101u;
}

// Column k of the block: its live rows in live[k], its values in values[64 k ...].
WIDE_VECTORS static void replay(const Rotation* rotations, size_t how_many, uint64_t* live, double* values) {
    for (const Rotation *r = rotations, *end = r + how_many; r != end; ++r) {
        uint64_t rows = live[r->i] | live[r->j];
        if (!rows) continue;
        live[r->i] = live[r->j] = rows;
        double* __restrict a = values + LANES * r->i;
        double* __restrict b = values + LANES * r->j;
        if (bits_in(rows) >= CROWDED)
            for (int k = 0; k < LANES; ++k) rotate(a[k], b[k], r->cosine, r->sine);
        else
            for (; rows; rows &= rows - 1) rotate(a[lowest(rows)], b[lowest(rows)], r->cosine, r->sine);
    }
}

WIDE_VECTORS static void zero(uint64_t* live, int64_t columns, double* values) {
    for (int64_t column = 0; column < columns; ++column, values += LANES) {
        if (bits_in(live[column]) >= CROWDED)
            std::fill_n(values, LANES, 0.0);
        else
            for (uint64_t rows = live[column]; rows; rows &= rows - 1) values[lowest(rows)] = 0.0;
        live[column] = 0;
    }
}

// One thread's block of rows; all zero between two blocks.
template <class Real>
class Block {
  public:
    explicit Block(const Task& task) : task_(task), live_(task.width), values_(LANES * task.width) {}

    void fill(const Plan& plan, int64_t base, Real* out, char* mask) {
        const int64_t end = std::min(base + LANES, task_.height);
        for (int64_t row = base; row < end; ++row) {
            live_[plan.start[row]] |= uint64_t{1} << (row - base);
            values_[LANES * plan.start[row] + row - base] = plan.signs[row];
        }
        replay(plan.rotations.data(), plan.rotations.size(), live_.data(), values_.data());
        for (const auto& [row, column] : plan.extra)
            if (row >= base && row < end) live_[column] |= uint64_t{1} << (row - base);
        if (task_.tall)
            write_tall(base, end, out, mask);
        else
            write_wide(base, end, out, mask);
    }

  private:
    // Column k of the block is a piece of row k of the result.
    void write_tall(int64_t base, int64_t end, Real* out, char* mask) {
        for (int64_t column = task_.first; column < task_.last; ++column) {
            const int64_t offset = (column - task_.first) * task_.height + base;
            for (int64_t row = 0; row < end - base; ++row) out[offset + row] = cast<Real>(at(column)[row]);
            for (int64_t row = 0; row < end - base; ++row) mask[offset + row] = live_[column] >> row & 1;
        }
        clear(0, task_.width);
    }

    void write_wide(int64_t base, int64_t end, Real* out, char* mask) {
        const int64_t crowd = bits_in_union(live_.data(), live_.data(), live_.size());
        const int64_t from = std::max(base, task_.first), to = std::min(end, task_.last);
        const bool tiles = to - from == LANES && 5 * crowd > LANES * task_.width;
        const int64_t right = tiles ? task_.width / 8 * 8 : 0;
        for (int64_t left = 0; left < right; left += 8) {
            write_tile(left, out + (from - task_.first) * task_.width, mask + (from - task_.first) * task_.width);
            clear(left, left + 8);
        }
        for (int64_t row = from, step = strip(); row < to; row += step)
            write_strip(base, row, std::min(row + step, to), right, out, mask);
        clear(right, task_.width);
    }

    // Many live entries: eight columns at a time, zeros and all.
    void write_tile(int64_t left, Real* out, char* mask) {
        for (int64_t row = 0; row < LANES; row += 4)
            for (int64_t column = left; column < left + 8; column += 4)
                transpose(at(column) + row, out + row * task_.width + column, task_.width);
        for (int64_t row = 0; row < LANES; row += 8) {
            uint64_t square = 0;  // eight bits of each column, then of each row
            for (int64_t k = 0; k < 8; ++k) square |= (live_[left + k] >> row & 255) << 8 * k;
            square = transposed(square);
            for (int64_t k = 0; k < 8; ++k) {
                const uint64_t bytes = spread(square >> 8 * k & 255);
                std::memcpy(mask + (row + k) * task_.width + left, &bytes, 8);
            }
        }
    }

    // Few: zeros first, in long runs, then one by one.
    void write_strip(int64_t base, int64_t from, int64_t to, int64_t left, Real* out, char* mask) {
        const int64_t width = task_.width, top = (base - task_.first) * width;
        for (int64_t row = from - base; row < to - base; ++row) {
            std::fill_n(out + (top + row * width + left), width - left, Real{0});
            std::memset(mask + (top + row * width + left), 0, width - left);
        }
        const uint64_t wanted = (~uint64_t{0} >> (LANES - (to - from))) << (from - base);
        for (int64_t column = left; column < width; ++column)
            for (uint64_t rows = live_[column] & wanted; rows; rows &= rows - 1) {
                const int64_t row = lowest(rows), here = top + row * width + column;
                out[here] = cast<Real>(at(column)[row]);
                mask[here] = 1;
            }
    }

    // So many rows of the result stay in a cache of half a megabyte.
    int64_t strip() const { return std::clamp<int64_t>((1 << 19) / (task_.width * (sizeof(Real) + 1)), 8, LANES); }

    void clear(int64_t left, int64_t right) { zero(live_.data() + left, right - left, at(left)); }

    double* at(int64_t column) { return values_.data() + LANES * column; }

    const Task& task_;
    vector<uint64_t> live_;
    vector<double> values_;
};

template <class Real>
void fill(const Task& task, uint64_t seed, const int64_t* counts, int64_t batch, Real* out, char* mask,
          int64_t threads) {
    const int64_t size = task.out_rows() * task.out_cols();
    const int64_t bottom = task.row_begin() / LANES, top = (task.row_end() + LANES - 1) / LANES;
    if (!size) return;
    if (batch >= threads) {
        orthosparse::share(batch, threads, [&] {
            return [&, block = Block<Real>(task)](int64_t member) mutable {
                const Plan plan = make_plan<Bits>(task, counts[member], seed, member);
                for (int64_t k = bottom; k < top; ++k)
                    block.fill(plan, k * LANES, out + member * size, mask + member * size);
            };
        });
        return;
    }
    for (int64_t member = 0; member < batch; ++member) {
        const Plan plan = make_plan<Bits>(task, counts[member], seed, member);
        orthosparse::share(top - bottom, threads, [&] {
            return [&, block = Block<Real>(task)](int64_t k) mutable {
                block.fill(plan, (bottom + k) * LANES, out + member * size, mask + member * size);
            };
        });
    }
}

}  // namespace givens
