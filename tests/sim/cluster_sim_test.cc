// The control plane under faults: the real Cluster, workers, handshake, links and collectives, in
// the simulated kernel. Each seed is one run in virtual time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "sim/answers.h"
#include "sim/forked.h"
#include "sim/sums.h"
#include "sim/world.h"
#include "support/limits.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::sim {
namespace {

constexpr uint64_t kBatch = 20;
constexpr unsigned kSeconds = 300;  // of a batch

class ClusterSim : public ::testing::Test {
  protected:
    ClusterSim() {
        std::ofstream(key_) << "a key of the simulated cluster\n";
        ::chmod(key_.c_str(), 0600);
    }
    using Make = std::function<std::unique_ptr<Workload>(const Plan& plan)>;

    using Draw = Plan (*)(uint64_t seed);

    std::string RunSeed(const Make& make, Draw draw, uint64_t seed, bool verbose) const {
        const Plan plan = draw(seed);
        const std::unique_ptr<Workload> workload = make(plan);
        World world(plan, *workload, key_);
        world.kernel().logs = verbose;
        const std::string wrong = world.Run();
        std::string text;
        if (verbose) {
            text += world.kernel().log();
            for (const auto& process : world.kernel().processes()) {
                text += fmt::format("---- {} ({:#x})\n{}", process->name, process->status,
                                    process->err);
            }
            text += fmt::format("{} events\n", world.kernel().steps());
        }
        if (std::getenv("WEFT_SIM_OUTCOMES") != nullptr) {
            const Outcome& outcome = world.outcome();
            text += fmt::format("OUTCOME {} {} | {}\n", outcome.ended ? "ended" : "not",
                                outcome.error.empty() ? "done" : outcome.error, plan.Text());
        }
        if (!wrong.empty()) text += fmt::format("WRONG: {}\n  {}\n", wrong, plan.Text());
        return text;
    }

    // WEFT_SIM_SEED=N runs one seed and prints its events; WEFT_SIM_SEEDS=BEGIN:COUNT others.
    void RunSeeds(const Make& make, uint64_t daily, uint64_t nightly, Draw draw = DrawPlan) const {
        LogLine(LogLevel::kDebug, "");  // (children of a process that has logged write at once)
        if (const char* one = std::getenv("WEFT_SIM_SEED"); one != nullptr) {
            const uint64_t seed = std::strtoull(one, nullptr, 10);
            const std::string text =
                InFork([&] { return RunSeed(make, draw, seed, true); }, kSeconds);
            std::puts(text.c_str());
            EXPECT_EQ(text.find("WRONG"), std::string::npos);
            return;
        }
        uint64_t begin = 1, count = test::Nightly() ? nightly : daily;
        if (const char* range = std::getenv("WEFT_SIM_SEEDS"); range != nullptr) {
            char* end = nullptr;
            begin = std::strtoull(range, &end, 10);
            count = *end == ':' ? std::strtoull(end + 1, nullptr, 10) : 1;
        }
        for (uint64_t seed = begin; seed < begin + count; seed += kBatch) {
            const auto batch = [&] {
                std::string text;
                for (uint64_t s = seed; s < std::min(seed + kBatch, begin + count); ++s) {
                    text += RunSeed(make, draw, s, false);
                }
                return text;
            };
            const std::string wrong = InFork(batch, kSeconds);
            EXPECT_EQ(wrong, "") << "seeds from " << seed;
        }
    }
    test::TempDir folder_;
    const std::string key_ = folder_ / "key";
};

TEST_F(ClusterSim, Sums) {
    RunSeeds([](const Plan& plan) { return MakeSums(plan); }, 100, 20'000);
}

// Jobs that need the same workers wait in line for all of them, and all finish.
TEST_F(ClusterSim, Rivals) {
    RunSeeds([](const Plan& plan) { return MakeSums(plan); }, 50, 2'000, DrawRivals);
}

// Every request ends once, with the answer of one process that nothing disturbs or, if the job
// fails, with a beginning of it and an error.
TEST_F(ClusterSim, Answers) {
    support::TinyFile file{.hyper = support::OddHyper("llama")};
    file.hyper.layers = 4;
    file.hyper.hidden = 96;
    file.hyper.ffn = 320;
    const std::string model = folder_ / "model.gguf";
    support::WriteTinyGguf(model, file);
    const std::vector<std::string> undisturbed = UndisturbedAnswers(model);
    RunSeeds([&](const Plan& plan) { return MakeAnswers(plan, model, undisturbed); }, 20, 5'000);
}

}  // namespace
}  // namespace weft::sim
