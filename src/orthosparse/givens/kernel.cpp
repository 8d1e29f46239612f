// The Givens sampler's compiled kernel: the same draws, active entries and values as the Python modules beside it.
//
// A matrix is made in two passes. The plan rotates supports only (which rows each column holds) until the stopping rule
// is met. Then the values: a row evolves by itself once the rotations are known, so rows are taken in blocks that fit a
// machine word, blocks or row ranges can go to any thread, and only live entries are touched. Build without contraction
// of a * b + c into one operation (-ffp-contract=off): the bits are part of the contract.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <memory>

#include "kernel/compressed.hpp"
#include "kernel/dense.hpp"

namespace {

using namespace givens;

struct Buffer {
    Py_buffer view{};
    bool open = false;

    bool get(PyObject* object, int flags) {
        return open = PyObject_GetBuffer(object, &view, flags | PyBUF_C_CONTIGUOUS) == 0;
    }
    ~Buffer() {
        if (open) PyBuffer_Release(&view);
    }
};

// Run C++ without the interpreter's lock; false with a Python exception set when it failed.
template <class Work>
bool unlocked(Work work) {
    bool fits = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        work();
    } catch (const std::exception&) {  // only allocations can fail
        fits = false;
    }
    Py_END_ALLOW_THREADS;
    if (!fits) PyErr_NoMemory();
    return fits;
}

PyObject* py_fill(PyObject*, PyObject* args) {
    Task task;
    unsigned long long seed;
    PyObject *py_counts, *py_values, *py_mask;
    long long threads;
    if (!PyArg_ParseTuple(args, "LLpLLiddpKOOOL", &task.height, &task.width, &task.tall, &task.first, &task.last,
                          &task.stop, &task.cosine, &task.sine, &task.permuted, &seed, &py_counts, &py_values, &py_mask,
                          &threads))
        return nullptr;
    Buffer counts, values, mask;
    if (!counts.get(py_counts, PyBUF_SIMPLE) || !values.get(py_values, PyBUF_WRITABLE) ||
        !mask.get(py_mask, PyBUF_WRITABLE))
        return nullptr;
    const Py_ssize_t batch = counts.view.len / 8, entries = mask.view.len, item = values.view.itemsize;
    if (entries != batch * task.out_rows() * task.out_cols() || values.view.len != entries * item ||
        (item != 4 && item != 8)) {
        PyErr_SetString(PyExc_ValueError, "values, mask: not of the size that the shape and the counts ask for");
        return nullptr;
    }
    const auto* wanted = static_cast<const int64_t*>(counts.view.buf);
    auto* active = static_cast<char*>(mask.view.buf);
    const bool done = unlocked([&] {
        ask_for_huge_pages(values.view.buf, values.view.len);
        ask_for_huge_pages(mask.view.buf, mask.view.len);
        if (item == 8)
            fill(task, seed, wanted, batch, static_cast<double*>(values.view.buf), active, threads);
        else
            fill(task, seed, wanted, batch, static_cast<float*>(values.view.buf), active, threads);
    });
    return done ? Py_NewRef(Py_None) : nullptr;
}

PyObject* py_csr(PyObject*, PyObject* args) {
    Task task;
    unsigned long long seed;
    long long count, threads;
    if (!PyArg_ParseTuple(args, "LLpLLiddpKLL", &task.height, &task.width, &task.tall, &task.first, &task.last,
                          &task.stop, &task.cosine, &task.sine, &task.permuted, &seed, &count, &threads))
        return nullptr;
    std::unique_ptr<Compressed> made;
    if (!unlocked([&] { made = std::make_unique<Compressed>(task, count, seed, threads); })) return nullptr;
    const auto& starts = made->starts();
    const auto* start_bytes = reinterpret_cast<const char*>(starts.data());
    const auto bytes = static_cast<Py_ssize_t>(8 * starts.back());
    PyObject* py_starts = PyByteArray_FromStringAndSize(start_bytes, static_cast<Py_ssize_t>(8 * starts.size()));
    PyObject* py_cols = PyByteArray_FromStringAndSize(nullptr, bytes);
    PyObject* py_values = PyByteArray_FromStringAndSize(nullptr, bytes);
    PyObject* result = nullptr;
    if (py_starts && py_cols && py_values) {
        auto* cols = reinterpret_cast<int64_t*>(PyByteArray_AsString(py_cols));
        auto* values = reinterpret_cast<double*>(PyByteArray_AsString(py_values));
        ask_for_huge_pages(cols, bytes);
        ask_for_huge_pages(values, bytes);
        if (unlocked([&] { made->write(cols, values); })) result = PyTuple_Pack(3, py_starts, py_cols, py_values);
    }
    Py_XDECREF(py_starts);
    Py_XDECREF(py_cols);
    Py_XDECREF(py_values);
    return result;
}

PyMethodDef METHODS[] = {
    {"fill", py_fill, METH_VARARGS, "Write one matrix per count, and its mask, into two buffers."},
    {"csr", py_csr, METH_VARARGS, "Return one matrix as bytes of row starts, columns and values."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernel", "The Givens sampler's compiled kernel.", 0, METHODS,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kernel() { return PyModule_Create(&MODULE); }
