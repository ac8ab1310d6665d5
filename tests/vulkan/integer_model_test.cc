// Whole models whose products are in 8-bit integers, forced on devices that are not fast at them,
// or whose products and attention run on matrix units, emulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <vector>

#include "backend/gpu/gpu_device.h"
#include "model_files/model_file.h"
#include "quantize/quantize.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/matrix_of.h"

namespace weft::backend::on_gpu {
namespace {

constexpr Arithmetic kInt8Products{.integer = true};

std::string NameOf(const gpu::Description& device) {
    return gpu::ApiName(device.api) + (":" + std::to_string(device.index));
}

// A model's file on a device.
class ModelOn {
  public:
    ModelOn(std::shared_ptr<Device> device, const std::string& path)
        : source_(model_files::OpenModel(path).value()),
          program_(Built(*source_, device->info().target.float64_reductions)),
          rank_(std::move(device), program_, *source_) {}

    std::vector<float> Logits(std::span<const int32_t> tokens, size_t piece) {
        return rank_.Logits(tokens, piece);
    }
    // The prompt and `count` tokens, each the most likely one.
    std::vector<int32_t> Greedy(std::vector<int32_t> tokens, int count) {
        const program::ValueId logits = program_.Find("logits");
        std::vector<float> row(static_cast<size_t>(program_.value(logits).shape[1]));
        size_t done = 0;
        for (int i = 0; i < count; ++i) {
            const auto next = std::span(std::as_const(tokens)).subspan(done);
            EXPECT_TRUE(rank_.Run(next, static_cast<int64_t>(done), {}).ok());
            const size_t last = (next.size() - 1) * row.size();
            EXPECT_TRUE(
                rank_.executable().ReadFloats(logits, static_cast<int64_t>(last), row).ok());
            done = tokens.size();
            tokens.push_back(static_cast<int32_t>(std::ranges::max_element(row) - row.begin()));
        }
        return tokens;
    }

  private:
    static program::Program Built(const model_files::ModelSource& source, bool float64_reductions) {
        model::BuildOptions options;
        options.kv_dtype = DType::kF16;
        options.context = 64;
        options.target.float64_reductions = float64_reductions;
        return support::Build(model::ReadHyper(source).value(), source, {}, options).at(0);
    }
    std::unique_ptr<model_files::ModelSource> source_;
    program::Program program_;
    support::LoadedRank rank_;
};

double Apart(std::span<const float> got, std::span<const float> want) {
    double error = 0, size = 0;
    for (size_t i = 0; i < want.size(); ++i) {
        error += std::pow(static_cast<double>(got[i]) - want[i], 2);
        size += std::pow(static_cast<double>(want[i]), 2);
    }
    return got.size() == want.size() ? std::sqrt(error / size) : INFINITY;
}

void WriteAs(const std::string& type, const std::string& path) {
    const auto source =
        model_files::OpenModel(support::TestData("/../../models/abacus/model.gguf")).value();
    quantize::QuantizeOptions options;
    options.type = quantize::FindFileType(type).value();
    options.pure = true;
    const auto plan = quantize::PlanQuantize(*source, options).value();
    ASSERT_TRUE(quantize::WriteQuantized(*source, plan, path, {}).ok());
}

// Rounding to int8 moves an activation by 1/127 / sqrt(12) of its block's peak; sums over a layer
// average that out, layers add it up. The bound is that of the CPU's kernels, which round in the
// same way (jobs_test.py): 3e-2 of the norm of the logits. Without rounding, only the order of sums
// and the cache's float16 differ.
constexpr double kRoundedModel = 3e-2, kUnroundedModel = 3e-3;

TEST(VulkanIntegerModels, AreAsNearTheReferenceAsTheCpu) {
    WEFT_VULKAN(opened);
    if (!opened->description().integer_dot) GTEST_SKIP() << "no integer dot products";
    const std::string name = NameOf(opened->description());
    DeviceOptions reference, unrounded;
    reference.reference = unrounded.exact = true;
    const auto integers = Open(name, {}, {.arithmetic = kInt8Products}).value();
    const auto exact = Open(name, unrounded).value();
    EXPECT_NE(integers->info().identity, exact->info().identity);
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 24; ++i) tokens.push_back(3 + 5 * i % 90);
    const weft::test::TempDir dir;
    const char* const types[] = {"Q8_0", "Q4_1"};
    for (const char* type : weft::test::Some(types, 2)) {
        const std::string path = dir / type;
        WriteAs(type, path);
        const std::vector<float> want =
            ModelOn(OpenDevice("cpu", reference).value(), path).Logits(tokens, 24);
        ModelOn rounding(integers, path), plain(exact, path);
        const std::vector<float> by_row = rounding.Logits(tokens, 1);
        EXPECT_EQ(rounding.Logits(tokens, 5), by_row);
        for (const size_t piece : {size_t{24}, size_t{1}}) {
            const double rounded = Apart(rounding.Logits(tokens, piece), want);
            const double unmoved = Apart(plain.Logits(tokens, piece), want);
            EXPECT_FALSE(!(rounded <= kRoundedModel)) << type << " " << rounded;
            EXPECT_FALSE(!(unmoved <= kUnroundedModel)) << type << " " << unmoved;
            EXPECT_GT(rounded, 2 * unmoved) << "was anything rounded?";
        }
    }
}

// Products and attention on matrix units round to f16, 2^-11 of each factor.
TEST(VulkanMatrixModels, AnswerAsTheReference) {
    WEFT_VULKAN(opened);
    const std::string name = NameOf(opened->description());
    DeviceOptions reference;
    reference.reference = true;
    const Arithmetic units{.matrix = test::MatrixOf(opened->description())};
    const auto matrices = Open(name, {}, {.arithmetic = units}).value();
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 30; ++i) tokens.push_back(3 + 5 * i % 90);
    const weft::test::TempDir dir;
    const std::string path = dir / "model";
    WriteAs("Q8_0", path);
    ModelOn cpu(OpenDevice("cpu", reference).value(), path), gpu(matrices, path);
    const std::vector<float> want = cpu.Logits(tokens, 30), got = gpu.Logits(tokens, 30);
    EXPECT_FALSE(!(Apart(got, want) <= kUnroundedModel)) << Apart(got, want);
    // Cuts of a prompt change no bits.
    EXPECT_EQ(gpu.Logits(tokens, 10), got);
    EXPECT_EQ(gpu.Greedy(tokens, 8), cpu.Greedy(tokens, 8));
}

// The real model, if ./quickstart or ./test has downloaded it.
TEST(VulkanIntegerModels, SmolLm2AgreesWithTheReference) {
    SKIP_TO_NIGHT_UNLESS(false);  // daily, tiny models are compared
    WEFT_VULKAN(opened);
    if (!opened->description().integer_dot) GTEST_SKIP() << "no integer dot products";
    const char* home = std::getenv("HOME");
    const std::string path =
        std::string(home == nullptr ? "." : home) + "/.cache/weft/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "NOT TESTED: " << path << " is not here";
    const std::string name = NameOf(opened->description());
    DeviceOptions reference;
    reference.reference = true;
    // 11 tokens, so that the prompt uses tiles.
    const std::vector<int32_t> prompt = {504, 3575, 282, 4649, 314, 7042, 30, 378, 3575, 282, 5443};
    const auto integers = Open(name, {}, {.arithmetic = kInt8Products}).value();
    EXPECT_EQ(ModelOn(integers, path).Greedy(prompt, 10),
              ModelOn(OpenDevice("cpu", reference).value(), path).Greedy(prompt, 10));
}

}  // namespace
}  // namespace weft::backend::on_gpu
