// Launchers' environment variables, and how the ranks that they start find each other.
#include "cluster/join/launcher.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "base/file.h"
#include "cluster/join/gather.h"
#include "cluster/join/launched.h"
#include "support/limits.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<Launcher>> Find(const Variables& variables) {
    return FindLauncher([&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

Launcher Found(const Variables& variables) {
    const auto found = Find(variables);
    EXPECT_TRUE(found.ok() && found->has_value());
    return found.ok() && found->has_value() ? **found : Launcher();
}

void Nothing(const Variables& variables) {
    const auto found = Find(variables);
    EXPECT_TRUE(found.ok() && !found->has_value());
}

TEST(Launchers, MpiLaunchersAreKnownByTheirVariables) {
    const Launcher open = Found({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
    EXPECT_EQ(open.rank, 2);
    EXPECT_EQ(open.size, 4);
    EXPECT_EQ(open.mpi, "openmpi");
    const Launcher mpich = Found({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}});
    EXPECT_EQ(mpich.rank, 0);
    EXPECT_EQ(mpich.size, 3);
    EXPECT_EQ(mpich.mpi, "mpich");
    EXPECT_EQ(Found({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}, {"WEFT_MPI", "openmpi"}}).mpi,
              "openmpi");
}

TEST(Launchers, SlurmStepsMeetOnTheirFirstHost) {
    const Variables step = {{"SLURM_PROCID", "1"},
                            {"SLURM_STEP_NUM_TASKS", "2"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_JOB_ID", "4711"},
                            {"SLURM_STEP_NODELIST", "node[07-08]"}};
    const Launcher slurm = Found(step);
    EXPECT_EQ(slurm.rank, 1);
    EXPECT_EQ(slurm.host, "node07");
    EXPECT_GE(slurm.port, 20'000);
    EXPECT_EQ(slurm.mpi, "");
    // Equal on every rank, different for another job.
    Variables other = step;
    other["SLURM_PROCID"] = "0";
    EXPECT_EQ(Found(other).port, slurm.port);
    other["SLURM_JOB_ID"] = "4712";
    EXPECT_NE(Found(other).port, slurm.port);
    other["PMIX_RANK"] = "0";
    EXPECT_EQ(Found(other).mpi, "openmpi");
    // A batch script is not a step of several ranks.
    Variables batch = step;
    batch.erase("SLURM_STEP_ID");
    Nothing(batch);
}

int LoneOf(const Variables& variables) {
    return LoneTaskOf([&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

TEST(Launchers, ABatchScriptIsOneOfItsJobsTasks) {
    const Variables batch = {{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}};
    EXPECT_EQ(LoneOf(batch), 4);
    // Without -n there is one task per node.
    EXPECT_EQ(LoneOf({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "3"}}), 3);
    EXPECT_EQ(
        LoneOf(
            {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "3"}, {"SLURM_NTASKS_PER_NODE", "2"}}),
        6);
    // The shell of salloc runs in a step that srun did not start.
    Variables step = batch;
    step["SLURM_STEP_ID"] = "4294967290";
    EXPECT_EQ(LoneOf(step), 4);
    step["SLURM_STEP_ID"] = "0";
    EXPECT_EQ(LoneOf(step), 1);
    EXPECT_EQ(LoneOf({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "1"}}), 1);
    EXPECT_EQ(LoneOf({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "four"}}), 1);
    EXPECT_EQ(LoneOf({{"SLURM_NTASKS", "4"}}), 1);
    EXPECT_EQ(LoneOf({}), 1);
}

TEST(Launchers, TorchrunStyleVariables) {
    Variables all = {
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
    EXPECT_EQ(Found(all).host, "10.0.0.1");
    EXPECT_EQ(Found(all).port, 29500);
    all["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // which uses that port itself
    EXPECT_EQ(Found(all).port, 29501);
    all.erase("MASTER_PORT");
    Nothing(all);
}

TEST(Launchers, PodsAndClouds) {
    struct Case {
        Variables variables;
        const char* host;
        int port;
    };
    const Case cases[] = {
        {{{"PET_NODE_RANK", "1"}, {"PET_NNODES", "2"}, {"PET_MASTER_ADDR", "tune-node-0-0.tune"}},
         "tune-node-0-0.tune",
         29400},
        {{{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a.b"}},
         "a.b",
         29500},
        {{{"LWS_WORKER_INDEX", "1"},
          {"LWS_GROUP_SIZE", "2"},
          {"LWS_LEADER_ADDRESS", "weft-0.weft"}},
         "weft-0.weft",
         29500},
        {{{"SKYPILOT_NODE_RANK", "1"},
          {"SKYPILOT_NUM_NODES", "2"},
          {"SKYPILOT_NODE_IPS", "10.0.0.7\n10.0.0.8"}},
         "10.0.0.7",
         29500},
        {{{"DSTACK_NODE_RANK", "1"},
          {"DSTACK_NODES_NUM", "2"},
          {"DSTACK_MASTER_NODE_IP", "10.1.0.1"}},
         "10.1.0.1",
         29500},
    };
    for (const Case& each : cases) {
        const Launcher launcher = Found(each.variables);
        EXPECT_EQ(launcher.rank, 1) << each.host;
        EXPECT_EQ(launcher.size, 2) << each.host;
        EXPECT_EQ(launcher.host, each.host);
        EXPECT_EQ(launcher.port, each.port) << each.host;
        EXPECT_EQ(launcher.mpi, "");
        // Without an address these variables do not concern Weft.
        Variables lost = each.variables;
        for (const char* name : {"PET_MASTER_ADDR", "MASTER_ADDR", "LWS_LEADER_ADDRESS",
                                 "SKYPILOT_NODE_IPS", "DSTACK_MASTER_NODE_IP"}) {
            lost.erase(name);
        }
        Nothing(lost);
        Variables by_hand = each.variables;
        by_hand["WEFT_LAUNCHER"] = "none";
        Nothing(by_hand);
    }
}

TEST(Launchers, LocalRanks) {
    Variables slurm = {{"SLURM_PROCID", "3"},  {"SLURM_STEP_NUM_TASKS", "4"},
                       {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_ID", "1"},
                       {"SLURM_LOCALID", "1"}, {"SLURM_STEP_NODELIST", "n[0-1]"}};
    EXPECT_EQ(Found(slurm).local_rank, 1);
    slurm["SLURM_LOCALID"] = "4";  // of four
    EXPECT_FALSE(Find(slurm).ok());
    slurm.erase("SLURM_LOCALID");
    EXPECT_EQ(Found(slurm).local_rank, -1);
    EXPECT_EQ(Found({{"OMPI_COMM_WORLD_RANK", "2"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})
                  .local_rank,
              0);
}

TEST(Launchers, OneProcessIsNoLaunch) {
    Nothing({});
    Nothing({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
}

TEST(Launchers, ContradictionsAreNamed) {
    for (const char* rank : {"4", "x", "-1", "99999999999999999999"}) {
        const auto found = Find({{"PMI_RANK", rank}, {"PMI_SIZE", "4"}});
        ASSERT_FALSE(found.ok()) << rank;
        EXPECT_EQ(found.error().code, ErrorCode::kUsage);
        EXPECT_NE(found.error().message.find("PMI_RANK="), std::string::npos);
    }
    EXPECT_FALSE(Find({{"PMI_RANK", "0"}, {"PMI_SIZE", "100000"}}).ok());
    EXPECT_FALSE(Find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"WEFT_MPI", "lam"}}).ok());
}

TEST(Launchers, HostLists) {
    EXPECT_EQ(FirstOfHostList("a"), "a");
    EXPECT_EQ(FirstOfHostList("a,b"), "a");
    EXPECT_EQ(FirstOfHostList("node[07-09,12],x"), "node07");
    EXPECT_EQ(FirstOfHostList("n[3]"), "n3");
    EXPECT_EQ(FirstOfHostList("n[1-2]-ib,x"), "n1-ib");
    EXPECT_EQ(FirstOfHostList("n["), "n");
}

// ---- Meeting ------------------------------------------------------------------------------------

Bytes Key(const char* text) {
    const auto bytes = std::as_bytes(std::span(text, std::strlen(text)));
    return Bytes(bytes.begin(), bytes.end());
}

// Records arrivals; when `leaves` reaches zero, one leaves again.
class Hall final : public RankRegistry {
  public:
    void Take(Arrival arrival) override { here[arrival.rank] = std::move(arrival); }
    void Release(int, const std::string&) override {}
    std::vector<Gone> TakeGone() override {
        if (leaves == 0 || here.size() < leaves) return {};
        leaves = 0;
        here.erase(1);
        left = true;
        left.notify_all();
        return {{1, "its process ended"}};
    }
    bool Complete() override { return true; }
    std::map<int, Arrival> here;
    size_t leaves = 0;
    std::atomic<bool> left = false;
};

class Meeting : public testing::Test {
  protected:
    void SetUp() override {
        listener_ = net::ListenTcp("127.0.0.1", 0).value();
        address_ = {"127.0.0.1", net::BoundPort(listener_.get()).value()};
    }
    Result<Arrival> Arrive(int rank, const char* key = "the right key of this test") {
        return Prove(DialRankZero({address_}, Deadline::In(2000)), rank, key);
    }
    // Arrive with a connection that waits to be accepted.
    static Result<Arrival> Prove(Result<Fd> fd, int rank,
                                 const char* key = "the right key of this test") {
        if (!fd.ok()) return fd.error();
        return ProveRank(std::move(*fd), rank, 3, Key(key), Deadline::In(3000));
    }
    // A rank that has dialed, has sent its hello, and waits for an answer.
    std::thread SaidHello(int rank) const {
        const auto tid = std::make_shared<std::atomic<pid_t>>(0);
        const auto prove = [rank, tid](Result<Fd> dialed) {
            *tid = ::gettid();
            tid->notify_all();
            EXPECT_TRUE(Prove(std::move(dialed), rank).ok());
        };
        std::thread thread(prove, DialRankZero({address_}, Deadline::In(2000)));
        tid->wait(0);
        EXPECT_TRUE(test::Sleeps(*tid));
        return thread;
    }
    Status Gather(int64_t ms, bool may_return = true) {
        return GatherRanks(listener_.get(), 3, Key("the right key of this test"), hall_,
                           {1000, Deadline::In(ms), nullptr, may_return});
    }
    Hall hall_;
    Fd listener_;
    Address address_;
};

TEST_F(Meeting, RanksConnectInAnyOrderAmongUnknownCallers) {
    std::vector<Fd> strangers;
    for (int i = 0; i < 60; ++i) {
        strangers.push_back(net::DialTcp("127.0.0.1", address_.port, Deadline::In(1000)).value());
        if (i % 2 == 0) ::send(strangers.back().get(), "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
    }
    std::thread two([&] { EXPECT_TRUE(Arrive(2).ok()); });
    std::thread one([&] { EXPECT_TRUE(Arrive(1).ok()); });
    const auto gathered = Gather(5000);
    one.join();
    two.join();
    ASSERT_TRUE(gathered.ok()) << gathered.error().message;
    ASSERT_EQ(hall_.here.size(), 2u);
    EXPECT_FALSE(hall_.here[1].host.empty());
}

// A launcher's rank cannot come again, so waiting for it would be in vain.
TEST_F(Meeting, ARankThatLeavesEndsTheWaitOrIsWaitedForAgain) {
    for (const bool may_return : {false, true}) {
        hall_.here.clear();
        hall_.leaves = 1;
        hall_.left = false;
        std::thread one([&] { EXPECT_TRUE(Arrive(1).ok()); });
        std::thread others([&] {
            hall_.left.wait(false);
            // (No ranks are accepted after the end of the wait.)
            const bool again = Arrive(1).ok(), two = Arrive(2).ok();
            EXPECT_TRUE((again && two) || !may_return);
        });
        const int64_t begin = NowNs();
        const auto gathered = Gather(20'000, may_return);
        if (!may_return) listener_ = Fd();
        one.join();
        others.join();
        ASSERT_EQ(gathered.ok(), may_return);
        if (may_return) continue;
        EXPECT_EQ(gathered.error().code, ErrorCode::kPeerLost);
        EXPECT_EQ(gathered.error().message,
                  "rank 1 was lost before the job began: its process ended");
        EXPECT_LT(NowNs() - begin, test::LimitNs(10000));
        SetUp();
    }
}

// A caller without the key that claims the same rank ends no job.
TEST_F(Meeting, TwoProcessesOfOneRankEndTheWait) {
    std::thread ranks([&] {
        EXPECT_TRUE(Arrive(1).ok());
        EXPECT_FALSE(Arrive(1, "another key, of another user").ok());
        EXPECT_TRUE(Arrive(1).ok());
    });
    const int64_t begin = NowNs();
    const auto gathered = Gather(60'000);
    ranks.join();
    ASSERT_FALSE(gathered.ok());
    EXPECT_EQ(gathered.error().code, ErrorCode::kUsage);
    EXPECT_NE(gathered.error().message.find("two processes are rank 1 of 3: "), std::string::npos)
        << gathered.error().message;
    EXPECT_LT(NowNs() - begin, test::LimitNs(20'000));
}

TEST_F(Meeting, ARankOfAnotherSizeIsToldWhy) {
    std::thread rank([&] {
        auto fd = DialRankZero({address_}, Deadline::In(2000));
        ASSERT_TRUE(fd.ok());
        auto proved =
            ProveRank(std::move(*fd), 1, 4, Key("the right key of this test"), Deadline::In(3000));
        ASSERT_TRUE(proved.ok()) << proved.error().message;
        pollfd entry{proved->fd.get(), POLLIN, 0};
        ASSERT_EQ(::poll(&entry, 1, 3000), 1);
        Bytes in(4096);
        const ssize_t got = ::recv(proved->fd.get(), in.data(), in.size(), 0);
        ASSERT_GT(got, 0);
        size_t consumed = 0;
        const auto frame = ParseFrame(View(in).first(static_cast<size_t>(got)), true, &consumed);
        ASSERT_TRUE(frame.ok() && frame->has_value());
        const auto verdict = OpenFrame(proved->session, **frame);
        ASSERT_TRUE(verdict.ok()) << verdict.error().message;
        const std::string_view text(reinterpret_cast<const char*>(verdict->data()),
                                    verdict->size());
        EXPECT_NE(text.find("it is rank 1 of 4, of another job: this job has 3 ranks"), text.npos);
    });
    const auto gathered = Gather(700);
    rank.join();
    ASSERT_FALSE(gathered.ok());
    EXPECT_NE(gathered.error().message.find("this job has 3 ranks"), std::string::npos)
        << gathered.error().message;
}

// A worker whose protocol differs from that of a launcher's ranks.
TEST_F(Meeting, WorkerIsToldThatNoJobWaitsForIt) {
    std::thread worker([&] {
        auto fd = DialRankZero({address_}, Deadline::In(2000));
        ASSERT_TRUE(fd.ok());
        EXPECT_FALSE(
            ProveRank(std::move(*fd), 0, 0, Key("the right key of this test"), Deadline::In(3000))
                .ok());
    });
    const auto gathered = Gather(700);
    worker.join();
    ASSERT_FALSE(gathered.ok());
    EXPECT_NE(gathered.error().message.find("--expect-workers"), std::string::npos)
        << gathered.error().message;
}

TEST_F(Meeting, AWrongKeyAndAMissingRankAreNamed) {
    std::thread one([&] { EXPECT_TRUE(Arrive(1).ok()); });
    std::thread two([&] {
        const auto arrival = Arrive(2, "another key, of another user");
        EXPECT_FALSE(arrival.ok());
    });
    const auto gathered = Gather(700);
    one.join();
    two.join();
    ASSERT_FALSE(gathered.ok());
    EXPECT_EQ(gathered.error().code, ErrorCode::kTimeout);
    EXPECT_EQ(gathered.error().message.find("rank(s) 2 did not connect within 700 ms"), 0u)
        << gathered.error().message;
    EXPECT_NE(gathered.error().message.find("Turned away: 127.0.0.1"), std::string::npos)
        << gathered.error().message;
}

// Ranks that dial first, followed by a crowd of other callers.
TEST_F(Meeting, ACrowdPushesNoRankOut) {
    std::thread two = SaidHello(2), one = SaidHello(1);
    std::vector<Fd> crowd;
    for (int i = 0; i < 300; ++i) {
        crowd.push_back(net::DialTcp("127.0.0.1", address_.port, Deadline::In(1000)).value());
    }
    const auto gathered = Gather(5000);
    one.join();
    two.join();
    ASSERT_TRUE(gathered.ok()) << gathered.error().message;
}

TEST_F(Meeting, EndsWhenTheUserWishesSo) {
    std::atomic<bool> stop = false;
    std::thread user([&, gathers = ::gettid()] {
        EXPECT_TRUE(test::Sleeps(gathers));
        stop = true;
    });
    const int64_t begin = NowNs();
    const auto gathered =
        GatherRanks(listener_.get(), 3, Key("a key"), hall_, {1000, Deadline::In(20'000), &stop});
    user.join();
    ASSERT_FALSE(gathered.ok());
    EXPECT_EQ(gathered.error().code, ErrorCode::kCancelled);
    // Launchers stop all ranks if one fails.
    EXPECT_TRUE(gathered.error().message.starts_with("stopped while rank(s) 1, 2 of 3 had not "))
        << gathered.error().message;
    EXPECT_LT(NowNs() - begin, test::LimitNs(5000));
}

// Rank 0 closed its connection while many strangers connected.
TEST_F(Meeting, ARankThatWasDroppedDialsAgain) {
    const test::TempDir folder;
    const std::string path = folder / "key", text = "the right key of this test";
    ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
    ::chmod(path.c_str(), 0600);
    Launcher launcher;
    launcher.name = "RANK and WORLD_SIZE";
    launcher.rank = 1;
    launcher.size = 2;
    launcher.host = address_.host;
    launcher.port = address_.port;
    std::thread rank([&] {
        auto launched = Launched::Start(launcher, {path});
        ASSERT_TRUE(launched.ok()) << launched.error().message;
        const auto arrival = (*launched)->Arrive();
        ASSERT_TRUE(arrival.ok()) << arrival.error().message;
        EXPECT_TRUE(arrival->has_value());
    });
    net::SetBlocking(listener_.get(), true);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(net::Accept(listener_.get()).valid());
    net::SetBlocking(listener_.get(), false);
    const auto gathered = GatherRanks(listener_.get(), 2, ReadKeyFile(path).value(), hall_,
                                      {1000, Deadline::In(5000)});
    rank.join();
    EXPECT_TRUE(gathered.ok()) << gathered.error().message;
}

// A port scan does not use up the limit of refused ranks.
TEST_F(Meeting, RanksAreRejectedAmongUnknownCallers) {
    std::vector<Fd> strangers;
    for (int i = 0; i < 20; ++i) {
        strangers.push_back(net::DialTcp("127.0.0.1", address_.port, Deadline::In(1000)).value());
        if (i % 2 == 0) ::send(strangers.back().get(), "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
    }
    std::atomic<int> away = 0;
    const auto is_turned_away = [&](int rank) {
        const auto arrival = Arrive(rank);
        ASSERT_FALSE(arrival.ok());
        EXPECT_EQ(arrival.error().code, ErrorCode::kPeerLost);
        ++away;
    };
    std::thread ranks([&] {
        for (const int rank : {2, 2, 1}) is_turned_away(rank);
    });
    const int64_t begin = NowNs();
    TurnRanksAway(listener_.get(), 3, Deadline::In(20'000));
    EXPECT_GE(away, 2) << "rank 1 has not come";
    EXPECT_LT(NowNs() - begin, test::LimitNs(10000));
    listener_ = Fd();
    ranks.join();
}

TEST_F(Meeting, ARankZeroWithoutAnAddressIsAFaultOfItsName) {
    const auto nobody =
        DialRankZero({{"a-host-that-nobody-knows.invalid", 7000}}, Deadline::In(50));
    ASSERT_FALSE(nobody.ok());
    EXPECT_NE(nobody.error().message.find("Is the host name right?"), std::string::npos);
    EXPECT_EQ(nobody.error().message.find("Was it started?"), std::string::npos)
        << nobody.error().message;
}

TEST_F(Meeting, EndedRankZeroIsDistinguishedFromAnAbsentOne) {
    Result<Fd> dialed = DialRankZero({address_}, Deadline::In(2000));
    std::thread rank([&] {
        const auto arrival = Prove(std::move(dialed), 1);
        ASSERT_FALSE(arrival.ok());
        EXPECT_EQ(arrival.error().code, ErrorCode::kPeerLost);
    });
    listener_ = Fd();
    rank.join();
    const auto nobody = DialRankZero({address_}, Deadline::In(150));
    ASSERT_FALSE(nobody.ok());
    EXPECT_NE(nobody.error().code, ErrorCode::kPeerLost);
}

}  // namespace
}  // namespace weft::cluster
