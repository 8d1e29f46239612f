// Bits of a word, pages and caches, and arrays that are freed together.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(_MSC_VER)
#include <intrin.h>
#endif

#include "task.hpp"

// The bits do not depend on the width of the vectors: no product is contracted with a sum.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define WIDE_VECTORS
#endif

namespace givens {

#if defined(_MSC_VER)
inline int bits_in(uint64_t bits) { return static_cast<int>(__popcnt64(bits)); }
inline int lowest(uint64_t bits) {
    unsigned long index;
    _BitScanForward64(&index, bits);
    return static_cast<int>(index);
}
#else
inline int bits_in(uint64_t bits) { return __builtin_popcountll(bits); }
inline int lowest(uint64_t bits) { return __builtin_ctzll(bits); }
#endif

// Columns too many for the caches are asked for some rotations before they are needed.
constexpr size_t AHEAD = 6;

inline void fetch(const void* memory) {
#if defined(_MSC_VER)
    (void)memory;
#else
    __builtin_prefetch(memory);
#endif
}

// The first touch of fresh memory, small page by small page, can cost more than what is computed there.
inline void ask_for_huge_pages(void* memory, size_t bytes) {
#if defined(__linux__)
    constexpr uintptr_t PAGE = 4096;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + PAGE - 1) / PAGE * PAGE;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes) / PAGE * PAGE;
    if (bytes >= 4 << 20) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

// Arrays that are all freed together.
class Arena {
  public:
    template <class Item>
    Item* take(size_t how_many) {
        const size_t bytes = (how_many * sizeof(Item) + 7) / 8 * 8;
        if (left_ < bytes) grow(bytes);
        char* taken = next_;
        next_ += bytes;
        left_ -= bytes;
        return reinterpret_cast<Item*>(taken);
    }

  private:
    void grow(size_t bytes) {
        chunk_ = std::min<size_t>(2 * chunk_, 64 << 20);
        left_ = std::max(chunk_, bytes);
        chunks_.emplace_back(new char[left_]);
        next_ = chunks_.back().get();
        ask_for_huge_pages(next_, left_);
    }

    vector<std::unique_ptr<char[]>> chunks_;
    char* next_ = nullptr;
    size_t left_ = 0, chunk_ = 32 << 10;
};

}  // namespace givens
