// Matrix products of training on a GPU: TFLOP/s of each form and shape, in bfloat16. Prints one
// JSON object, which bench/gpu.py turns into a table.
//
//     gpu_gemm_bench DEVICE [ROWS SIZE]
//
// DEVICE: vulkan, vulkan:N. ROWS: rows of a step (8192); SIZE: columns of the residual stream
// (2048). With SIZE 2048 the shapes are those of a layer of llama-3.2-1B.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/device.h"
#include "backend/vulkan/lower_gemm.h"
#include "backend/vulkan/products.h"
#include "base/check.h"
#include "base/deadline.h"
#include "shaders/shaders.h"

namespace {

namespace gpu = weft::gpu;
namespace vulkan = weft::backend::vulkan;
using nlohmann::json;
using vulkan::GemmForm;
using weft::Deadline;
using weft::DType;
using weft::Result;
using weft::Status;

constexpr int64_t kWaitMs = 120'000;
constexpr int kRepeats = 5;
// An idle GPU has low clocks and raises them slowly, so repeats last at least this long.
constexpr double kLeastSeconds = 0.25;
// Two bfloat16 numbers near 0.01.
constexpr uint32_t kContents = 0x3c243c21;

// An Emitter for products without a Program.
class ProductEmitter final : public vulkan::Emitter {
  public:
    explicit ProductEmitter(std::shared_ptr<gpu::Device> device) : device_(std::move(device)) {
        const gpu::Description& about = device_->description();
        if (about.cooperative_matrix && vulkan::HasMatrixKernels(about)) {
            arithmetic_.matrix = vulkan::Arithmetic::Matrix::kUnits;
        }
        arithmetic_.compute = DType::kBF16;
        vulkan::SetSizes(about, arithmetic_);
    }
    const weft::program::Program& program() const override { return program_; }
    const gpu::Description& gpu() const override { return device_->description(); }
    const vulkan::StepShape& shape() const override { return shape_; }
    const vulkan::StepTables& tables() const override { return tables_; }
    bool reference() const override { return false; }
    const vulkan::Arithmetic& arithmetic() const override { return arithmetic_; }
    uint64_t Address(weft::program::ValueId) const override { return 0; }
    const vulkan::WeightPlace& Weight(weft::program::ValueId) const override { return weight_; }
    const vulkan::CachePlace& Cache(weft::program::ValueId) const override { return cache_; }
    bool Exchanges(const weft::program::Op&) const override { return false; }
    uint64_t UpdateScalar(vulkan::UpdateScalarKind, double) override { return 0; }
    Result<vulkan::Region> Scratch(std::string_view name, uint64_t bytes) override {
        gpu::Buffer& buffer = scratch_[std::string(name)];
        if (buffer.size_bytes() < bytes) {
            WEFT_ASSIGN(buffer, device_->Allocate(bytes, gpu::Place::kDevice));
        }
        return vulkan::Region{buffer.address(), bytes};
    }
    Result<vulkan::Region> Constant(const std::string& name, uint64_t, const MakeBytes&) override {
        return weft::MakeError(weft::ErrorCode::kUnsupported, "no product has the table {}", name);
    }
    Result<const gpu::Kernel*> Kernel(std::string_view shader,
                                      std::initializer_list<uint32_t> constants,
                                      uint32_t args_bytes, uint32_t subgroup) override {
        std::string key(shader);
        for (const uint32_t value : constants) key += fmt::format(" {}", value);
        auto& kernel = kernels_[key];
        if (kernel != nullptr) return kernel.get();
        WEFT_ASSIGN(kernel, device_->MakeKernel({.name = shader,
                                                 .spirv = weft::shaders::Find(shader),
                                                 .args_bytes = args_bytes,
                                                 .constants = constants,
                                                 .subgroup = subgroup}));
        return kernel.get();
    }
    void Emit(vulkan::Dispatch dispatch) override { dispatches_.push_back(std::move(dispatch)); }

    // Commands for all emitted products.
    Result<std::unique_ptr<gpu::Commands>> Take() {
        WEFT_ASSIGN(auto commands, device_->Record());
        for (const vulkan::Dispatch& d : dispatches_) {
            commands->Run(*d.kernel, {d.args.data(), d.args_bytes}, d.x, d.y, d.z);
            commands->Barrier();
        }
        dispatches_.clear();
        ForgetDerived();
        WEFT_TRY(commands->End());
        return commands;
    }
    gpu::Device& device() { return *device_; }

