// Beacons: a host of a cluster announces itself on each of its cables once a second, with one
// datagram to an IPv6 link-local multicast group.
//
//     "WFT1" | HMAC-SHA-256 of what follows | body
//
// The key of the HMAC is HKDF-SHA-256 (RFC 5869) of the cluster's key. The body has little-endian
// integers, and strings with a length byte. The datagram has at most kMostPacket bytes, so every
// link carries it in one packet. The receiver verifies the HMAC before it reads the body.
//
// An attacker may record a beacon and send it again. So a beacon also lists echoes, the nonces that
// its sender heard, and a receiver accepts a beacon only if the echoes contain the receiver's own
// nonce (roster.h). Each interface has a different nonce, so a beacon that is sent again on another
// cable does not make that cable appear to lead to its sender.
//
// These functions only convert between bytes and structs; they use no socket and no clock.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "cluster/join/build.h"

namespace weft::fleet {

using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;

inline constexpr const char* kDiscoveryGroup = "ff12::5745:4654";  // transient, link-local scope
inline constexpr uint16_t kDiscoveryPort = 7000;                   // UDP
inline constexpr size_t kMostPacket = 1232;  // fits in 1280 bytes, which every IPv6 link carries
inline constexpr size_t kMostEchoes = 36;    // in one beacon; roster.h echoes more hosts in turn
inline constexpr size_t kMostCables = 12;

enum class PacketKind : uint8_t {
    kHere = 1,    // once a second, and as an answer
    kAsks = 2,    // answer at once
    kLeaves = 3,  // this host ends
};

// A cable on which the sender receives another host's beacons.
struct Cable {
    uint64_t peer = 0;
    std::string interface, peer_interface;
    uint32_t mbps = 0;  // of the slower end; 0: unknown
    bool rdma = false;  // at both ends
    bool operator==(const Cable&) const = default;
};

struct DiscoveryPacket {
    PacketKind kind = PacketKind::kHere;
    uint64_t host = 0;      // random, per process
    uint64_t sequence = 0;  // grows with each beacon of the process
    uint64_t nonce = 0;     // of this interface
    uint16_t port = 0;      // TCP port of its worker; 0: the host only queries
    // An older program's beacon has neither commit nor protocol hash.
    cluster::Build build{};
    std::string name;
    std::string device;     // its device, in words
    std::string interface;  // the sending interface
    std::string rdma;       // the RDMA device of that interface; "": none
    uint32_t mbps = 0;      // of the interface; 0: unknown
    uint64_t memory_bytes = 0;
    std::vector<uint64_t> echoes;  // nonces that the sender heard on `interface`
    std::vector<Cable> cables;     // on all its interfaces
    bool operator==(const DiscoveryPacket&) const = default;
};

// key: content of the cluster's key file.
Sha256Digest PacketKey(View key);
// Strings and lists that are too long are cut.
Bytes EncodePacket(const Sha256Digest& key, const DiscoveryPacket& packet);
// Errors: kUnsupported (unknown format), kDenied (another key), kCorrupt.
Result<DiscoveryPacket> DecodePacket(const Sha256Digest& key, View bytes);

}  // namespace weft::fleet
