#include "fleet/beacon.h"

#include <gtest/gtest.h>

#include <string_view>

namespace weft::fleet {
namespace {

Sha256Digest KeyOf(std::string_view text) {
    return BeaconKey(std::as_bytes(std::span(text)));
}

Beacon ABeacon() {
    Beacon beacon;
    beacon.kind = BeaconKind::kAsks;
    beacon.host = 0x1122334455667788;
    beacon.sequence = 77;
    beacon.nonce = ~uint64_t{0};
    beacon.port = 7000;
    beacon.build = {"0.1.0", "1f3da7147a20-dirty", "9f86d081884c"};
    beacon.name = "b";
    beacon.device = "Radeon 8060S";
    beacon.interface = "enp1s0f0";
    beacon.rdma = "mlx5_0:1";
    beacon.mbps = 25'000;
    beacon.memory_bytes = uint64_t{128} << 30;
    beacon.echoes = {1, 2, 3};
    beacon.cables = {{5, "eth1", "eth2", 10'000, true}, {6, "", "", 0, false}};
    return beacon;
}

TEST(Beacons, WhatIsSaidIsHeard) {
    const auto key = KeyOf("a-shared-key-of-the-tests");
    EXPECT_EQ(DecodeBeacon(key, EncodeBeacon(key, ABeacon())).value(), ABeacon());
}

TEST(Beacons, TheLargestFitsAPacket) {
    const auto key = KeyOf("a-shared-key-of-the-tests");
    Beacon beacon = ABeacon();
    for (std::string* text :
         {&beacon.build.version, &beacon.build.commit, &beacon.build.protocol_hash, &beacon.name,
          &beacon.device, &beacon.interface, &beacon.rdma}) {
        text->assign(300, 'x');
    }
    beacon.echoes.assign(100, 9);
    beacon.cables.assign(100, {1, std::string(99, 'y'), std::string(99, 'z'), 1, true});
    const Bytes bytes = EncodeBeacon(key, beacon);
    EXPECT_LE(bytes.size(), kMostBeacon);
    const Beacon heard = DecodeBeacon(key, bytes).value();
    EXPECT_EQ(heard.echoes.size(), kMostEchoes);
    EXPECT_EQ(heard.cables.size(), kMostCables);
    EXPECT_EQ(heard.cables.back().peer_interface, std::string(15, 'z'));
}

TEST(Beacons, EveryChangedBitIsRefused) {
    const auto key = KeyOf("a-shared-key-of-the-tests");
    const Bytes bytes = EncodeBeacon(key, ABeacon());
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        Bytes changed = bytes;
        changed[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
        const auto heard = DecodeBeacon(key, changed);
        ASSERT_FALSE(heard.ok()) << bit;
        EXPECT_EQ(heard.error().code, bit < 32 ? ErrorCode::kUnsupported : ErrorCode::kDenied)
            << bit;
    }
    for (size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_FALSE(DecodeBeacon(key, View(bytes).first(size)).ok()) << size;
    }
    EXPECT_EQ(DecodeBeacon(KeyOf("a-shared-key-of-the-test!"), bytes).error().code,
              ErrorCode::kDenied);
}

// The bytes of a beacon whose body is `more` bytes longer, under a good MAC.
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

// Of who has the key, but a fault: still nothing odd comes in.
TEST(Beacons, ASignedBeaconIsCheckedAsWell) {
    const auto key = KeyOf("a-shared-key-of-the-tests");
    const auto is_refused = [&](void (*change)(Beacon&)) {
        Beacon beacon = ABeacon();
        change(beacon);
        const auto heard = DecodeBeacon(key, EncodeBeacon(key, beacon));
        return !heard.ok() && heard.error().code == ErrorCode::kCorrupt;
    };
    EXPECT_TRUE(is_refused([](Beacon& beacon) { beacon.name = "b\x1b[2J"; }));
    EXPECT_TRUE(is_refused([](Beacon& beacon) { beacon.name = ""; }));
    EXPECT_TRUE(is_refused([](Beacon& beacon) { beacon.cables[0].interface = "e\n"; }));
    EXPECT_TRUE(is_refused([](Beacon& beacon) { beacon.mbps = 4'000'000'000; }));
    EXPECT_TRUE(is_refused([](Beacon& beacon) { beacon.kind = static_cast<BeaconKind>(9); }));
    EXPECT_TRUE(is_refused([](Beacon& beacon) { beacon.build.commit = "c\n"; }));
    EXPECT_TRUE(is_refused([](Beacon& beacon) { beacon.build.protocol_hash = "\x1b"; }));
    EXPECT_FALSE(is_refused([](Beacon&) {}));
    // Bytes that are left over, or lacking, under a good MAC.
    const Bytes whole = EncodeBeacon(key, ABeacon());
    for (const int more : {-1, 1}) {
        const auto heard = DecodeBeacon(key, WithBody(key, whole, more));
        ASSERT_FALSE(heard.ok());
        EXPECT_EQ(heard.error().code, ErrorCode::kCorrupt);
    }
}

// Which told its version alone: a host of its cluster that can't work with this one.
TEST(Beacons, AnOlderProgramIsHeardWithoutItsBuild) {
    const auto key = KeyOf("a-shared-key-of-the-tests");
    Beacon beacon = ABeacon();
    beacon.build = {"0.1.0", "", ""};
    const Beacon heard = DecodeBeacon(key, WithBody(key, EncodeBeacon(key, beacon), -2)).value();
    EXPECT_EQ(heard, beacon);
    EXPECT_FALSE(cluster::CanWorkTogether(heard.build, {"0.1.0"}));
}

}  // namespace
}  // namespace weft::fleet
