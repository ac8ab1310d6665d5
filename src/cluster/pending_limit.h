// Limits the callers that have not proved the key: chooses the caller to drop when another one
// arrives.
//
// It drops a caller from the network with the most unproved callers, so a crowd from one network
// cannot block others. A network is an IPv4 address, or an IPv6 /64, which belongs to one customer.
// Among these callers (or all, if the largest networks are equal) it prefers one that has sent
// nothing, at random. It does not choose the oldest: a fast crowd would then block every caller
// that needs a moment to answer.
#pragma once

#include <cstddef>
#include <random>
#include <span>
#include <string>

namespace weft::cluster {

// Most callers accepted per turn; few, so that a caller that sends at once is read before it may be
// dropped.
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
