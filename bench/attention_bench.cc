// Attention on one core: GFLOP/s of a prefill chunk (only pairs within the causal mask), GB/s of K
// and V read for one token, and the row-wise kernels of one token.
//
//     attention_bench [reference|avx2|avx512|amx [late]]
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "kernels/kernels.h"

namespace weft::kernels {
namespace {

struct Shape {
    const char* name;
    int64_t heads, kv_heads, head_dim;
};
constexpr Shape kShapes[] = {
    {"smollm2-135m", 9, 3, 64}, {"llama-3.2-1b", 32, 8, 64}, {"llama-3.1-8b", 32, 8, 128}};

std::vector<float> Random(int64_t count) {
    std::minstd_rand engine(1);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(engine() % 2001) / 1000.0f - 1;
    return values;
}

// Seconds per call: the best of several runs, each long enough to time.
template <typename Function>
double Seconds(Function function) {
    function();
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
        int64_t calls = 0;
        const int64_t begin = NowNs();
        int64_t end = begin;
        for (int64_t batch = 1; end - begin < 10'000'000; end = NowNs(), batch *= 2) {
            for (int64_t i = 0; i < batch; ++i) function();
            calls += batch;
        }
        best = std::min(best, static_cast<double>(end - begin) * 1e-9 / static_cast<double>(calls));
    }
    return best;
}

// Memory allocated as in the backend.
struct HugePages {
    explicit HugePages(int64_t bytes) : size(static_cast<size_t>(bytes)) {
        void* at =
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        WEFT_CHECK(at != MAP_FAILED);
        ::madvise(at, size, MADV_HUGEPAGE);
        data = static_cast<std::byte*>(at);
    }
    HugePages(const HugePages&) = delete;
    HugePages& operator=(const HugePages&) = delete;
    ~HugePages() { ::munmap(data, size); }
    size_t size;
    std::byte* data;
};

// A cache filled with `tokens` random tokens, and the arguments of a step at its end.
class Problem {
  public:
    Problem(const Kernels& kernels, const Shape& shape, DType dtype, int64_t tokens, int64_t rows)
        : kernels_(kernels) {
        constexpr int64_t kPage = 64;
        const int64_t width = shape.kv_heads * shape.head_dim;
        for (int64_t page = 0; page * kPage < tokens; ++page) {
            pages_.push_back(static_cast<int32_t>(page));
        }
        KvCache cache{dtype, nullptr, shape.kv_heads, kPage, shape.head_dim};
        k_.resize(static_cast<size_t>(cache.PageStride()) * pages_.size());
        v_.resize(k_.size());
        args_.k_cache = args_.v_cache = cache;
        args_.k_cache.data = k_.data();
        args_.v_cache.data = v_.data();
        const std::vector<float> k = Random(tokens * width), v = Random(tokens * width);
        sequence_ = {0, static_cast<int32_t>(tokens), 0, pages_};
        kernels.kv_write(
            KvWriteArgs{
                {&sequence_, 1}, k.data(), v.data(), width, width, args_.k_cache, args_.v_cache},
            0, 1);
        sequence_ = {0, static_cast<int32_t>(rows), static_cast<int32_t>(tokens - rows), pages_};
        q_ = Random(rows * shape.heads * shape.head_dim);
        out_ = q_;
        args_.sequences = {&sequence_, 1};
        args_.q = q_.data();
        args_.out = out_.data();
        args_.q_stride = args_.out_stride = shape.heads * shape.head_dim;
        args_.heads = shape.heads;
        args_.group = shape.heads / shape.kv_heads;
        args_.scale = 0.125f;
        args_.scratch_floats = kernels.attention_scratch(shape.head_dim, args_.group);
        scratch_.resize(static_cast<size_t>(args_.scratch_floats));
        args_.scratch = scratch_.data();
    }
    double Time() const {
        return Seconds([&] { kernels_.attention(args_, 0, 1); });
    }
    // Simulates a real step, in which other layers evict K and V from the caches: calls rotate over
    // copies of K and V that together exceed the last-level cache.
    double TimeCold() {
        constexpr int64_t kBytes = 160 << 20;
        const int64_t copies = kBytes / CacheBytes() + 1;
        const HugePages all(copies * CacheBytes());
        for (int64_t i = 0; i < copies; ++i) {
            std::byte* at = all.data + i * CacheBytes();
            std::copy(v_.begin(), v_.end(), std::copy(k_.begin(), k_.end(), at));
        }
        int64_t next = 0;
        return Seconds([&] {
            AttentionArgs args = args_;
            args.k_cache.data = all.data + next * CacheBytes();
            args.v_cache.data = args.k_cache.data + k_.size();
            next = next + 1 == copies ? 0 : next + 1;
            kernels_.attention(args, 0, 1);
        });
    }
    int64_t CacheBytes() const { return static_cast<int64_t>(k_.size() + v_.size()); }

