// Jobs shared between threads.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace orthosparse {

// Run work(job) for every job; an exception in one of them ends the others and comes back to the caller.
template <class Work>
void share(std::int64_t jobs, std::int64_t threads, Work work) {
    std::atomic<std::int64_t> next{0};
    std::exception_ptr failure;
    std::mutex lock;
    auto run = [&] {
        try {
            auto state = work();
            for (std::int64_t job; (job = next++) < jobs;) state(job);
        } catch (...) {
            std::lock_guard<std::mutex> hold(lock);
            failure = std::current_exception();
            next = jobs;
        }
    };
    std::vector<std::thread> others;
    try {
        for (std::int64_t k = 1; k < std::min(threads, jobs); ++k) others.emplace_back(run);
    } catch (const std::exception&) {
    }  // fewer threads than asked do the same work
    run();
    for (auto& other : others) other.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace orthosparse
