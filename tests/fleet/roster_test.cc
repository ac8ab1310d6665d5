#include "fleet/roster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <queue>
#include <random>
#include <tuple>
#include <utility>

#include "base/deadline.h"
#include "fleet/discovery.h"
#include "fleet/find.h"

namespace weft::fleet {
namespace {

constexpr int64_t kSecondNs = 1000 * kNsPerMs;

// A host that sends beacons.
struct Other {
    uint64_t host = 7;
    uint64_t sequence = 0;
    std::string name = "b";
    uint16_t port = 7000;

    DiscoveryPacket Says(std::vector<uint64_t> echoes, const std::string& interface = "eth9") {
        DiscoveryPacket packet;
        packet.host = host;
        packet.sequence = ++sequence;
        packet.nonce = 1000 + sequence;
        packet.name = name;
        packet.port = port;
        packet.build.version = "0.1.0";
        packet.interface = interface;
        packet.mbps = 10'000;
        packet.echoes = std::move(echoes);
        return packet;
    }
};

class Rosters : public ::testing::Test {
  protected:
    bool Hear(const DiscoveryPacket& packet, const std::string& interface = "eth1",
              const std::string& address = "fe80::2") {
        return roster_.Hear(packet, interface, address, now_ns_);
    }
    std::vector<std::string> Names() const {
        std::vector<std::string> names;
        for (const Peer& peer : roster_.Peers(now_ns_)) names.push_back(peer.name);
        return names;
    }
    uint64_t Nonce(const std::string& interface = "eth1") {
        return roster_.NonceOf(interface, now_ns_);
    }

