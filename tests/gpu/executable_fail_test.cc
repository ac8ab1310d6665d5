// A model on a Vulkan device whose driver fails at every call in turn, from opening the device to
// the second decode step, or to the second training update: the result is an error with a message
// or the right numbers, and no object leaks.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "backend/gpu/compile.h"
#include "backend/gpu/gpu_device.h"
#include "gpu/failing_loader.h"
#include "model/load.h"
#include "support/golden_models.h"
#include "support/lavapipe.h"
#include "support/nightly.h"
#include "support/tiny_model.h"
#include "train/graph.h"
#include "train/update/add.h"

namespace weft::gpu {
namespace {

using backend::on_gpu::Context;
using test::vk_faults;

constexpr int64_t kFailPages = 4;
// Of the calls with one name, this many at each end fail in the daily run; in the nightly run, all
// fail.
struct DailyCalls {
    int first = 2, last = 2;
};

struct FailingModel {
    model::Hyper hyper = support::TinyHyper("llama", false);
    support::TinySource source{hyper};
    program::Program program = support::Build(hyper, source, {}, {})[0];
    program::ValueId logits = program.Find("logits");
};

Status LoadAll(const FailingModel& model, backend::Executable& executable) {
    for (size_t i = 0; i < model.program.values.size(); ++i) {
        const program::Value& value = model.program.values[i];
        if (value.storage != program::Storage::kWeight) continue;
        const auto read = [&](int64_t row, int64_t count, std::span<std::byte> out) {
            return model::ReadWeight(model.source, value, row, count, out, nullptr);
        };
        WEFT_TRY(executable.LoadWeight(static_cast<program::ValueId>(i), read));
    }
    return {};
}

Status RunStep(backend::Executable& executable, int64_t number, int32_t position, int32_t rows) {
    std::vector<int32_t> tokens(static_cast<size_t>(rows)), positions(tokens.size());
    std::iota(tokens.begin(), tokens.end(), 3 + position);
    std::iota(positions.begin(), positions.end(), position);
    const std::vector<int32_t> pages = {2, 0}, outputs = {rows - 1};
    const std::vector<backend::StepSequence> sequences = {{0, rows, position, pages}};
    const std::vector<backend::PageCopy> copies = {{2, 3}};
    backend::Step step{number, tokens, positions, sequences, outputs};
    if (rows == 1) step.copies = copies;
    return executable.Run(executable.whole(), step, {});
}

// maps: false simulates a card whose memory the host cannot map.
Status Serve(const FailingModel& model, int index, bool maps, std::vector<float>* logits) {
    WEFT_ASSIGN(auto device, OpenDeviceOf(Loader{test::FindOfInstance}, index, {}));
    auto context = std::make_shared<Context>(std::move(device), "vulkan:0", false);
    context->limits.maps_memory = maps;
    backend::CompileOptions options;
    options.max_tokens = 16;
    options.kv_pages = kFailPages;
    options.keep = {model.logits};
    WEFT_ASSIGN(const auto executable,
                backend::on_gpu::CompileForVulkan({model.program}, options, context, {}));
    WEFT_TRY(LoadAll(model, *executable));
    executable->SetTracing(true);
    WEFT_TRY(RunStep(*executable, 1, 0, 9));
    for (int32_t step = 0; step < 2; ++step) {  // recorded first, then submitted again
        WEFT_TRY(RunStep(*executable, 2 + step, 9 + step, 1));
        std::vector<backend::Candidate> top(3);
        WEFT_TRY(executable->ReadTopK(model.logits, 0, model.hyper.vocab, top));
    }
    logits->assign(static_cast<size_t>(model.hyper.vocab), 0);
    return executable->ReadFloats(model.logits, 0, *logits);
}

// A training Program with AdamW's update.
class FailingTraining {
  public:
    FailingTraining() {
        hyper_.head_dim = 8;  // causal attention requires multiples of 8
        support::SetRope(hyper_, 100);
        source_.emplace(hyper_);
        cluster_ = cluster::Cluster::Launch({}, "").value();
    }
    // A new Program for each run, because a device caches the one that it compiles.
    Status Build() {
        const model::Shard shard =
            model::PlanShards(hyper_, *source_, model::MakeLayout(1, 1, 1, {}).value())->shards[0];
        train::GraphOptions options;
        options.dtype = options.gradients = DType::kBF16;
        options.rows = options.sequence = kRows;
        options.target = backend::on_gpu::TargetOfGpus();
        WEFT_ASSIGN(graph_, train::BuildTrainingGraph(hyper_, {&shard, 1}, *source_, options));
        state_ = {};
        WEFT_TRY(state_.Agree(graph_.units, *cluster_, 0));
        const bool float64_sums = options.target.float64_sums;
        rule_ = train::MakeUpdateRule({}, {state_, *source_, false, true, float64_sums});
        train::AddUpdate(graph_.program, state_, *rule_, {.float64_sums = float64_sums});
        return {};
    }
    Result<std::unique_ptr<backend::Executable>> Compile(std::shared_ptr<Context> context) {
        backend::CompileOptions options;
        options.max_tokens = options.max_outputs = kRows;
        options.compute = DType::kBF16;
        auto program = graph_.program;
        return backend::on_gpu::CompileForVulkan(std::move(program), options, std::move(context),
                                                 {});
    }
    // Runs two updates; appends the losses and the squared gradient norm of each to `numbers`.
    Status Train(backend::Executable& executable, std::vector<float>* numbers) {
        WEFT_TRY(state_.Load(executable, *source_, *cluster_));
        WEFT_TRY(rule_->Start(executable));
        const program::ModelChunk& chunk = graph_.program.chunks[0];
        const program::Update& update = graph_.program.update;
        backend::Step step;
        step.tokens = kTokens;
        step.positions = kPositions;
        step.output_rows = kPositions;
        step.targets = kTargets;
        const backend::StepSequence sequence{0, kRows, 0, {}};
        step.sequences = {&sequence, 1};
        step.rate = 1e-2;
        for (step.number = 1; step.number <= 2; ++step.number) {
            step.again = false;
            WEFT_TRY(executable.ZeroFill(program::Pool::kGradient));
            WEFT_TRY(executable.Run({chunk.begin, chunk.evaluate_begin}, step, {}));
            step.again = true;
            WEFT_TRY(executable.Run(chunk.backward(), step, {}));
            std::vector<float> losses(kRows), norm(2);
            WEFT_TRY(executable.ReadFloats(chunk.loss.losses, 0, losses));
            WEFT_TRY(executable.Run(update.sum(), step, {}));
            WEFT_TRY(executable.ReadFloats(update.norm, 0, norm));
            WEFT_TRY(executable.Run(update.apply(), step, {}));
            numbers->insert(numbers->end(), losses.begin(), losses.end());
            numbers->insert(numbers->end(), norm.begin(), norm.end());
        }
        return {};
    }

