#include "fleet/discovery_packet.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string_view>

namespace weft::fleet {
namespace {

Sha256Digest KeyOf(std::string_view text) {
    return PacketKey(std::as_bytes(std::span(text)));
}

DiscoveryPacket ABeacon() {
    DiscoveryPacket packet;
    packet.kind = PacketKind::kAsks;
    packet.host = 0x1122334455667788;
    packet.sequence = 77;
    packet.nonce = ~uint64_t{0};
    packet.port = 7000;
    packet.build = {"0.1.0", "1f3da7147a20-dirty", "9f86d081884c"};
    packet.name = "b";
    packet.device = "Radeon 8060S";
    packet.interface = "enp1s0f0";
    packet.rdma = "mlx5_0:1";
    packet.mbps = 25'000;
    packet.memory_bytes = uint64_t{128} << 30;
    packet.echoes = {1, 2, 3};
    packet.cables = {{5, "eth1", "eth2", 10'000, true}, {6, "", "", 0, false}};
    return packet;
}

TEST(Beacons, RoundTrip) {
    const auto key = KeyOf("a-shared-key-of-the-tests");
    EXPECT_EQ(DecodePacket(key, EncodePacket(key, ABeacon())).value(), ABeacon());
}

TEST(Beacons, HasTheBytesOfItsProtocol) {
    std::string text;
    for (const std::byte byte : EncodePacket(KeyOf("a-shared-key-of-the-tests"), ABeacon())) {
        text += fmt::format("{:02x}", byte);
    }
    EXPECT_EQ(
        text,
        "5746543172534ccb8ac54a1df710226c4d1b7609ebb9a33466e73902ac2b1480ecf8ff240288776655443322"
        "114d00000000000000ffffffffffffffff581b05302e312e3001620c526164656f6e20383036305308656e70"
        "3173306630086d6c78355f303a31a86100000000000020000000030100000000000000020000000000000003"
        "0000000000000002050000000000000004657468310465746832102700000106000000000000000000000000"
        "0000123166336461373134376132302d64697274790c396638366430383138383463");
}

TEST(Beacons, TheLargestFitsAPacket) {
    const auto key = KeyOf("a-shared-key-of-the-tests");
    DiscoveryPacket packet = ABeacon();
    for (std::string* text :
         {&packet.build.version, &packet.build.commit, &packet.build.protocol_hash, &packet.name,
          &packet.device, &packet.interface, &packet.rdma}) {
        text->assign(300, 'x');
    }
    packet.echoes.assign(100, 9);
    packet.cables.assign(100, {1, std::string(99, 'y'), std::string(99, 'z'), 1, true});
    const Bytes bytes = EncodePacket(key, packet);
    EXPECT_LE(bytes.size(), kMostPacket);
    const DiscoveryPacket heard = DecodePacket(key, bytes).value();
    EXPECT_EQ(heard.echoes.size(), kMostEchoes);
    EXPECT_EQ(heard.cables.size(), kMostCables);
    EXPECT_EQ(heard.cables.back().peer_interface, std::string(15, 'z'));
}

TEST(Beacons, EveryChangedBitIsRefused) {
    const auto key = KeyOf("a-shared-key-of-the-tests");
    const Bytes bytes = EncodePacket(key, ABeacon());
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        Bytes changed = bytes;
        changed[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
        const auto heard = DecodePacket(key, changed);
        ASSERT_FALSE(heard.ok()) << bit;
        EXPECT_EQ(heard.error().code, bit < 32 ? ErrorCode::kUnsupported : ErrorCode::kDenied)
            << bit;
    }
    for (size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_FALSE(DecodePacket(key, View(bytes).first(size)).ok()) << size;
    }
    EXPECT_EQ(DecodePacket(KeyOf("a-shared-key-of-the-test!"), bytes).error().code,
              ErrorCode::kDenied);
}

// The bytes of a beacon whose body is `more` bytes longer, with a valid MAC.
Bytes WithBody(const Sha256Digest& key, const Bytes& whole, int more) {
    Bytes body(whole.begin() + 36, whole.end());
    body.resize(body.size() + static_cast<size_t>(more));
    const Sha256Digest mac = HmacSha256(std::as_bytes(std::span(key)), body);
    Bytes bytes(whole.begin(), whole.begin() + 4);
    const auto mac_bytes = std::as_bytes(std::span(mac));
    bytes.insert(bytes.end(), mac_bytes.begin(), mac_bytes.end());
    bytes.insert(bytes.end(), body.begin(), body.end());
    return bytes;
}

// The sender has the key, but is faulty: malformed values are still refused.
TEST(Beacons, ASignedBeaconIsCheckedAsWell) {
    const auto key = KeyOf("a-shared-key-of-the-tests");
    const auto is_refused = [&](void (*change)(DiscoveryPacket&)) {
        DiscoveryPacket packet = ABeacon();
        change(packet);
        const auto heard = DecodePacket(key, EncodePacket(key, packet));
        return !heard.ok() && heard.error().code == ErrorCode::kCorrupt;
    };
    EXPECT_TRUE(is_refused([](DiscoveryPacket& packet) { packet.name = "b\x1b[2J"; }));
    EXPECT_TRUE(is_refused([](DiscoveryPacket& packet) { packet.name = ""; }));
    EXPECT_TRUE(is_refused([](DiscoveryPacket& packet) { packet.cables[0].interface = "e\n"; }));
    EXPECT_TRUE(is_refused([](DiscoveryPacket& packet) { packet.mbps = 4'000'000'000; }));
    EXPECT_TRUE(
        is_refused([](DiscoveryPacket& packet) { packet.kind = static_cast<PacketKind>(9); }));
    EXPECT_TRUE(
        is_refused([](DiscoveryPacket& packet) { packet.kind = static_cast<PacketKind>(0); }));
    EXPECT_TRUE(is_refused([](DiscoveryPacket& packet) { packet.cables[1].mbps = 4'000'000'000; }));
    EXPECT_TRUE(is_refused([](DiscoveryPacket& packet) { packet.build.commit = "c\n"; }));
    EXPECT_TRUE(is_refused([](DiscoveryPacket& packet) { packet.build.protocol_hash = "\x1b"; }));
    EXPECT_FALSE(is_refused([](DiscoveryPacket&) {}));
    // Extra or missing bytes, with a valid MAC.
    const Bytes whole = EncodePacket(key, ABeacon());
    for (const int more : {-1, 1}) {
        const auto heard = DecodePacket(key, WithBody(key, whole, more));
        ASSERT_FALSE(heard.ok());
        EXPECT_EQ(heard.error().code, ErrorCode::kCorrupt);
    }
}

// An older program sends only its version: a host of the cluster that can't work with this one.
TEST(Beacons, BeaconOfAnOlderProgramHasNoBuild) {
    const auto key = KeyOf("a-shared-key-of-the-tests");
    DiscoveryPacket packet = ABeacon();
    packet.build = {"0.1.0", "", ""};
    const DiscoveryPacket heard =
        DecodePacket(key, WithBody(key, EncodePacket(key, packet), -2)).value();
    EXPECT_EQ(heard, packet);
    EXPECT_FALSE(cluster::CanWorkTogether(heard.build, {"0.1.0"}));
}

}  // namespace
}  // namespace weft::fleet