    int64_t now_ns_ = 1'000'000 * kSecondNs;
    Roster roster_{1};
    Other other_;
};

using Strings = std::vector<std::string>;

TEST_F(Rosters, HostIsPresentOnceItEchoesThisOne) {
    EXPECT_TRUE(Hear(other_.Says({})));  // it expects an answer
    EXPECT_EQ(Names(), Strings());
    EXPECT_EQ(roster_.EchoesOf("eth1", now_ns_), std::vector<uint64_t>{1001});
    EXPECT_EQ(roster_.EchoesOf("eth2", now_ns_), std::vector<uint64_t>());
    EXPECT_FALSE(Hear(other_.Says({Nonce()})));
    ASSERT_EQ(Names(), Strings{"b"});
    const Peer peer = roster_.Peers(now_ns_)[0];
    ASSERT_EQ(peer.heard.size(), 1U);
    EXPECT_EQ(peer.heard[0], (ReportedCable{"eth1", "eth9", "fe80::2", 10'000, ""}));
}

TEST_F(Rosters, ReplayedBeaconsAreRejected) {
    const DiscoveryPacket recorded = other_.Says({Nonce()});
    EXPECT_FALSE(Hear(recorded));
    EXPECT_EQ(Names(), Strings{"b"});
    // The host has died; its last beacons are replayed.
    for (int i = 0; i < 10; ++i) {
        now_ns_ += kSecondNs;
        EXPECT_FALSE(Hear(recorded));
        EXPECT_FALSE(Hear(recorded, "eth1", "fe80::77"));  // from another address
    }
    EXPECT_EQ(Names(), Strings());
    // They are also refused by another process of this host, and by this one with other nonces.
    Roster fresh(2);
    fresh.NonceOf("eth1", now_ns_);
    fresh.Hear(recorded, "eth1", "fe80::2", now_ns_);
    EXPECT_TRUE(fresh.Peers(now_ns_).empty());
    now_ns_ += 3 * kKeptMs * kNsPerMs;
    roster_.Forget(now_ns_);
    Nonce();
    Hear(recorded);
    EXPECT_EQ(Names(), Strings());
}

TEST_F(Rosters, ABeaconOfOneCableShowsNoOther) {
    const uint64_t one = Nonce("eth1");
    Nonce("eth2");
    Hear(other_.Says({one}), "eth2", "fe80::66");  // replayed by a third party
    EXPECT_EQ(Names(), Strings());
    Hear(other_.Says({one}));
    EXPECT_EQ(Names(), Strings{"b"});
    EXPECT_EQ(roster_.Peers(now_ns_)[0].heard.size(), 1U);
}

TEST_F(Rosters, NoncesGetOld) {
    const uint64_t first = Nonce();
    now_ns_ += (kNonceMs + 1000) * kNsPerMs;
    const uint64_t second = Nonce();
    EXPECT_NE(first, second);
    Hear(other_.Says({first}));  // in flight during the change
    EXPECT_EQ(Names(), Strings{"b"});
    now_ns_ += (kNonceMs + 1000) * kNsPerMs;
    EXPECT_NE(Nonce(), second);
    Hear(other_.Says({first}));
    EXPECT_EQ(Names(), Strings());
}

TEST_F(Rosters, SilentHostExpiresAndLeavingHostGoesAtOnce) {
    Hear(other_.Says({Nonce()}));
    now_ns_ += (kLostMs - 100) * kNsPerMs;
    EXPECT_EQ(Names(), Strings{"b"});
    now_ns_ += 200 * kNsPerMs;
    EXPECT_EQ(Names(), Strings());
    Hear(other_.Says({Nonce()}));
    EXPECT_EQ(Names(), Strings{"b"});
    DiscoveryPacket leaves = other_.Says({});
    leaves.kind = PacketKind::kLeaves;
    EXPECT_FALSE(Hear(leaves));
    EXPECT_EQ(Names(), Strings());
}

TEST_F(Rosters, TwoHostsMayHaveOneName) {
    Other twin;
    twin.host = 8;
    Hear(other_.Says({Nonce()}));
    Hear(twin.Says({Nonce()}), "eth1", "fe80::3");
    EXPECT_EQ(Names(), (Strings{"b", "b"}));
}

TEST_F(Rosters, AskingHostIsAnsweredButNotListed) {
    other_.port = 0;
    DiscoveryPacket asks = other_.Says({});
    asks.kind = PacketKind::kAsks;
    EXPECT_TRUE(Hear(asks));
    asks = other_.Says({Nonce()});
    asks.kind = PacketKind::kAsks;
    EXPECT_TRUE(Hear(asks));
    EXPECT_EQ(Names(), Strings());
    EXPECT_EQ(roster_.EchoesOf("eth1", now_ns_).size(), 1U);
}

TEST_F(Rosters, OwnBeaconsAreNobodys) {
    other_.host = 1;
    EXPECT_FALSE(Hear(other_.Says({Nonce()})));
    EXPECT_EQ(Names(), Strings());
}

// Replayed beacons of any number of hosts do not displace live ones.
TEST_F(Rosters, AFloodOfRecordingsLeavesTheLiving) {
    Hear(other_.Says({Nonce()}));
    now_ns_ += kSecondNs;  // the newest would be echoed first
    for (uint64_t host = 100; host < 5000; ++host) {
        Other old;
        old.host = host;
        old.sequence = host;
        Hear(old.Says({}), "eth1", "fe80::" + std::to_string(host % 999 + 10));
    }
    EXPECT_EQ(Names(), Strings{"b"});
    const std::vector<uint64_t> echoes = roster_.EchoesOf("eth1", now_ns_);
    EXPECT_EQ(echoes.size(), kMostEchoes);
    EXPECT_EQ(echoes[0], 1001U);
    for (int i = 0; i < 100; ++i)
        Hear(other_.Says({Nonce()}), "eth1", "fe80::f" + std::to_string(i));
    EXPECT_LE(roster_.Peers(now_ns_)[0].heard.size(), kMostWaysOfHost);
}

// Hosts on one switch in virtual time, with the beacons and answers of discovery.cc.
class Switch {
  public:
    // lost: share of the datagrams that do not arrive.
    Switch(uint64_t seed, double lost) : random_(seed), lost_(lost) {}

    // Starts a host; port 0: the host only queries.
    size_t Start(uint16_t port, int64_t at_ns) {
        hosts_.push_back({random_(), port});
        hosts_.back().roster = std::make_unique<Roster>(hosts_.back().id);
        Schedule(at_ns, Event::kTick, hosts_.size() - 1);
        return hosts_.size() - 1;
    }
    void RunUntil(int64_t end_ns) {
        while (!events_.empty() && events_.top().at_ns <= end_ns) {
            const Event event = events_.top();
            events_.pop();
            now_ns_ = event.at_ns;
            if (!hosts_[event.host].dead) Handle(event);
        }
        now_ns_ = end_ns;
    }
    void Kill(size_t host) { hosts_[host].dead = true; }
    size_t Found(size_t host) const { return hosts_[host].roster->Peers(now_ns_).size(); }
    // The smallest number that one of the first `count` hosts found.
    size_t Least(size_t count) const {
        size_t least = count;
        for (size_t i = 0; i < count; ++i) {
            if (!hosts_[i].dead) least = std::min(least, Found(i));
        }
        return least;
    }

  private:
    struct Event {
        enum Kind { kTick, kArrives, kAnswers };
        int64_t at_ns;
        Kind kind;
        size_t host;
        std::shared_ptr<const DiscoveryPacket> packet;
        uint64_t number;
        bool operator<(const Event& other) const {
            return std::tie(at_ns, number) > std::tie(other.at_ns, other.number);
        }
    };
    struct Node {
        uint64_t id = 0;
        uint16_t port = 0;
        std::unique_ptr<Roster> roster{};
        bool on = false, dead = false, answers = false;
        uint64_t sequence = 0;
        size_t ticks = 0;
        int64_t second = -1;
        int answered = 0;
    };

    void Schedule(int64_t at_ns, Event::Kind kind, size_t host,
                  std::shared_ptr<const DiscoveryPacket> packet = nullptr) {
        events_.push({at_ns, kind, host, std::move(packet), number_++});
    }
    void Say(size_t from) {
        Node& host = hosts_[from];
        host.answers = false;
        auto packet = std::make_shared<DiscoveryPacket>();
        packet->kind = host.port == 0 ? PacketKind::kAsks : PacketKind::kHere;
        packet->host = host.id;
        packet->sequence = ++host.sequence;
        packet->nonce = host.roster->NonceOf("eth0", now_ns_);
        packet->port = host.port;
        packet->name = "h" + std::to_string(from);
        packet->interface = "eth0";
        packet->echoes = host.roster->EchoesOf("eth0", now_ns_);
        ASSERT_LE(packet->echoes.size(), kMostEchoes);
        Schedule(now_ns_ + 200'000, Event::kArrives, from, packet);
    }
    void Hear(size_t to, const Event& event) {
        Node& host = hosts_[to];
        const std::string address = "fe80::" + std::to_string(event.host);
        if (!host.on || host.dead) return;
        if (!host.roster->Hear(*event.packet, "eth0", address, now_ns_)) return;
        if (std::exchange(host.answers, true)) return;
        const int64_t wait_ms = AnswerDelayMs(host.id, host.roster->CountOn("eth0"));
        Schedule(now_ns_ + wait_ms * kNsPerMs, Event::kAnswers, to);
    }
    void Handle(const Event& event) {
        Node& host = hosts_[event.host];
        switch (event.kind) {
            case Event::kTick: {
                host.on = true;
                host.roster->Forget(now_ns_);
                Say(event.host);
                const int64_t wait_ms =
                    host.ticks < kFirstTicksMs.size() ? kFirstTicksMs[host.ticks] : kBeaconMs;
                ++host.ticks;
                Schedule(now_ns_ + wait_ms * kNsPerMs + static_cast<int64_t>(random_() % kNsPerMs),
                         Event::kTick, event.host);
                break;
            }
            case Event::kArrives:
                for (size_t to = 0; to < hosts_.size(); ++to) {
                    const double luck = static_cast<double>(random_() >> 11) * 0x1p-53;
                    if (to != event.host && luck >= lost_) Hear(to, event);
                }
                break;
            case Event::kAnswers: {
                if (!std::exchange(host.answers, false)) break;
                const int64_t second = now_ns_ / kSecondNs;
                if (std::exchange(host.second, second) != second) host.answered = 0;
                if (host.answered++ < kMostAnswersASecond) Say(event.host);
                break;
            }
        }
    }

    std::mt19937_64 random_;
    const double lost_;
    std::vector<Node> hosts_;
    std::priority_queue<Event> events_;
    uint64_t number_ = 0;
    int64_t now_ns_ = 0;
};

// More hosts than a beacon has places for echoes: all find all, and an asker finds all in time.
TEST(Switches, EachHostFindsEachOther) {
    for (const auto& [count, lost] :
         {std::pair<size_t, double>{17, 0}, {64, 0}, {64, 0.05}, {256, 0}}) {
        SCOPED_TRACE(fmt::format("{} hosts, {} lost", count, lost));
        Switch hosts(count, lost);
        std::mt19937_64 random(7);
        int64_t now_ns = 1000 * kSecondNs;
        for (size_t i = 0; i < count; ++i) {
            hosts.Start(7000, now_ns + static_cast<int64_t>(random() % kSecondNs));
        }
        now_ns += 6 * kSecondNs;  // the last one started five seconds ago
        hosts.RunUntil(now_ns);
        // (With losses, a host may lose three beacons of another in a row.)
        EXPECT_GE(hosts.Least(count), lost > 0 ? count - 2 : count - 1);
        for (int i = 0; i < 2; ++i) {
            const size_t asker = hosts.Start(0, now_ns);
            hosts.RunUntil(now_ns += kAskMs * kNsPerMs);
            EXPECT_EQ(hosts.Found(asker), count);
            hosts.Kill(asker);
        }
        if (lost > 0 || count > 64) continue;
        // They stay, a late host finds them, and one that dies is missed soon.
        for (int i = 0; i < 12; ++i) {
            hosts.RunUntil(now_ns += kSecondNs);
            EXPECT_EQ(hosts.Least(count), count - 1) << "second " << i;
        }
        const size_t late = hosts.Start(7000, now_ns);
        hosts.RunUntil(now_ns += 5 * kSecondNs);
        EXPECT_EQ(hosts.Found(late), count);
        hosts.Kill(late);
        hosts.RunUntil(now_ns += (kLostMs + 100) * kNsPerMs);
        EXPECT_EQ(hosts.Least(count), count - 1);
        for (size_t i = 0; i < count; ++i) EXPECT_LE(hosts.Found(i), count - 1);
    }
}

TEST_F(Rosters, TellsWhenItIsFull) {
    const auto fill = [&](uint64_t host) {
        Other each;
        each.host = host;
        Hear(each.Says({Nonce()}), "eth1", "fe80::" + std::to_string(host));
    };
    for (uint64_t host = 100; host < 100 + kMostHosts; ++host) fill(host);
    EXPECT_EQ(Names().size(), kMostHosts);
    EXPECT_FALSE(roster_.IsFull(now_ns_));
    fill(99);
    EXPECT_EQ(Names().size(), kMostHosts);
    EXPECT_TRUE(roster_.IsFull(now_ns_));
}

TEST_F(Rosters, UnknownSendersAreBounded) {
    int fresh = 0;
    for (int i = 0; i < 100; ++i) {
        const std::string address = "fe80::" + std::to_string(i);
        if (roster_.HearStranger("eth1", address, true, now_ns_) != nullptr) ++fresh;
        EXPECT_EQ(roster_.HearStranger("eth1", address, true, now_ns_), nullptr);
    }
    EXPECT_EQ(fresh, static_cast<int>(kMostStrangers));
    now_ns_ += 2 * kKeptMs * kNsPerMs;
    roster_.Forget(now_ns_);
    EXPECT_TRUE(roster_.strangers().empty());
}

}  // namespace
}  // namespace weft::fleet
