// What a GPU does through Weft: products by weights of every type, one row (a decode step reads all
// weights once) and many (a prompt), beside what the device copies and multiplies; and what a
// submission costs. One JSON object; bench/gpu.py makes a table of it.
//
//     gpu_bench DEVICE [MIB SIZE ROWS [TYPE...]]
//
// MIB: of weights of each type (256: more than caches hold); SIZE: of a matrix, rows and columns
// (4096); ROWS: of a prompt (512).
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
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
constexpr int kSubmissions = 200;
constexpr int64_t kVocab = 64;  // of the table that makes rows

struct Wish {
    std::string device;
    int64_t mib = 256, size = 4096, rows = 512;
    std::vector<std::string> types;
};

// ---- The device by itself -----------------------------------------------------------------------

Result<double> SecondsOf(gpu::Device& device, const gpu::Commands& commands, int repeats) {
    double best = 1e9;
    for (int i = 0; i < repeats; ++i) {
        const int64_t begin_ns = NowNs();
        WEFT_ASSIGN(const uint64_t number, device.Submit(commands));
        WEFT_TRY(device.Wait(number, Deadline::In(kWaitMs)));
        best = std::min(best, static_cast<double>(NowNs() - begin_ns) * 1e-9);
    }
    return best;
}

// Microseconds from handing over to the host's knowing that it is done: the median.
Result<double> SubmitUs(gpu::Device& device) {
    WEFT_ASSIGN(const gpu::Buffer word, device.Allocate(4, gpu::Place::kHost));
    WEFT_ASSIGN(const auto commands, device.Record());
    commands->Fill(word, 0, 4, 1);
    WEFT_TRY(commands->End());
    std::vector<double> seconds(kSubmissions);
    for (double& one : seconds) {
        WEFT_ASSIGN(one, SecondsOf(device, *commands, 1));
    }
    std::ranges::nth_element(seconds, seconds.begin() + kSubmissions / 2);
    return seconds[kSubmissions / 2] * 1e6;
}

// Bytes read and written in a second.
Result<double> CopyGbS(gpu::Device& device, uint64_t bytes) {
    bytes = std::min(bytes, device.most_buffer_bytes());
    WEFT_ASSIGN(const gpu::Buffer from, device.Allocate(bytes, gpu::Place::kDevice));
    WEFT_ASSIGN(const gpu::Buffer to, device.Allocate(bytes, gpu::Place::kDevice));
    WEFT_ASSIGN(const auto commands, device.Record());
    commands->Copy(from, 0, to, 0, bytes);
    WEFT_TRY(commands->End());
    WEFT_ASSIGN(const double seconds, SecondsOf(device, *commands, kRepeats));
    return 2 * static_cast<double>(bytes) / seconds * 1e-9;
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
    WEFT_ASSIGN(const double seconds, SecondsOf(device, *commands, kRepeats));
    return 2.0 * 16 * args.steps * groups * kGroup[0] / seconds * 1e-12;
#else
    return weft::MakeError(weft::ErrorCode::kUnsupported, "built without Vulkan");
#endif
}

// ---- Products -----------------------------------------------------------------------------------

// So many matrices of one type, each times the same rows.
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

// A row of random weights of this type, said again for each: what a product takes does not depend
// on that.
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

// Seconds of all products of a step of so many rows, by the device's clock where it has one.
Result<double> ProductSeconds(weft::backend::Executable& executable, const Products& products,
                              int64_t rows) {
    std::vector<int32_t> tokens(static_cast<size_t>(rows)), positions(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % kVocab);
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<int32_t> pages(static_cast<size_t>(rows));  // no op of it has a cache
    const std::vector<weft::backend::StepSequence> sequences = {
        {0, static_cast<int32_t>(rows), 0, pages}};
    double best = 1e9;
    for (int i = 0; i <= kRepeats; ++i) {
        WEFT_TRY(executable.Run({i + 1, tokens, positions, sequences, {}}, {}));
        int64_t begin_ns = INT64_MAX, end_ns = 0;
        for (const weft::backend::OpTiming& timing : executable.timings()) {
            const program::Op& op = products.program.ops[static_cast<size_t>(timing.op)];
            if (op.kind() != program::OpKind::kMatMul) continue;
            begin_ns = std::min(begin_ns, timing.begin_ns);
            end_ns = std::max(end_ns, timing.end_ns);
        }
        // The first is a warm-up.
        if (i > 0) best = std::min(best, static_cast<double>(end_ns - begin_ns) * 1e-9);
    }
    return best;
}

Result<json> MeasureType(weft::backend::Device& device, DType dtype, const Wish& wish) {
    const Products products = MakeProducts(dtype, wish.size, wish.mib);
    weft::backend::CompileOptions options;
    options.max_tokens = wish.rows;
    options.kv_pages = 1;
    WEFT_ASSIGN(const auto executable, device.Compile(products.program, options));
    executable->SetTracing(true);
    WEFT_TRY(LoadRows(*executable, products.table, RandomRow(DType::kF32, wish.size)));
    const std::vector<std::byte> row = RandomRow(dtype, wish.size);
    for (const program::ValueId id : products.weights) WEFT_TRY(LoadRows(*executable, id, row));
    WEFT_ASSIGN(const double one, ProductSeconds(*executable, products, 1));
    WEFT_ASSIGN(const double many, ProductSeconds(*executable, products, wish.rows));
    const double flops = 2.0 * static_cast<double>(wish.size * wish.size * wish.rows) *
                         static_cast<double>(products.weights.size());
    return json{{"type", weft::Info(dtype).name},
                {"matvec_gb_s", products.bytes / one * 1e-9},
                {"tile_tflop_s", flops / many * 1e-12}};
}

// ---- All of it ----------------------------------------------------------------------------------

Result<json> Measure(const Wish& wish) {
    WEFT_ASSIGN(const auto device, weft::backend::OpenDevice(wish.device, {}));
    const std::string& name = device->info().name;  // "vulkan:1"
    int index = -1;
    const size_t colon = name.find(':');
    if (colon != std::string::npos) {
        std::from_chars(name.data() + colon + 1, name.data() + name.size(), index);
    }
    json out = {{"device", name}, {"rows", wish.rows}, {"size", wish.size}, {"mib", wish.mib}};
    {
        WEFT_ASSIGN(const auto raw, gpu::Device::Open(index));
        out["name"] = raw->description().name;
        out["driver"] = raw->description().driver;
        out["kind"] = gpu::KindName(raw->description().kind);
        WEFT_ASSIGN(out["submit_us"], SubmitUs(*raw));
        WEFT_ASSIGN(out["copy_gb_s"], CopyGbS(*raw, static_cast<uint64_t>(wish.mib) << 20));
        WEFT_ASSIGN(out["float_tflop_s"], FloatTflopS(*raw));
    }
    out["types"] = json::array();
    for (const weft::DTypeInfo& info : weft::kDTypes) {
        if (info.dtype == DType::kI32 || wish.size % info.block_elements != 0) continue;
        const bool wanted = wish.types.empty() || std::ranges::count(wish.types, info.name) > 0;
        if (!wanted) continue;
        auto measured = MeasureType(*device, info.dtype, wish);
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
    if (wish.mib < 1 || wish.size < 1 || wish.rows < 1 || !wish.device.starts_with("vulkan")) {
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
