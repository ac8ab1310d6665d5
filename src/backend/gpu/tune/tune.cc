#include "backend/gpu/tune/tune.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "backend/gpu/device/kernel_cache.h"
#include "backend/gpu/lower/products.h"
#include "backend/gpu/tune/product_emitter.h"
#include "base/deadline.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output_file.h"

namespace weft::backend::on_gpu {
namespace {

using nlohmann::json;

constexpr uint64_t kMostFileBytes = 1 << 16;
constexpr int kFormat = 1;

// The type that is measured for each kind of weights, and names in the file.
constexpr std::array kTypes = {DType::kF16, DType::kQ4_0, DType::kQ4_K};
constexpr std::array<std::string_view, 3> kKindNames = {"f16", "blocks", "super-blocks"};
constexpr std::array<std::string_view, 5> kClassNames = {"16", "32", "64", "128", "more"};

std::string_view NameOf(Decoding decoding) {
    return kKindNames[static_cast<size_t>(decoding)];
}
std::string_view NameOf(TileClass rows) {
    return kClassNames[static_cast<size_t>(rows)];
}

// ---- The file -----------------------------------------------------------------------------------

std::string PathOf(const std::string& folder, const gpu::Description& gpu) {
    return fmt::format("{}/tiles-{:04x}-{:04x}-{:08x}.json", folder, gpu.vendor_id, gpu.device_id,
                       gpu.driver_version);
}
std::string KeyOf(const gpu::Description& gpu, MatrixUnits units) {
    return fmt::format("{}; {}; subgroups of {}; kernels {:016x}{}", gpu.name, gpu.driver,
                       gpu.subgroup, ShaderBuild(),
                       units == MatrixUnits::kEmulated ? "; emulated" : "");
}

json ShapeJson(const TileShape& s) {
    return {s.invocations, s.rows, s.wide, s.deep, s.down, s.buffers};
}

// Only shapes of this device's candidates are read, so that the file's contents cannot do harm.
TileShapes ReadShapes(const std::string& path, const gpu::Description& gpu, MatrixUnits units) {
    TileShapes shapes;
    const Result<std::string> text = ReadTextFile(path, kMostFileBytes);
    const json file = text.ok() ? JsonOrDiscarded(*text) : json();
    if (!file.is_object() || file.value("format", json()) != kFormat ||
        file.value("key", json()) != KeyOf(gpu, units)) {
        return shapes;
    }
    const json all = file.value("shapes", json());
    for (const Decoding decoding : kDecodings) {
        for (const TileClass rows : kTileClasses) {
            for (const TileShape& one : TileCandidates(gpu, rows, units)) {
                const json entry = {NameOf(decoding), NameOf(rows), ShapeJson(one)};
                if (!all.is_array() || std::ranges::find(all, entry) == all.end()) continue;
                shapes.at(decoding, rows) = one;
            }
        }
    }
    return shapes;
}

// Replaces shapes of `all` by those that `known` has.
void Replace(TileShapes& all, const TileShapes& known) {
    for (const Decoding decoding : kDecodings) {
        for (const TileClass rows : kTileClasses) {
            const TileShape& shape = known.at(decoding, rows);
            if (shape.invocations != 0) all.at(decoding, rows) = shape;
        }
    }
}

std::string ShapesText(const TileShapes& shapes, const std::string& key) {
    json all = json::array();
    for (const Decoding decoding : kDecodings) {
        for (const TileClass rows : kTileClasses) {
            const TileShape& shape = shapes.at(decoding, rows);
            if (shape.invocations == 0) continue;
            all.push_back({NameOf(decoding), NameOf(rows), ShapeJson(shape)});
        }
    }
    const json file = {{"format", kFormat}, {"key", key}, {"shapes", std::move(all)}};
    return file.dump(1) + "\n";
}

// Creates the file before its contents are measured. Another process that sees the file does not
// measure.
Result<OutputFile> BeginFile(const std::string& path) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    return OutputFile::Create(path, 1, true);
}

Status EndFile(OutputFile file, const std::string& text) {
    WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(text))));
    return file.Finish();
}

