// Training on a Vulkan device: each op of a pass matches the CPU, with the same bits in each run.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "backend/device.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/memory/buffers.h"
#include "model/load.h"
#include "support/nightly.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/tiny_model.h"
#include "tensor/half_rows.h"
#include "tensor/quant.h"
#include "train/graph.h"
#include "vulkan/usable_device.h"

namespace weft::train {
namespace {

using backend::on_gpu::Arithmetic;

constexpr int64_t kGpuRows = 24;

struct GpuCase {
    const char* name;
    model::Hyper hyper;
    DType dtype = DType::kF32;
    // Trains adapters on weights of type `file`.
    bool lora = false;
    DType file = DType::kF32;
    std::optional<Arithmetic> arithmetic{};  // the device's option; nullopt: its default
    program::Recompute recompute = program::Recompute::kNone;
    bool experts() const { return hyper.moe.experts > 0; }
};
void PrintTo(const GpuCase& c, std::ostream* out) {
    *out << c.name;
}

model::Hyper OfGpu(const char* architecture, bool tied = true) {
    return support::WithHeadDim(support::TinyHyper(architecture, tied));
}
model::Hyper OfExperts(const char* architecture) {
    return support::WithHeadDim(support::TinyExpertHyper(architecture));
}
model::Hyper Gemma2() {
    model::Hyper hyper = support::WithHeadDim(support::TinyGemmaHyper("gemma2", true));
    hyper.logit_cap = 3;
    return hyper;
}
// No size is a power of two.
model::Hyper Uneven() {
    model::Hyper hyper = support::TinyHyper("llama", false);
    hyper.hidden = 72, hyper.ffn = 100, hyper.heads = 5, hyper.kv_heads = 1, hyper.vocab = 131;
    return support::WithHeadDim(hyper, 24);
}
// Columns that are whole blocks of every type.
model::Hyper Blocks(const char* architecture = "llama") {
    model::Hyper hyper = support::OddHyper(architecture);
    hyper.layers = 2, hyper.ffn = 512;
    support::SetRope(hyper, 10000);
    return hyper;
}
// Arithmetic of inference, which rounds activations; training must not use it.
constexpr Arithmetic kIntegerMatvecs = {.integer = true, .matvec_rows = 32};
constexpr Arithmetic kMatrixTiles = {
    .integer = true, .matrix = Arithmetic::Matrix::kEmulated, .matvec_rows = 8};

model::Hyper BlocksOfExperts() {
    model::Hyper hyper = support::TinyExpertHyper("qwen3moe");
    hyper.hidden = hyper.ffn = hyper.moe.ffn = 64;
    hyper.heads = 4, hyper.kv_heads = 2;
    return support::WithHeadDim(hyper);
}
// Weights are decoded in the smallest pieces.
constexpr Arithmetic kInPieces = {.decoded_bytes = 1};
constexpr Arithmetic kMatrixInPieces = {.matrix = Arithmetic::Matrix::kEmulated,
                                        .decoded_bytes = 1};

// Outputs of each op of a pass, as floats.
using Seen = std::map<std::pair<int32_t, size_t>, std::vector<float>>;

class OnGpu : public testing::TestWithParam<GpuCase> {
  protected:
    void SetUp() override {
        if (GetParam().lora) {
            support::WriteTinyGguf(folder_ / "tiny.gguf",
                                   {.hyper = hyper(), .dtype = GetParam().file});
            source_ = model_files::OpenModel(folder_ / "tiny.gguf").value();
            LoraOptions words;
            words.rank = 4;
            lora_ = PlanLora(*source_, words).value();
        } else {
            source_ = std::make_unique<support::TinySource>(hyper());
        }
        shard_ =
            model::PlanShards(hyper(), *source_, model::MakeLayout(1, 1, 1, {}).value())->shards[0];
    }
    const model::Hyper& hyper() const { return GetParam().hyper; }
    TrainingGraph Graph(const program::Target& target) const {
        GraphOptions options;
        options.dtype = options.gradients = GetParam().dtype;
        options.recompute = GetParam().recompute;
        options.rows = kGpuRows;
        options.sequence = kGpuRows;
        options.target = target;
        options.load_balance = GetParam().experts();
        if (GetParam().lora) options.lora = &lora_;
        auto graph = BuildTrainingGraph(hyper(), {&shard_, 1}, *source_, options);
        EXPECT_TRUE(graph.ok()) << graph.error().message;
        return std::move(*graph);
    }

    // Two sequences with repeated tokens and some rows without a target.
    backend::Step StepOf() {
        tokens_ = {1, 2, 3, 2, 5, 6, 7, 2, 9, 10, 11, 3, 3, 3, 15, 4, 1, 8};
        positions_ = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 3, 4, 5, 6};
        outputs_ = {0, 1, 2, 5, 8, 9, 11, 12, 17};
        targets_ = {2, 3, 2, 7, 10, 11, 3, 3, 1};
        sequences_ = {{0, 11, 0, {}}, {11, 7, 0, {}}};
        backend::Step step;
        step.number = 1;
        step.tokens = tokens_;
        step.positions = positions_;
        step.output_rows = outputs_;
        step.targets = targets_;
        step.sequences = sequences_;
        step.loss_gradient = 0.25f;
        step.side_gradient = 0.5f;
        return step;
    }

