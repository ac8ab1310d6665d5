// What launchers say in the environment, and how the ranks that they start find each other.
#include "cluster/launcher.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <map>
#include <thread>

#include "base/file.h"
#include "cluster/gather.h"
#include "cluster/launched.h"
#include "support/temp_dir.h"

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
    // The same on every rank, another for another job.
    Variables other = step;
    other["SLURM_PROCID"] = "0";
    EXPECT_EQ(Found(other).port, slurm.port);
    other["SLURM_JOB_ID"] = "4712";
    EXPECT_NE(Found(other).port, slurm.port);
    other["PMIX_RANK"] = "0";
    EXPECT_EQ(Found(other).mpi, "openmpi");
    // A batch script is no step of several ranks.
    Variables batch = step;
    batch.erase("SLURM_STEP_ID");
    Nothing(batch);
}

TEST(Launchers, TorchrunStyleVariables) {
    Variables all = {
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
    EXPECT_EQ(Found(all).host, "10.0.0.1");
    EXPECT_EQ(Found(all).port, 29500);
    all["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // which has that port itself
    EXPECT_EQ(Found(all).port, 29501);
    all.erase("MASTER_PORT");
    Nothing(all);
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

class Meeting : public testing::Test {
  protected:
    void SetUp() override {
        listener_ = net::ListenTcp("127.0.0.1", 0).value();
        address_ = {"127.0.0.1", net::BoundPort(listener_.get()).value()};
    }
    Result<Arrival> Arrive(int rank, const char* key = "the right key of this test") {
        auto fd = DialRankZero({address_}, Deadline::In(2000));
        if (!fd.ok()) return fd.error();
        return ProveRank(std::move(*fd), rank, 3, Key(key), Deadline::In(3000));
    }
    Result<std::vector<Arrival>> Gather(int64_t ms) {
        return GatherRanks(listener_.get(), 3, Key("the right key of this test"), 1000,
                           Deadline::In(ms));
    }
    Fd listener_;
    Address address_;
};

TEST_F(Meeting, RanksComeInAnyOrderBetweenStrangers) {
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
    ASSERT_EQ(gathered->size(), 2u);
    EXPECT_FALSE((*gathered)[0].host.empty());
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
    EXPECT_EQ(gathered.error().message.find("rank(s) 2 did not come within 700 ms"), 0u)
        << gathered.error().message;
    EXPECT_NE(gathered.error().message.find("Turned away: 127.0.0.1"), std::string::npos)
        << gathered.error().message;
}

// Ranks that came first, and a crowd behind them.
TEST_F(Meeting, ACrowdPushesNoRankOut) {
    std::thread two([&] { EXPECT_TRUE(Arrive(2).ok()); });
    std::thread one([&] { EXPECT_TRUE(Arrive(1).ok()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
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
    std::thread user([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        stop = true;
    });
    const int64_t begin = NowNs();
    const auto gathered =
        GatherRanks(listener_.get(), 3, Key("a key"), 1000, Deadline::In(20'000), &stop);
    user.join();
    ASSERT_FALSE(gathered.ok());
    EXPECT_EQ(gathered.error().code, ErrorCode::kCancelled);
    EXPECT_LT(NowNs() - begin, 5'000'000'000);
}

// Rank 0 hung up on it amid a crowd of others.
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
    const auto gathered =
        GatherRanks(listener_.get(), 2, ReadKeyFile(path).value(), 1000, Deadline::In(5000));
    rank.join();
    EXPECT_TRUE(gathered.ok()) << gathered.error().message;
}

// A scan of its ports does not use up the ranks that rank 0 turns away.
TEST_F(Meeting, RanksAreTurnedAwayBetweenStrangers) {
    std::vector<Fd> strangers;
    for (int i = 0; i < 20; ++i) {
        strangers.push_back(net::DialTcp("127.0.0.1", address_.port, Deadline::In(1000)).value());
        if (i % 2 == 0) ::send(strangers.back().get(), "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
    }
    std::vector<std::thread> ranks;
    for (const int rank : {2, 2, 1}) {  // the last one comes later
        ranks.emplace_back([this, rank] {
            std::this_thread::sleep_for(std::chrono::milliseconds(rank == 1 ? 900 : 200));
            const auto arrival = Arrive(rank);
            ASSERT_FALSE(arrival.ok());
            EXPECT_EQ(arrival.error().code, ErrorCode::kPeerLost);
        });
    }
    const int64_t begin = NowNs();
    TurnRanksAway(listener_.get(), 3, Deadline::In(20'000));
    EXPECT_GE(NowNs() - begin, 800'000'000);
    EXPECT_LT(NowNs() - begin, 10'000'000'000);
    listener_ = Fd();
    for (std::thread& rank : ranks) rank.join();
}

TEST_F(Meeting, ARankZeroThatEndsIsToldFromOneThatNeverWas) {
    std::thread rank([&] {
        const auto arrival = Arrive(1);
        ASSERT_FALSE(arrival.ok());
        EXPECT_EQ(arrival.error().code, ErrorCode::kPeerLost);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    listener_ = Fd();
    rank.join();
    const auto nobody = DialRankZero({address_}, Deadline::In(150));
    ASSERT_FALSE(nobody.ok());
    EXPECT_NE(nobody.error().code, ErrorCode::kPeerLost);
}

}  // namespace
}  // namespace weft::cluster
