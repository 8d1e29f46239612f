// Products with sparse matrices on the CPU, from their active entries.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "../threads.hpp"

namespace {

using std::int32_t;
using std::int64_t;

// A sparse matrix with `rows` rows, in compressed rows, and what it multiplies: y[rows, batch], x[columns, batch].
template <class Real>
struct Product {
    Real* y;
    const Real* x;
    Real* values;
    const int32_t* starts;
    const int32_t* others;
    const int32_t* order;  // entry k of the matrix is values[order[k]]; null: values[k]
    const Real* bias;      // may be null
    const int64_t* table;  // column j of the matrix multiplies x[table[j]:][:batch]; null: row j of x[columns, batch]
    int64_t rows, batch;
    bool sampled;  // whether y and x are given and values are wanted
    int64_t instructions;
};

constexpr int64_t WORTH_A_THREAD = 1 << 20;  // multiplications, about the time that starting it takes

namespace plain {
constexpr int VECTOR = 16;
#include "kernel/products.hpp"
}  // namespace plain

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ORTHOSPARSE_DISPATCH
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
constexpr int VECTOR = 32;
#include "kernel/products.hpp"
}  // namespace avx2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma,prefer-vector-width=512")
namespace avx512 {
constexpr int VECTOR = 64;
#include "kernel/products.hpp"
}  // namespace avx512
#pragma GCC pop_options
#endif

// How many of the instruction sets this machine has: plain, avx2, avx512.
int64_t instruction_sets() {
#ifdef ORTHOSPARSE_DISPATCH
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 1;
    return __builtin_cpu_supports("avx512f") ? 3 : 2;
#else
    return 1;
#endif
}

// Compute some rows.
template <class Real>
void run(const Product<Real>& p, int64_t begin, int64_t end) {
#ifdef ORTHOSPARSE_DISPATCH
    if (p.instructions == 2) return avx512::run(p, begin, end);
    if (p.instructions == 1) return avx2::run(p, begin, end);
#endif
    plain::run(p, begin, end);
}

// Compute all rows: shared between threads by the number of their entries, each row by one thread.
template <class Real>
void run_all(const Product<Real>& p, int64_t threads) {
    const int64_t entries = p.starts[p.rows];
    threads = std::max<int64_t>(1, std::min(threads, entries * p.batch / WORTH_A_THREAD));
    auto cut = [&](int64_t k) -> int64_t {
        return k == threads ? p.rows : std::lower_bound(p.starts, p.starts + p.rows, entries * k / threads) - p.starts;
    };
    orthosparse::share(threads, threads, [&] { return [&](int64_t k) { run(p, cut(k), cut(k + 1)); }; });
}

template <class Real>
Product<Real> product_at(const unsigned long long* at, long long rows, long long batch, bool sampled,
                         long long instructions) {
    return {reinterpret_cast<Real*>(at[0]),          reinterpret_cast<const Real*>(at[1]),
            reinterpret_cast<Real*>(at[2]),          reinterpret_cast<const int32_t*>(at[3]),
            reinterpret_cast<const int32_t*>(at[4]), reinterpret_cast<const int32_t*>(at[5]),
            reinterpret_cast<const Real*>(at[6]),    reinterpret_cast<const int64_t*>(at[7]),
            rows, batch, sampled, instructions};
}

PyObject* py_run(PyObject*, PyObject* args) {
    unsigned long long at[8];
    long long rows, batch, threads, instructions;
    int doubles, sampled;
    if (!PyArg_ParseTuple(args, "ppKKKKKKKKLLLL", &doubles, &sampled, at, at + 1, at + 2, at + 3, at + 4, at + 5, at + 6,
                          at + 7, &rows, &batch, &threads, &instructions))
        return nullptr;
    if (instructions < 0 || instructions >= instruction_sets()) {
        PyErr_SetString(PyExc_ValueError, "instructions: this machine does not have them");
        return nullptr;
    }
    Py_BEGIN_ALLOW_THREADS;
    if (doubles)
        run_all(product_at<double>(at, rows, batch, sampled, instructions), threads);
    else
        run_all(product_at<float>(at, rows, batch, sampled, instructions), threads);
    Py_END_ALLOW_THREADS;
    return Py_NewRef(Py_None);
}

#include "kernel/images.hpp"

PyObject* py_arrange(PyObject*, PyObject* args) {
    int doubles;
    unsigned long long to, x;
    long long n[20];
    if (!PyArg_ParseTuple(args, "pKK(LLLLLLLLLLLLLLLLLLLL)", &doubles, &to, &x, n, n + 1, n + 2, n + 3, n + 4, n + 5,
                          n + 6, n + 7, n + 8, n + 9, n + 10, n + 11, n + 12, n + 13, n + 14, n + 15, n + 16, n + 17,
                          n + 18, n + 19))
        return nullptr;
    const Images p{n[0], n[1], n[2], {n[3], n[4], n[5]}, {n[6], n[7], n[8], n[9], n[10]}, {n[11], n[12], n[13]},
                     {n[14], n[15], n[16]}, {n[17], n[18], n[19]}};
    Py_BEGIN_ALLOW_THREADS;
    if (doubles)
        arrange(reinterpret_cast<double*>(to), reinterpret_cast<const double*>(x), p);
    else
        arrange(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(x), p);
    Py_END_ALLOW_THREADS;
    return Py_NewRef(Py_None);
}

PyObject* py_instruction_sets(PyObject*, PyObject*) { return PyLong_FromLongLong(instruction_sets()); }

PyMethodDef METHODS[] = {
    {"run", py_run, METH_VARARGS,
     "run(doubles, sampled, y, x, values, starts, others, order, bias, table, rows, batch, threads, instructions): "
     "compute a product of the arrays at these addresses; 0 for no order, bias or table."},
    {"arrange", py_arrange, METH_VARARGS,
     "arrange(doubles, to, x, numbers): copy images into another order; the numbers are those of struct Images."},
    {"instruction_sets", py_instruction_sets, METH_NOARGS, "How many instruction sets run takes on this machine."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernel", "Products with sparse matrices.", 0, METHODS,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kernel() { return PyModule_Create(&MODULE); }