    // Loads weights by a formula, runs a pass, and returns the outputs of its ops.
    Seen RunOn(backend::Device& device) {
        TrainingGraph graph = Graph(device.info().target);
        const program::ModelChunk chunk = graph.program.chunks[0];
        backend::CompileOptions options;
        options.max_tokens = options.max_outputs = kGpuRows;
        options.compute = GetParam().dtype;
        auto compiled = device.Compile(std::move(graph.program), options);
        EXPECT_TRUE(compiled.ok()) << compiled.error().message;
        if (!compiled.ok()) return {};
        backend::Executable& executable = **compiled;
        uint32_t at = 0;
        for (const program::FlatBucket& unit : graph.units) {
            std::vector<float> floats(static_cast<size_t>(unit.elements));
            for (float& x : floats) x = 0.2f * static_cast<float>(support::Formula("w", at++));
            std::vector<std::byte> bytes(static_cast<size_t>(RowBytes(unit.dtype, unit.elements)));
            if (unit.dtype == DType::kF32) {
                std::memcpy(bytes.data(), floats.data(), bytes.size());
            } else {
                NarrowRow(unit.dtype, floats, bytes.data());
            }
            EXPECT_TRUE(executable.Write(unit.weights, 0, bytes).ok());
        }
        if (GetParam().lora) LoadFrozen(executable, graph.units);
        EXPECT_TRUE(executable.ZeroFill(program::Pool::kGradient).ok());
        Seen seen;
        const auto look = [&](int32_t op, int64_t rows) {
            const program::Program& program = executable.program();
            const program::ValueId first = program.ops[static_cast<size_t>(op)].outputs[0];
            EXPECT_EQ(rows, program::BindDim(program.value(first).shape[0], 18, 9));
            return Look(executable, op, seen);
        };
        executable.SetProbe(look);
        backend::Step step = StepOf();
        for (const program::OpRange& ops :
             {program::OpRange{chunk.begin, chunk.backward_begin}, chunk.backward()}) {
            const Status status = executable.Run(ops, step, {});
            EXPECT_TRUE(status.ok()) << status.error().message;
            step.again = true;
        }
        return seen;
    }
    // Loads weights outside units in the file's type.
    void LoadFrozen(backend::Executable& executable,
                    const std::vector<program::FlatBucket>& units) {
        const program::Program& program = executable.program();
        for (size_t i = 0; i < program.values.size(); ++i) {
            const program::Value& weight = program.values[i];
            const auto id = static_cast<program::ValueId>(i);
            const bool trained = std::ranges::count(units, id, &program::FlatBucket::weights) > 0;
            if (weight.storage != program::Storage::kWeight || trained) continue;
            const auto rows = [&](int64_t row, int64_t count, std::span<std::byte> out) {
                return model::ReadWeight(*source_, weight, row, count, out, nullptr);
            };
            const Status status = executable.LoadWeight(id, rows);
            EXPECT_TRUE(status.ok()) << status.error().message;
        }
    }
    static Status Look(backend::Executable& executable, int32_t number, Seen& seen) {
        const program::Program& program = executable.program();
        const program::Op& op = program.ops[static_cast<size_t>(number)];
        for (size_t i = 0; i < op.outputs.size(); ++i) {
            const program::Value& value = program.value(op.outputs[i]);
            if (value.name.ends_with(".lse") || value.shape.rank == 3) continue;
            const auto count = value.shape.Elements(18, 9);
            std::vector<std::byte> bytes(static_cast<size_t>(RowBytes(value.dtype, count)));
            WEFT_TRY(executable.Read(op.outputs[i], 0, bytes));
            std::vector<float>& floats = seen[{number, i}];
            floats.resize(static_cast<size_t>(count));
            if (value.dtype == DType::kI32) {
                for (size_t j = 0; j < floats.size(); ++j) {
                    int32_t number_at = 0;
                    std::memcpy(&number_at, bytes.data() + 4 * j, 4);
                    floats[j] = static_cast<float>(number_at);
                }
            } else {
                DequantizeRow(value.dtype, bytes, floats);
            }
        }
        return {};
    }

