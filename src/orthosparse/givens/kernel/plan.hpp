// The plan of plan.py: which columns are rotated, and which active entries have no value.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "stream.hpp"
#include "task.hpp"

namespace givens {

constexpr int64_t OVERSHOT = 8;

struct Rotation {
    uint32_t i, j;
    double cosine, sine;
};

inline void rotate(double& a, double& b, double cosine, double sine) {
    const double x = a, y = b;
    a = cosine * x + sine * y;
    b = cosine * y - sine * x;
}

struct Plan {
    vector<uint32_t> start;  // of each row: the column of its only entry before the first rotation
    vector<double> signs;
    vector<Rotation> rotations;
    vector<std::pair<uint32_t, uint32_t>> extra;  // (row, column) of active entries without a value
};

inline void place_start(const Task& task, Stream stream, Plan& plan) {
    plan.start.resize(task.height);
    plan.signs.assign(task.height, 1.0);
    if (!task.permuted) {
        for (int64_t row = 0; row < task.height; ++row) plan.start[row] = static_cast<uint32_t>(row);
        return;
    }
    vector<uint32_t> columns(task.width);
    for (int64_t column = 0; column < task.width; ++column) columns[column] = static_cast<uint32_t>(column);
    for (int64_t row = 0; row < task.height; ++row) {
        const uint64_t word = stream.word(row);
        std::swap(columns[row], columns[row + below(word >> 32, task.width - row)]);
        plan.start[row] = columns[row];
        plan.signs[row] = word & 1 ? -1.0 : 1.0;
    }
}

// Rotate the supports until the stopping rule is met; `sizes` follows them. Returns the number of non-zeros.
template <class Supports>
int64_t grow(const Task& task, int64_t count, Stream stream, Supports& supports, vector<int64_t>& sizes, Plan& plan) {
    const bool exact = task.stop == EXACT, drawn = std::isnan(task.cosine);
    const int64_t goal = task.stop == ROTATIONS ? INT64_MAX : count;
    const uint64_t most = task.width < 2 ? 0 : task.stop == ROTATIONS ? count : UINT64_MAX;
    const int64_t patience = OVERSHOT * (task.width + 64);
    int64_t total = task.height, idle = 0, gain = 0;
    size_t useful = 0;
    for (uint64_t attempt = 0; attempt < most && total < goal && idle < patience; ++attempt) {
        if constexpr (Supports::SCATTERED) {
            const auto [far_i, far_j] = pair_of(stream.word(2 * (attempt + 2 * AHEAD)), task.width);
            const auto [near_i, near_j] = pair_of(stream.word(2 * (attempt + AHEAD)), task.width);
            supports.fetch_header(far_i);
            supports.fetch_header(far_j);
            supports.fetch_rows(near_i);
            supports.fetch_rows(near_j);
        }
        const auto [i, j] = pair_of(stream.word(2 * attempt), task.width);
        const int64_t room = goal - total;
        if (exact && std::abs(sizes[i] - sizes[j]) > room) {
            idle += OVERSHOT;
            continue;
        }
        const int64_t size = supports.union_size(i, j), more = 2 * size - sizes[i] - sizes[j];
        if (exact && more > room) {
            idle += OVERSHOT;
        } else if (size) {
            if (task.stop == CLOSEST) supports.save(i, j);
            if (more) supports.unite(i, j, size);
            sizes[i] = sizes[j] = size;
            total += gain = more;
            idle = more ? 0 : idle + (exact && room < task.height);  // with more room, nothing can overshoot
            const auto [cosine, sine] =
                drawn ? turn_of(stream.word(2 * attempt + 1)) : std::pair{task.cosine, task.sine};
            plan.rotations.push_back({i, j, cosine, sine});
            if (more) useful = plan.rotations.size();
        }
    }
    if (task.stop == CLOSEST && !plan.rotations.empty() && total - count > count - (total - gain)) {
        supports.restore(plan.rotations.back().i, plan.rotations.back().j);
        plan.rotations.pop_back();
        total -= gain;
    }
    if (exact) plan.rotations.resize(useful);  // those after the last gain mixed equal supports in vain
    return total;
}

template <class Supports>
void add_entries(const Task& task, int64_t missing, Stream stream, Supports& supports, vector<int64_t>& sizes,
                 Plan& plan) {
    int64_t absent = 0;
    for (const int64_t size : sizes) absent += task.height - size;
    for (int64_t k = 0; k < missing; ++k, --absent) {
        auto rank = static_cast<int64_t>(stream.word(k) % static_cast<uint64_t>(absent));
        uint32_t column = 0, row = 0;
        for (; rank >= task.height - sizes[column]; ++column) rank -= task.height - sizes[column];
        for (; supports.holds(column, row) || rank--; ++row) {}
        supports.add(column, row);
        ++sizes[column];
        plan.extra.push_back({row, column});
    }
}

// Keep the rotations that the wanted columns depend on.
inline void keep_cone(const Task& task, Plan& plan) {
    if (task.col_begin() == 0 && task.col_end() == task.width) return;
    vector<char> needed(task.width);
    std::fill(needed.begin() + task.col_begin(), needed.begin() + task.col_end(), 1);
    auto& rotations = plan.rotations;
    auto kept = rotations.end();
    for (auto here = rotations.end(); here != rotations.begin();) {
        --here;
        if (!needed[here->i] && !needed[here->j]) continue;
        needed[here->i] = needed[here->j] = 1;
        *--kept = *here;
    }
    rotations.erase(rotations.begin(), kept);
}

template <class Supports>
Plan make_plan(const Task& task, int64_t count, uint64_t seed, uint64_t member) {
    Plan plan;
    place_start(task, Stream(seed, member, FOR_START), plan);
    Supports supports(task.height, task.width);
    vector<int64_t> sizes(task.width);
    for (int64_t row = 0; row < task.height; ++row) {
        supports.add(plan.start[row], static_cast<uint32_t>(row));
        sizes[plan.start[row]] = 1;
    }
    const int64_t total = grow(task, count, Stream(seed, member, FOR_ROTATIONS), supports, sizes, plan);
    if (task.stop == EXACT)
        add_entries(task, count - total, Stream(seed, member, FOR_EXTRA), supports, sizes, plan);
    keep_cone(task, plan);
    return plan;
}

}  // namespace givens
