// The control plane under faults: the real Cluster, workers, handshake, links and collectives, in
// the simulated kernel. Each seed is one run in virtual time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/log.h"
#include "sim/forked.h"
#include "sim/world.h"
#include "support/limits.h"
#include "support/temp_dir.h"

namespace weft::sim {
namespace {

constexpr uint64_t kBatch = 20;
constexpr unsigned kBatchSeconds = 120;

class ClusterSim : public ::testing::Test {
  protected:
    ClusterSim() {
        std::ofstream(key_) << "a key of the simulated cluster\n";
        ::chmod(key_.c_str(), 0600);
    }
    std::string RunSeed(uint64_t seed, bool verbose) const {
        const Plan plan = DrawPlan(seed);
        World world(plan, key_);
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
    test::TempDir folder_;
    const std::string key_ = folder_ / "key";
};

// WEFT_SIM_SEED=N runs one seed and prints its events; WEFT_SIM_SEEDS=BEGIN:COUNT others.
TEST_F(ClusterSim, Seeds) {
    LogLine(LogLevel::kDebug, "");  // (children of a process that has logged write at once)
    if (const char* one = std::getenv("WEFT_SIM_SEED"); one != nullptr) {
        const uint64_t seed = std::strtoull(one, nullptr, 10);
        const std::string text = InFork([&] { return RunSeed(seed, true); }, kBatchSeconds);
        std::puts(text.c_str());
        EXPECT_EQ(text.find("WRONG"), std::string::npos);
        return;
    }
    uint64_t begin = 1, count = test::Nightly() ? 20'000 : 400;
    if (const char* range = std::getenv("WEFT_SIM_SEEDS"); range != nullptr) {
        char* end = nullptr;
        begin = std::strtoull(range, &end, 10);
        count = *end == ':' ? std::strtoull(end + 1, nullptr, 10) : 1;
    }
    for (uint64_t seed = begin; seed < begin + count; seed += kBatch) {
        const auto batch = [&] {
            std::string text;
            for (uint64_t s = seed; s < std::min(seed + kBatch, begin + count); ++s) {
                text += RunSeed(s, false);
            }
            return text;
        };
        const std::string wrong = InFork(batch, kBatchSeconds);
        EXPECT_EQ(wrong, "") << "seeds from " << seed;
    }
}

}  // namespace
}  // namespace weft::sim
