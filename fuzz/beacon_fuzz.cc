// libFuzzer target: any datagram as a beacon, from a stranger and from a host with the key, and a
// sequence of beacons for a roster. An accepted beacon is bounded, and is the same after it is
// encoded and decoded again.
//     build-fuzz/fuzz/beacon_fuzz -max_total_time=60 -malloc_limit_mb=64 fuzz/corpus/beacon
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/deadline.h"
#include "fleet/discovery_packet.h"
#include "fleet/key_phrase.h"
#include "fleet/remote.h"
#include "fleet/roster.h"

namespace {

using namespace weft;
using namespace weft::fleet;

void CheckPacket(const Sha256Digest& key, const DiscoveryPacket& packet) {
    WEFT_CHECK(packet.echoes.size() <= kMostEchoes && packet.cables.size() <= kMostCables);
    WEFT_CHECK(!packet.name.empty() && packet.name.size() <= 64);
    const auto again = DecodePacket(key, EncodePacket(key, packet));
    WEFT_CHECK(again.ok() && *again == packet);
}

// The bytes as the body of a beacon with a good MAC.
Bytes Signed(const Sha256Digest& key, View body) {
    const Sha256Digest mac = HmacSha256(std::as_bytes(std::span(key)), body);
    Bytes bytes;
    for (const char letter : {'W', 'F', 'T', '1'}) bytes.push_back(static_cast<std::byte>(letter));
    const auto mac_bytes = std::as_bytes(std::span(mac));
    bytes.insert(bytes.end(), mac_bytes.begin(), mac_bytes.end());
    bytes.insert(bytes.end(), body.begin(), body.end());
    return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const View bytes = std::as_bytes(std::span(data, size));
    const Sha256Digest key = PacketKey({});
    const auto stranger = DecodePacket(key, bytes);
    WEFT_CHECK(stranger.ok() || !stranger.error().message.empty());
    const auto known = DecodePacket(key, Signed(key, bytes));
    if (known.ok()) {
        CheckPacket(key, *known);
        Roster roster(1);
        DiscoveryPacket packet = *known;
        for (int64_t turn = 1; turn < 8; ++turn) {
            const int64_t now_ns = turn * 900 * kNsPerMs;
            if (turn % 2 == 0) packet.echoes = {roster.NonceOf("eth0", now_ns)};
            packet.sequence += 1;
            roster.Hear(packet, "eth0", "fe80::1", now_ns);
            WEFT_CHECK(roster.EchoesOf("eth0", now_ns).size() <= kMostEchoes);
            WEFT_CHECK(roster.Peers(now_ns).size() <= 1);
        }
    }
    const std::string text(reinterpret_cast<const char*>(data), size);
    const auto words = ParseKeyPhrase({text});
    WEFT_CHECK(!words.ok() || IsKeyPhrase(*words));
    const auto probe = ParseProbe("b", text);
    WEFT_CHECK(probe.ok() || !probe.error().message.empty());
    return 0;
}