// ---- Measurements -------------------------------------------------------------------------------

// Rows of x with which a class is measured.
int64_t MeasuredRows(TileClass rows) {
    constexpr std::array<int64_t, 5> kRows = {16, 32, 64, 128, 512};
    return kRows[static_cast<size_t>(rows)];
}

// Bytes of weights: more than a GPU's caches hold, so that weights come from memory, as in a step.
uint64_t WeightBytes(const gpu::Description& gpu) {
    return gpu.kind == gpu::Kind::kCpu ? 0 : uint64_t{128} << 20;
}

// Memory of products of one type.
struct ProductMemory {
    std::vector<WeightPlace> weights;
    gpu::Buffer weight, x, y;
};
Result<ProductMemory> MakeMemory(ProductEmitter& e, DType dtype, int64_t rows, int64_t size) {
    ProductMemory made;
    const WeightPlace place{dtype, 1, size, size, 0};
    const uint64_t each = (AllOf(place).bytes + 255) / 256 * 256;
    const uint64_t count = std::clamp<uint64_t>(WeightBytes(e.gpu()) / each, 1, 16);
    // As codes, float16 and bfloat16, all of these words are ordinary numbers.
    WEFT_ASSIGN(made.weight, e.Filled(count * each, 0x2c212c24));
    const auto bytes = static_cast<uint64_t>(rows * size) * sizeof(float);
    WEFT_ASSIGN(made.x, e.Filled(bytes, 0x3c243c21));
    WEFT_ASSIGN(made.y, e.Filled(bytes, 0));
    for (uint64_t i = 0; i < count; ++i) {
        made.weights.push_back(place);
        made.weights.back().address = made.weight.address() + i * each;
    }
    return made;
}

// Commands for a product by each of the weights.
Result<std::unique_ptr<gpu::Commands>> Record(ProductEmitter& e, const ProductMemory& of,
                                              int64_t rows) {
    ProductArgs args;
    args.x = of.x.address();
    args.y = of.y.address();
    const Region x{of.x.address(), of.x.size_bytes()}, y{of.y.address(), of.y.size_bytes()};
    for (const WeightPlace& weight : of.weights) {
        WEFT_TRY(EmitProduct(e, ProductKind::kPlain, weight, args, rows, 1, {x, {}, {y}}));
    }
    return e.Take();
}

struct Candidate {
    TileTime time;
    std::unique_ptr<gpu::Commands> commands;
};

// Kernels are compiled here; kernels that the driver refuses are skipped. complete: set to false if
// the deadline passed before all were tried.
std::vector<Candidate> Prepare(ProductEmitter& e, Arithmetic arithmetic,
                               const ProductMemory& operands, int64_t count, int64_t deadline_ns,
                               bool& complete) {
    const MatrixUnits units = EmulatedIf(arithmetic.matrix == Arithmetic::Matrix::kEmulated);
    const WeightPlace& weight = operands.weights.front();
    const TileClass rows = TileClassOf(count);
    arithmetic.least_large_tiles = 0;  // a large tile is measured even if others would be used
    std::vector<Candidate> candidates;
    for (const TileShape& shape : TileCandidates(e.gpu(), rows, units)) {
        if (!candidates.empty() && NowNs() > deadline_ns) {
            complete = false;
            break;
        }
        arithmetic.shapes.at(DecodingOf(weight.dtype), rows) = shape;
        e.set_arithmetic(arithmetic);
        auto commands = Record(e, operands, count);
        if (!commands.ok()) {
            Log(LogLevel::kDebug, "tiles of {} x {} x {} are left out: {}", shape.rows, shape.wide,
                shape.deep, commands.error().message);
            continue;
        }
        candidates.push_back(
            {{shape, count, std::numeric_limits<double>::max(), 0}, *std::move(commands)});
    }
    return candidates;
}