    const test::TempDir folder_;
    std::unique_ptr<model_files::ModelSource> source_;
    LoraPlan lora_;
    model::Shard shard_;
    std::vector<int32_t> tokens_, positions_, outputs_, targets_;
    std::vector<backend::StepSequence> sequences_;
};

INSTANTIATE_TEST_SUITE_P(
    Models, OnGpu,
    testing::Values(
        GpuCase{"llama", OfGpu("llama")}, GpuCase{"llamaBf16", OfGpu("llama"), DType::kBF16},
        GpuCase{"llamaF16", OfGpu("llama"), DType::kF16},
        GpuCase{"qwen2Untied", OfGpu("qwen2", false)},
        GpuCase{.name = "qwen3Recomputed",
                .hyper = OfGpu("qwen3"),
                .dtype = DType::kBF16,
                .recompute = program::Recompute::kFull},
        GpuCase{"mixtral", OfExperts("llama")},
        GpuCase{"qwen3moe", OfExperts("qwen3moe"), DType::kBF16}, GpuCase{"gemma2", Gemma2()},
        GpuCase{"gemma3", support::WithHeadDim(support::TinyGemmaHyper("gemma3", true))},
        GpuCase{"gemma2Bf16", Gemma2(), DType::kBF16},
        GpuCase{"granite", support::WithHeadDim(support::TinyGraniteHyper(true))},
        GpuCase{"uneven", Uneven()}, GpuCase{"unevenBf16", Uneven(), DType::kBF16},
        GpuCase{"phi3Lora", Blocks("phi3"), DType::kF32, true},
        GpuCase{"q4_1Lora", Blocks(), DType::kF32, true, DType::kQ4_1, kIntegerMatvecs},
        GpuCase{"q6_kLora", Blocks(), DType::kF32, true, DType::kQ6_K, kMatrixTiles},
        GpuCase{"q8_0Lora", Blocks(), DType::kF32, true, DType::kQ8_0},
        GpuCase{"q4_1LoraBf16", Blocks(), DType::kBF16, true, DType::kQ4_1},
        GpuCase{"q6_kLoraBf16", Blocks(), DType::kBF16, true, DType::kQ6_K},
        GpuCase{"q8_0LoraBf16", Blocks(), DType::kBF16, true, DType::kQ8_0, kMatrixTiles},
        GpuCase{"q8_0LoraF16", Blocks(), DType::kF16, true, DType::kQ8_0},
        GpuCase{"q4_1LoraInPieces", Blocks(), DType::kF32, true, DType::kQ4_1, kInPieces},
        GpuCase{"q8_0LoraBf16InPieces", Blocks(), DType::kBF16, true, DType::kQ8_0, kInPieces},
        GpuCase{"q6_kLoraMatrixInPieces", Blocks(), DType::kBF16, true, DType::kQ6_K,
                kMatrixInPieces},
        GpuCase{"expertsInPieces", BlocksOfExperts(), DType::kF32, true, DType::kQ8_0, kInPieces},
        GpuCase{"expertsMatrixInPieces", BlocksOfExperts(), DType::kBF16, true, DType::kQ8_0,
                kMatrixInPieces}),
    [](const auto& test) { return std::string(test.param.name); });

// Relative to the largest element of a value: some 50 ops in a row, each with an error of a few
// roundings.
double BoundOf(DType dtype) {
    if (dtype == DType::kF32) return 2e-5;
    return dtype == DType::kF16 ? 5e-3 : 4e-2;
}

// A pass chooses no tokens, so its memory of the host does not grow with the rows.
TEST_P(OnGpu, NoCandidatesAreRead) {
    const TrainingGraph graph = Graph(backend::on_gpu::TargetOfGpus());
    backend::CompileOptions options;
    options.max_tokens = options.max_outputs = 1 << 17;
    backend::on_gpu::Buffers buffers;
    ASSERT_TRUE(buffers.Plan(graph.program, graph.program.program, options).ok());
    EXPECT_LE(buffers.top_bytes(), uint64_t{64} << 10);
}

TEST_P(OnGpu, EveryOpGivesTheNumbersOfTheCpu) {
    using backend::UsableName;
    WEFT_NEEDS_VULKAN();
    const auto cpu = backend::OpenDevice("cpu", {2, {}, false, true}).value();
    const bool own = !GetParam().arithmetic;
    // (Each kind of op, each dtype and each kind of products occurs in one of these.)
    const std::string_view daily[] = {
        "llamaF16", "qwen3Recomputed", "mixtral",         "gemma2",
        "uneven",   "q4_1Lora",        "expertsInPieces", "q6_kLoraMatrixInPieces"};
    SKIP_TO_NIGHT_UNLESS(std::ranges::find(daily, GetParam().name) != std::end(daily));
    const auto gpu =
        own ? backend::TheVulkan() : backend::OpenVulkan({.arithmetic = GetParam().arithmetic});
    const Seen expected = RunOn(*cpu), got = RunOn(*gpu), again = RunOn(*gpu);
    ASSERT_FALSE(got.empty());
    EXPECT_TRUE(got == again) << "the same pass has other bits";
    const TrainingGraph graph = Graph(gpu->info().target);
    const program::Program& program = graph.program.program;
    for (const auto& [at, values] : expected) {
        const program::Op& op = program.ops[static_cast<size_t>(at.first)];
        const program::Value& value = program.value(op.outputs[at.second]);
        ASSERT_TRUE(got.contains(at)) << value.name;
        double most = 0, size = 0;
        for (size_t i = 0; i < values.size(); ++i) {
            most = std::max<double>(most, std::fabs(got.at(at)[i] - values[i]));
            size = std::max<double>(size, std::fabs(values[i]));
        }
        ASSERT_LE(most, BoundOf(GetParam().dtype) * size + 1e-7)
            << "op " << at.first << " (" << program::OpName(op.kind()) << ") " << value.name
            << " of " << size;
    }
}

}  // namespace
}  // namespace weft::train
