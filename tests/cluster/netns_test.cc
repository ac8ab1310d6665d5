// Network namespaces as hosts: rank 0 and two listening workers on three "machines" on one bridge.
// A job runs over TCP; then links are cut. Needs root and ip(8); else skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using test::Process;

constexpr int64_t kTimeoutMs = 1000;

bool Shell(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

class Hosts : public ::testing::Test {
  protected:
    void SetUp() override {
        if (::geteuid() != 0 || !Shell("ip -V") || !Shell("ip netns add " + Name("hub"))) {
            GTEST_SKIP() << "needs root and network namespaces (ip netns add): the faults of "
                            "fault_test and listener_test cover the rest";
        }
        made_ = true;
        ASSERT_TRUE(Shell(InHub("link add br0 type bridge")) && Shell(InHub("link set br0 up")));
        for (int host = 0; host < 3; ++host) AddHost(host);
        key_file_ = folder_ / "key";
        const std::string_view key = "a-shared-key-of-the-tests";
        ASSERT_TRUE(WriteFile(key_file_, std::as_bytes(std::span(key))).ok());
        ::chmod(key_file_.c_str(), 0600);
        for (int host = 1; host < 3; ++host) {
            workers_.push_back(Start(host, {"listen", Ip(host) + ":7000", key_file_}));
            ASSERT_TRUE(workers_.back()->ReadUntil("listening", Deadline::In(5000)))
                << workers_.back()->output();
        }
    }
    void TearDown() override {
        workers_.clear();
        if (!made_) return;
        for (const char* name : {"0", "1", "2", "hub"}) Shell("ip netns del " + Name(name));
    }

    void AddHost(int host) {
        const std::string name = std::to_string(host);
        ASSERT_TRUE(Shell("ip netns add " + Name(name)));
        ASSERT_TRUE(Shell(InHub(
            fmt::format("link add v{} type veth peer name eth0 netns {}", host, Name(name)))));
        ASSERT_TRUE(Shell(InHub(fmt::format("link set v{} master br0 up", host))));
        const std::string inside = "ip -n " + Name(name);
        ASSERT_TRUE(Shell(inside + " link set lo up") && Shell(inside + " link set eth0 up"));
        ASSERT_TRUE(Shell(inside + " addr add " + Ip(host) + "/24 dev eth0"));
    }
    static std::string Ip(int host) { return fmt::format("10.77.0.{}", host + 1); }
    std::string Name(const std::string& part) const {
        return fmt::format("weft{}-{}", ::getpid(), part);
    }
    std::string InHub(const std::string& words) const {
        return "ip -n " + Name("hub") + " " + words;
    }
    void SetLink(int host, const char* state) const {
        ASSERT_TRUE(Shell(InHub(fmt::format("link set v{} {}", host, state))));
    }
    // After a link comes up it carries nothing for about a second (carrier events are delayed,
    // addresses are resolved again), which is longer than a job waits for its workers.
    void AwaitPath(int from, int to) const {
        const std::string dial =
            fmt::format("ip netns exec {} timeout 1 bash -c ': > /dev/tcp/{}/7000'",
                        Name(std::to_string(from)), Ip(to));
        const int64_t end = NowNs() + 20'000'000'000;
        while (!Shell(dial)) ASSERT_LT(NowNs(), end) << dial;
    }
    std::unique_ptr<Process> Start(int host, std::vector<std::string> words) const {
        std::vector<std::string> command = {"ip", "netns", "exec", Name(std::to_string(host)),
                                            CLUSTER_RANK};
        command.insert(command.end(), words.begin(), words.end());
        return std::make_unique<Process>(command);
    }
    std::unique_ptr<Process> Root(std::vector<std::string> words) const {
        words.insert(words.begin(),
                     {"launch", fmt::format("timeout={}", timeout_ms_), "key=" + key_file_,
                      fmt::format("hosts={}:7000,{}:7000", Ip(1), Ip(2))});
        return Start(0, words);
    }
    void ExpectServing() const {
        const auto root = Root({"prefill=2", "steps=5"});
        EXPECT_EQ(root->Wait(Deadline::In(10'000)), 0) << root->output();
        EXPECT_NE(root->output().find("over tcp"), std::string::npos) << root->output();
    }

    const int64_t timeout_ms_ = test::TimeoutMs(kTimeoutMs);
    int64_t bound_ns() const { return timeout_ms_ * 1'000'000 + test::LimitNs(1000); }
    bool made_ = false;
    test::TempDir folder_;
    std::string key_file_;
    std::vector<std::unique_ptr<Process>> workers_;
};

TEST_F(Hosts, AJobRunsOverTcp) {
    ExpectServing();
}

TEST_F(Hosts, ACutLinkIsNamedOnBothSidesInEveryPhase) {
    for (const char* phase : {"load", "decode"}) {
        const bool load = std::string(phase) == "load";
        const auto root = Root({load ? "load=60000" : "load=0", "steps=100000000"});
        ASSERT_TRUE(root->ReadUntil(fmt::format("at {}", phase), Deadline::In(10'000)))
            << root->output();
        ASSERT_TRUE(test::GoesOn(root->pid(), 20)) << root->output();
        const int64_t begin = NowNs();
        SetLink(2, "down");
        EXPECT_EQ(root->Wait(Deadline::In(10'000)), 3) << root->output();
        EXPECT_LE(root->end_ns() - begin, bound_ns());
        const std::string lost = fmt::format("rank 2 (host {}, tcp) was lost during {}", Ip(2),
                                             load ? "load: silent for" : "all_reduce #");
        EXPECT_NE(root->output().find(lost), std::string::npos) << root->output();
        const Deadline rest = Deadline::In((bound_ns() - (NowNs() - begin)) / 1'000'000);
        EXPECT_TRUE(workers_[0]->ReadUntil("rank 2 (host", rest)) << workers_[0]->output();
        EXPECT_TRUE(workers_[1]->ReadUntil("rank 0 (host", rest)) << workers_[1]->output();
        SetLink(2, "up");
        AwaitPath(0, 2);
        AwaitPath(1, 2);
        ExpectServing();
        // New workers, so that the second round reads only their lines.
        workers_.clear();
        for (int host = 1; host < 3; ++host) {
            workers_.push_back(Start(host, {"listen", Ip(host) + ":7000", key_file_}));
            ASSERT_TRUE(workers_.back()->ReadUntil("listening", Deadline::In(5000)));
        }
    }
}

// Cuts the link between two workers, while both still reach rank 0.
TEST_F(Hosts, ACutBetweenWorkersIsFoundByTheDataWait) {
    const auto root = Root({"load=0", "steps=100000000"});
    ASSERT_TRUE(root->ReadUntil("at decode", Deadline::In(10'000))) << root->output();
    ASSERT_TRUE(test::GoesOn(root->pid(), 20)) << root->output();
    const int64_t begin = NowNs();
    ASSERT_TRUE(Shell(fmt::format("ip -n {} route add blackhole {}/32", Name("1"), Ip(2))));
    ASSERT_TRUE(Shell(fmt::format("ip -n {} route add blackhole {}/32", Name("2"), Ip(1))));
    EXPECT_EQ(root->Wait(Deadline::In(10'000)), 3) << root->output();
    EXPECT_LE(root->end_ns() - begin, bound_ns());
    const bool names_a_worker = root->output().find("error: rank 1 (host") != std::string::npos ||
                                root->output().find("error: rank 2 (host") != std::string::npos;
    EXPECT_TRUE(names_a_worker) << root->output();
    EXPECT_NE(root->output().find("all_reduce #"), std::string::npos) << root->output();
}

TEST_F(Hosts, AHostThatIsDownIsNamed) {
    SetLink(1, "down");
    const auto root = Root({"steps=5"});
    const int64_t begin = NowNs();
    EXPECT_EQ(root->Wait(Deadline::In(10'000)), 1) << root->output();
    EXPECT_LE(root->end_ns() - begin, bound_ns());
    EXPECT_NE(root->output().find(fmt::format("worker {}:7000: ", Ip(1))), std::string::npos)
        << root->output();
    SetLink(1, "up");
    AwaitPath(0, 1);
    ExpectServing();
}

// Cuts and restores the cable of a host that dials in, and of one that waits for the others.
TEST_F(Hosts, ALinkThatIsCutWhileWorkersDialInIsWaitedFor) {
    const std::string leader = Ip(0) + ":7000";
    SetLink(1, "down");
    const auto first = Start(1, {"join", leader, key_file_});
    const auto root =
        Start(0, {"launch", "wait_for=2", "listen=" + leader, "wait=600000", "steps=5",
                  fmt::format("timeout={}", timeout_ms_), "key=" + key_file_});
    const Deadline soon = Deadline::In(60'000);
    ASSERT_TRUE(first->ReadUntil("no job from " + leader + " yet", soon)) << first->output();
    SetLink(1, "up");
    ASSERT_TRUE(root->ReadUntil("1 of 2 workers have connected: ", soon)) << root->output();
    SetLink(1, "down");
    ASSERT_TRUE(root->ReadUntil("rank 1 is gone before the job began: silent for ", soon))
        << root->output();
    const auto second = Start(2, {"join", leader, key_file_});
    ASSERT_TRUE(root->ReadUntil("(" + Ip(2) + ":", soon)) << root->output();
    SetLink(1, "up");
    EXPECT_EQ(root->Wait(Deadline::In(60'000)), 0) << root->output() << first->output();
}

}  // namespace
}  // namespace weft::cluster