const TileTime& FastestOf(const std::vector<TileTime>& times) {
    return *std::ranges::min_element(times, {}, &TileTime::seconds);
}

// Measures the classes that `shapes` lacks, first kMany, because users notice it most. best_so_far:
// shapes of the classes that were not measured completely.
TuneReport MeasureLacking(gpu::Device& device, std::span<const Decoding> decodings,
                          const TuneOptions& options, const Arithmetic& arithmetic,
                          TileShapes& shapes, TileShapes& best_so_far) {
    TuneReport report;
    const int64_t begin_ns = NowNs();
    const auto most_ns = static_cast<int64_t>(options.most_seconds * 1e9);
    const auto compile_ns = static_cast<int64_t>(options.compile_seconds * 1e9);
    std::vector<TileClass> order(options.classes.begin(), options.classes.end());
    std::stable_partition(order.begin(), order.end(),
                          [](TileClass c) { return c == TileClass::kMany; });
    for (const Decoding decoding : decodings) {
        for (const TileClass rows : order) {
            TileShape& shape = shapes.at(decoding, rows);
            if (shape.invocations != 0) {
                ++report.read;
                continue;
            }
            ++report.left;
            if (NowNs() - begin_ns > most_ns) continue;
            const auto times =
                MeasureTiles(device, arithmetic, kTypes[static_cast<size_t>(decoding)],
                             MeasuredRows(rows), options.size, begin_ns + compile_ns);
            if (!times.ok()) {
                Log(LogLevel::kDebug, "tiles are not tuned: {}", times.error().message);
                continue;
            }
            const TileShape& fastest = FastestOf(times->tiles).shape;
            if (!times->complete) {
                best_so_far.at(decoding, rows) = fastest;
                continue;
            }
            shape = fastest;
            ++report.measured;
            --report.left;
        }
    }
    report.seconds = static_cast<double>(NowNs() - begin_ns) * 1e-9;
    return report;
}

}  // namespace

Result<TileTimes> MeasureTiles(gpu::Device& device, const Arithmetic& arithmetic, DType dtype,
                               int64_t rows, int64_t size, int64_t deadline_ns) {
    constexpr int kLeastRounds = 3;
    constexpr double kRaiseSeconds = 0.06;  // an idle GPU raises its clock slowly
    ProductEmitter e(device, arithmetic);
    WEFT_ASSIGN(const ProductMemory operands, MakeMemory(e, dtype, rows, size));
    TileTimes times;
    std::vector<Candidate> candidates =
        Prepare(e, arithmetic, operands, rows, deadline_ns, times.complete);
    if (candidates.empty()) {
        return MakeError(ErrorCode::kUnsupported, "the driver compiles no tile for {} rows", rows);
    }
    const double least = device.description().kind == gpu::Kind::kCpu ? 0 : kRaiseSeconds;
    // Measures the shapes in turns, so that a change of the clock affects all of them.
    const int64_t begin_ns = NowNs();
    for (int i = 0; i < kLeastRounds || static_cast<double>(NowNs() - begin_ns) * 1e-9 < least;
         ++i) {
        for (Candidate& one : candidates) {
            WEFT_ASSIGN(const double seconds, e.SecondsOf(*one.commands));
            one.time.seconds =
                std::min(one.time.seconds, seconds / static_cast<double>(operands.weights.size()));
        }
    }
    for (const Candidate& one : candidates) {
        times.tiles.push_back(one.time);
        const double flops = 2.0 * static_cast<double>(rows * size) * static_cast<double>(size);
        times.tiles.back().tflop_s = flops / one.time.seconds * 1e-12;
    }
    return times;
}

