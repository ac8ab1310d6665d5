// Losses and gradients of tiny models in float32, on each kind of device, against PyTorch's
// (tests/data/loss_gradients.safetensors, made by tools/make_gradient_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/device.h"
#include "support/golden_file.h"
#include "support/nightly.h"
#include "support/paths.h"
#include "support/tiny_model.h"
#include "train/graph.h"
#include "vulkan/usable_device.h"

namespace weft::train {
namespace {

// Derived as in gradient_golden_test.cc, for sums of at most 50 products.
constexpr double kLossTolerance = 1.7e-5;

struct LossGoldenModel {
    const char* name;
    model::Hyper hyper;
};
struct LossGoldenDevice {
    const char* name;
    bool reference = false;
};
void PrintTo(const LossGoldenModel& model, std::ostream* out) {
    *out << model.name;
}
void PrintTo(const LossGoldenDevice& device, std::ostream* out) {
    *out << device.name;
}

model::Hyper HyperOf(const char* architecture, bool tied) {
    return support::WithHeadDim(support::TinyHyper(architecture, tied));
}
model::Hyper ExpertHyperOf(const char* architecture) {
    return support::WithHeadDim(support::TinyExpertHyper(architecture));
}
model::Hyper GemmaHyperOf(const char* architecture, float logit_cap) {
    model::Hyper hyper = support::WithHeadDim(support::TinyGemmaHyper(architecture, true));
    hyper.logit_cap = logit_cap;
    return hyper;
}

// Three sequences; every third row has no target.
struct LossGoldenStep {
    std::vector<int32_t> tokens, positions, outputs, targets;
    std::vector<backend::StepSequence> sequences;

    explicit LossGoldenStep(int64_t vocab) {
        for (const int32_t length : {11, 1, 7}) {
            const auto begin = static_cast<int32_t>(tokens.size());
            sequences.push_back({begin, length, 0, {}});
            for (int32_t i = 0; i < length; ++i) {
                const int32_t row = begin + i;
                tokens.push_back(Draw("tokens", row, vocab));
                positions.push_back(i);
                if (row % 3 == 2) continue;
                outputs.push_back(row);
                targets.push_back(Draw("targets", row, vocab));
            }
        }
    }
    static int32_t Draw(const char* name, int32_t row, int64_t vocab) {
        const double u = support::Formula(name, static_cast<uint32_t>(row)) * 0.5 + 0.5;
        return static_cast<int32_t>(u * static_cast<double>(vocab));
    }
    int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
    backend::Step step() const {
        backend::Step step;
        step.number = 1;
        step.tokens = tokens;
        step.positions = positions;
        step.output_rows = outputs;
        step.targets = targets;
        step.sequences = sequences;
        return step;
    }
};

std::vector<float> FloatsOf(backend::Executable& executable, program::ValueId id, int64_t begin,
                            int64_t count) {
    std::vector<float> floats(static_cast<size_t>(count));
    const auto bytes = std::as_writable_bytes(std::span(floats));
    const Status status = executable.Read(id, begin * int64_t{sizeof(float)}, bytes);
    EXPECT_TRUE(status.ok()) << status.error().message;
    return floats;
}

void ExpectGolden(const std::vector<float>& got, const std::vector<float>& expected,
                  const std::string& name) {
    ASSERT_EQ(got.size(), expected.size()) << name;
    double most = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        const double error = std::fabs(double{got[i]} - double{expected[i]});
        most = std::isnan(error) ? INFINITY : std::max(most, error);
        size = std::max<double>(size, std::fabs(expected[i]));
    }
    EXPECT_LE(most, kLossTolerance * size) << name;
}

class LossGolden : public testing::TestWithParam<std::tuple<LossGoldenModel, LossGoldenDevice>> {
  protected:
    const LossGoldenModel& model() const { return std::get<0>(GetParam()); }

