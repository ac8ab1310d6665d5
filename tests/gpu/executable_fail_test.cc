// A model on a Vulkan device whose driver fails, at every call in turn from opening the device to
// the second decode step: an error with words comes of it, and nothing stays behind.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "backend/vulkan/compile.h"
#include "gpu/failing_loader.h"
#include "model/load.h"
#include "support/golden_models.h"
#include "support/lavapipe.h"
#include "support/nightly.h"
#include "support/tiny_model.h"

namespace weft::gpu {
namespace {

using backend::vulkan::Context;
using test::vk_faults;

constexpr int64_t kFailPages = 4;
// Of calls of one name so many at either end are made to fail every day, in the night all.
constexpr int kDailyCalls = 2;

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

// maps: false, as on a card whose memory the host does not see.
Status Serve(const FailingModel& model, int index, bool maps, std::vector<float>* logits) {
    WEFT_ASSIGN(auto device, OpenDeviceOf(Loader{test::FindOfInstance}, index, {}));
    auto context = std::make_shared<Context>(std::move(device), "vulkan:0", false);
    context->limits.maps_memory = maps;
    backend::CompileOptions options;
    options.max_tokens = 16;
    options.kv_pages = kFailPages;
    options.keep = {model.logits};
    WEFT_ASSIGN(const auto executable,
                backend::vulkan::CompileForVulkan({model.program}, options, context, {}));
    WEFT_TRY(LoadAll(model, *executable));
    executable->SetTracing(true);
    WEFT_TRY(RunStep(*executable, 1, 0, 9));
    for (int32_t step = 0; step < 2; ++step) {  // recorded, then submitted again
        WEFT_TRY(RunStep(*executable, 2 + step, 9 + step, 1));
        std::vector<backend::Candidate> top(3);
        WEFT_TRY(executable->ReadTop(model.logits, 0, model.hyper.vocab, top));
    }
    logits->assign(static_cast<size_t>(model.hyper.vocab), 0);
    return executable->ReadFloats(model.logits, 0, *logits);
}

class ExecutableFaults : public testing::Test {
  protected:
    void SetUp() override {
        const Result<int> found = test::FindLavapipe();
        if (!found.ok()) GTEST_SKIP() << found.error().message;
        index_ = *found;
        loader_ = SystemLoader()->get;
    }
    Status ServeWith(int fail_at, VkResult with, bool maps) {
        test::FailAt(loader_, fail_at, with);
        return Serve(model_, index_, maps, &logits_);
    }
    void CheckFailure(const Status& served, VkResult with) const {
        const std::string what = vk_faults.failed + " " + ResultName(with);
        EXPECT_EQ(vk_faults.alive, 0) << what;
        // How often a wait asks differs: the last calls may be of a wait that was shorter. Times
        // that do not come are not missed.
        if (vk_faults.failed.empty() || vk_faults.failed == "vkGetQueryPoolResults") return;
        ASSERT_FALSE(served.ok()) << what;
        EXPECT_EQ(served.error().code, test::CodeOf(with))
            << what << ": " << served.error().message;
        const std::string& said = served.error().message;
        EXPECT_TRUE(said.find("gpu ") != said.npos || said.starts_with("Vulkan: ")) << said;
    }
    // The calls to make fail, of those that a whole life has.
    static std::vector<int> CallsToFail(const std::vector<std::string>& names) {
        std::map<std::string, int> all, seen;
        for (const std::string& name : names) ++all[name];
        std::vector<int> chosen;
        for (size_t i = 0; i < names.size(); ++i) {
            const int number = seen[names[i]]++;
            const bool end = number < kDailyCalls || number >= all[names[i]] - kDailyCalls;
            if (end || test::Nightly()) chosen.push_back(static_cast<int>(i));
        }
        return chosen;
    }

    const FailingModel model_;
    int index_ = 0;
    PFN_vkGetInstanceProcAddr loader_ = nullptr;
    std::vector<float> logits_;
};

TEST_F(ExecutableFaults, EachCallThatFailsIsAnErrorAndLeavesNothing) {
    for (const bool maps : {true, false}) {
        const Status whole = ServeWith(-1, VK_SUCCESS, maps);
        ASSERT_TRUE(whole.ok()) << whole.error().message;
        EXPECT_EQ(vk_faults.alive, 0);
        const std::vector<float> want = logits_;
        const std::vector<int> calls = CallsToFail(vk_faults.names);
        ASSERT_GT(calls.size(), 50u);
        size_t turn = 0;
        for (const int at : calls) {
            for (const VkResult with : {VK_ERROR_DEVICE_LOST, VK_ERROR_OUT_OF_DEVICE_MEMORY,
                                        VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_UNKNOWN}) {
                if (!test::InTurn(turn++, 4)) continue;
                const Status served = ServeWith(at, with, maps);
                CheckFailure(served, with);
                EXPECT_TRUE(!served.ok() || logits_ == want) << vk_faults.failed;
                if (HasFatalFailure()) return;
            }
        }
    }
}

}  // namespace
}  // namespace weft::gpu