  private:
    const Kernels& kernels_;
    std::vector<int32_t> pages_;
    std::vector<std::byte> k_, v_;
    std::vector<float> q_, out_, scratch_;
    Sequence sequence_;
    AttentionArgs args_;
};

void Prefill(const Kernels& kernels) {
    fmt::print("prefill of 512 rows, f16 cache, 1 core\n{:14} {:>8} {:>10} {:>10}\n", "model",
               "context", "ms", "GFLOP/s");
    for (const Shape& shape : kShapes) {
        for (int64_t context : {512, 2048, 4096}) {
            const int64_t rows = 512;
            const Problem problem(kernels, shape, DType::kF16, context, rows);
            const double seconds = problem.Time();
            const double keys = rows * (context - rows) + rows * (rows + 1) / 2.0;
            const double flops = 4.0 * keys * shape.head_dim * shape.heads;
            fmt::print("{:14} {:8} {:10.3f} {:10.1f}\n", shape.name, context, seconds * 1e3,
                       flops / seconds * 1e-9);
        }
    }
}

// Rows after a known prefix: few rows over many keys.
void Late(const Kernels& kernels) {
    fmt::print("few rows over many keys, 1 core\n{:14} {:>6} {:>8} {:>6} {:>10} {:>10}\n", "model",
               "cache", "context", "rows", "us", "GFLOP/s");
    for (const Shape& shape : kShapes) {
        for (DType dtype : {DType::kF16, DType::kBF16}) {
            for (int64_t rows : {1, 2, 4, 8, 16, 32, 64}) {
                const int64_t context = 1536;
                const Problem problem(kernels, shape, dtype, context, rows);
                const double seconds = problem.Time();
                const double keys = rows * (context - rows) + rows * (rows + 1) / 2.0;
                const double flops = 4.0 * keys * shape.head_dim * shape.heads;
                fmt::print("{:14} {:>6} {:8} {:6} {:10.1f} {:10.1f}\n", shape.name,
                           Info(dtype).name, context, rows, seconds * 1e6, flops / seconds * 1e-9);
            }
        }
    }
}

void Decode(const Kernels& kernels) {
    fmt::print("one token, one layer, 1 core\n{:14} {:>6} {:>8} {:>10} {:>10} {:>10} {:>10}\n",
               "model", "cache", "context", "us warm", "GB/s", "us cold", "GB/s");
    for (const Shape& shape : kShapes) {
        for (DType dtype : {DType::kF16, DType::kBF16, DType::kQ8_0}) {
            for (int64_t context : {64, 512, 2048, 8192}) {
                Problem problem(kernels, shape, dtype, context, 1);
                const double warm = problem.Time(), cold = problem.TimeCold();
                const double gigabytes = static_cast<double>(problem.CacheBytes()) * 1e-9;
                fmt::print("{:14} {:>6} {:8} {:10.2f} {:10.1f} {:10.2f} {:10.1f}\n", shape.name,
                           Info(dtype).name, context, warm * 1e6, gigabytes / warm, cold * 1e6,
                           gigabytes / cold);
            }
        }
    }
}

void Rows(const Kernels& kernels) {
    fmt::print("row-wise kernels, one row: ns\n");
    std::vector<float> x = Random(16384), y = Random(16384), out(16384);
    for (int64_t cols : {576, 2048, 8192}) {
        const dense::ConstMatrix a{x.data(), cols}, b{y.data(), cols};
        const dense::Matrix to{out.data(), cols};
        const dense::RmsNormArgs norm{a, y.data(), 1e-5f, 1, cols, cols, to};
        const dense::GluArgs gate{a, b, 1, cols, to};
        const dense::AddArgs add{a, b, 1, cols, to};
        fmt::print("{:6} columns: rms_norm {:7.0f}, glu {:7.0f}, add {:7.0f}\n", cols,
                   1e9 * Seconds([&] { kernels.rms_norm(norm, 0, 1); }),
                   1e9 * Seconds([&] { kernels.glu(gate, 0, 1); }),
                   1e9 * Seconds([&] { kernels.add(add, 0, 1); }));
    }
    const int32_t position = 1000;
    const std::vector<float> frequency(32, 0.5f);
    std::vector<float> table(64);
    const RopeTableArgs make{&position, frequency.data(), 1, 64, table.data()};
    fmt::print("rope_table of 64: {:.0f}\n",
               1e9 * Seconds([&] { kernels.rope_table(make, 0, 1); }));
    for (bool neighbours : {false, true}) {
        const dense::RopeArgs rope{{x.data(), 2048},  table.data(), 1, neighbours, 1, 32, 64, 64,
                                   {out.data(), 2048}};
        fmt::print("rope of 32 heads of 64, {}: {:.0f}\n", neighbours ? "neighbours" : "halves",
                   1e9 * Seconds([&] { kernels.rope(rope, 0, 1); }));
    }
    std::vector<std::byte> cache(64 * 8 * 64 * 4 * 2);
    KvCache k{DType::kF16, cache.data(), 8, 64, 64}, v = k;
    v.data += cache.size() / 2;
    const int32_t page = 0;
    const Sequence sequence{0, 1, 17, {&page, 1}};
    const KvWriteArgs write{{&sequence, 1}, x.data(), y.data(), 512, 512, k, v};
    fmt::print("kv_write of 8 heads of 64 in f16: {:.0f}\n",
               1e9 * Seconds([&] { kernels.kv_write(write, 0, 1); }));
}

int Main(int argc, char** argv) {
    CpuLevel level = BestCpuLevel(DetectCpu());
    for (CpuLevel other : UsableCpuLevels(DetectCpu())) {
        if (argc > 1 && std::string_view(argv[1]) == CpuLevelName(other)) level = other;
    }
    const Kernels& kernels = KernelsFor(level);
    fmt::print("kernels: {}\n", CpuLevelName(kernels.level));
    if (argc > 2 && std::string_view(argv[2]) == "late") {
        Late(kernels);
        return 0;
    }
    Rows(kernels);
    Prefill(kernels);
    Late(kernels);
    Decode(kernels);
    return 0;
}

}  // namespace
}  // namespace weft::kernels

int main(int argc, char** argv) {
    return weft::kernels::Main(argc, argv);
}
