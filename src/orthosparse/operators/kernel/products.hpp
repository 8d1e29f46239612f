// Products with a sparse matrix, for one instruction set: kernel.cpp includes this file once for each of them, inside a
// namespace in which VECTOR is the number of bytes of its registers.
//
// Samples lie features first, x[features, batch], so that an active entry multiplies whole vectors of them. Every sum is
// taken in one order, which depends on the shapes alone: never on the number of threads.

template <class Real, int LANES>
struct Lanes {
    typedef Real Vector __attribute__((vector_size(LANES * sizeof(Real))));

    static inline Vector load(const Real* from) {
        Vector vector;
        std::memcpy(&vector, from, sizeof vector);
        return vector;
    }
    static inline void store(Real* to, Vector vector) { std::memcpy(to, &vector, sizeof vector); }
    static inline Real sum(Vector vector) {
        using Half = Lanes<Real, LANES / 2>;
        typename Half::Vector halves[2];
        std::memcpy(halves, &vector, sizeof vector);
        return Half::sum(halves[0] + halves[1]);
    }
};

template <class Real>
struct Lanes<Real, 1> {
    typedef Real Vector;

    static inline Real load(const Real* from) { return *from; }
    static inline void store(Real* to, Real value) { *to = value; }
    static inline Real sum(Real value) { return value; }
};

template <class Real>
constexpr int FULL = VECTOR / sizeof(Real);  // lanes of a register

// What the column of an entry multiplies.
template <bool TABLE, class Real>
inline const Real* window(const Product<Real>& p, int64_t entry) {
    const int64_t column = p.others[entry];
    return p.x + (TABLE ? p.table[column] : column * p.batch);
}

// Write y[row, first:first + COUNT * LANES] of the rows [begin, end). UNROLLED sums run beside each other where COUNT is
// small: one alone would wait for each of its additions.
template <bool TABLE, int LANES, int COUNT, int UNROLLED, class Real>
void multiply(const Product<Real>& p, int64_t begin, int64_t end, int64_t first) {
    using L = Lanes<Real, LANES>;
    for (int64_t row = begin; row < end; ++row) {
        typename L::Vector sums[UNROLLED][COUNT] = {};
        const int64_t last = p.starts[row + 1];
        int64_t entry = p.starts[row];
        auto add = [&](int64_t which, int beside) __attribute__((always_inline)) {
            const Real value = p.values[p.order ? p.order[which] : which];
            const Real* from = window<TABLE>(p, which) + first;
            for (int k = 0; k < COUNT; ++k) sums[beside][k] += value * L::load(from + k * LANES);
        };
        for (; entry + UNROLLED <= last; entry += UNROLLED)
            for (int beside = 0; beside < UNROLLED; ++beside) add(entry + beside, beside);
        for (; entry < last; ++entry) add(entry, 0);
        const Real bias = p.bias ? p.bias[row] : Real(0);
        Real* to = p.y + row * p.batch + first;
        for (int k = 0; k < COUNT; ++k) {
            for (int beside = 1; beside < UNROLLED; ++beside) sums[0][k] += sums[beside][k];
            L::store(to + k * LANES, sums[0][k] + bias);
        }
    }
}

// Write y of the rows [begin, end): as many vectors at once as there are registers for. The last vector may lie half on
// the one before, which writes the same numbers twice.
template <bool TABLE, int LANES, class Real>
void multiply_all(const Product<Real>& p, int64_t begin, int64_t end) {
    if constexpr (LANES > 1)
        if (p.batch < LANES) return multiply_all<TABLE, LANES / 2>(p, begin, end);
    int64_t first = 0;
    if constexpr (LANES == FULL<Real>) {
        for (; p.batch - first >= 8 * LANES; first += 8 * LANES) multiply<TABLE, LANES, 8, 1>(p, begin, end, first);
        for (; p.batch - first >= 4 * LANES; first += 4 * LANES) multiply<TABLE, LANES, 4, 1>(p, begin, end, first);
        for (; p.batch - first >= 2 * LANES; first += 2 * LANES) multiply<TABLE, LANES, 2, 2>(p, begin, end, first);
    }
    for (; p.batch - first >= LANES; first += LANES) multiply<TABLE, LANES, 1, 4>(p, begin, end, first);
    if (first < p.batch) multiply<TABLE, LANES, 1, 4>(p, begin, end, p.batch - LANES);
}

// Add to values[entry] the sum of g[row, k] x[other, k] over k in first:first + COUNT * LANES, or write it if first is 0.
template <bool TABLE, int LANES, int COUNT, class Real>
void sample(const Product<Real>& p, int64_t begin, int64_t end, int64_t first) {
    using L = Lanes<Real, LANES>;
    for (int64_t row = begin; row < end; ++row) {
        typename L::Vector g[COUNT];
        for (int k = 0; k < COUNT; ++k) g[k] = L::load(p.y + row * p.batch + first + k * LANES);
        for (int64_t entry = p.starts[row]; entry < p.starts[row + 1]; ++entry) {
            const Real* from = window<TABLE>(p, entry) + first;
            typename L::Vector sum = g[0] * L::load(from);
            for (int k = 1; k < COUNT; ++k) sum += g[k] * L::load(from + k * LANES);
            p.values[entry] = (first ? p.values[entry] : Real(0)) + L::sum(sum);
        }
    }
}

template <bool TABLE, int LANES, class Real>
void sample_all(const Product<Real>& p, int64_t begin, int64_t end, int64_t first) {
    if constexpr (LANES == FULL<Real>) {
        for (; p.batch - first >= 8 * LANES; first += 8 * LANES) sample<TABLE, LANES, 8>(p, begin, end, first);
        for (; p.batch - first >= 4 * LANES; first += 4 * LANES) sample<TABLE, LANES, 4>(p, begin, end, first);
        for (; p.batch - first >= 2 * LANES; first += 2 * LANES) sample<TABLE, LANES, 2>(p, begin, end, first);
    }
    for (; p.batch - first >= LANES; first += LANES) sample<TABLE, LANES, 1>(p, begin, end, first);
    if constexpr (LANES > 1) sample_all<TABLE, LANES / 2>(p, begin, end, first);
}

template <bool TABLE, class Real>
void run(const Product<Real>& p, int64_t begin, int64_t end) {
    if (p.sampled)
        sample_all<TABLE, FULL<Real>>(p, begin, end, 0);
    else
        multiply_all<TABLE, FULL<Real>>(p, begin, end);
}

template <class Real>
void run(const Product<Real>& p, int64_t begin, int64_t end) {
    p.table ? run<true>(p, begin, end) : run<false>(p, begin, end);
}
