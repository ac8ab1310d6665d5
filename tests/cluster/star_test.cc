// The control plane of a job with thousands of ranks: the real control thread of rank 0, and peers
// that one thread simulates. The ranks receive their job, gather their hosts, offers and links,
// lose a rank, and continue in the next epoch. (Nightly: 3,072 ranks.
// tests/train/many_ranks_test.cc has the step of a rank.)
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cluster/cluster_impl.h"
#include "cluster/control.h"
#include "cluster/gather_rounds.h"
#include "support/nightly.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

constexpr int64_t kSilentMs = 600'000;  // the peers send no heartbeats

// The ranks from 1 on, each with the last message of each type that it got.
class Peers {
  public:
    explicit Peers(size_t ranks) : peers_(ranks), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
        for (size_t rank = 1; rank < ranks; ++rank) {
            auto ends = MakeSocketPair();
            WEFT_CHECK(ends.ok());
            const auto sessions = MakeSessionPair(kSilentMs);
            near_.emplace_back(std::move(ends->first), sessions.first);
            peers_[rank].channel =
                std::make_unique<Channel>(std::move(ends->second), sessions.second);
            epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.u64 = rank}};
            ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, peers_[rank].channel->fd(), &event);
        }
    }
    ~Peers() { Stop(); }
    void Start() {
        thread_ = std::thread([this] { Loop(); });
    }
    void Stop() {
        stops_ = true;
        if (thread_.joinable()) thread_.join();
    }

    std::vector<std::pair<Fd, Session>>& near() { return near_; }
    void Close(size_t rank) {
        const std::lock_guard lock(mutex_);
        peers_[rank].channel->Close(false);
    }
    // make(rank): the message of each peer that is there.
    template <typename Make>
    void SendAll(FrameType type, const Make& make) {
        const std::lock_guard lock(mutex_);
        for (size_t rank = 1; rank < peers_.size(); ++rank) {
            if (peers_[rank].channel->open()) peers_[rank].channel->Send(type, make(rank));
        }
    }
    // Waits until each connected peer has a message of this type, and passes it to `take`.
    template <typename Take>
    void AwaitAll(FrameType type, const Take& take) {
        const auto lacks = [&](const Peer& peer) {
            return peer.channel != nullptr && peer.channel->open() && !peer.got.contains(type);
        };
        EXPECT_TRUE(test::Until(
            [&] {
                const std::lock_guard lock(mutex_);
                return std::ranges::none_of(peers_, lacks);
            },
            Deadline::In(kSilentMs)));
        const std::lock_guard lock(mutex_);
        for (size_t rank = 1; rank < peers_.size(); ++rank) {
            if (!peers_[rank].channel->open()) continue;
            take(rank, View(peers_[rank].got[type]));
            peers_[rank].got.erase(type);
        }
    }

  private:
    struct Peer {
        std::unique_ptr<Channel> channel;
        std::map<FrameType, Bytes> got;
    };

    void Loop() {
        std::vector<epoll_event> events(256);
        while (!stops_) {
            const int count = ::epoll_wait(epoll_.get(), events.data(), 256, 20);
            const std::lock_guard lock(mutex_);
            for (int i = 0; i < count; ++i) Serve(peers_[events[static_cast<size_t>(i)].data.u64]);
        }
    }
    void Serve(Peer& peer) {
        while (peer.channel->open()) {
            peer.channel->Flush();
            bool any = false;
            const Status status = peer.channel->Receive([&](FrameType type, View payload) {
                any = true;
                if (type == FrameType::kRelay) return;
                peer.got[type] = Bytes(payload.begin(), payload.end());
            });
            if (!status.ok()) peer.channel->Close(false);
            if (!any) return;
        }
    }

    std::vector<Peer> peers_;
    std::vector<std::pair<Fd, Session>> near_;
    Fd epoll_;
    std::mutex mutex_;
    std::thread thread_;
    std::atomic<bool> stops_{false};
};

std::string HostOf(size_t rank) {
    return "host " + std::to_string(rank / 8) + std::string(500, 'x');
}

