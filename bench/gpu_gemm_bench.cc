// Matrix products of training on a GPU: TFLOP/s of each form and shape, in bfloat16. With matrix
// units, also products of inference in all shapes of tiles that are measured at the first start
// (backend/gpu/tune/tune.h). Prints one JSON object, which bench/gpu.py turns into tables.
//
//     gpu_gemm_bench DEVICE [ROWS SIZE]
//
// DEVICE: vulkan, vulkan:N. ROWS: rows of a step (8192); SIZE: columns of the residual stream
// (2048). With SIZE 2048 the shapes are those of a layer of llama-3.2-1B, and the products of
// inference have 4096 columns.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/device.h"
#include "backend/gpu/lower/gemm.h"
#include "backend/gpu/lower/products.h"
#include "backend/gpu/tune/product_emitter.h"
#include "backend/gpu/tune/tune.h"
#include "base/deadline.h"

namespace {

namespace gpu = weft::gpu;
namespace on_gpu = weft::backend::on_gpu;
using nlohmann::json;
using on_gpu::Arithmetic;
using on_gpu::GemmForm;
using on_gpu::ProductEmitter;
using weft::DType;
using weft::Result;

constexpr int kRepeats = 5;
// An idle GPU has low clocks and raises them slowly, so repeats last at least this long.
constexpr double kLeastSeconds = 0.25;
// Two bfloat16 numbers near 0.01.
constexpr uint32_t kContents = 0x3c243c21;

Arithmetic ArithmeticOf(const gpu::Description& about) {
    Arithmetic arithmetic;
    if (about.cooperative_matrix && on_gpu::HasMatrixKernels(about)) {
        arithmetic.matrix = Arithmetic::Matrix::kUnits;
    }
    arithmetic.compute = DType::kBF16;
    on_gpu::SetSizes(about, arithmetic);
    return arithmetic;
}

// The least time of several runs after the first.
Result<double> LeastSeconds(ProductEmitter& e, const gpu::Commands& commands) {
    const double least = e.gpu().kind == gpu::Kind::kCpu ? 0 : kLeastSeconds;
    const int64_t begin_ns = weft::NowNs();
    double best = 1e9;
    for (int i = 0; i <= kRepeats || static_cast<double>(weft::NowNs() - begin_ns) * 1e-9 < least;
         ++i) {
        WEFT_ASSIGN(const double seconds, e.SecondsOf(commands));
        if (i > 0) best = std::min(best, seconds);
    }
    return best;
}

Result<gpu::Buffer> MakeMatrix(ProductEmitter& e, int64_t count) {
    return e.Filled(static_cast<uint64_t>(2 * count), kContents);
}

// A product of a layer: y [rows, n] = x [rows, k] . W[n, k]^T, or one of its two gradients.
struct Shape {
    const char* name;
    int64_t rows, n, k;
};

Result<json> Measure(ProductEmitter& e, const Shape& shape, GemmForm form) {
    WEFT_ASSIGN(const gpu::Buffer y, MakeMatrix(e, shape.rows * shape.n));
    WEFT_ASSIGN(const gpu::Buffer x, MakeMatrix(e, shape.rows * shape.k));
    WEFT_ASSIGN(const gpu::Buffer w, MakeMatrix(e, shape.n * shape.k));
    const auto matrix = [](const gpu::Buffer& buffer, int64_t rows, int64_t cols) {
        return on_gpu::GemmMatrix{DType::kBF16, buffer.address(), rows, cols, cols};
    };
    const on_gpu::GemmMatrix of_y = matrix(y, shape.rows, shape.n);
    const on_gpu::GemmMatrix of_x = matrix(x, shape.rows, shape.k);
    const on_gpu::GemmMatrix of_w = matrix(w, shape.n, shape.k);
    on_gpu::Gemm gemm{form, of_x, of_w, of_y, false};
    if (form == GemmForm::kNN) gemm = {form, of_y, of_w, of_x, false};
    if (form == GemmForm::kTN) gemm = {form, of_y, of_x, of_w, true};
    // One submission has several products, so its own cost is negligible.
    const double flops =
        2.0 * static_cast<double>(shape.rows * shape.n) * static_cast<double>(shape.k);
    const int times = e.gpu().kind == gpu::Kind::kCpu ? 1 : 10;
    for (int i = 0; i < times; ++i) {
        e.ForgetDerived();  // in a real step, operands differ each time
        WEFT_TRY(on_gpu::EmitGemm(e, gemm));
    }
    WEFT_ASSIGN(const auto commands, e.Take());
    WEFT_ASSIGN(const double seconds, LeastSeconds(e, *commands));
    constexpr const char* kForms[] = {"y = x W^T", "dx = dy W", "dW += dy^T x"};
    return json{{"product", shape.name}, {"form", kForms[static_cast<size_t>(form)]},
                {"rows", shape.rows},    {"n", shape.n},
                {"k", shape.k},          {"tflop_s", flops * times / seconds * 1e-12}};
}

// All shapes of tiles of products in inference: size^3, and the rows of small batches.
Result<json> MeasureShapes(gpu::Device& device, const Arithmetic& arithmetic, int64_t size) {
    json out = json::array();
    for (const DType dtype : {DType::kF16, DType::kQ4_0, DType::kQ4_K}) {
        for (const int64_t rows : {size, int64_t{16}, int64_t{32}, int64_t{64}, int64_t{128}}) {
            WEFT_ASSIGN(const auto times,
                        on_gpu::MeasureTiles(device, arithmetic, dtype, rows, size,
                                             std::numeric_limits<int64_t>::max()));
            for (const on_gpu::TileTime& one : times.tiles) {
                const on_gpu::TileShape& s = one.shape;
                out.push_back({{"type", weft::Info(dtype).name},
                               {"rows", rows},
                               {"size", size},
                               {"invocations", s.invocations},
                               {"tile", {s.rows, s.wide, s.deep}},
                               {"down", s.Down(device.description().subgroup)},
                               {"buffers", s.buffers},
                               {"us", one.seconds * 1e6},
                               {"tflop_s", one.tflop_s}});
            }
        }
    }
    return out;
}

Result<json> MeasureAll(const std::string& name, int64_t rows, int64_t size) {
    WEFT_ASSIGN(const auto device, weft::backend::OpenDevice(name, {}));
    const std::string& found = device->info().name;  // "vulkan:1"
    int index = -1;
    const size_t colon = found.find(':');
    if (colon != std::string::npos) {
        std::from_chars(found.data() + colon + 1, found.data() + found.size(), index);
    }
    WEFT_ASSIGN(auto raw, gpu::Device::Open(gpu::Api::kVulkan, index));
    const Arithmetic arithmetic = ArithmeticOf(raw->description());
    ProductEmitter e(*raw, arithmetic);
    const bool units = arithmetic.matrix == Arithmetic::Matrix::kUnits;
    json out = {{"name", e.gpu().name}, {"driver", e.gpu().driver}, {"matrix_units", units}};
    out["products"] = json::array();
    const Shape shapes[] = {{"q, o", rows, size, size},
                            {"k, v", rows, size / 4, size},
                            {"gate, up", rows, 4 * size, size},
                            {"down", rows, size, 4 * size},
                            {"vocabulary", rows / 8, 62 * size, size},
                            {"adapter", rows, 16, size}};
    for (const Shape& shape : shapes) {
        for (const GemmForm form : {GemmForm::kNT, GemmForm::kNN, GemmForm::kTN}) {
            WEFT_ASSIGN(json measured, Measure(e, shape, form));
            out["products"].push_back(std::move(measured));
        }
    }
    out["shapes"] = json::array();
    if (units) {
        WEFT_ASSIGN(out["shapes"], MeasureShapes(*raw, arithmetic, 2 * size));
    }
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string device = argc > 1 ? argv[1] : "vulkan";
    const int64_t rows = argc > 2 ? std::atoll(argv[2]) : 8192;
    const int64_t size = argc > 3 ? std::atoll(argv[3]) : 2048;
    if (rows < 8 || size < 4 || !device.starts_with("vulkan")) {
        fmt::print(stderr, "gpu_gemm_bench DEVICE [ROWS SIZE]; DEVICE: vulkan, vulkan:N\n");
        return 2;
    }
    const auto measured = MeasureAll(device, rows, size);
    if (!measured.ok()) {
        fmt::print(stderr, "gpu_gemm_bench: {}\n", measured.error().message);
        return 1;
    }
    fmt::print("{}\n", measured->dump(1));
}
