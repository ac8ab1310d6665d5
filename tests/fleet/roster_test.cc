#include "fleet/roster.h"

#include <gtest/gtest.h>

#include "base/deadline.h"

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
    EXPECT_EQ(peer.heard[0], (HeardCable{"eth1", "eth9", "fe80::2", 10'000, ""}));
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
