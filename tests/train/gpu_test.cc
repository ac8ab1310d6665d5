// Training on a Vulkan device: each op of a pass gives the CPU's numbers, the same bits twice.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "backend/device.h"
#include "support/tiny_model.h"
#include "tensor/half_rows.h"
#include "tensor/quant.h"
#include "train/graph.h"
#include "vulkan/usable_device.h"

namespace weft::train {
namespace {

constexpr int64_t kGpuRows = 24;

struct GpuCase {
    const char* name;
    const char* architecture;
    DType dtype = DType::kF32;
    bool tied = true, experts = false;
    program::Recompute recompute = program::Recompute::kNone;
};
void PrintTo(const GpuCase& c, std::ostream* out) {
    *out << c.name;
}

// What each op of a pass wrote, as floats.
using Seen = std::map<std::pair<int32_t, size_t>, std::vector<float>>;

class OnGpu : public testing::TestWithParam<GpuCase> {
  protected:
    void SetUp() override {
        hyper_ = GetParam().experts ? support::TinyExpertHyper(GetParam().architecture)
                                    : support::TinyHyper(GetParam().architecture, GetParam().tied);
        hyper_.head_dim = 8;  // kernels of attention take multiples of it
        support::SetRope(hyper_, 100);
        source_.emplace(hyper_);
        shard_ = model::PlanShards(hyper_, *source_, model::MakeLayout(1, 1, 1, {}).value())
                     ->shards[0];
    }
    TrainingGraph Graph(const program::Target& target) const {
        GraphOptions options;
        options.dtype = options.gradients = GetParam().dtype;
        options.recompute = GetParam().recompute;
        options.rows = kGpuRows;
        options.sequence = kGpuRows;
        options.target = target;
        options.load_balance = GetParam().experts;
        auto graph = BuildTrainingGraph(hyper_, {&shard_, 1}, *source_, options);
        EXPECT_TRUE(graph.ok()) << graph.error().message;
        return std::move(*graph);
    }

    // Two sequences, some rows without a target, tokens that repeat.
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

    // Weights by a formula; then a pass, and what its ops wrote.
    Seen RunOn(backend::Device& device) {
        TrainingGraph graph = Graph(device.info().target);
        const program::Chunk chunk = graph.program.chunks[0];
        backend::CompileOptions options;
        options.max_tokens = options.max_outputs = kGpuRows;
        options.compute = GetParam().dtype;
        auto compiled = device.Compile(std::move(graph.program), options);
        EXPECT_TRUE(compiled.ok()) << compiled.error().message;
        if (!compiled.ok()) return {};
        backend::Executable& executable = **compiled;
        uint32_t at = 0;
        for (const program::Unit& unit : graph.units) {
            std::vector<float> floats(static_cast<size_t>(unit.elements));
            for (float& x : floats) x = 0.2f * static_cast<float>(support::Formula("w", at++));
            std::vector<std::byte> bytes(
                static_cast<size_t>(RowBytes(unit.dtype, unit.elements)));
            if (unit.dtype == DType::kF32) {
                std::memcpy(bytes.data(), floats.data(), bytes.size());
            } else {
                NarrowRow(unit.dtype, floats, bytes.data());
            }
            EXPECT_TRUE(executable.Write(unit.weights, 0, bytes).ok());
        }
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

    model::Hyper hyper_;
    std::optional<support::TinySource> source_;
    model::Shard shard_;
    std::vector<int32_t> tokens_, positions_, outputs_, targets_;
    std::vector<backend::StepSequence> sequences_;
};

INSTANTIATE_TEST_SUITE_P(
    Models, OnGpu,
    testing::Values(GpuCase{"llama", "llama"}, GpuCase{"llamaBf16", "llama", DType::kBF16},
                    GpuCase{"qwen2Untied", "qwen2", DType::kF32, false},
                    GpuCase{"qwen3Recomputed", "qwen3", DType::kBF16, true, false,
                            program::Recompute::kFull},
                    GpuCase{"mixtral", "llama", DType::kF32, true, true},
                    GpuCase{"qwen3moe", "qwen3moe", DType::kBF16, true, true}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(OnGpu, EveryOpGivesTheNumbersOfTheCpu) {
    using backend::UsableName;
    WEFT_NEEDS_VULKAN();
    const auto cpu = backend::OpenDevice("cpu", {2, {}, false, true}).value();
    const auto gpu = backend::TheVulkan();
    const Seen expected = RunOn(*cpu), got = RunOn(*gpu), again = RunOn(*gpu);
    ASSERT_FALSE(got.empty());
    EXPECT_EQ(got, again);
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
        // Of the largest number of a value: some 50 ops in a row, each off by a few roundings.
        const double bound = GetParam().dtype == DType::kF32 ? 2e-5 : 4e-2;
        ASSERT_LE(most, bound * size + 1e-7)
            << "op " << at.first << " (" << program::OpName(op.kind()) << ") " << value.name
            << " of " << size;
    }
}

}  // namespace
}  // namespace weft::train
