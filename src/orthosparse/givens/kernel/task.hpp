// What is asked of the sampler, as task.py writes it.

#pragma once

#include <cstdint>
#include <vector>

namespace givens {

using std::int64_t;
using std::size_t;
using std::uint32_t;
using std::uint64_t;
using std::vector;


enum Stop { EXACT, CLOSEST, FIRST, ROTATIONS };

struct Task {
    int64_t height, width;
    int tall;
    int64_t first, last;
    int stop;
    double cosine, sine;
    int permuted;

    int64_t row_begin() const { return tall ? 0 : first; }
    int64_t row_end() const { return tall ? height : last; }
    int64_t col_begin() const { return tall ? first : 0; }
    int64_t col_end() const { return tall ? last : width; }
    int64_t out_rows() const { return last - first; }
    int64_t out_cols() const { return tall ? height : width; }
};

}  // namespace givens
