// The distance of a sparse matrix's Gram matrix from the identity, from its non-zeros.
//
// Lines are the rows or the columns, whichever are fewer, and crossings the others: G[j, k] sums v[i, j] v[i, k] over the
// crossings i. Some lines are taken at once: for each crossing that has an entry in one of them, all its later entries are
// added to that row of G. So the whole of G is never in memory, nothing left of its diagonal is computed, and a crossing
// is read from memory once for all those lines.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

#include "../threads.hpp"

namespace {

using std::int32_t;
using std::int64_t;
using std::vector;

constexpr int64_t AT_ONCE = 16;  // lines

// The non-zeros of a matrix by crossings, each with its lines in ascending order.
template <class Real, class Index>
struct Entries {
    int64_t lines, crossings;
    vector<int64_t> starts;  // of each crossing; one more at the end
    vector<Index> line_of;
    vector<Real> value;
};

vector<int64_t> running_sums(const vector<int64_t>& counts) {
    vector<int64_t> starts(counts.size() + 1, 0);
    for (size_t k = 0; k < counts.size(); ++k) starts[k + 1] = starts[k] + counts[k];
    return starts;
}

// Rows and columns of the matrix are stored row by row; `most` bounds the multiplications.
template <class Real, class Index>
bool gather(const Real* matrix, int64_t rows, int64_t cols, int64_t most, Entries<Real, Index>& entries) {
    const bool tall = rows >= cols;
    vector<int64_t> row_counts(rows, 0), col_counts(cols, 0);
    vector<int32_t> found;
    vector<Real> values;
    int64_t size = 0, work = 0;
    for (int64_t row = 0; row < rows; ++row) {
        if (static_cast<int64_t>(found.size()) < size + cols) {
            found.resize(std::max(2 * size, size + 64 * cols));
            values.resize(found.size());
        }
        const Real* line = matrix + row * cols;
        const int64_t before = size;
        for (int64_t col = 0; col < cols; ++col) {  // no branch: which entries are zero is hard to predict
            found[size] = static_cast<int32_t>(col);
            values[size] = line[col];
            size += line[col] != 0;
        }
        row_counts[row] = size - before;
        for (int64_t k = before; k < size; ++k) ++col_counts[found[k]];
        if (tall) work += row_counts[row] * row_counts[row] / 2;
        if (work > most) return false;
    }
    if (!tall)
        for (int64_t count : col_counts) work += count * count / 2;
    if (work > most) return false;
    entries.lines = tall ? cols : rows;
    entries.crossings = tall ? rows : cols;
    entries.starts = running_sums(tall ? row_counts : col_counts);
    entries.line_of.resize(size);
    if (tall) {
        std::copy(found.begin(), found.begin() + size, entries.line_of.begin());
        values.resize(size);
        entries.value = std::move(values);
        return true;
    }
    entries.value.resize(size);
    vector<int64_t> next = entries.starts;
    int64_t k = 0;
    for (int64_t row = 0; row < rows; ++row)
        for (const int64_t end = k + row_counts[row]; k < end; ++k) {
            const int64_t index = next[found[k]]++;
            entries.line_of[index] = static_cast<Index>(row);
            entries.value[index] = values[k];
        }
    return true;
}

// The sums of some lines. They are taken in ascending order, so that each crossing is read from where it was left.
template <class Real, class Index>
class Lines {
public:
    Lines(const Entries<Real, Index>& entries, double scale)
        : entries_(entries), scale_(scale), next_(entries.starts), sums_(AT_ONCE * entries.lines, 0.0) {}

    // Write the squares of G - I in each of the lines, those off the diagonal twice.
    void squares(int64_t first, int64_t last, double* squares) {
        const Index* line_of = entries_.line_of.data();
        const Real* value = entries_.value.data();
        for (int64_t crossing = 0; crossing < entries_.crossings; ++crossing) {
            int64_t entry = next_[crossing];
            const int64_t end = entries_.starts[crossing + 1];
            while (entry < end && line_of[entry] < first) ++entry;  // other threads had those lines
            // Two lines at once: what they multiply is read once.
            for (; entry + 1 < end && line_of[entry + 1] < last; entry += 2) {
                double *sums = sums_of(line_of[entry] - first), *others = sums_of(line_of[entry + 1] - first);
                const double factor = value[entry] * scale_ * scale_, other = value[entry + 1] * scale_ * scale_;
                sums[line_of[entry]] += factor * value[entry];
                for (int64_t e = entry + 1; e < end; ++e) {
                    const Index line = line_of[e];
                    const double multiplied = value[e];
                    sums[line] += factor * multiplied;
                    others[line] += other * multiplied;
                }
            }
            if (entry < end && line_of[entry] < last) {
                double* sums = sums_of(line_of[entry] - first);
                const double factor = value[entry] * scale_ * scale_;
                for (int64_t e = entry; e < end; ++e) sums[line_of[e]] += factor * value[e];
                ++entry;
            }
            next_[crossing] = entry;
        }
        for (int64_t line = first; line < last; ++line)
            squares[line] = finish(line, sums_of(line - first));
    }

private:
    double* sums_of(int64_t which) { return sums_.data() + which * entries_.lines; }

