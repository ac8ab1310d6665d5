// Whole local clusters, as processes: they meet, agree, work, fail, and end without leftovers.
#include "cluster/cluster.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "hw/cpu.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using test::Process;

std::vector<std::string> Launch(const std::string& words) {
    std::vector<std::string> command = {CLUSTER_RANK, "launch", "timeout=2000"};
    std::istringstream stream(words);
    std::string word;
    while (stream >> word) command.push_back(word);
    return command;
}

size_t Count(const std::string& text, const std::string& what) {
    size_t count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
        ++count;
    return count;
}

// No process of the group remains, neither a child nor an orphan.
bool GroupGone(pid_t group) {
    return test::Until([&] { return ::kill(-group, 0) != 0; }, test::Limit(500));
}

TEST(Cluster, OneToFiveRanksMeetWorkAndEnd) {
    for (const char* transport : {"shm", "tcp"}) {
        for (int size = 1; size <= 5; ++size) {
            Process root(Launch(fmt::format("local={} transport={} prefill=3 steps=20 pace_us=0",
                                            size, transport)));
            ASSERT_EQ(root.Wait(Deadline::In(20'000)), 0) << root.output();
            for (int rank = 0; rank < size; ++rank) {
                const std::string line = fmt::format("rank {} of {} host {} over {}", rank, size,
                                                     Cluster::Launch({}, "").value()->host(0).name,
                                                     size == 1 ? "" : transport);
                EXPECT_EQ(Count(root.output(), line), 1u) << line << "\n" << root.output();
            }
            EXPECT_EQ(Count(root.output(), "done"), 1u);
            EXPECT_TRUE(GroupGone(root.pid()));
        }
    }
}

// More ranks than a rank's limit of strangers, each with an offer for each. (star_test.cc has
// more.)
TEST(Cluster, AHundredRanksMeet) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a hundred processes under a sanitizer take minutes";
#endif
    const char* const transports[] = {"tcp", "shm"};
    for (const char* transport : weft::test::Some(transports, 2)) {
        Process root({CLUSTER_RANK, "launch", "local=100", "timeout=60000", "window=65536",
                      "steps=1", std::string("transport=") + transport});
        EXPECT_EQ(root.Wait(Deadline::In(120'000)), 0) << root.output();
        EXPECT_NE(root.output().find("done"), std::string::npos) << root.output();
    }
}

// The rank still answers, so its silence limit does not apply.
TEST(Cluster, ARankThatIsSlowToLookAtItsHostIsWaitedFor) {
    Process root(Launch("local=3 timeout=500 look=1500 steps=1 pace_us=0"));
    EXPECT_EQ(root.Wait(Deadline::In(20'000)), 0) << root.output();
    EXPECT_EQ(Count(root.output(), "done"), 1u) << root.output();
}

TEST(Cluster, ChecksumsAreOnForAllRanksOrForNone) {
    for (const char* transport : {"shm", "tcp"}) {
        for (int on : {0, 1}) {
            Process root(Launch(
                fmt::format("local=3 transport={} checksum={} steps=20 pace_us=0", transport, on)));
            ASSERT_EQ(root.Wait(Deadline::In(20'000)), 0) << root.output();
            EXPECT_EQ(Count(root.output(), " with checksums"), on == 1 ? 3u : 0u) << root.output();
        }
    }
}

TEST(Cluster, RanksOfOneHostShareItsCoresOut) {
    const std::vector<int> cores = AllowedCores();
    const size_t size = std::min<size_t>(2, cores.size());
    Process root(Launch(fmt::format("local={}", size)));
    ASSERT_EQ(root.Wait(Deadline::In(10'000)), 0) << root.output();
    std::multiset<int> seen;
    std::istringstream lines(root.output());
    std::string line;
    while (std::getline(lines, line)) {
        const size_t at = line.find(" cores ");
        if (at == std::string::npos) continue;
        std::istringstream list(line.substr(at + 7));
        std::string core;
        while (std::getline(list, core, ',')) seen.insert(std::stoi(core));
    }
    EXPECT_EQ(seen, std::multiset<int>(cores.begin(), cores.end())) << root.output();

    Process crowd(Launch(fmt::format("local={}", cores.size() + 1)));
    ASSERT_EQ(crowd.Wait(Deadline::In(10'000)), 0) << crowd.output();
    EXPECT_EQ(Count(crowd.output(), "shared"), cores.size() + 1);
}

TEST(Cluster, OneRankOpensNoLinks) {
    auto cluster = Cluster::Launch({}, "job").value();
    EXPECT_EQ(cluster->size(), 1);
    EXPECT_EQ(cluster->job(), "job");
    EXPECT_EQ(cluster->monitor(), nullptr);
    EXPECT_EQ(cluster->fabric().links.size(), 1u);
    EXPECT_EQ(cluster->cores(), AllowedCores());
    EXPECT_TRUE(cluster->Agree("x", "1", Deadline::In(0)).ok());
    EXPECT_EQ(cluster->AllGather("x", "1", Deadline::In(0)).value(), std::vector<std::string>{"1"});
    EXPECT_TRUE(cluster->should_report());
    EXPECT_TRUE(cluster->Shutdown(Deadline::In(0)).ok());
}

TEST(Cluster, ADifferentModelIsNamedWithBothValues) {
    Process root(Launch("local=3 differ=2"));
    EXPECT_EQ(root.Wait(Deadline::In(10'000)), 1) << root.output();
    EXPECT_NE(root.output().find("rank 2 (host"), std::string::npos) << root.output();
    EXPECT_NE(root.output().find("the model differs from rank 0's: 'bbb', but 'aaa' on rank 0"),
              std::string::npos)
        << root.output();
    EXPECT_EQ(Count(root.output(), "error: "), 1u) << root.output();
    EXPECT_TRUE(GroupGone(root.pid()));
}

TEST(Cluster, AnErrorOfOneRankEndsAllAndIsPrintedOnce) {
    for (int rank : {0, 2}) {
        for (const char* phase : {"load", "prefill", "decode"}) {
            Process root(
                Launch(fmt::format("local=3 prefill=5 steps=5 error={} fail_at={}", rank, phase)));
            EXPECT_EQ(root.Wait(Deadline::In(10'000)), 1) << root.output();
            EXPECT_EQ(Count(root.output(), "9 GiB needed"), 1u) << root.output();
            if (rank == 2) {
                EXPECT_EQ(Count(root.output(), "error: rank 2 (host"), 1u) << root.output();
            }
            EXPECT_TRUE(GroupGone(root.pid()));
        }
    }
}

TEST(Cluster, ARankThatLeavesWithoutAWordIsNamedWithItsStatus) {
    for (const char* phase : {"load", "prefill", "decode"}) {
        Process root(Launch(fmt::format("local=3 prefill=50 steps=50 gone=1 fail_at={}", phase)));
        EXPECT_EQ(root.Wait(Deadline::In(10'000)), 3) << root.output();
        EXPECT_EQ(Count(root.output(), "rank 1 (host"), 1u) << root.output();
        EXPECT_NE(root.output().find("its process ended with status 7"), std::string::npos)
            << root.output();
        EXPECT_TRUE(GroupGone(root.pid()));
    }
}

TEST(Cluster, InterruptEndsAllRanksInOrder) {
    Process root(Launch("local=3 prefill=1 steps=100000000"));
    for (int rank = 0; rank < 3; ++rank) {
        ASSERT_TRUE(root.ReadUntil(fmt::format("rank {} pid", rank), Deadline::In(10'000)));
    }
    ASSERT_TRUE(root.ReadUntil("at decode", Deadline::In(10'000)));
    const int64_t begin = NowNs();
    root.SignalGroup(SIGINT);  // like a terminal
    EXPECT_EQ(root.Wait(Deadline::In(5000)), ExitStatus(ErrorCode::kCancelled)) << root.output();
    EXPECT_LE(root.end_ns() - begin, test::LimitNs(1000));
    EXPECT_EQ(Count(root.output(), "stopped by the user"), 1u) << root.output();
    EXPECT_EQ(Count(root.output(), "was lost"), 0u) << root.output();
    EXPECT_TRUE(GroupGone(root.pid()));
}

TEST(Cluster, NothingIsLeftOverManyRuns) {
    Process loop(
        {CLUSTER_RANK, "loop", "times=50", "local=2", "steps=3", "pace_us=0", "timeout=2000"});
    EXPECT_EQ(loop.Wait(Deadline::In(60'000)), 0) << loop.output();
    EXPECT_NE(loop.output().find("fds 0 more, children none"), std::string::npos) << loop.output();
    EXPECT_TRUE(GroupGone(loop.pid()));
}

TEST(Cluster, OptionsAreChecked) {
    const auto message = [](auto change) {
        ClusterOptions options;
        change(options);
        const Status status = CheckOptions(options);
        return status.ok() ? std::string() : status.error().message;
    };
    EXPECT_EQ(message([](auto&) {}), "");
    EXPECT_NE(message([](auto& o) { o.local = 0; }).find("--local 0"), std::string::npos);
    EXPECT_NE(message([](auto& o) { o.hosts = {"a:1"}; }).find("--key-file"), std::string::npos);
    EXPECT_NE(message([](auto& o) { o.hosts = {"a"}; }).find("HOST:PORT"), std::string::npos);
    EXPECT_NE(message([](auto& o) { o.hosts = {"a:70000"}; }).find("HOST:PORT"), std::string::npos);
    EXPECT_NE(message([](auto& o) {
                  o.hosts = {"a:1", "a:1"}, o.key_file = "k";
              }).find("twice"),
              std::string::npos);
    EXPECT_NE(message([](auto& o) { o.hosts = {"a:1"}, o.local = 2; }).find("exclude"),
              std::string::npos);
    EXPECT_NE(message([](auto& o) { o.transport = "pigeon"; }).find("pigeon"), std::string::npos);
    EXPECT_NE(message([](auto& o) { o.timeout_ms = 5; }).find("--timeout-ms"), std::string::npos);
}

}  // namespace
}  // namespace weft::cluster