  private:
    static constexpr int32_t kRows = 6;
    static constexpr int32_t kTokens[] = {3, 5, 3, 8, 9, 2}, kTargets[] = {5, 3, 8, 9, 2, 7},
                             kPositions[] = {0, 1, 2, 3, 4, 5};
    model::Hyper hyper_ = support::TinyHyper("llama", true);
    std::optional<support::TinySource> source_;
    std::unique_ptr<cluster::Cluster> cluster_;
    train::TrainingGraph graph_;
    train::TrainState state_;
    std::unique_ptr<train::UpdateRule> rule_;
};

Status TrainOn(FailingTraining& training, int index, bool maps, std::vector<float>* numbers) {
    numbers->clear();
    WEFT_TRY(training.Build());
    WEFT_ASSIGN(auto device, OpenDeviceOf(Loader{test::FindOfInstance}, index, {}));
    auto context = std::make_shared<Context>(std::move(device), "vulkan:0", false);
    context->limits.maps_memory = maps;
    WEFT_ASSIGN(const auto executable, training.Compile(std::move(context)));
    return training.Train(*executable, numbers);
}

class ExecutableFaults : public testing::Test {
  protected:
    void SetUp() override {
        const Result<int> found = test::FindLavapipe();
        if (!found.ok()) GTEST_SKIP() << found.error().message;
        index_ = *found;
        loader_ = SystemLoader()->get;
    }
    // One run from opening to closing the device, with one failing call or none; `numbers` gets its
    // results.
    using Life = std::function<Status(bool maps, std::vector<float>* numbers)>;
    void FailEachCall(const Life& life) {
        for (const bool maps : {true, false}) {
            if (maps && !maps_too_) continue;
            std::vector<float> want, got;
            test::FailAt(loader_, -1, VK_SUCCESS);
            const Status whole = life(maps, &want);
            ASSERT_TRUE(whole.ok()) << whole.error().message;
            EXPECT_EQ(vk_faults.alive, 0);
            ASSERT_GT(vk_faults.names.size(), 50u);
            const std::vector<int> calls = CallsToFail(vk_faults.names);
            size_t turn = 0;
            for (const int at : calls) {
                for (const VkResult with : {VK_ERROR_DEVICE_LOST, VK_ERROR_OUT_OF_DEVICE_MEMORY,
                                            VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_UNKNOWN}) {
                    if (!test::InTurn(turn++, every_)) continue;
                    test::FailAt(loader_, at, with);
                    const Status ended = life(maps, &got);
                    CheckFailure(ended, with);
                    EXPECT_TRUE(!ended.ok() || got == want) << vk_faults.failed;
                    if (HasFatalFailure()) return;
                }
            }
        }
    }
    void CheckFailure(const Status& served, VkResult with) const {
        const std::string what = vk_faults.failed + " " + ResultName(with);
        EXPECT_EQ(vk_faults.alive, 0) << what;
        // The number of polls in a wait varies: the last calls may not occur if a wait was shorter.
        // Missing timestamps are not an error.
        if (vk_faults.failed.empty() || vk_faults.failed == "vkGetQueryPoolResults") return;
        ASSERT_FALSE(served.ok()) << what;
        EXPECT_EQ(served.error().code, test::CodeOf(with))
            << what << ": " << served.error().message;
        const std::string& said = served.error().message;
        EXPECT_TRUE(said.find("gpu ") != said.npos || said.starts_with("Vulkan: ")) << said;
    }
    // Indices of the calls that must fail, among the calls of a whole run.
    std::vector<int> CallsToFail(const std::vector<std::string>& names) const {
        std::map<std::string, int> all, seen;
        for (const std::string& name : names) ++all[name];
        std::vector<int> chosen;
        for (size_t i = 0; i < names.size(); ++i) {
            const int number = seen[names[i]]++;
            const bool end = number < daily_.first || number >= all[names[i]] - daily_.last;
            if (end || test::Nightly()) chosen.push_back(static_cast<int>(i));
        }
        return chosen;
    }

    const FailingModel model_;
    DailyCalls daily_;
    bool maps_too_ = true;
    size_t every_ = 7;  // of the calls and results; four results take turns
    int index_ = 0;
    PFN_vkGetInstanceProcAddr loader_ = nullptr;
};

TEST_F(ExecutableFaults, EachFailingCallIsAnErrorWithoutLeaks) {
    FailEachCall(
        [&](bool maps, std::vector<float>* logits) { return Serve(model_, index_, maps, logits); });
}

TEST_F(ExecutableFaults, EachFailingCallInTrainingIsAnErrorWithoutLeaks) {
    FailingTraining training;
    // Inference makes the other calls fail in its own run.
    daily_ = {0, 1};
    maps_too_ = test::Nightly();
    every_ = 17;
    FailEachCall([&](bool maps, std::vector<float>* numbers) {
        return TrainOn(training, index_, maps, numbers);
    });
}

}  // namespace
}  // namespace weft::gpu
