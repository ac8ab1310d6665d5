// weft train --elastic: workers join and are lost during training, and the curve equals that of one
// undisturbed rank.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "base/file.h"
#include "net/socket.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"
#include "support/wait.h"

namespace weft::support {
namespace {

using nlohmann::json;
using test::Process;

// Sums have other orders: a relative error of 2^-24 for each of some hundred terms, and twice that
// after an update, for each of some twenty updates (train_resume_test.cc).
constexpr double kOtherOrder = 2e-5;
constexpr int64_t kSteps = 24;
// Micro-batches of four sequences per update: enough that an update takes a while on any ranks.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMicroBatches = 6;
#else
constexpr int kMicroBatches = 16;
#endif

class TrainElastic : public testing::Test {
  protected:
    void SetUp() override {
        const std::string_view key = "a-shared-key-of-the-tests";
        ASSERT_TRUE(WriteFile(dir_ / "key", std::as_bytes(std::span(key))).ok());
        ::chmod((dir_ / "key").c_str(), 0600);
        model::Hyper hyper = TrainHyper();
        hyper.tied = true;
        WriteTinyGguf(dir_ / "tiny.gguf", {.hyper = hyper, .dtype = DType::kF16});
        WriteQuestions(dir_ / "data.jsonl", 40);
        const Fd fd = net::ListenTcp("127.0.0.1", 0).value();
        port_ = net::BoundPort(fd.get()).value();
        std::filesystem::current_path(dir_ / "");
    }
    void TearDown() override { std::filesystem::current_path(before_); }
    Words Command(const std::string& out, const Words& more) const {
        return Words{"train",
                     "tiny.gguf",
                     "--data",
                     "data.jsonl",
                     "--seq-len",
                     "96",
                     "--json",
                     "-t",
                     "1",
                     "--lr",
                     "1e-4",
                     "--dtype",
                     "f32",
                     "--steps",
                     "24",
                     "--output-dir",
                     out,
                     "--timeout-ms",
                     std::to_string(test::TimeoutMs(1500))} +
               more;
    }
    Words Dialled(int workers, const Words& more = {}, int micro_batches = kMicroBatches) const {
        return Words{"--elastic",
                     "--save-every",
                     "4",
                     "--micro-batch",
                     "4",
                     "--grad-accum",
                     std::to_string(micro_batches / 2),
                     "--listen",
                     Address(),
                     "--expect-workers",
                     std::to_string(workers),
                     "--key-file",
                     dir_ / "key",
                     "--transport",
                     "tcp"} +
               more;
    }
    std::string Address() const { return fmt::format("127.0.0.1:{}", port_); }
    std::unique_ptr<Process> Worker(const std::string& folder) const {
        return std::make_unique<Process>(Words{"sh", "-c", "cd \"$0\" && exec \"$@\"", folder,
                                               WeftProgram(), "worker", "--join", Address(),
                                               "--key-file", dir_ / "key"});
    }
    std::unique_ptr<Process> Worker() const { return Worker(dir_ / ""); }
    static void Kill(Process& worker) {
        const auto children = test::ChildrenOf(worker.pid());
        worker.Signal(SIGKILL);
        for (const pid_t child : children) ::kill(child, SIGKILL);
    }
    static bool Says(const Weft& root, const std::string& line) {
        return test::Reports(root, line);
    }
    static bool Prints(const Weft& root, const std::string& line) {
        return test::Prints(root, line);
    }
    // Prints `line`, and then runs updates.
    static bool GoesOn(const Weft& root, const std::string& line) {
        if (!Says(root, line)) return false;
        const size_t before = JsonLines(root.Out()).size();
        return test::Until([&] { return JsonLines(root.Out()).size() > before; });
    }
    // The last line of each step.
    static std::map<int64_t, json> StepsOf(const std::string& text) {
        std::map<int64_t, json> steps;
        for (const json& line : JsonLines(text)) steps[line.value("step", int64_t{0})] = line;
        return steps;
    }
    void ExpectTheCurveOfOne(const std::string& out, const Words& more = {}) const {
        const Ran one = RunTrain(Command(dir_ / "one", {"--micro-batch", "4", "--grad-accum",
                                                        std::to_string(kMicroBatches)}) +
                                 more);
        ASSERT_EQ(one.status, 0) << one.err;
        const auto expected = StepsOf(one.out), got = StepsOf(out);
        for (int64_t step = 1; step <= kSteps; ++step) {
            SCOPED_TRACE(step);
            ASSERT_TRUE(expected.contains(step) && got.contains(step));
            for (const char* field : {"loss", "grad_norm", "lr"}) {
                const double a = expected.at(step).at(field), b = got.at(step).at(field);
                EXPECT_TRUE(std::abs(a - b) <= kOtherOrder * std::abs(a)) << field << a << b;
            }
            EXPECT_EQ(expected.at(step).at("tokens"), got.at(step).at("tokens"));
        }
    }

