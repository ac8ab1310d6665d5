#include "fleet/discovery_packet.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace weft::fleet {
namespace {

constexpr std::string_view kMagic = "WFT1";
constexpr size_t kHead = 4 + 32;
constexpr size_t kMostVersion = 32, kMostName = 64, kMostDevice = 64, kMostInterface = 15;
constexpr uint32_t kMostMbps = 100'000'000;

class BeaconWriter {
  public:
    template <typename T>
    BeaconWriter& Int(T value) {
        for (size_t i = 0; i < sizeof(T); ++i) {
            out_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i) & 255));
        }
        return *this;
    }
    BeaconWriter& Text(std::string_view text, size_t most) {
        text = text.substr(0, most);
        Int(static_cast<uint8_t>(text.size()));
        const auto bytes = std::as_bytes(std::span(text));
        out_.insert(out_.end(), bytes.begin(), bytes.end());
        return *this;
    }
    const Bytes& bytes() const { return out_; }

  private:
    Bytes out_;
};

// After the first failure all values are zero or empty.
class BeaconReader {
  public:
    explicit BeaconReader(View bytes) : left_(bytes) {}
    template <typename T>
    T Int() {
        uint64_t value = 0;
        for (size_t i = 0; i < sizeof(T) && Has(sizeof(T) - i); ++i) {
            value |= std::to_integer<uint64_t>(left_[0]) << (8 * i);
            left_ = left_.subspan(1);
        }
        return static_cast<T>(good_ ? value : 0);
    }
    // Printable ASCII, because it goes to terminals.
    std::string Text(size_t most) {
        const size_t size = Int<uint8_t>();
        if (!Has(size) || size > most) good_ = false;
        if (!good_) return {};
        std::string text(reinterpret_cast<const char*>(left_.data()), size);
        left_ = left_.subspan(size);
        const auto odd = [](char letter) { return letter < ' ' || letter > '~'; };
        if (std::ranges::any_of(text, odd)) good_ = false;
        return text;
    }
    size_t Count(size_t most) {
        const size_t count = Int<uint8_t>();
        if (count > most) good_ = false;
        return good_ ? count : 0;
    }
    void Must(bool holds) { good_ = good_ && holds; }
    bool done() const { return good_ && left_.empty(); }

  private:
    bool Has(size_t count) { return good_ = good_ && left_.size() >= count; }
    View left_;
    bool good_ = true;
};

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
    BeaconWriter body;
    body.Int(static_cast<uint8_t>(packet.kind)).Int(packet.host).Int(packet.sequence);
    body.Int(packet.nonce).Int(packet.port);
    body.Text(packet.build.version, kMostVersion).Text(packet.name, kMostName);
    body.Text(packet.device, kMostDevice).Text(packet.interface, kMostInterface);
    body.Text(packet.rdma, kMostName).Int(packet.mbps).Int(packet.memory_bytes);
    const size_t echoes = std::min(packet.echoes.size(), kMostEchoes);
    body.Int(static_cast<uint8_t>(echoes));
    for (size_t i = 0; i < echoes; ++i) body.Int(packet.echoes[i]);
    const size_t cables = std::min(packet.cables.size(), kMostCables);
    body.Int(static_cast<uint8_t>(cables));
    for (size_t i = 0; i < cables; ++i) {
        const Cable& cable = packet.cables[i];
        body.Int(cable.peer).Text(cable.interface, kMostInterface);
        body.Text(cable.peer_interface, kMostInterface).Int(cable.mbps);
        body.Int(static_cast<uint8_t>(cable.rdma));
    }
    body.Text(packet.build.commit, cluster::kMostCommit);
    body.Text(packet.build.protocol_hash, cluster::kMostProtocolHash);
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
    BeaconReader reader(body);
    DiscoveryPacket packet;
    const auto kind = reader.Int<uint8_t>();
    reader.Must(kind >= 1 && kind <= 3);
    packet.kind = static_cast<PacketKind>(kind);
    packet.host = reader.Int<uint64_t>();
    packet.sequence = reader.Int<uint64_t>();
    packet.nonce = reader.Int<uint64_t>();
    packet.port = reader.Int<uint16_t>();
    packet.build = {reader.Text(kMostVersion), "", ""};
    packet.name = reader.Text(kMostName);
    packet.device = reader.Text(kMostDevice);
    packet.interface = reader.Text(kMostInterface);
    packet.rdma = reader.Text(kMostName);
    packet.mbps = reader.Int<uint32_t>();
    packet.memory_bytes = reader.Int<uint64_t>();
    reader.Must(packet.mbps <= kMostMbps && !packet.name.empty());
    const size_t echoes = reader.Count(kMostEchoes);
    for (size_t i = 0; i < echoes; ++i) packet.echoes.push_back(reader.Int<uint64_t>());
    const size_t cables = reader.Count(kMostCables);
    for (size_t i = 0; i < cables; ++i) {
        Cable cable;
        cable.peer = reader.Int<uint64_t>();
        cable.interface = reader.Text(kMostInterface);
        cable.peer_interface = reader.Text(kMostInterface);
        cable.mbps = reader.Int<uint32_t>();
        const auto rdma = reader.Int<uint8_t>();
        reader.Must(cable.mbps <= kMostMbps && rdma <= 1);
        cable.rdma = rdma == 1;
        packet.cables.push_back(std::move(cable));
    }
    if (!reader.done()) {
        packet.build.commit = reader.Text(cluster::kMostCommit);
        packet.build.protocol_hash = reader.Text(cluster::kMostProtocolHash);
    }
    if (reader.done()) return packet;
    return MakeError(ErrorCode::kCorrupt, "a malformed beacon of {} bytes", bytes.size());
}

}  // namespace weft::fleet
