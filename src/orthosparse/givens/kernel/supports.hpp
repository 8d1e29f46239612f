// The rows that each column holds: as bits where they are many, as sorted lists where they are few.

#pragma once

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "memory.hpp"

namespace givens {

WIDE_VECTORS static int64_t bits_in_union(const uint64_t* a, const uint64_t* b, size_t words) {
    int64_t size = 0;
    for (size_t k = 0; k < words; ++k) size += bits_in(a[k] | b[k]);
    return size;
}

class Bits {
  public:
    Bits(int64_t height, int64_t width) : words_((height + 63) / 64), data_(words_ * width), saved_(2 * words_) {}

    void add(uint32_t column, uint32_t row) { at(column)[row / 64] |= uint64_t{1} << row % 64; }
    bool holds(uint32_t column, uint32_t row) { return at(column)[row / 64] >> row % 64 & 1; }
    int64_t union_size(uint32_t i, uint32_t j) { return bits_in_union(at(i), at(j), words_); }

    void unite(uint32_t i, uint32_t j, int64_t) {
        uint64_t *a = at(i), *b = at(j);
        for (size_t k = 0; k < words_; ++k) a[k] = b[k] = a[k] | b[k];
    }
    void save(uint32_t i, uint32_t j) {
        std::copy_n(at(i), words_, saved_.data());
        std::copy_n(at(j), words_, saved_.data() + words_);
    }
    void restore(uint32_t i, uint32_t j) {
        std::copy_n(saved_.data(), words_, at(i));
        std::copy_n(saved_.data() + words_, words_, at(j));
    }

    static constexpr bool SCATTERED = false;

  private:
    uint64_t* at(uint32_t column) { return data_.data() + column * words_; }

    size_t words_;
    vector<uint64_t> data_, saved_;
};

class Lists {
  public:
    Lists(int64_t, int64_t width) : lists_(width) {}

    void add(uint32_t column, uint32_t row) {
        const List old = lists_[column];
        const auto index = std::lower_bound(old.rows, old.rows + old.size, row) - old.rows;
        const List made{arena_.take<uint32_t>(old.size + 1), old.size + 1};
        std::copy_n(old.rows, index, made.rows);
        made.rows[index] = row;
        std::copy_n(old.rows + index, old.size - index, made.rows + index + 1);
        lists_[column] = made;
    }
    bool holds(uint32_t column, uint32_t row) {
        const List list = lists_[column];
        return std::binary_search(list.rows, list.rows + list.size, row);
    }
    int64_t union_size(uint32_t i, uint32_t j) {
        const List a = lists_[i], b = lists_[j];
        if (a.rows == b.rows) return static_cast<int64_t>(a.size);
        if (united_.size() < a.size + b.size) united_.resize(a.size + b.size);
        return std::set_union(a.rows, a.rows + a.size, b.rows, b.rows + b.size, united_.data()) - united_.data();
    }
    void unite(uint32_t i, uint32_t j, int64_t size) {  // always follows union_size of the same pair
        const List made{arena_.take<uint32_t>(size), static_cast<size_t>(size)};
        std::copy_n(united_.data(), size, made.rows);
        lists_[i] = lists_[j] = made;
    }
    void save(uint32_t i, uint32_t j) { saved_ = {lists_[i], lists_[j]}; }
    void restore(uint32_t i, uint32_t j) { std::tie(lists_[i], lists_[j]) = saved_; }

    static constexpr bool SCATTERED = true;
    void fetch_header(uint32_t column) { fetch(&lists_[column]); }
    void fetch_rows(uint32_t column) { fetch(lists_[column].rows); }

  private:
    struct List {  // columns that were united share their rows
        uint32_t* rows = nullptr;
        size_t size = 0;
    };

    Arena arena_;
    vector<List> lists_;
    vector<uint32_t> united_;
    std::pair<List, List> saved_;
};

}  // namespace givens
