// Speed of a GPU through Weft: products by weights of every type, for one row (a decode step reads
// all weights once) and for many rows (a prompt); attention of a prompt's rows; beside the device's
// peak copy and arithmetic speed; and the cost of a submission. Prints one JSON object, which
// bench/gpu.py turns into tables.
//
//     gpu_bench DEVICE [MIB SIZE ROWS [TYPE...]]
//
// MIB: weights of each type (1024 on a GPU with enough memory, else 256: more than caches hold);
// SIZE: rows and columns of a matrix (4096); ROWS: rows of a prompt (512).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "backend/device.h"
#include "base/deadline.h"
#include "gpu/device.h"
#include "hw/cpu.h"
#include "tensor/encode.h"

namespace {

using nlohmann::json;
using weft::Deadline;
using weft::DType;
using weft::NowNs;
using weft::Result;
using weft::Status;
namespace gpu = weft::gpu;
namespace program = weft::program;

constexpr int64_t kWaitMs = 120'000;
constexpr int kRepeats = 5;
// An idle GPU has low clocks and raises them slowly, so repeats last at least this long.
constexpr double kLeastSeconds = 0.25;
constexpr int kSubmissions = 200;
constexpr int64_t kVocab = 64;  // rows of the embedding

constexpr int64_t kLeastMib = 256, kGpuMib = 1024;
constexpr uint64_t kLeastCopyBytes = uint64_t{1} << 20, kMostCopyBytes = uint64_t{16} << 30;

struct Wish {
    std::string device;
    int64_t mib = 0, size = 4096, rows = 512;  // mib 0: chosen by the device
    std::vector<std::string> types;
};

// ---- The device by itself -----------------------------------------------------------------------

// Least of the seconds that `run` returns in kRepeats calls after the first; more calls on a GPU.
Result<double> LeastSeconds(gpu::Kind kind, const std::function<Result<double>()>& run) {
    const double least = kind == gpu::Kind::kCpu ? 0 : kLeastSeconds;
    const int64_t begin_ns = NowNs();
    double best = 1e9;
    for (int i = 0; i <= kRepeats || static_cast<double>(NowNs() - begin_ns) * 1e-9 < least; ++i) {
        WEFT_ASSIGN(const double seconds, run());
        if (i > 0) best = std::min(best, seconds);
    }
    return best;
}

Result<double> SecondsOnce(gpu::Device& device, const gpu::Commands& commands) {
    const int64_t begin_ns = NowNs();
    WEFT_ASSIGN(const uint64_t number, device.Submit(commands));
    WEFT_TRY(device.Wait(number, Deadline::In(kWaitMs)));
    return static_cast<double>(NowNs() - begin_ns) * 1e-9;
}
Result<double> SecondsOf(gpu::Device& device, const gpu::Commands& commands) {
    return LeastSeconds(device.description().kind, [&] { return SecondsOnce(device, commands); });
}

// Median microseconds from a submission until the host knows that it is done.
Result<double> SubmitUs(gpu::Device& device) {
    WEFT_ASSIGN(const gpu::Buffer word, device.Allocate(4, gpu::Place::kHost));
    WEFT_ASSIGN(const auto commands, device.Record());
    commands->Fill(word, 0, 4, 1);
    WEFT_TRY(commands->End());
    std::vector<double> seconds(kSubmissions);
    for (double& one : seconds) {
        WEFT_ASSIGN(one, SecondsOnce(device, *commands));
    }
    std::ranges::nth_element(seconds, seconds.begin() + kSubmissions / 2);
    return seconds[kSubmissions / 2] * 1e6;
}

// Size of each of two buffers: more than caches hold, if memory suffices.
uint64_t CopyBytes(const gpu::Description& gpu, int64_t mib, uint64_t free_bytes) {
    const int64_t least = gpu.kind == gpu::Kind::kCpu ? 1 : kGpuMib;
    const uint64_t wanted = static_cast<uint64_t>(std::max(mib, least)) << 20;
    return std::clamp(std::min(wanted, free_bytes / 3), kLeastCopyBytes, kMostCopyBytes);
}

// Two buffers of `bytes`, or smaller if memory does not suffice; a multiple of kCopyBlock.
constexpr uint64_t kCopyBlock = uint64_t{256} * 8 * 16;  // one workgroup of copy.comp
Result<std::array<gpu::Buffer, 2>> CopyBuffers(gpu::Device& device, uint64_t bytes) {
    bytes = std::min(bytes, device.most_buffer_bytes()) / kCopyBlock * kCopyBlock;
    for (;;) {
        auto from = device.Allocate(bytes, gpu::Place::kDevice);
        auto to = device.Allocate(bytes, gpu::Place::kDevice);
        if (from.ok() && to.ok()) return std::array{*std::move(from), *std::move(to)};
        if (bytes <= kLeastCopyBytes) return from.ok() ? to.error() : from.error();
        bytes = std::max(bytes / 2 / kCopyBlock * kCopyBlock, kLeastCopyBytes);
    }
}

// Bytes read and written per second by a transfer command.
Result<double> TransferGbS(gpu::Device& device, std::span<const gpu::Buffer, 2> buffers) {
    const uint64_t bytes = buffers[0].size_bytes();
    WEFT_ASSIGN(const auto commands, device.Record());
    commands->Copy(buffers[0], 0, buffers[1], 0, bytes);
    WEFT_TRY(commands->End());
    WEFT_ASSIGN(const double seconds, SecondsOf(device, *commands));
    return 2 * static_cast<double>(bytes) / seconds * 1e-9;
}

// The same by a kernel, which reads and writes as all computing kernels do.
Result<double> CopyGbS([[maybe_unused]] gpu::Device& device,
                       [[maybe_unused]] std::span<const gpu::Buffer, 2> buffers) {
#ifdef WEFT_BENCH_SHADERS
    static constexpr uint32_t kCopy[] = {
#include "bench_copy.inc"
    };
    struct Args {
        uint64_t x, y;
        uint32_t count, unused = 0;
    };
    const uint64_t bytes = buffers[0].size_bytes();
    const uint64_t groups = std::min<uint64_t>(bytes / kCopyBlock, 65'535);
    WEFT_ASSIGN(const auto kernel,
                device.MakeKernel({.name = "copy", .spirv = kCopy, .args_bytes = sizeof(Args)}));
    const Args args{buffers[0].address(), buffers[1].address(), static_cast<uint32_t>(bytes / 16)};
    WEFT_ASSIGN(const auto commands, device.Record());
    commands->Run(*kernel, std::as_bytes(std::span(&args, 1)), static_cast<uint32_t>(groups));
    WEFT_TRY(commands->End());
    WEFT_ASSIGN(const double seconds, SecondsOf(device, *commands));
    return 2 * static_cast<double>(bytes) / seconds * 1e-9;
#else
    return weft::MakeError(weft::ErrorCode::kUnsupported, "built without Vulkan");
#endif
}

Result<double> FloatTflopS([[maybe_unused]] gpu::Device& device) {
#ifdef WEFT_BENCH_SHADERS
    static constexpr uint32_t kFma[] = {
#include "bench_fma.inc"
    };
    static constexpr uint32_t kGroup[] = {128};
    struct Args {
        uint64_t y;
        uint32_t steps;
        float factor;
    };
    const bool slow = device.description().kind == gpu::Kind::kCpu;
    const uint32_t groups = slow ? 32 : 8192;
    WEFT_ASSIGN(
        const auto kernel,
        device.MakeKernel(
            {.name = "fma", .spirv = kFma, .args_bytes = sizeof(Args), .constants = kGroup}));
    WEFT_ASSIGN(const gpu::Buffer y,
                device.Allocate(uint64_t{4} * groups * kGroup[0], gpu::Place::kDevice));
    const Args args{y.address(), slow ? 100u : 2000u, 0.9999f};
    WEFT_ASSIGN(const auto commands, device.Record());
    commands->Run(*kernel, std::as_bytes(std::span(&args, 1)), groups);
    WEFT_TRY(commands->End());
    WEFT_ASSIGN(const double seconds, SecondsOf(device, *commands));
    return 2.0 * 16 * args.steps * groups * kGroup[0] / seconds * 1e-12;
#else
    return weft::MakeError(weft::ErrorCode::kUnsupported, "built without Vulkan");
#endif
}

// ---- Products -----------------------------------------------------------------------------------

// Several matrices of one type, each multiplied by the same rows.
struct Products {
    program::Program program;
    std::vector<program::ValueId> weights;
    program::ValueId table = program::kNoValue;
    double bytes = 0;
};

Products MakeProducts(DType dtype, int64_t size, int64_t mib) {
    Products made;
    program::Program& p = made.program;
    const auto tokens =
        p.AddValue({"tokens", DType::kI32, {program::kTokens}, program::Storage::kInput});
    made.table = p.AddValue({"table", DType::kF32, {kVocab, size}, program::Storage::kWeight});
    const auto x =
        p.Emit(program::Embedding{}, {tokens, made.table}, "x", {program::kTokens, size});
    const int64_t each = size * weft::RowBytes(dtype, size);
    const int64_t count = std::max<int64_t>(1, (mib << 20) / each);
    for (int64_t i = 0; i < count; ++i) {
        const auto weight =
            p.AddValue({fmt::format("w{}", i), dtype, {size, size}, program::Storage::kWeight});
        p.Emit(program::MatMul{}, {x, weight}, fmt::format("y{}", i), {program::kTokens, size});
        made.weights.push_back(weight);
    }
    made.bytes = static_cast<double>(count * each);
    return made;
}

// A row of random weights of this type, used for every row: the time of a product does not depend
// on the values.
std::vector<std::byte> RandomRow(DType dtype, int64_t cols) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> value(-1, 1);
    std::vector<float> floats(static_cast<size_t>(cols));
    for (float& one : floats) one = value(random);
    std::vector<std::byte> row(static_cast<size_t>(weft::RowBytes(dtype, cols)));
    if (dtype == DType::kF32) {
        std::memcpy(row.data(), floats.data(), row.size());
    } else if (weft::CanEncode(dtype)) {
        weft::Encode({dtype, cols, floats, {}, row}, weft::BestCpuLevel(weft::DetectCpu()));
    }
    return row;
}

Status LoadRows(weft::backend::Executable& executable, program::ValueId id,
                const std::vector<std::byte>& row) {
    return executable.LoadWeight(
        id, [&](int64_t, int64_t count, std::span<std::byte> out) -> Status {
            for (int64_t i = 0; i < count; ++i) {
                std::ranges::copy(row, out.begin() + i * static_cast<int64_t>(row.size()));
            }
            return {};
        });
}

// Ops to time, and the step that they run in: one sequence.
struct Timed {
    const program::Program& program;
    program::OpKind op;
    int64_t rows = 0, position = 0, pages = 1;
};

// Seconds from the begin of the first op to the end of the last, by the device's clock if it has
// one.
double TracedSeconds(const weft::backend::Executable& executable, const Timed& timed) {
    int64_t begin_ns = INT64_MAX, end_ns = 0;
    for (const weft::backend::OpTiming& timing : executable.timings()) {
        const program::Op& op = timed.program.ops[static_cast<size_t>(timing.op)];
        if (op.kind() != timed.op) continue;
        begin_ns = std::min(begin_ns, timing.begin_ns);
        end_ns = std::max(end_ns, timing.end_ns);
    }
    return static_cast<double>(end_ns - begin_ns) * 1e-9;
}

class Steps {
  public:
    Steps(weft::backend::Executable& executable, const Timed& timed)
        : executable_(executable),
          all_{0, timed.program.ops.size()},
          tokens_(static_cast<size_t>(timed.rows)),
          positions_(tokens_.size()),
          pages_(static_cast<size_t>(timed.pages)),
          sequences_{
              {0, static_cast<int32_t>(timed.rows), static_cast<int32_t>(timed.position), pages_}} {
        for (size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = static_cast<int32_t>(i % kVocab);
        std::iota(positions_.begin(), positions_.end(), static_cast<int32_t>(timed.position));
        std::iota(pages_.begin(), pages_.end(), 0);
    }
    Status Run() {
        return executable_.Run(all_, {++step_, tokens_, positions_, sequences_, {}}, {});
    }

  private:
    weft::backend::Executable& executable_;
    weft::program::OpRange all_;
    std::vector<int32_t> tokens_, positions_, pages_;
    std::vector<weft::backend::StepSequence> sequences_;
    int64_t step_ = 0;
};

// Seconds of all timed ops of a step: the lesser of two upper bounds. Timed ops include pauses of
// the device, or late reports of their submissions; the host's time of a whole step includes the
// cost of a submission.
Result<double> SecondsOfOps(weft::backend::Executable& executable, gpu::Kind kind,
                            const Timed& timed) {
    Steps steps(executable, timed);
    double best = 1e9;
    for (const bool traced : {false, true}) {
        executable.SetTracing(traced);
        const auto run = [&]() -> Result<double> {
            const int64_t begin_ns = NowNs();
            WEFT_TRY(steps.Run());
            const double seconds = static_cast<double>(NowNs() - begin_ns) * 1e-9;
            return traced ? TracedSeconds(executable, timed) : seconds;
        };
        WEFT_ASSIGN(const double seconds, LeastSeconds(kind, run));
        best = std::min(best, seconds);
    }
    return best;
}

Result<json> MeasureType(weft::backend::Device& device, gpu::Kind kind, DType dtype,
                         const Wish& wish) {
    const Products products = MakeProducts(dtype, wish.size, wish.mib);
    weft::backend::CompileOptions options;
    options.max_tokens = wish.rows;
    options.kv_pages = 1;
    WEFT_ASSIGN(const auto executable, device.Compile({products.program}, options));
    WEFT_TRY(LoadRows(*executable, products.table, RandomRow(DType::kF32, wish.size)));
    const std::vector<std::byte> row = RandomRow(dtype, wish.size);
    for (const program::ValueId id : products.weights) WEFT_TRY(LoadRows(*executable, id, row));
    constexpr auto kProduct = program::OpKind::kMatMul;
    WEFT_ASSIGN(const double one, SecondsOfOps(*executable, kind, {products.program, kProduct, 1}));
    WEFT_ASSIGN(const double many,
                SecondsOfOps(*executable, kind, {products.program, kProduct, wish.rows}));
    const double flops = 2.0 * static_cast<double>(wish.size * wish.size * wish.rows) *
                         static_cast<double>(products.weights.size());
    return json{{"type", weft::Info(dtype).name},
                {"matvec_gb_s", products.bytes / one * 1e-9},
                {"tile_tflop_s", flops / many * 1e-12}};
}

// ---- Attention ----------------------------------------------------------------------------------

// Attention of llama-3.1-8B's heads over f16 caches, with `layers` pairs of caches.
constexpr int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128, kPage = 64;

program::Program MakeAttention(int64_t layers) {
    program::Program p;
    const auto tokens =
        p.AddValue({"tokens", DType::kI32, {program::kTokens}, program::Storage::kInput});
    const auto rows_of = [&](const std::string& name, int64_t heads) {
        const int64_t cols = heads * kHeadDim;
        const auto table =
            p.AddValue({name + "_table", DType::kF32, {kVocab, cols}, program::Storage::kWeight});
        return p.Emit(program::Embedding{}, {tokens, table}, name, {program::kTokens, cols});
    };
    const auto q = rows_of("q", kHeads), k = rows_of("k", kKvHeads), v = rows_of("v", kKvHeads);
    program::Attention a;
    a.heads = kHeads, a.kv_heads = kKvHeads, a.head_dim = kHeadDim, a.group = kHeads / kKvHeads;
    a.scale = 0.088f;
    for (int64_t i = 0; i < layers; ++i) {
        const auto cache = [&](const char* name) {
            return p.AddValue({fmt::format("{}{}", name, i),
                               DType::kF16,
                               {kKvHeads, kHeadDim},
                               program::Storage::kState});
        };
        const auto k_cache = cache("k_cache"), v_cache = cache("v_cache");
        p.Emit(a, {q, k, v, k_cache, v_cache}, fmt::format("out{}", i),
               {program::kTokens, kHeads * kHeadDim});
    }
    return p;
}

// A chunk of `rows` tokens, the last of which sees `keys` keys.
Result<json> MeasureAttention(weft::backend::Device& device, gpu::Kind kind, int64_t rows,
                              int64_t keys) {
    rows = std::min(rows, keys);
    const int64_t layers = kind == gpu::Kind::kCpu ? 1 : 4, pages = (keys + kPage - 1) / kPage;
    const program::Program program = MakeAttention(layers);
    weft::backend::CompileOptions options;
    options.max_tokens = rows;
    options.kv_pages = pages;
    options.page_tokens = kPage;
    WEFT_ASSIGN(const auto executable, device.Compile({program}, options));
    for (size_t id = 0; id < program.values.size(); ++id) {
        const program::Value& value = program.values[id];
        if (value.storage != program::Storage::kWeight) continue;
        WEFT_TRY(LoadRows(*executable, static_cast<program::ValueId>(id),
                          RandomRow(DType::kF32, value.shape[1])));
    }
    constexpr auto kOp = program::OpKind::kAttention;
    int64_t position = 0;
    // Fills the caches. (On a processor, that takes long, and any bits take the same time.)
    for (; kind != gpu::Kind::kCpu && position + rows < keys; position += rows) {
        WEFT_TRY(Steps(*executable, {program, kOp, rows, position, pages}).Run());
    }
    position = keys - rows;
    WEFT_ASSIGN(const double seconds,
                SecondsOfOps(*executable, kind, {program, kOp, rows, position, pages}));
    const double pairs = static_cast<double>(rows) *
                         (static_cast<double>(keys) - 0.5 * static_cast<double>(rows - 1));
    const double flops = 4.0 * pairs * static_cast<double>(kHeads * kHeadDim * layers);
    return json{{"keys", keys}, {"rows", rows}, {"tflop_s", flops / seconds * 1e-12}};
}

// ---- All of it ----------------------------------------------------------------------------------

// Copies take twice this size, and weights of each type once.
int64_t DefaultMib(const gpu::Description& gpu, uint64_t free_bytes) {
    const uint64_t needed = uint64_t{3 * kGpuMib} << 20;
    return gpu.kind != gpu::Kind::kCpu && free_bytes >= needed ? kGpuMib : kLeastMib;
}

Result<json> Measure(Wish wish) {
    WEFT_ASSIGN(const auto device, weft::backend::OpenDevice(wish.device, {}));
    const std::string& name = device->info().name;  // "vulkan:1"
    int index = -1;
    const size_t colon = name.find(':');
    if (colon != std::string::npos) {
        std::from_chars(name.data() + colon + 1, name.data() + name.size(), index);
    }
    json out;
    gpu::Kind kind = gpu::Kind::kCpu;
    {
        WEFT_ASSIGN(const auto raw, gpu::Device::Open(gpu::Api::kVulkan, index));
        const gpu::Description& gpu = raw->description();
        kind = gpu.kind;
        const uint64_t free_bytes = device->pool().free_bytes;
        if (wish.mib == 0) wish.mib = DefaultMib(gpu, free_bytes);
        out = {{"device", name},
               {"rows", wish.rows},
               {"size", wish.size},
               {"mib", wish.mib},
               {"name", gpu.name},
               {"driver", gpu.driver},
               {"kind", gpu::KindName(kind)}};
        WEFT_ASSIGN(out["submit_us"], SubmitUs(*raw));
        WEFT_ASSIGN(const auto buffers, CopyBuffers(*raw, CopyBytes(gpu, wish.mib, free_bytes)));
        WEFT_ASSIGN(out["transfer_gb_s"], TransferGbS(*raw, buffers));
        WEFT_ASSIGN(out["copy_gb_s"], CopyGbS(*raw, buffers));
        WEFT_ASSIGN(out["float_tflop_s"], FloatTflopS(*raw));
    }
    out["attention"] = json::array();
    for (const int64_t keys : {512, 2048, 4096}) {
        WEFT_ASSIGN(json measured, MeasureAttention(*device, kind, wish.rows, keys));
        out["attention"].push_back(std::move(measured));
    }
    out["types"] = json::array();
    for (const weft::DTypeInfo& info : weft::kDTypes) {
        if (info.dtype == DType::kI32 || wish.size % info.block_elements != 0) continue;
        const bool wanted = wish.types.empty() || std::ranges::count(wish.types, info.name) > 0;
        if (!wanted) continue;
        auto measured = MeasureType(*device, kind, info.dtype, wish);
        if (!measured.ok() && measured.error().code == weft::ErrorCode::kUnsupported) continue;
        if (!measured.ok()) return measured.error();
        out["types"].push_back(std::move(*measured));
        fmt::print(stderr, "{} ", info.name);
    }
    fmt::print(stderr, "\n");
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    Wish wish;
    wish.device = argc > 1 ? argv[1] : "vulkan";
    if (argc > 2) wish.mib = std::atoll(argv[2]);
    if (argc > 3) wish.size = std::atoll(argv[3]);
    if (argc > 4) wish.rows = std::atoll(argv[4]);
    for (int i = 5; i < argc; ++i) wish.types.emplace_back(argv[i]);
    if (wish.mib < 0 || (argc > 2 && wish.mib == 0) || wish.size < 1 || wish.rows < 1 ||
        !wish.device.starts_with("vulkan")) {
        fmt::print(stderr,
                   "gpu_bench DEVICE [MIB SIZE ROWS [TYPE...]]; DEVICE: vulkan, vulkan:N\n");
        return 2;
    }
    const auto measured = Measure(wish);
    if (!measured.ok()) {
        fmt::print(stderr, "gpu_bench: {}\n", measured.error().message);
        return 1;
    }
    fmt::print("{}\n", measured->dump(1));
}
