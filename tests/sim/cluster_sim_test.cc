// The control plane under faults: the real Cluster, workers, handshake, links and collectives, in
// the simulated kernel. Each seed is one run in virtual time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "hw/cpu.h"
#include "sim/answers.h"
#include "sim/forked.h"
#include "sim/sums.h"
#include "sim/training.h"
#include "sim/world.h"
#include "support/limits.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::sim {
namespace {

constexpr unsigned kSeconds = 300;  // of a run
constexpr const char* kTrace = ", trace ";

class ClusterSim : public ::testing::Test {
  protected:
    ClusterSim() {
        std::ofstream(key_) << "a key of the simulated cluster\n";
        ::chmod(key_.c_str(), 0600);
        // Without a cache folder. (The sums of a file are kept only if it was written some time
        // ago, by the real clock.)
        ::setenv("XDG_CACHE_HOME", "none", 1);
        ::setenv("HOME", "none", 1);
    }
    using Make = std::function<std::unique_ptr<Workload>(const Plan& plan)>;

    using Draw = Plan (*)(uint64_t seed);

    // "", or what is wrong and, for `verbose`, the events of the run. Each run has a process of its
    // own, so that it does not depend on runs before it.
    std::string RunPlan(const Make& make, const Plan& plan, bool verbose) const {
        return InFork([&] { return RunHere(make, plan, verbose); }, kSeconds);
    }
    std::string RunHere(const Make& make, const Plan& plan, bool verbose) const {
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
            text += fmt::format("{} events{}{:016x}\n", world.kernel().steps(), kTrace,
                                world.kernel().trace());
        }
        if (std::getenv("WEFT_SIM_OUTCOMES") != nullptr) {
            const Outcome& outcome = world.outcome();
            text += fmt::format("OUTCOME {} {} | {}\n", outcome.ended ? "ended" : "not",
                                outcome.error.empty() ? "done" : outcome.error, plan.Text());
        }
        if (!wrong.empty()) text += fmt::format("WRONG: {}\n  {}\n", wrong, plan.Text());
        return text;
    }

    // Leaves out faults as long as the run stays wrong.
    std::string RunSeed(const Make& make, Draw draw, uint64_t seed) const {
        Plan plan = draw(seed);
        std::string wrong = RunPlan(make, plan, false);
        if (wrong.find("WRONG") == std::string::npos) return wrong;
        std::string kept;
        for (size_t i = 0, at = 0; at < plan.faults.size(); ++i) {
            Plan smaller = plan;
            smaller.faults.erase(smaller.faults.begin() + static_cast<ptrdiff_t>(at));
            const std::string still = RunPlan(make, smaller, false);
            if (still.find("WRONG") != std::string::npos) {
                plan = std::move(smaller);
                wrong = still;
            } else {
                kept += fmt::format("{}{}", kept.empty() ? "" : ",", i);
                ++at;
            }
        }
        return wrong + fmt::format("  WEFT_SIM_SEED={} WEFT_SIM_FAULTS={}\n", seed, kept);
    }

    // The plan with the faults of WEFT_SIM_FAULTS only ("0,2").
    static Plan WithFaults(Plan plan) {
        const char* listed = std::getenv("WEFT_SIM_FAULTS");
        if (listed == nullptr) return plan;
        std::vector<FaultPlan> kept;
        for (const std::string_view word : Split(listed, ',')) {
            if (!word.empty()) kept.push_back(plan.faults.at(std::stoul(std::string(word))));
        }
        plan.faults = std::move(kept);
        return plan;
    }

    // WEFT_SIM_SEED=N runs one seed and prints its events; WEFT_SIM_SEEDS=BEGIN:COUNT others. A
    // seed that fails is printed with the faults that it needs for that.
    void RunSeeds(const Make& make, uint64_t daily, uint64_t nightly, Draw draw = DrawPlan) const {
        LogLine(LogLevel::kDebug, "");  // (children of a process that has logged write at once)
        if (const char* one = std::getenv("WEFT_SIM_SEED"); one != nullptr) {
            const uint64_t seed = std::strtoull(one, nullptr, 10);
            const std::string text = RunPlan(make, WithFaults(draw(seed)), true);
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
        for (uint64_t seed = begin; seed < begin + count; ++seed) {
            EXPECT_EQ(RunSeed(make, draw, seed), "");
        }
    }
    // The part of the output of a process in which it reports its seed's run.
    static std::string EventsOf(test::Process& run) {
        run.Wait(Deadline::In(1000 * kSeconds));
        const std::string& text = run.output();
        const size_t begin = text.find("[ RUN "), end = text.find(kTrace);
        if (end == std::string::npos) return "no trace: " + text;
        return text.substr(begin, text.find('\n', end) - begin);
    }
    std::string WriteModel() const {
        support::TinyFile file{.hyper = support::OddHyper("llama")};
        file.hyper.layers = 4;
        file.hyper.hidden = 96;
        file.hyper.ffn = 320;
        support::WriteTinyGguf(folder_ / "model.gguf", file);
        return folder_ / "model.gguf";
    }
    test::TempDir folder_;
    const std::string key_ = folder_ / "key";
};

TEST_F(ClusterSim, Sums) {
    RunSeeds([](const Plan& plan) { return MakeSums(plan); }, 200, 20'000);
}

// A job outlasts short faults, and then continues over the other cable or once links heal.
TEST_F(ClusterSim, Links) {
    RunSeeds([](const Plan& plan) { return MakeSums(plan); }, 400, 20'000, DrawLinks);
}

// Jobs that need the same workers wait in line for all of them, and all finish.
TEST_F(ClusterSim, Rivals) {
    RunSeeds([](const Plan& plan) { return MakeSums(plan); }, 50, 2'000, DrawRivals);
}

// Every request ends once, with the answer of one process that nothing disturbs or, if the job
// fails, with a beginning of it and an error.
TEST_F(ClusterSim, Answers) {
    const std::string model = WriteModel();
    const std::vector<std::string> undisturbed = UndisturbedAnswers(model);
    RunSeeds([&](const Plan& plan) { return MakeAnswers(plan, model, undisturbed); }, 40, 5'000);
}

// A seed always gives the same run, at any memory addresses and with any load on its core.
TEST_F(ClusterSim, Repeats) {
    const PinnedThread together({AllowedCores().data(), 1});
    for (const char* name : {"Links", "Sums", "Answers"}) {
        std::vector<std::unique_ptr<test::Process>> runs;
        for (const size_t padding : {1, 9'000, 90'000}) {
            runs.push_back(std::make_unique<test::Process>(std::vector<std::string>{
                "env", "WEFT_SIM_SEED=30", "PADDING=" + std::string(padding, 'x'),
                std::filesystem::read_symlink("/proc/self/exe"),
                std::string("--gtest_filter=ClusterSim.") + name}));
        }
        const std::string first = EventsOf(*runs[0]);
        EXPECT_NE(first.find("starts on host"), std::string::npos) << first;
        for (const auto& run : runs) EXPECT_EQ(EventsOf(*run), first) << name;
    }
}

// Checkpoints stay, and the next job continues from them.
TEST_F(ClusterSim, Training) {
    const std::string model = WriteModel();
    const std::map<int64_t, double> undisturbed = UndisturbedLosses(model);
    const auto make = [&](const Plan& plan) {
        return MakeTraining(plan, model, folder_ / "out", undisturbed);
    };
    RunSeeds(make, 30, 3'000, DrawTraining);
    if (!test::Nightly()) return;
    EXPECT_EQ(RunSeed(make, DrawTraining, 20'261'205), "") << "a job of more than an hour";
}

}  // namespace
}  // namespace weft::sim