    // Offset of a unit's member in its tensor of the file; one rank has whole matrices.
    size_t BeginOf(const program::FlatBucket::Member& member) const {
        const program::Value& weight = member.weight;
        const int64_t cols = weight.shape.rank > 1 ? weight.shape[1] : 1;
        return static_cast<size_t>(weight.slice.row_begin * cols);
    }
    void WriteWeights(backend::Executable& executable, const program::FlatBucket& unit) const {
        for (const program::FlatBucket::Member& member : unit.members) {
            const std::vector<float>& data = source_.data().at(member.weight.slice.name).data;
            const auto floats = std::span(data).subspan(
                BeginOf(member), static_cast<size_t>(member.weight.shape.Elements(0, 0)));
            const int64_t first_byte = member.begin * int64_t{sizeof(float)};
            const Status status = executable.Write(unit.weights, first_byte, std::as_bytes(floats));
            EXPECT_TRUE(status.ok()) << status.error().message;
        }
    }
    // Adds a unit's gradients to those of whole tensors.
    void ReadGradients(backend::Executable& executable, const program::FlatBucket& unit,
                       std::map<std::string, std::vector<float>>& gradients) const {
        for (const program::FlatBucket::Member& member : unit.members) {
            const std::string& name = member.weight.slice.name;
            std::vector<float>& whole = gradients[name];
            whole.resize(source_.data().at(name).data.size(), NAN);
            const std::vector<float> mine = FloatsOf(executable, unit.gradients, member.begin,
                                                     member.weight.shape.Elements(0, 0));
            std::ranges::copy(mine, whole.begin() + static_cast<std::ptrdiff_t>(BeginOf(member)));
        }
    }

    const support::TinySource source_{model().hyper};
};

INSTANTIATE_TEST_SUITE_P(
    PyTorch, LossGolden,
    testing::Combine(testing::Values(LossGoldenModel{"llama", HyperOf("llama", false)},
                                     LossGoldenModel{"qwen2Tied", HyperOf("qwen2", true)},
                                     LossGoldenModel{"qwen3", HyperOf("qwen3", false)},
                                     LossGoldenModel{"mixtral", ExpertHyperOf("llama")},
                                     LossGoldenModel{"qwen3moe", ExpertHyperOf("qwen3moe")},
                                     LossGoldenModel{"gemma2Tied", GemmaHyperOf("gemma2", 3)},
                                     LossGoldenModel{"gemma3Tied", GemmaHyperOf("gemma3", 0)},
                                     LossGoldenModel{
                                         "graniteTied",
                                         support::WithHeadDim(support::TinyGraniteHyper(true))}),
                     testing::Values(LossGoldenDevice{"cpu"}, LossGoldenDevice{"reference", true},
                                     LossGoldenDevice{"vulkan"})),
    [](const auto& test) {
        return std::string(std::get<0>(test.param).name) + "_" + std::get<1>(test.param).name;
    });

TEST_P(LossGolden, LossesAndGradientsAreThoseOfPyTorch) {
    using backend::UsableName;
    const LossGoldenDevice& kind = std::get<1>(GetParam());
    std::shared_ptr<backend::Device> device;
    if (std::string_view(kind.name) == "vulkan") {
        const std::string_view name = model().name;  // gpu_test.cc has the other families daily
        SKIP_TO_NIGHT_UNLESS(name == "llama" || name == "qwen3moe");
        WEFT_NEEDS_VULKAN();
        device = backend::TheVulkan();
    } else {
        device = backend::OpenDevice("cpu", {2, {}, false, kind.reference}).value();
    }
    const LossGoldenStep step(model().hyper.vocab);
    const model::Layout layout = model::MakeLayout(1, 1, 1, {}).value();
    const auto plan = model::PlanShards(model().hyper, source_, layout);
    GraphOptions options;
    options.rows = options.sequence = step.rows();
    options.target = device->info().target;
    TrainingGraph graph = BuildTrainingGraph(model().hyper, plan->shards, source_, options).value();
    const program::ModelChunk chunk = graph.program.chunks[0];
    backend::CompileOptions compile;
    compile.max_tokens = compile.max_outputs = step.rows();
    const auto compiled = device->Compile(std::move(graph.program), compile);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    backend::Executable& executable = **compiled;
    for (const program::FlatBucket& unit : graph.units) WriteWeights(executable, unit);
    ASSERT_TRUE(executable.ZeroFill(program::Pool::kGradient).ok());
    backend::Step run = step.step();
    for (const program::OpRange& ops : {chunk.forward(), chunk.backward()}) {
        const Status status = executable.Run(ops, run, {});
        ASSERT_TRUE(status.ok()) << status.error().message;
        run.again = true;
    }
    const support::GoldenFile golden(support::TestData("/loss_gradients.safetensors"));
    const std::string prefix = std::string(model().name) + "/";
    const auto count = static_cast<int64_t>(step.outputs.size());
    ExpectGolden(FloatsOf(executable, chunk.loss.losses, 0, count),
                 golden.Tensor(prefix + "losses"), "losses");
    std::map<std::string, std::vector<float>> gradients;
    for (const program::FlatBucket& unit : graph.units) ReadGradients(executable, unit, gradients);
    EXPECT_EQ(gradients.size(), source_.tensors().size());
    for (const auto& [name, gradient] : gradients) {
        ExpectGolden(gradient, golden.Tensor(prefix + name), name);
    }
}

}  // namespace
}  // namespace weft::train
