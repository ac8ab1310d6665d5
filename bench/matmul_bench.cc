// Speed of this CPU's matmul kernels against the machine's limits, measured in the same run: decode
// (one token) in GB/s of packed weights against the memory's read bandwidth, prefill (many tokens)
// in GOP/s against the peak of int8 dot products (for float weights: of float FMAs).
//
// Usage: matmul_bench [threads=2] [tokens=512] [type ...]
//        matmul_bench THREADS limits            prints only the limits, as JSON
// WEFT_CPU selects the kernels, and the instructions of the limits (WEFT_CPU=avx2).
//        matmul_bench THREADS rows [type ...]   steps of a batched decode: few tokens, with weights
//                                               read from memory ($WEFT_MIB: their size in MiB)
#include <fmt/core.h>
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "hw/cpu.h"
#include "kernels/kernels.h"

namespace {

using weft::DType;
using weft::kernels::Kernels;

double Now() {
    using Clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// Seconds of the fastest of `repeats` rounds of work(part) on `threads` threads started together.
double Best(int threads, int repeats, const std::function<void(int)>& work) {
    double best = 1e9;
    std::atomic<int> ready{0};
    std::vector<double> begins(static_cast<size_t>(threads)), ends(begins);
    const auto run = [&](int part) {
        weft::RunThisThreadOn({&part, 1});
        for (int i = 0; i < repeats; ++i) {
            ready.fetch_add(1);
            while (ready.load() < threads * (2 * i + 1)) _mm_pause();
            begins[static_cast<size_t>(part)] = Now();
            work(part);
            ends[static_cast<size_t>(part)] = Now();
            ready.fetch_add(1);
            while (ready.load() < threads * (2 * i + 2)) _mm_pause();
            if (part == 0)
                best = std::min(
                    best, *std::ranges::max_element(ends) - *std::ranges::min_element(begins));
        }
    };
    std::vector<std::thread> others;
    for (int part = 1; part < threads; ++part) others.emplace_back(run, part);
    run(0);
    for (std::thread& thread : others) thread.join();
    return best;
}

struct Buffer {
    static constexpr int64_t kPage = 2 << 20;  // huge pages, as in the CPU backend
    explicit Buffer(int64_t bytes)
        : size(static_cast<size_t>((bytes + kPage - 1) / kPage * kPage)),
          data(static_cast<std::byte*>(std::aligned_alloc(kPage, size)), &std::free) {
        ::madvise(data.get(), size, MADV_HUGEPAGE);
        std::memset(data.get(), 0x2c, size);
    }
    size_t size;
    std::unique_ptr<std::byte, decltype(&std::free)> data;
};

// Reads `bytes` bytes from `p`, one cache line after the other.
[[gnu::target("avx512f")]] void ReadByAvx512(const std::byte* p, size_t bytes) {
    __m512i x = _mm512_setzero_si512();
    for (size_t i = 0; i < bytes; i += 64) x = _mm512_xor_si512(x, _mm512_load_si512(p + i));
    __asm__ volatile("" : : "v"(x));
}

[[gnu::target("avx2")]] void ReadByAvx2(const std::byte* p, size_t bytes) {
    __m256i x = _mm256_setzero_si256(), y = x;
    for (size_t i = 0; i < bytes; i += 64) {
        const auto* line = reinterpret_cast<const __m256i*>(p + i);
        x = _mm256_xor_si256(x, _mm256_load_si256(line));
        y = _mm256_xor_si256(y, _mm256_load_si256(line + 1));
    }
    __asm__ volatile("" : : "x"(x), "x"(y));
}

double ReadBandwidth(int threads, void (*read)(const std::byte*, size_t)) {
    const Buffer buffer(int64_t{256} << 20);
    const size_t share = buffer.size / static_cast<size_t>(threads);
    const auto part = [&](int i) {
        read(buffer.data.get() + static_cast<size_t>(i) * share, share);
    };
    return static_cast<double>(buffer.size) / Best(threads, 8, part) / 1e9;
}

// Runs `code` often enough to measure its rate: eight sums in registers 0 to 7 that depend only on
// themselves; registers 8 and 9 are zeros, 10 to 13 are free.
#define WEFT_RATE(code)                                                                        \
    [](int) {                                                                                  \
        __asm__ volatile("vpxor %%xmm8,%%xmm8,%%xmm8\nvpxor %%xmm9,%%xmm9,%%xmm9"              \
                         :                                                                     \
                         :                                                                     \
                         : "xmm8", "xmm9");                                                    \
        for (int i = 0; i < kRounds; ++i) {                                                    \
            __asm__ volatile(code                                                              \
                             :                                                                 \
                             :                                                                 \
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", \
                               "xmm10", "xmm11", "xmm12", "xmm13");                            \
        }                                                                                      \
    }
#define WEFT_ONE(name, reg, sum) name " %%" reg "8,%%" reg "9,%%" reg sum "\n"
#define WEFT_EIGHT(name, reg) \
    WEFT_ONE(name, reg, "0")  \
    WEFT_ONE(name, reg, "1")  \
    WEFT_ONE(name, reg, "2")  \
    WEFT_ONE(name, reg, "3")  \
    WEFT_ONE(name, reg, "4")  \
    WEFT_ONE(name, reg, "5") WEFT_ONE(name, reg, "6") WEFT_ONE(name, reg, "7")
// A product of bytes of AVX2: 32 products, added in pairs to 16-bit sums.
#define WEFT_PAIR(product, sum) \
    "vpmaddubsw %%ymm8,%%ymm9,%%ymm" product "\nvpaddw %%ymm" product ",%%ymm" sum ",%%ymm" sum "\n"
#define WEFT_EIGHT_PAIRS \
    WEFT_PAIR("10", "0") \
    WEFT_PAIR("11", "1") \
    WEFT_PAIR("12", "2") \
    WEFT_PAIR("13", "3") \
    WEFT_PAIR("10", "4") WEFT_PAIR("11", "5") WEFT_PAIR("12", "6") WEFT_PAIR("13", "7")

constexpr int kRounds = 1'000'000;

// 10^9 operations per second if each of `code`'s eight sums takes `operations` at once.
double Peak(int threads, double operations, const std::function<void(int)>& code) {
    return threads * 8.0 * kRounds * operations / Best(threads, 5, code) / 1e9;
}

// Limits of this machine with the instructions of one CpuLevel; 0: not measured.
struct Limits {
    double read_gb_s = 0, int8_gop_s = 0, float_gop_s = 0;
};

struct Shape {
    int64_t rows, cols;
};

constexpr int64_t kFewTokens[] = {1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 128};

// Matrices of one shape, together larger than the caches; timed one after another.
class Matrices {
  public:
    Matrices(const Kernels& kernels, DType dtype, Shape shape, int64_t total_bytes)
        : kernels_(kernels),
          bytes_(kernels.packed_bytes(dtype, shape.rows, shape.cols)),
          count_(std::max<int64_t>(1, total_bytes / bytes_)),
          memory_(count_ * bytes_) {
        for (int64_t i = 0; i < count_; ++i) {
            matrices_.push_back({dtype, shape.rows, shape.cols, memory_.data.get() + i * bytes_});
        }
    }

    // Seconds of multiplying all matrices by `tokens` rows.
    double Run(int threads, int64_t tokens, int repeats) {
        const weft::kernels::PackedMatrix& first = matrices_[0];
        const auto as = kernels_.activation_format(first.dtype);
        const bool quantizes = as != weft::kernels::ActivationFormat::kNone;
        std::vector<float> x(static_cast<size_t>(tokens * first.cols), 0.5f);
        std::vector<float> y(static_cast<size_t>(tokens * first.rows));
        const Buffer quantized(tokens * kernels_.quantized_bytes(first.cols));
        kernels_.quantize_activations(
            {x.data(), first.cols, tokens, first.cols, quantized.data.get(), as}, 0, 1);
        return Best(threads, repeats, [&](int part) {
            for (const weft::kernels::PackedMatrix& matrix : matrices_) {
                kernels_.matmul(
                    {matrix, x.data(), first.cols, quantizes ? quantized.data.get() : nullptr,
                     tokens, nullptr, y.data(), 0, nullptr, first.rows},
                    part, threads);
            }
        });
    }

    double Bytes() const { return static_cast<double>(count_ * bytes_); }
    double Products(int64_t tokens) const {
        return 2.0 * static_cast<double>(count_ * tokens * matrices_[0].rows * matrices_[0].cols);
    }

  private:
    const Kernels& kernels_;
    int64_t bytes_, count_;
    Buffer memory_;
    std::vector<weft::kernels::PackedMatrix> matrices_;
};

void Measure(const Kernels& kernels, DType dtype, Shape shape, int threads, int64_t tokens,
             const Limits& limits) {
    Matrices many(kernels, dtype, shape, int64_t{160} << 20);
    const double decode = many.Bytes() / many.Run(threads, 1, 6) / 1e9;
    Matrices one(kernels, dtype, shape, 1);
    const double prefill = one.Products(tokens) / one.Run(threads, tokens, 4) / 1e9;
    const double peak = HasIntegerCodes(dtype) ? limits.int8_gop_s : limits.float_gop_s;
    fmt::print(
        "{:5} {:6} x {:<5} decode {:6.1f} GB/s ({:3.0f} %)   prefill {:7.1f} GOP/s ({:3.0f} %)\n",
        Info(dtype).name, shape.rows, shape.cols, decode, 100 * decode / limits.read_gb_s, prefill,
        100 * prefill / peak);
}

void MeasurePack(const Kernels& kernels, DType dtype) {
    const int64_t rows = 2048, cols = 2048, stride = RowBytes(dtype, cols);
    const Buffer source(rows * stride), packed(kernels.packed_bytes(dtype, rows, cols));
    const double seconds = Best(1, 3, [&](int) {
        kernels.pack({dtype, rows, cols, packed.data.get()}, 0, rows, source.data.get(), stride);
    });
    fmt::print("{:5} pack {:.1f} GB/s a thread\n", Info(dtype).name,
               static_cast<double>(rows * stride) / seconds / 1e9);
}

void MeasurePrepare(const Kernels& kernels) {
    for (int64_t cols : {576, 2048, 8192}) {
        std::vector<float> x(static_cast<size_t>(cols), 0.5f);
        const Buffer out(kernels.quantized_bytes(cols));
        const double seconds = Best(1, 10, [&](int) {
            for (int i = 0; i < 100; ++i)
                kernels.quantize_activations({x.data(), cols, 1, cols, out.data.get()}, 0, 1);
        });
        fmt::print("prepare {:5} columns: {:.2f} us\n", cols, seconds * 1e4);
    }
}

// Few tokens, as in steps that decode several sequences; weights of `total_bytes` in total.
void MeasureRows(const Kernels& kernels, DType dtype, Shape shape, int threads,
                 int64_t total_bytes) {
    Matrices many(kernels, dtype, shape, total_bytes);
    fmt::print("{:5} {:6} x {:<5} GOP/s", Info(dtype).name, shape.rows, shape.cols);
    for (int64_t tokens : kFewTokens) {
        fmt::print("{:7.0f}", many.Products(tokens) / many.Run(threads, tokens, 4) / 1e9);
    }
    fmt::print("\n");
}

// The name is in upper case; also finds types that no file has.
std::optional<DType> TypeOf(std::string_view name) {
    const auto info = std::ranges::find(weft::kDTypes, name, &weft::DTypeInfo::name);
    return info == weft::kDTypes.end() ? weft::DTypeOfName(name) : info->dtype;
}

int MeasureRowsOfTypes(const Kernels& kernels, int threads, std::span<char*> types) {
    const char* mib = std::getenv("WEFT_MIB");
    const int64_t bytes = int64_t{mib != nullptr ? std::atoi(mib) : 160} << 20;
    fmt::print("{} kernels, {} threads; tokens:{:8}", CpuLevelName(kernels.level), threads, "");
    for (int64_t tokens : kFewTokens) fmt::print("{:7}", tokens);
    fmt::print("\n");
    for (const char* name : types) {
        const std::optional<DType> dtype = TypeOf(name);
        if (!dtype) continue;
        for (const Shape& shape : {Shape{2048, 2048}, Shape{1536, 576}}) {
            if (shape.cols % Info(*dtype).block_elements != 0) continue;
            MeasureRows(kernels, *dtype, shape, threads, bytes);
        }
    }
    return 0;
}

Limits MeasureLimits(weft::CpuLevel level, int threads) {
    if (level == weft::CpuLevel::kReference) return {};
    if (level == weft::CpuLevel::kAvx2 || level == weft::CpuLevel::kAvxVnni) {
        const double int8 =
            level == weft::CpuLevel::kAvx2
                ? Peak(threads, 64, WEFT_RATE(WEFT_EIGHT_PAIRS))
                : Peak(threads, 64, WEFT_RATE(WEFT_EIGHT("%{vex%} vpdpbusd", "ymm")));
        return {ReadBandwidth(threads, ReadByAvx2), int8,
                Peak(threads, 16, WEFT_RATE(WEFT_EIGHT("vfmadd231ps", "ymm")))};
    }
    return {ReadBandwidth(threads, ReadByAvx512),
            Peak(threads, 128, WEFT_RATE(WEFT_EIGHT("vpdpbusd", "zmm"))),
            Peak(threads, 32, WEFT_RATE(WEFT_EIGHT("vfmadd231ps", "zmm")))};
}

int PrintLimits(weft::CpuLevel level, int threads) {
    const Limits limits = MeasureLimits(level, threads);
    fmt::print(R"({{"kernels":"{}","threads":{},"read_gb_s":{:.2f},"int8_gop_s":{:.0f},)"
               R"("float_gop_s":{:.0f}}})"
               "\n",
               CpuLevelName(level), threads, limits.read_gb_s, limits.int8_gop_s,
               limits.float_gop_s);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
    const weft::CpuLevel level = weft::BestCpuLevel(weft::DetectCpu());
    if (argc > 2 && std::string_view(argv[2]) == "limits") return PrintLimits(level, threads);
    const Kernels& kernels = weft::kernels::KernelsFor(level);
    if (argc > 2 && std::string_view(argv[2]) == "rows") {
        return MeasureRowsOfTypes(kernels, threads, {argv + 3, static_cast<size_t>(argc - 3)});
    }
    const int64_t tokens = argc > 2 ? std::atoi(argv[2]) : 512;
    const Limits limits = MeasureLimits(level, threads);
    fmt::print(
        "{} kernels, {} threads, {} tokens; limits: read {:.1f} GB/s, int8 {:.0f} GOP/s, "
        "float {:.0f} GFLOP/s\n",
        CpuLevelName(kernels.level), threads, tokens, limits.read_gb_s, limits.int8_gop_s,
        limits.float_gop_s);
    MeasurePrepare(kernels);
    for (const weft::DTypeInfo& info : weft::kDTypes) {
        if (info.dtype == DType::kI32 || info.dtype == DType::kF64) continue;
        bool wanted = argc <= 3;
        for (int i = 3; i < argc; ++i) wanted = wanted || TypeOf(argv[i]) == info.dtype;
        if (!wanted) continue;
        MeasurePack(kernels, info.dtype);
        for (const Shape& shape :
             {Shape{2048, 2048}, Shape{8192, 2048}, Shape{2048, 8192}, Shape{1536, 576}}) {
            if (shape.cols % info.block_elements != 0) continue;
            Measure(kernels, info.dtype, shape, threads, tokens, limits);
        }
    }
}