TuneReport TuneTiles(gpu::Device& device, std::span<const Decoding> decodings,
                     const TuneOptions& options, Arithmetic& arithmetic) {
    const MatrixUnits units = EmulatedIf(arithmetic.matrix == Arithmetic::Matrix::kEmulated);
    const gpu::Description& gpu = device.description();
    const std::string path = PathOf(options.folder, gpu);
    TileShapes shapes;
    if (!options.again) shapes = ReadShapes(path, gpu, units);
    Replace(arithmetic.shapes, shapes);  // keeps shapes that this process measured for other models
    TuneReport report;
    for (const Decoding decoding : decodings) {
        for (const TileClass rows : options.classes) {
            ++(shapes.at(decoding, rows).invocations != 0 ? report.read : report.left);
        }
    }
    if (report.left == 0 || options.folder.empty()) return report;
    if (options.before_lock) options.before_lock();
    Result<OutputFile> file = BeginFile(path);
    if (!file.ok()) {
        Log(LogLevel::kDebug, "tiles are not tuned: {}", file.error().message);
        return report;
    }
    // Another process may have finished the file before it was locked.
    TileShapes kept = ReadShapes(path, gpu, units);
    if (!options.again) shapes = kept;
    TileShapes best_so_far;
    report = MeasureLacking(device, decodings, options, arithmetic, shapes, best_so_far);
    Replace(arithmetic.shapes, best_so_far);
    Replace(arithmetic.shapes, shapes);
    if (report.measured == 0) return report;
    Replace(kept, shapes);
    const Status written = EndFile(*std::move(file), ShapesText(kept, KeyOf(gpu, units)));
    if (!written.ok()) {
        Log(LogLevel::kDebug, "tuned tiles are not kept: {}", written.error().message);
    }
    return report;
}

bool WantsTuning(const gpu::Description& gpu, const Arithmetic& arithmetic, TuneOptions& options) {
    const char* wish = std::getenv("WEFT_VULKAN_TUNE");
    const std::string_view word = wish == nullptr ? "" : wish;
    options.folder = KernelFolder();
    options.again = word == "again";
    return word != "off" && gpu.kind != gpu::Kind::kCpu &&
           arithmetic.matrix == Arithmetic::Matrix::kUnits;
}

void TuneFor(const program::Program& program, gpu::Device& device, Arithmetic& arithmetic) {
    TuneOptions options;
    if (!WantsTuning(device.description(), arithmetic, options)) return;
    std::vector<Decoding> decodings;
    for (const program::Value& value : program.values) {
        if (value.storage != program::Storage::kWeight || value.shape.rank < 2) continue;
        if (value.dtype != DType::kF16 && !HasIntegerCodes(value.dtype)) continue;
        const Decoding decoding = DecodingOf(value.dtype);
        if (std::ranges::find(decodings, decoding) == decodings.end()) {
            decodings.push_back(decoding);
        }
    }
    const TuneReport report = TuneTiles(device, decodings, options, arithmetic);
    if (report.measured == 0) return;
    Log(LogLevel::kInfo,
        "{}: tuned {} kinds of products on matrix units in {:.1f} s{}; WEFT_VULKAN_TUNE=off skips "
        "this",
        device.description().name, report.measured, report.seconds,
        report.left == 0 ? "" : fmt::format(" ({} are left for the next start)", report.left));
}

std::string TunedText(const gpu::Description& gpu) {
    if (gpu.kind == gpu::Kind::kCpu || !HasMatrixKernels(gpu)) return "";
    const TileShapes shapes = ReadShapes(PathOf(KernelFolder(), gpu), gpu, MatrixUnits::kOwn);
    std::string text;
    for (const Decoding decoding : kDecodings) {
        for (const TileClass rows : kTileClasses) {
            const TileShape& s = shapes.at(decoding, rows);
            if (s.invocations == 0) continue;
            text += fmt::format("{}{} {}: {} x {} x {}", text.empty() ? "" : ", ", NameOf(decoding),
                                NameOf(rows), s.rows, s.wide, s.deep);
        }
    }
    return text;
}

}  // namespace weft::backend::on_gpu