    const std::filesystem::path before_ = std::filesystem::current_path();
    test::TempDir dir_;
    uint16_t port_ = 0;
};

TEST_F(TrainElastic, WorkersJoinLeaveAndJoinAgain) {
    auto first = Worker();
    Weft root(Command(dir_ / "out", Dialled(1, {"--restart-timeout-ms", "200"})));
    ASSERT_TRUE(Prints(root, "\"step\":1,")) << root.Err();
    auto second = Worker();
    ASSERT_TRUE(GoesOn(root, " joins. Training goes on with 3 ranks instead of 2, from "))
        << root.Err();
    Kill(*first);
    ASSERT_TRUE(GoesOn(root, "Training goes on with 2 ranks instead of 3, from ")) << root.Err();
    Kill(*second);
    ASSERT_TRUE(GoesOn(root, "Training goes on with 1 rank instead of 2, from ")) << root.Err();
    first = Worker();
    const Ran ran = root.Wait();
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find("Training goes on with 2 ranks instead of 1, from "), std::string::npos)
        << ran.err;
    EXPECT_EQ(StepsOf(ran.out).at(0).at("restarts"), 2) << ran.out;
    ExpectTheCurveOfOne(ran.out);
}

// A newcomer must confirm the model with its adapters, whose initial values come from the seed.
TEST_F(TrainElastic, WorkersJoinWhereAdaptersLearn) {
    SKIP_TO_NIGHT_UNLESS(false);
    const Words adapters = {"--lora", "4", "--seed", "7"};
    const auto first = Worker();
    Weft root(Command(dir_ / "out", Dialled(1, adapters)));
    ASSERT_TRUE(Prints(root, "\"step\":1,")) << root.Err();
    const auto second = Worker();
    ASSERT_TRUE(GoesOn(root, " joins. Training goes on with 3 ranks instead of 2, from "))
        << root.Err();
    const Ran ran = root.Wait();
    ASSERT_EQ(ran.status, 0) << ran.err;
    ExpectTheCurveOfOne(ran.out, adapters);
}

// Rank 0 is the command: after a restart it finds its workers.
TEST_F(TrainElastic, RankZeroIsStartedAgain) {
    const auto first = Worker(), second = Worker();
    const Words words = Command(dir_ / "out", Dialled(2, {}, 4));
    {
        Weft root(words);
        ASSERT_TRUE(Prints(root, "\"step\":6,")) << root.Err();
        ::kill(root.pid(), SIGKILL);
        (void)root.Wait();
    }
    const Ran ran = RunTrain(words + Words{"--resume", "auto"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_FALSE(StepsOf(ran.out).contains(4)) << "it began at the start";
}

// A worker that lacks the model, the data, or rank 0's folder delays no update.
TEST_F(TrainElastic, UnsuitableWorkerIsRejected) {
    const auto first = Worker();
    Weft root(Command(dir_ / "out", Dialled(1)));
    ASSERT_TRUE(Prints(root, "\"step\":1,")) << root.Err();
    const auto second = Worker("/");
    ASSERT_TRUE(Says(root, ") can't join: ")) << root.Err();
    EXPECT_TRUE(second->ReadUntil("tiny.gguf", Deadline::In(20'000))) << second->output();
    const Ran ran = root.Wait();
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.err.find("Training goes on with"), std::string::npos) << ran.err;
}

// Two tensor ranks form a replica. Half a replica does not train; it waits for another half.
TEST_F(TrainElastic, RanksThatMakeNoReplicaWaitUntilTheyDo) {
    SKIP_TO_NIGHT_UNLESS(false);  // growth_test.cc grows and shrinks layouts
    const auto first = Worker(), second = Worker(), third = Worker();
    Weft root(Command(dir_ / "out", Dialled(3, {"--tp", "2", "--restart-timeout-ms", "200"})));
    ASSERT_TRUE(Prints(root, "\"step\":2,")) << root.Err();
    Kill(*third);
    ASSERT_TRUE(GoesOn(root, "Training goes on with 2 ranks instead of 4, from ")) << root.Err();
    EXPECT_NE(root.Err().find("is not needed: of 3 ranks the job can use 2"), std::string::npos)
        << root.Err();
    const auto fourth = Worker();
    ASSERT_TRUE(GoesOn(root, "Training goes on with 4 ranks instead of 2, from ")) << root.Err();
    const Ran ran = root.Wait();
    ASSERT_EQ(ran.status, 0) << ran.err;
    ExpectTheCurveOfOne(ran.out);
}

TEST_F(TrainElastic, ItTakesCheckpoints) {
    const Ran ran =
        RunTrain(Words{"train", "tiny.gguf", "--data", "data.jsonl", "--elastic", "--local", "2"});
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_NE(ran.err.find("--elastic needs --output-dir"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace weft::support
