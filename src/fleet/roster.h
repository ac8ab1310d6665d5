// Roster: the hosts that this host has heard, by cable, and whether they are present now.
//
// A host is present once one of its beacons echoes a nonce that this process recently sent on the
// interface on which the beacon arrives. The echo proves that the host has the key, is alive, and
// receives this host's beacons. An old recorded beacon lacks this echo. A beacon that is sent again
// while its echo is still valid has a known sequence number, so it is rejected. All tables are
// bounded. If a sender's beacons can't be read (a stranger), the roster keeps only its address.
//
// A beacon has at most kMostEchoes echoes. If a host receives beacons of more hosts on an
// interface, it echoes them in turn, first those whose nonce it has not echoed for the longest
// time. So a host whose beacons arrive stays present for as many beacons as three turns of the
// sender take (EchoMs).
//
// The roster uses no socket and no clock (now_ns comes from the caller). Thread: one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fleet/discovery_packet.h"

namespace weft::fleet {

inline constexpr size_t kMostHosts = 512;
inline constexpr size_t kMostWaysOfHost = 16;
inline constexpr size_t kMostStrangers = 16;
inline constexpr int64_t kBeaconMs = 1000;  // between two beacons of a host
inline constexpr int64_t kLostMs = 3500;    // without a beacon
inline constexpr int64_t kAnswerMs = 250;   // a nonce that was echoed needs no answer for so long
inline constexpr int64_t kNonceMs = 8000;   // the previous nonce is valid, too
inline constexpr int64_t kKeptMs = 30'000;  // time to remember a silent host

// A cable from this host to another, as heard.
struct ReportedCable {
    std::string interface;       // on this host
    std::string peer_interface;  // on the other host
    std::string peer_address;    // link-local, without scope
    uint32_t peer_mbps = 0;
    std::string peer_rdma;
    bool operator==(const ReportedCable&) const = default;
};

struct Peer {
    uint64_t host = 0;
    std::string name;
    cluster::Build build{};
    std::string device;
    uint64_t memory_bytes = 0;
    uint16_t port = 0;
    std::vector<ReportedCable> heard;  // by interface
    std::vector<Cable> cables;         // as the host itself reports
    bool operator==(const Peer&) const = default;
};

// A sender whose beacons can't be read.
struct Stranger {
    std::string interface, address;
    bool other_key = false;  // false: another format
    int64_t last_ns = 0;
};

class Roster {
  public:
    explicit Roster(uint64_t self) : self_(self) {}

    // The nonce and the echoes of this host's next beacon on that interface.
    uint64_t NonceOf(const std::string& interface, int64_t now_ns);
    std::vector<uint64_t> EchoesOf(const std::string& interface, int64_t now_ns);
    // Hosts that this host heard on the interface before its last beacon, present or not.
    size_t CountOn(const std::string& interface) const;

    // Takes a beacon with a valid HMAC. Returns true if the beacon's sender queries, or may not
    // receive this host's beacons, and therefore needs an answer.
    bool Hear(const DiscoveryPacket& packet, const std::string& interface,
              const std::string& address, int64_t now_ns);
    // Notes a stranger and returns it. Returns null if the sender is already known, or there are
    // too many senders.
    const Stranger* HearStranger(const std::string& interface, const std::string& address,
                                 bool other_key, int64_t now_ns);
    void Forget(int64_t now_ns);  // drops old entries

    // Hosts that are present now and serve, sorted by name.
    std::vector<Peer> Peers(int64_t now_ns) const;
    // Whether a host was ignored lately because kMostHosts others are present.
    bool IsFull(int64_t now_ns) const;
    const std::vector<Stranger>& strangers() const { return strangers_; }

  private:
    struct Nonce {
        uint64_t now = 0, before = 0;
        int64_t made_ns = 0, before_made_ns = 0;
        size_t heard = 0;  // CountOn
    };
    struct Way {
        ReportedCable cable;
        uint64_t nonce = 0;  // the last one that it sent on this cable
        int64_t heard_ns = 0;
        int64_t good_ns = 0;    // time of the last echo; 0: never
        int64_t echoed_ns = 0;  // when this host last echoed it; 0: never
    };
    struct Host {
        DiscoveryPacket last;  // the last beacon with an echo
        bool left = false;
        std::vector<Way> ways;
        // The largest sequence number per interface of this host, from any address, because a
        // replay comes from another address.
        std::map<std::string, uint64_t> sequences;
    };
    Way* WayOf(Host& host, const std::string& interface, const std::string& address);
    Host* HostOf(uint64_t id, int64_t now_ns);
    int64_t EchoMs(const std::string& interface) const;
    bool IsFresh(const DiscoveryPacket& packet, const std::string& interface, int64_t now_ns) const;

    uint64_t self_;
    std::map<std::string, Nonce> nonces_;
    std::map<uint64_t, Host> hosts_;
    std::vector<Stranger> strangers_;
    int64_t full_ns_ = 0;
};

}  // namespace weft::fleet