    double finish(int64_t line, double* sums) {
        const double diagonal = sums[line] - 1.0;
        double total = 0.0;
        for (int64_t other = line + 1; other < entries_.lines; ++other) total += sums[other] * sums[other];
        std::fill(sums + line, sums + entries_.lines, 0.0);
        return diagonal * diagonal + 2.0 * total;
    }

    const Entries<Real, Index>& entries_;
    double scale_;
    vector<int64_t> next_;
    vector<double> sums_;
};

// Lines are shared between threads; their squares are added in one order, whatever the number of threads.
template <class Real, class Index>
double squares_of(const Entries<Real, Index>& entries, double scale, int64_t threads) {
    vector<double> squares(entries.lines, 0.0);
    orthosparse::share((entries.lines + AT_ONCE - 1) / AT_ONCE, threads, [&] {
        return [&, lines = Lines<Real, Index>(entries, scale)](int64_t job) mutable {
            const int64_t first = job * AT_ONCE;
            lines.squares(first, std::min(first + AT_ONCE, entries.lines), squares.data());
        };
    });
    double total = 0.0;
    for (double each : squares) total += each;
    return total;
}

// Return false where more than `most` products are needed.
template <class Index, class Real>
bool measure(const Real* matrix, int64_t rows, int64_t cols, double scale, int64_t most, int64_t threads,
             double& squares) {
    Entries<Real, Index> entries;
    if (!gather(matrix, rows, cols, most, entries)) return false;
    squares = squares_of(entries, scale, threads);
    return true;
}

template <class Real>
bool measure_any(const void* matrix, int64_t rows, int64_t cols, double scale, int64_t most, int64_t threads,
                 double& squares) {
    const auto* real = static_cast<const Real*>(matrix);
    const bool small = std::min(rows, cols) <= 65536;
    return small ? measure<std::uint16_t>(real, rows, cols, scale, most, threads, squares)
                 : measure<std::uint32_t>(real, rows, cols, scale, most, threads, squares);
}

PyObject* py_squares(PyObject*, PyObject* args) {
    PyObject* py_matrix;
    long long rows, cols, most, threads;
    double scale;
    if (!PyArg_ParseTuple(args, "OLLdLL", &py_matrix, &rows, &cols, &scale, &most, &threads)) return nullptr;
    Py_buffer view{};
    if (PyObject_GetBuffer(py_matrix, &view, PyBUF_C_CONTIGUOUS) != 0) return nullptr;
    const bool fits = view.len == rows * cols * view.itemsize && (view.itemsize == 4 || view.itemsize == 8);
    bool few = false, allocated = true;
    double squares = 0.0;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS;
        try {
            few = view.itemsize == 4 ? measure_any<float>(view.buf, rows, cols, scale, most, threads, squares)
                                     : measure_any<double>(view.buf, rows, cols, scale, most, threads, squares);
        } catch (const std::exception&) {  // only allocations can fail
            allocated = false;
        }
        Py_END_ALLOW_THREADS;
    }
    PyBuffer_Release(&view);
    if (!fits) PyErr_SetString(PyExc_ValueError, "matrix: not of the size that its shape asks for");
    if (!allocated) PyErr_NoMemory();
    if (!fits || !allocated) return nullptr;
    if (!few) return Py_NewRef(Py_None);
    return PyFloat_FromDouble(squares);
}

PyMethodDef METHODS[] = {
    {"squares", py_squares, METH_VARARGS, "Return ||A^T A - I||^2 of A = scale * matrix, or None where that takes too many products."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernel", "Gram matrices of sparse matrices.", 0, METHODS,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kernel() { return PyModule_Create(&MODULE); }
