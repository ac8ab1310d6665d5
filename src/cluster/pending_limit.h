// Limits the callers that have not proved that they have the shared key: chooses the caller to drop
// when another one arrives.
//
// It drops a caller from the network with the most unproved callers, so a crowd from one network
// cannot block others. A network is an IPv4 address, or an IPv6 /64, which belongs to one customer.
// Among the callers of that network (of all such networks if several are largest) it picks one at
// random, preferring those that have sent nothing. It does not choose the oldest: a fast crowd
// would then block every caller that needs a moment to answer.
#pragma once

#include <cstddef>
#include <random>
#include <span>
#include <string>

namespace weft::cluster {

// Most callers accepted at a time. A small number, so that a caller that sends its hello at once is
// read before it may be dropped.
constexpr int kCallersATurn = 8;

struct Unproved {
    std::string from;    // "10.0.0.1:7000", "[fd00::1]:7000"
    bool spoke = false;  // sent a valid hello
};

// "10.0.0.1", or "fd00:0:0:0" (four groups).
std::string NetworkOf(const std::string& from);
// Index of the caller to drop. callers: not empty.
size_t PickEvictee(std::span<const Unproved> callers, std::minstd_rand& dice);

}  // namespace weft::cluster
