// The time that CUB needs for what operations of this crate do: `cub OPERATION N RUNS` prints a median and an interquartile range in
// microseconds. As `patterns bench` does it: buffers in turns that together exceed twice the second-level cache, launches one after the
// other between two events, several of them where one is too short.

#include <cub/cub.cuh>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

static void check(cudaError_t error) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

// Device memory with what the host has.
template <typename T> static T* upload(const std::vector<T>& values) {
    T* at;
    check(cudaMalloc(&at, values.size() * sizeof(T)));
    check(cudaMemcpy(at, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return at;
}

template <typename T> static T* room(size_t count) {
    T* at;
    check(cudaMalloc(&at, count * sizeof(T)));
    return at;
}

// The time of one of several launches, in microseconds, as one more of `times`.
static void time_launches(std::vector<double>& times, int launches, auto&& launch) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin));
    check(cudaEventCreate(&end));
    check(cudaEventRecord(begin));
    for (int i = 0; i < launches; i++) launch();
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float ms;
    check(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms * 1e3 / launches);
    check(cudaEventDestroy(begin));
    check(cudaEventDestroy(end));
}

static double quantile(const std::vector<double>& sorted, double part) {
    double place = part * (sorted.size() - 1);
    size_t below = static_cast<size_t>(place), above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
}

// `launch(set, storage, bytes)` is a call of CUB with the buffers of a set; without storage it says how much it needs.
static void measure(int runs, int sets, auto&& launch) {
    size_t bytes = 0;
    check(launch(0, nullptr, bytes));
    void* storage = room<char>(std::max<size_t>(bytes, 1));
    int turn = 0;
    auto next = [&] { check(launch(turn++ % sets, storage, bytes)); };
    std::vector<double> first, times;
    for (int i = 0; i < 3; i++) time_launches(first, 1, next);
    std::sort(first.begin(), first.end());
    double estimate = std::max(first[1], 0.1);
    int launches = estimate < 50.0 ? std::clamp(static_cast<int>(500.0 / estimate), 1, 256) : 1;
    int warm_up = std::clamp(static_cast<int>(3e5 / (estimate * launches)), 3, 10000);
    for (int i = 0; i < warm_up; i++) time_launches(first, launches, next);
    for (int i = 0; i < runs; i++) time_launches(times, launches, next);
    std::sort(times.begin(), times.end());
    std::printf("%.3f %.3f\n", quantile(times, 0.5), quantile(times, 0.75) - quantile(times, 0.25));
}

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: cub sum|inclusive-scan|histogram|radix-sort N RUNS\n");
        return 2;
    }
    std::string operation = argv[1];
    size_t n = std::strtoull(argv[2], nullptr, 10);
    int runs = std::atoi(argv[3]);
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0));
    size_t of_set = operation == "radix-sort" ? 16 * n : operation == "inclusive-scan" ? 8 * n : 4 * n;
    int sets = std::clamp<int>((2 * properties.l2CacheSize + of_set - 1) / of_set, 1, 63) + 1;
    std::mt19937 random(1);
    if (operation == "sum" || operation == "inclusive-scan") {
        std::vector<float> values(n);
        for (auto& value : values) value = std::uniform_real_distribution<float>(-1, 1)(random);
        std::vector<float*> from, to;
        for (int i = 0; i < sets; i++) {
            from.push_back(upload(values));
            to.push_back(room<float>(operation == "sum" ? 1 : n));
        }
        measure(runs, sets, [&](int set, void* storage, size_t& bytes) {
            if (operation == "sum") return cub::DeviceReduce::Sum(storage, bytes, from[set], to[set], static_cast<int64_t>(n));
            return cub::DeviceScan::InclusiveSum(storage, bytes, from[set], to[set], static_cast<int64_t>(n));
        });
    } else if (operation == "histogram") {
        // Words below 2^26, as the operation has them: of each four bytes one has four values only.
        std::vector<uint32_t> words(n);
        for (auto& word : words) word = random() & ((1u << 26) - 1);
        std::vector<uint32_t*> from;
        std::vector<int*> to;
        for (int i = 0; i < sets; i++) {
            from.push_back(upload(words));
            to.push_back(room<int>(256));
        }
        measure(runs, sets, [&](int set, void* storage, size_t& bytes) {
            auto samples = reinterpret_cast<const uint8_t*>(from[set]);
            return cub::DeviceHistogram::HistogramEven(storage, bytes, samples, to[set], 257, 0, 256, static_cast<int64_t>(4 * n));
        });
    } else if (operation == "radix-sort") {
        std::vector<uint32_t> keys(n), values(n);
        for (size_t i = 0; i < n; i++) {
            keys[i] = random();
            values[i] = static_cast<uint32_t>(i);
        }
        std::vector<uint32_t*> from, to, from_values, to_values;
        for (int i = 0; i < sets; i++) {
            from.push_back(upload(keys));
            from_values.push_back(upload(values));
            to.push_back(room<uint32_t>(n));
            to_values.push_back(room<uint32_t>(n));
        }
        measure(runs, sets, [&](int set, void* storage, size_t& bytes) {
            return cub::DeviceRadixSort::SortPairs(
                storage, bytes, from[set], to[set], from_values[set], to_values[set], static_cast<int64_t>(n));
        });
    } else {
        std::fprintf(stderr, "no operation %s\n", operation.c_str());
        return 2;
    }
}