// Rank 0 of the job, with its peers.
class Star {
  public:
    explicit Star(size_t ranks) : ranks_(ranks), peers_(ranks), root_(OptionsOfRoot()) {
        for (size_t rank = 1; rank < ranks; ++rank) {
            auto& [fd, session] = peers_.near()[rank - 1];
            root_.AddPeer(static_cast<int>(rank), std::move(fd), session, 0);
        }
        for (size_t rank = 0; rank < ranks; ++rank) {
            assignment_.hosts.push_back("h" + std::to_string(rank / 8));
        }
        root_.SetHosts(assignment_.hosts);
        WEFT_CHECK(root_.Start().ok());
        peers_.Start();
    }
    ~Star() { peers_.Stop(); }

    void Assign() {
        root_.Assign(assignment_);
        AwaitAssignments([](size_t rank) { return rank; });
    }
    // number: of the call in this epoch.
    void GatherHosts(int64_t number) {
        const auto head = [](size_t rank) { return GatherRounds::HeadOf(HostOf(rank)); };
        peers_.SendAll(FrameType::kValue, [&](size_t rank) {
            return Encode(ValueMessage{number, "hosts", head(rank), assignment_.epoch});
        });
        GatherRounds rounds("hosts");
        const auto packed = root_.Round(
            "hosts", head(0), [&](const auto& heads) { return rounds.Heads(heads); },
            Deadline::In(kSilentMs));
        ASSERT_TRUE(packed.ok()) << packed.error().message;
        const auto values = rounds.ValuesOf(*packed, assignment_.hosts.size());
        ASSERT_TRUE(values.ok()) << values.error().message;
        EXPECT_EQ(values->front(), HostOf(0));
        peers_.AwaitAll(FrameType::kResult, [&](size_t, View payload) {
            const auto result = Decode<ResultMessage>(payload);
            ASSERT_TRUE(result.ok());
            EXPECT_TRUE(result->value == *packed);
        });
    }
    // Each rank has a link to each other.
    void GatherLinks(int64_t number) {
        const std::vector<net::WireEnd> ends(ranks_, {"tcp", "10.0.0.1", "eth0", 10'000, "", true});
        const std::string row = PackWireEnds(LinkRow(ends));
        peers_.SendAll(FrameType::kValue, [&](size_t) {
            return Encode(ValueMessage{number, "ready", row, assignment_.epoch});
        });
        LinkTable links;
        const auto combine = [&](const auto& rows) -> Result<std::string> {
            for (const std::string& each : rows) {
                WEFT_ASSIGN(LinkRow unpacked, UnpackWireEnds(each, ranks_));
                links.push_back(std::move(unpacked));
            }
            return std::string();
        };
        ASSERT_TRUE(root_.Round("ready", row, combine, Deadline::In(kSilentMs)).ok());
        EXPECT_EQ(links.size(), ranks_);
        peers_.AwaitAll(FrameType::kResult, [](size_t, View) {});
    }
    // Each rank has offers for the links of its groups in training: as many as with 8 tensor ranks,
    // 24 replicas and 16 stages.
    void ExchangeOffers(int64_t number) {
        const auto offers = [&](size_t rank) {
            RankedStrings all;
            for (size_t step = 1; step <= 34 && step < assignment_.hosts.size(); ++step) {
                const size_t to = (rank + 3 * step) % assignment_.hosts.size();
                all.emplace_back(to, fmt::format("{} to {}{}", rank, to, std::string(300, 'o')));
            }
            return all;
        };
        peers_.SendAll(FrameType::kValue, [&](size_t rank) {
            const std::string packed = PackRanked(offers(rank));
            return Encode(ValueMessage{number, "offers", packed, assignment_.epoch});
        });
        std::vector<std::string> own(assignment_.hosts.size());
        for (const auto& [to, text] : offers(0)) own[to] = text;
        const auto got = root_.Exchange("offers", own, Deadline::In(kSilentMs));
        ASSERT_TRUE(got.ok()) << got.error().message;
        const size_t from = assignment_.hosts.size() - 3;
        EXPECT_TRUE((*got)[from].starts_with(fmt::format("{} to 0", from)));
        peers_.AwaitAll(FrameType::kResult, [&](size_t rank, View payload) {
            const auto result = Decode<ResultMessage>(payload);
            ASSERT_TRUE(result.ok());
            const auto words = UnpackRanked(result->value, assignment_.hosts.size());
            ASSERT_TRUE(words.ok());
            EXPECT_EQ(words->size(), 34u) << rank;
        });
    }
    // Ends the epoch, and begins the next one without this rank. The other ranks of its half reach
    // no rank of the other half.
    void Lose(size_t lost) {
        peers_.Close(lost);
        peers_.AwaitAll(FrameType::kVerdict, [&](size_t, View payload) {
            const auto verdict = Decode<VerdictMessage>(payload);
            ASSERT_TRUE(verdict.ok());
            EXPECT_EQ(verdict->lost_rank, static_cast<int32_t>(lost));
            EXPECT_TRUE(verdict->recover);
        });
        ASSERT_TRUE(root_.EndEpoch({ErrorCode::kPeerLost, "a step failed"}).ok());
        std::vector<int32_t> far;
        for (size_t rank = 0; rank < ranks_ / 2; ++rank) far.push_back(static_cast<int32_t>(rank));
        peers_.SendAll(FrameType::kReady, [&](size_t rank) {
            return Encode(
                ReadyMessage{assignment_.epoch, rank < ranks_ / 2 ? std::vector<int32_t>() : far});
        });
        const auto gone = root_.WaitForSurvivors(Deadline::In(kSilentMs));
        ASSERT_TRUE(gone.ok());
        EXPECT_EQ(*gone, std::vector<int>{static_cast<int>(lost)});
        const auto apart = root_.Unreached();
        EXPECT_EQ(apart.size(), (ranks_ - ranks_ / 2 - 1) * (ranks_ / 2));
        EXPECT_EQ(RanksToDrop(apart).size(), ranks_ - ranks_ / 2 - 1);
        std::vector<int> kept;
        for (size_t rank = 0; rank < ranks_; ++rank) {
            if (rank != lost) kept.push_back(static_cast<int>(rank));
        }
        assignment_.rank = 0;
        ++assignment_.epoch;
        assignment_.hosts.pop_back();
        ASSERT_TRUE(root_.BeginEpoch(kept, assignment_));
        AwaitAssignments([&](size_t rank) { return rank < lost ? rank : rank - 1; });
    }

  private:
    static Control::Options OptionsOfRoot() {
        Control::Options options;
        options.timeout_ms = kSilentMs;
        options.local = false;
        options.recover = true;
        options.watchdog_ms = 0;
        return options;
    }
    template <typename Number>
    void AwaitAssignments(const Number& number) {
        peers_.AwaitAll(FrameType::kAssign, [&](size_t rank, View payload) {
            const auto assigned = Decode<AssignMessage>(payload);
            ASSERT_TRUE(assigned.ok());
            EXPECT_EQ(assigned->rank, static_cast<int32_t>(number(rank)));
            EXPECT_EQ(assigned->hosts.size(), assignment_.hosts.size());
        });
    }

    const size_t ranks_;
    Peers peers_;
    Control root_;
    AssignMessage assignment_;
};

TEST(Star, ThousandsOfRanksMeetLoseOneAndGoOn) {
    const size_t ranks = test::Nightly() ? 3072 : 300;
    AllowDescriptors(static_cast<int>(ranks));
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 2 * ranks + 100) GTEST_SKIP() << "needs more descriptors (ulimit -n)";
    Star star(ranks);
    star.Assign();
    star.GatherHosts(1);
    star.ExchangeOffers(2);
    star.GatherLinks(3);
    star.Lose(ranks - 7);
    star.GatherHosts(1);
}

}  // namespace
}  // namespace weft::cluster