  private:
    std::shared_ptr<gpu::Device> device_;
    vulkan::Arithmetic arithmetic_;
    weft::program::Program program_;
    vulkan::StepShape shape_;
    vulkan::StepTables tables_;
    vulkan::WeightPlace weight_;
    vulkan::CachePlace cache_;
    std::map<std::string, gpu::Buffer> scratch_;
    std::map<std::string, std::unique_ptr<gpu::Kernel>> kernels_;
    std::vector<vulkan::Dispatch> dispatches_;
};

Result<double> SecondsOnce(gpu::Device& device, const gpu::Commands& commands) {
    const int64_t begin_ns = weft::NowNs();
    WEFT_ASSIGN(const uint64_t number, device.Submit(commands));
    WEFT_TRY(device.Wait(number, Deadline::In(kWaitMs)));
    return static_cast<double>(weft::NowNs() - begin_ns) * 1e-9;
}

// The least time of several runs after the first.
Result<double> LeastSeconds(gpu::Device& device, const gpu::Commands& commands) {
    const double least = device.description().kind == gpu::Kind::kCpu ? 0 : kLeastSeconds;
    const int64_t begin_ns = weft::NowNs();
    double best = 1e9;
    for (int i = 0; i <= kRepeats || static_cast<double>(weft::NowNs() - begin_ns) * 1e-9 < least;
         ++i) {
        WEFT_ASSIGN(const double seconds, SecondsOnce(device, commands));
        if (i > 0) best = std::min(best, seconds);
    }
    return best;
}

Result<gpu::Buffer> MakeMatrix(gpu::Device& device, int64_t count) {
    const auto bytes = static_cast<uint64_t>((2 * count + 255) / 256 * 256);
    WEFT_ASSIGN(gpu::Buffer buffer, device.Allocate(bytes, gpu::Place::kDevice));
    WEFT_ASSIGN(const auto commands, device.Record());
    commands->Fill(buffer, 0, bytes, kContents);
    WEFT_TRY(commands->End());
    WEFT_TRY(SecondsOnce(device, *commands));
    return buffer;
}

// A product of a layer: y [rows, n] = x [rows, k] . W[n, k]^T, or one of its two gradients.
struct Shape {
    const char* name;
    int64_t rows, n, k;
};

Result<json> Measure(ProductEmitter& e, const Shape& shape, GemmForm form) {
    WEFT_ASSIGN(const gpu::Buffer y, MakeMatrix(e.device(), shape.rows * shape.n));
    WEFT_ASSIGN(const gpu::Buffer x, MakeMatrix(e.device(), shape.rows * shape.k));
    WEFT_ASSIGN(const gpu::Buffer w, MakeMatrix(e.device(), shape.n * shape.k));
    const auto matrix = [](const gpu::Buffer& buffer, int64_t rows, int64_t cols) {
        return vulkan::GemmMatrix{DType::kBF16, buffer.address(), rows, cols, cols};
    };
    const vulkan::GemmMatrix of_y = matrix(y, shape.rows, shape.n);
    const vulkan::GemmMatrix of_x = matrix(x, shape.rows, shape.k);
    const vulkan::GemmMatrix of_w = matrix(w, shape.n, shape.k);
    vulkan::Gemm gemm{form, of_x, of_w, of_y, false};
    if (form == GemmForm::kNN) gemm = {form, of_y, of_w, of_x, false};
    if (form == GemmForm::kTN) gemm = {form, of_y, of_x, of_w, true};
    // One submission has several products, so its own cost is negligible.
    const double flops =
        2.0 * static_cast<double>(shape.rows * shape.n) * static_cast<double>(shape.k);
    const int times = e.gpu().kind == gpu::Kind::kCpu ? 1 : 10;
    for (int i = 0; i < times; ++i) {
        e.ForgetDerived();  // in a real step, operands differ each time
        WEFT_TRY(vulkan::EmitGemm(e, gemm));
    }
    WEFT_ASSIGN(const auto commands, e.Take());
    WEFT_ASSIGN(const double seconds, LeastSeconds(e.device(), *commands));
    constexpr const char* kForms[] = {"y = x W^T", "dx = dy W", "dW += dy^T x"};
    return json{{"product", shape.name}, {"form", kForms[static_cast<size_t>(form)]},
                {"rows", shape.rows},    {"n", shape.n},
                {"k", shape.k},          {"tflop_s", flops * times / seconds * 1e-12}};
}

Result<json> MeasureAll(const std::string& name, int64_t rows, int64_t size) {
    WEFT_ASSIGN(const auto device, weft::backend::OpenDevice(name, {}));
    const std::string& found = device->info().name;  // "vulkan:1"
    int index = -1;
    const size_t colon = found.find(':');
    if (colon != std::string::npos) {
        std::from_chars(found.data() + colon + 1, found.data() + found.size(), index);
    }
    WEFT_ASSIGN(auto raw, gpu::Device::Open(index));
    ProductEmitter e(std::move(raw));
    const bool units = e.arithmetic().matrix == vulkan::Arithmetic::Matrix::kUnits;
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
