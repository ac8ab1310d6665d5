// Beacons: what a host of a cluster says of itself on each of its cables, once a second, in one
// datagram to an IPv6 link-local multicast group.
//
//     "WFT1" | HMAC-SHA-256 of what follows | body
//
// The key of the MAC is HKDF-SHA-256 (RFC 5869) of the cluster's. The body's integers are
// little-endian, its strings a byte of length and their bytes; at most kMostBeacon bytes in all, so
// that every link carries it in one packet. Nothing of the body is looked at before the MAC.
//
// A beacon that was recorded proves nothing: it holds for who reads its own nonce among the echoes
// (roster.h). Each interface has a nonce of its own, so that a beacon of one cable, played back on
// another, shows no cable that isn't there.
//
// Pure: bytes in, bytes out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "cluster/build.h"

namespace weft::fleet {

using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;

inline constexpr const char* kDiscoveryGroup = "ff12::5745:4654";  // transient, of the link
inline constexpr uint16_t kDiscoveryPort = 7000;                   // UDP
inline constexpr size_t kMostPacket = 1232;  // of 1280, what every IPv6 link carries
inline constexpr size_t kMostEchoes = 16;
inline constexpr size_t kMostCables = 12;

enum class PacketKind : uint8_t {
    kHere = 1,    // once a second, and as an answer
    kAsks = 2,    // answer at once
    kLeaves = 3,  // this host ends
};

// A way between the sender and another host, as the sender hears it.
struct Cable {
    uint64_t peer = 0;
    std::string interface, peer_interface;
    uint32_t mbps = 0;  // of the slower end; 0: not known
    bool rdma = false;  // at both ends
    bool operator==(const Cable&) const = default;
};

struct DiscoveryPacket {
    PacketKind kind = PacketKind::kHere;
    uint64_t host = 0;      // made up when its process started
    uint64_t sequence = 0;  // grows with each beacon of the process
    uint64_t nonce = 0;     // of this interface
    uint16_t port = 0;      // of its worker (TCP); 0: it only asks
    // Of an older program: without commit and protocol hash.
    cluster::Build build{};
    std::string name;
    std::string device;     // what it computes on, in words
    std::string interface;  // by which this one left
    std::string rdma;       // the RDMA device of that interface; "": none
    uint32_t mbps = 0;      // of the interface; 0: not known
    uint64_t memory_bytes = 0;
    std::vector<uint64_t> echoes;  // nonces that it heard by this interface
    std::vector<Cable> cables;     // on all its interfaces
    bool operator==(const DiscoveryPacket&) const = default;
};

// key: the bytes of the cluster's key file.
Sha256Digest PacketKey(View key);
// Strings and lists that are too long are cut.
Bytes EncodePacket(const Sha256Digest& key, const DiscoveryPacket& packet);
// Errors: kUnsupported (another format, or none), kDenied (another key), kCorrupt.
Result<DiscoveryPacket> DecodePacket(const Sha256Digest& key, View bytes);

}  // namespace weft::fleet
