// Compressed rows, with work and memory like the number of active entries.

#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "../../threads.hpp"
#include "plan.hpp"
#include "supports.hpp"

namespace givens {

// Rows begin..end of the rotated matrix, column by column; columns that were rotated together share their rows.
class Columns {
  public:
    Columns(const Task& task, const Plan& plan, int64_t begin, int64_t end) : columns_(task.width) {
        for (int64_t row = begin; row < end; ++row)
            insert(columns_[plan.start[row]], static_cast<uint32_t>(row), plan.signs[row]);
        const Rotation* last = plan.rotations.data() + plan.rotations.size();
        for (const Rotation* r = plan.rotations.data(); r != last; ++r) {
            if (static_cast<size_t>(last - r) > 2 * AHEAD) {
                fetch(&columns_[r[2 * AHEAD].i]);
                fetch(&columns_[r[2 * AHEAD].j]);
                fetch(columns_[r[AHEAD].i].rows);
                fetch(columns_[r[AHEAD].i].values);
                fetch(columns_[r[AHEAD].j].rows);
                fetch(columns_[r[AHEAD].j].values);
            }
            rotate_columns(columns_[r->i], columns_[r->j], r->cosine, r->sine);
        }
        for (const auto& [row, column] : plan.extra)
            if (row >= begin && row < end) insert(columns_[column], row, 0.0);
    }

    template <class Visit>
    void each(size_t column, Visit visit) const {
        const Column& entries = columns_[column];
        const Column& later = columns_[std::min(column + AHEAD, columns_.size() - 1)];
        for (size_t k = 0; k < later.size && k < 64; k += 8) {
            fetch(later.rows + k);
            fetch(later.values + k);
        }
        for (size_t k = 0; k < entries.size; ++k) visit(entries.rows[k], entries.values[k]);
    }

  private:
    struct Column {
        uint32_t* rows = nullptr;
        double* values = nullptr;
        size_t size = 0;
    };

    void insert(Column& column, uint32_t row, double value) {
        const auto index = std::lower_bound(column.rows, column.rows + column.size, row) - column.rows;
        const size_t size = column.size + 1;
        const Column made{arena_.take<uint32_t>(size), arena_.take<double>(size), size};
        std::copy_n(column.rows, index, made.rows);
        std::copy_n(column.values, index, made.values);
        made.rows[index] = row;
        made.values[index] = value;
        std::copy_n(column.rows + index, column.size - index, made.rows + index + 1);
        std::copy_n(column.values + index, column.size - index, made.values + index + 1);
        column = made;
    }

    void rotate_columns(Column& a, Column& b, double cosine, double sine) {
        if (a.rows == b.rows) {  // both empty, or of the same rows
            for (size_t k = 0; k < a.size; ++k) rotate(a.values[k], b.values[k], cosine, sine);
            return;
        }
        if (rows_.size() < a.size + b.size) {
            rows_.resize(a.size + b.size);
            for (auto& values : values_) values.resize(a.size + b.size);
        }
        size_t size = 0;
        for (size_t k = 0, l = 0; k < a.size || l < b.size; ++size) {
            const uint32_t in_a = k < a.size ? a.rows[k] : UINT32_MAX, in_b = l < b.size ? b.rows[l] : UINT32_MAX;
            double x = in_a <= in_b ? a.values[k++] : 0.0, y = in_b <= in_a ? b.values[l++] : 0.0;
            rotate(x, y, cosine, sine);
            rows_[size] = std::min(in_a, in_b);
            values_[0][size] = x;
            values_[1][size] = y;
        }
        uint32_t* rows = a.size == size ? a.rows : b.size == size ? b.rows : arena_.take<uint32_t>(size);
        std::copy_n(rows_.data(), size, rows);
        for (Column* column : {&a, &b}) {
            double* values = column->size == size ? column->values : arena_.take<double>(size);
            std::copy_n(values_[column == &b].data(), size, values);
            *column = {rows, values, size};
        }
    }

    Arena arena_;
    vector<Column> columns_;
    vector<uint32_t> rows_;  // scratch
    vector<double> values_[2];
};

// Row ranges of the rotated matrix, one for each thread, and where each of their entries goes in the result.
class Compressed {
  public:
    Compressed(const Task& task, int64_t count, uint64_t seed, int64_t threads) : task_(task) {
        // As bits the supports take height * width / 8 bytes: a few for each entry, unless the matrix is sparse.
        const bool sparse = task.stop != ROTATIONS && count < task.height * (task.width / 32);
        const Plan plan = sparse ? make_plan<Lists>(task, count, seed, 0) : make_plan<Bits>(task, count, seed, 0);
        const int64_t begin = task.row_begin(), rows = task.row_end() - begin;
        const int64_t parts = std::max<int64_t>(1, std::min(threads, rows));
        parts_.resize(parts);
        orthosparse::share(parts, threads, [&] {
            return [&](int64_t k) {
                parts_[k] = std::make_unique<Columns>(task, plan, begin + rows * k / parts,
                                                      begin + rows * (k + 1) / parts);
            };
        });
        starts_.assign(task.out_rows() + 1, 0);
        each([&](int64_t row, int64_t, double) { ++starts_[row + 1]; });
        for (int64_t row = 0; row < task.out_rows(); ++row) starts_[row + 1] += starts_[row];
    }

    const vector<int64_t>& starts() const { return starts_; }

    void write(int64_t* cols, double* values) const {
        vector<int64_t> next(starts_.begin(), starts_.end() - 1);
        each([&](int64_t row, int64_t col, double value) {
            cols[next[row]] = col;
            values[next[row]++] = value;
        });
    }

  private:
    // Visit the entries so that those of any one row of the result come in the order of their columns.
    template <class Visit>
    void each(Visit visit) const {
        for (const auto& part : parts_)
            for (int64_t column = task_.col_begin(); column < task_.col_end(); ++column)
                part->each(column, [&](uint32_t row, double value) {
                    if (task_.tall)
                        visit(column - task_.first, row, value);
                    else
                        visit(row - task_.first, column, value);
                });
    }

    const Task& task_;
    vector<std::unique_ptr<Columns>> parts_;
    vector<int64_t> starts_;
};

}  // namespace givens
