#include "fleet/discovery_packet.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/byte_codec.h"

namespace weft::fleet {
namespace {

constexpr std::string_view kMagic = "WFT1";
constexpr size_t kHead = 4 + 32;
constexpr size_t kMostVersion = 32, kMostName = 64, kMostDevice = 64, kMostInterface = 15;
constexpr uint32_t kMostMbps = 100'000'000;

// Printable ASCII, because it goes to terminals.
void Words(auto& fields, auto& text, size_t most) {
    fields.Cut(text, most);
    const auto odd = [](char letter) { return letter < ' ' || letter > '~'; };
    fields.Check(std::ranges::none_of(text, odd), "has odd letters");
}

template <typename Fields>
void List(Fields& fields, auto& packet) {
    fields(packet.kind, packet.host, packet.sequence, packet.nonce, packet.port);
    fields.Check(packet.kind >= PacketKind::kHere && packet.kind <= PacketKind::kLeaves,
                 "has an unknown kind");
    Words(fields, packet.build.version, kMostVersion);
    Words(fields, packet.name, kMostName);
    Words(fields, packet.device, kMostDevice);
    Words(fields, packet.interface, kMostInterface);
    Words(fields, packet.rdma, kMostName);
    fields(packet.mbps, packet.memory_bytes);
    fields.Check(packet.mbps <= kMostMbps && !packet.name.empty(), "has no name or speed");
    fields.CutList(packet.echoes, kMostEchoes);
    fields.CutList(packet.cables, kMostCables, [](auto& each, auto& cable) {
        each(cable.peer);
        Words(each, cable.interface, kMostInterface);
        Words(each, cable.peer_interface, kMostInterface);
        each(cable.mbps, cable.rdma);
        each.Check(cable.mbps <= kMostMbps, "has an impossible speed");
    });
    if constexpr (Fields::kReads) {
        if (fields.done()) return;
    }
    Words(fields, packet.build.commit, cluster::kMostCommit);
    Words(fields, packet.build.protocol_hash, cluster::kMostProtocolHash);
}

Sha256Digest MacOf(const Sha256Digest& key, View body) {
    return HmacSha256(std::as_bytes(std::span(key)), body);
}

}  // namespace

Sha256Digest PacketKey(View key) {
    constexpr std::string_view salt = "weft cluster";
    const Sha256Digest extracted = HmacSha256(std::as_bytes(std::span(salt)), key);
    constexpr std::string_view info = "weft beacon 1\x01";  // the last byte: HKDF's first block
    return HmacSha256(std::as_bytes(std::span(extracted)), std::as_bytes(std::span(info)));
}

Bytes EncodePacket(const Sha256Digest& key, const DiscoveryPacket& packet) {
    ByteFieldWriter<uint8_t> body;
    List(body, packet);
    Bytes bytes;
    const auto put = [&](View view) { bytes.insert(bytes.end(), view.begin(), view.end()); };
    put(std::as_bytes(std::span(kMagic)));
    const Sha256Digest mac = MacOf(key, body.bytes());
    put(std::as_bytes(std::span(mac)));
    put(body.bytes());
    WEFT_CHECK(bytes.size() <= kMostPacket);
    return bytes;
}

Result<DiscoveryPacket> DecodePacket(const Sha256Digest& key, View bytes) {
    const bool ours = bytes.size() > kHead && bytes.size() <= kMostPacket &&
                      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
    if (!ours) {
        return MakeError(ErrorCode::kUnsupported, "no beacon of this format ({} bytes)",
                         bytes.size());
    }
    Sha256Digest mac;
    std::memcpy(mac.data(), bytes.data() + kMagic.size(), mac.size());
    const View body = bytes.subspan(kHead);
    if (!DigestsEqual(mac, MacOf(key, body))) {
        return MakeError(ErrorCode::kDenied, "a beacon of another key");
    }
    ByteFieldReader<uint8_t> reader(body);
    DiscoveryPacket packet;
    packet.build = {"", "", ""};  // not this program's
    List(reader, packet);
    if (reader.done()) return packet;
    return MakeError(ErrorCode::kCorrupt, "a malformed beacon of {} bytes", bytes.size());
}

}  // namespace weft::fleet
