// Workers that run several jobs at a time, and the callers that wait in line for a place.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <thread>

#include "base/file.h"
#include "cluster/cluster.h"
#include "cluster/join/dial.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using test::Process;

class Jobs : public ::testing::Test {
  protected:
    std::string WriteKey(const char* name, std::string_view text) {
        const std::string path = folder_ / name;
        EXPECT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
        ::chmod(path.c_str(), 0600);
        return path;
    }
    void StartWorker(int jobs) {
        workers_.push_back(std::make_unique<Process>(std::vector<std::string>{
            CLUSTER_RANK, "listen", "127.0.0.1:0", key_file_, fmt::format("jobs={}", jobs)}));
        Process& worker = *workers_.back();
        ASSERT_TRUE(worker.ReadUntil("listening on port ", soon_)) << worker.output();
        ASSERT_TRUE(worker.ReadUntil("\n", soon_));
        const size_t at = worker.output().find("port ") + 5;
        addresses_.push_back("127.0.0.1:" + std::to_string(std::atoi(&worker.output()[at])));
    }
    // Rank 0 of a job of all workers.
    std::unique_ptr<Process> Root(const std::vector<std::string>& words) const {
        std::string hosts;
        for (const std::string& address : addresses_) hosts += (hosts.empty() ? "" : ",") + address;
        std::vector<std::string> command = {
            CLUSTER_RANK,     "launch",
            "transport=tcp",  "timeout=" + std::to_string(timeout_ms_),
            "hosts=" + hosts, "key=" + key_file_};
        command.insert(command.end(), words.begin(), words.end());
        return std::make_unique<Process>(command);
    }
    // A job that runs until it is interrupted.
    std::unique_ptr<Process> LongJob() const {
        auto root = Root({"steps=100000000"});
        EXPECT_TRUE(root->ReadUntil("at decode", Deadline::In(test::LimitMs(5000))))
            << root->output();
        return root;
    }
    PlaceAnswer Ask(size_t worker = 0) const {
        const auto answer =
            QueryWorker(addresses_[worker], ReadKeyFile(key_file_).value(), Deadline::In(20'000));
        EXPECT_TRUE(answer.ok()) << answer.error().message;
        return answer.ok() ? *answer : PlaceAnswer{};
    }
    // Waits until `done` accepts the state of a worker's waiting line.
    bool AwaitLine(const std::function<bool(const PlaceAnswer&)>& done) const {
        const Deadline deadline = Deadline::In(test::LimitMs(5000));
        while (!done(Ask())) {
            if (deadline.expired()) return false;
        }
        return true;
    }
    bool AwaitWaiting(int count) const {
        return AwaitLine([&](const PlaceAnswer& answer) { return answer.waiting == count; });
    }
    // One call with that ticket.
    std::optional<PlaceAnswer> Call(const PlaceRequest& request,
                                    const std::string& key_file) const {
        std::optional<PlaceAnswer> heard;
        const LineTalk line{[&] { return request; },
                            [&](const PlaceAnswer& answer) { heard = answer; }};
        const auto dialled = DialWorker(addresses_[0], ReadKeyFile(key_file).value(), 1000,
                                        Deadline::In(90), {}, -1, line);
        return dialled.ok() ? std::nullopt : heard;
    }

    const int64_t timeout_ms_ = test::TimeoutMs(1000);
    const Deadline soon_ = Deadline::In(60'000);
    test::TempDir folder_;
    const std::string key_file_ = WriteKey("key", "a-shared-key-of-the-tests");
    std::vector<std::string> addresses_;
    std::vector<std::unique_ptr<Process>> workers_;
};

TEST_F(Jobs, TheThirdJobOnTwoPlacesWaitsAndThenRuns) {
    StartWorker(2);
    EXPECT_TRUE(Ask().jobs.empty());
    EXPECT_EQ(Ask().places, 2);
    const auto first = LongJob(), second = LongJob();
    EXPECT_EQ(Ask().jobs.size(), 2u);
    EXPECT_FALSE(Ask().free);
    auto third = Root({"prefill=2", "steps=5", "wait=60000"});
    ASSERT_TRUE(third->ReadUntil("; place 1 of 1 in line)", soon_)) << third->output();
    EXPECT_NE(third->output().find("waiting for 1 of 1 workers: " + addresses_[0] +
                                   " (a job of 127.0.0.1:"),
              std::string::npos)
        << third->output();
    EXPECT_EQ(test::ChildrenOf(workers_[0]->pid()).size(), 2u);
    first->Signal(SIGINT);
    EXPECT_EQ(third->Wait(soon_), 0) << third->output();
    EXPECT_NE(third->output().find("done"), std::string::npos);
    EXPECT_EQ(first->Wait(soon_), ExitStatus(ErrorCode::kCancelled));
    EXPECT_TRUE(test::Until([&] { return test::ChildrenOf(workers_[0]->pid()).size() == 1; }))
        << "the second job runs on";
    // The worker ends the rest.
    workers_[0]->Signal(SIGTERM);
    EXPECT_EQ(workers_[0]->Wait(soon_), 0) << workers_[0]->output();
    EXPECT_EQ(second->Wait(soon_), 3) << second->output();
}

TEST_F(Jobs, ARefusalNamesAllJobs) {
    StartWorker(2);
    const auto first = LongJob(), second = LongJob();
    auto third = Root({"steps=5"});
    EXPECT_EQ(third->Wait(soon_), 1);
    const std::string& said = third->output();
    const size_t at = said.find("is running 2 other jobs (a job of 127.0.0.1:");
    ASSERT_NE(at, std::string::npos) << said;
    EXPECT_NE(said.find("; a job of 127.0.0.1:", at), std::string::npos) << said;
    EXPECT_NE(said.find("place 1 of 1 in line", at), std::string::npos) << said;
    EXPECT_NE(said.find("--jobs 3", at), std::string::npos) << said;
}

TEST_F(Jobs, AKilledRankFreesItsPlace) {
    StartWorker(2);
    const auto first = LongJob(), second = LongJob();
    auto third = Root({"steps=5", "wait=60000"});
    ASSERT_TRUE(AwaitWaiting(1));
    ::kill(test::ChildrenOf(workers_[0]->pid())[0], SIGKILL);
    EXPECT_EQ(first->Wait(soon_), 3) << first->output();
    EXPECT_EQ(third->Wait(soon_), 0) << third->output();
    EXPECT_EQ(test::ChildrenOf(workers_[0]->pid()).size(), 1u);
}

TEST_F(Jobs, AKilledWorkerEndsItsJobs) {
    StartWorker(2);
    const auto first = LongJob(), second = LongJob();
    const std::vector<pid_t> ranks = test::ChildrenOf(workers_[0]->pid());
    ASSERT_EQ(ranks.size(), 2u);
    workers_[0]->Signal(SIGKILL);
    EXPECT_EQ(first->Wait(soon_), 3) << first->output();
    EXPECT_EQ(second->Wait(soon_), 3) << second->output();
    auto third = Root({"steps=5"});
    EXPECT_EQ(third->Wait(soon_), 1) << third->output();
}

TEST_F(Jobs, ACallerThatVanishesLosesItsPlace) {
    StartWorker(1);
    const auto first = LongJob();
    auto second = Root({"steps=5", "wait=60000"});
    ASSERT_TRUE(AwaitWaiting(1));
    auto third = Root({"steps=5", "wait=60000"});
    ASSERT_TRUE(AwaitWaiting(2));
    second->Signal(SIGKILL);
    second->Wait(soon_);
    ASSERT_TRUE(AwaitWaiting(1));
    first->Signal(SIGINT);
    EXPECT_EQ(third->Wait(soon_), 0) << third->output();
}

TEST_F(Jobs, PlacesGoInTheOrderOfArrival) {
    StartWorker(1);
    const auto first = LongJob();
    std::vector<std::unique_ptr<Process>> waiting;
    for (int i = 0; i < 3; ++i) {
        waiting.push_back(Root({"steps=5", "wait=60000"}));
        ASSERT_TRUE(AwaitWaiting(i + 1));
    }
    first->Signal(SIGINT);
    EXPECT_EQ(waiting[2]->Wait(soon_), 0) << waiting[2]->output();
    siginfo_t info{};  // the first one had ended before
    EXPECT_EQ(
        ::waitid(P_PID, static_cast<id_t>(waiting[0]->pid()), &info, WEXITED | WNOHANG | WNOWAIT),
        0);
    EXPECT_EQ(info.si_pid, waiting[0]->pid());
    for (auto& root : waiting) EXPECT_EQ(root->Wait(soon_), 0) << root->output();
}

TEST_F(Jobs, AWrongKeyTakesNoPlaceInLine) {
    StartWorker(1);
    const auto first = LongJob();
    const std::string other = WriteKey("other", "a-key-that-nobody-shares");
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(Call({.ticket = 9}, other).has_value());
    EXPECT_EQ(Ask().waiting, 0);
    const auto answer = Call({.ticket = 9}, key_file_);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->place, 1);
    EXPECT_EQ(answer->jobs.size(), 1u);
}

// Each job needs both workers.
TEST_F(Jobs, JobsOfTheSameWorkersAllFinish) {
    StartWorker(1);
    StartWorker(1);
    std::vector<std::unique_ptr<Process>> roots;
    for (int i = 0; i < 4; ++i) roots.push_back(Root({"prefill=2", "steps=50", "wait=60000"}));
    for (auto& root : roots) EXPECT_EQ(root->Wait(soon_), 0) << root->output();
}

TEST_F(Jobs, EachJobHasItsPartOfTheCores) {
    const size_t cores = std::thread::hardware_concurrency();
    if (cores < 2) GTEST_SKIP() << "needs 2 cores";
    StartWorker(2);
    const auto first = LongJob(), second = LongJob();
    std::vector<std::string> sets;
    for (const pid_t rank : test::ChildrenOf(workers_[0]->pid())) {
        std::ifstream file(fmt::format("/proc/{}/status", rank));
        for (std::string line; std::getline(file, line);) {
            if (line.starts_with("Cpus_allowed_list:")) sets.push_back(line);
        }
    }
    ASSERT_EQ(sets.size(), 2u);
    EXPECT_NE(sets[0], sets[1]);
}

TEST(JobsOption, IsBounded) {
    for (const int jobs : {0, -1, 17}) {
        WorkerListener::Options options{.listen = "127.0.0.1:0", .key_file = "key"};
        options.jobs = jobs;
        const auto opened = WorkerListener::Open(options);
        ASSERT_FALSE(opened.ok());
        EXPECT_EQ(opened.error().code, ErrorCode::kUsage);
    }
}

}  // namespace
}  // namespace weft::cluster
