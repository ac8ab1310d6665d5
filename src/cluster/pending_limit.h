// Callers that have not proved the key, of whom a bounded number is kept: who goes when one more
// comes.
//
// One of the network that has most of them, so that a crowd of one keeps nobody else out: an IPv4
// address, or a /64 of IPv6, which is one customer's. Among those, and where crowds are of one size
// among all of these, one that has said nothing; else any. Never the oldest: a crowd that comes
// fast enough would keep out everybody who needs a moment to answer.
#pragma once

#include <cstddef>
#include <random>
#include <span>
#include <string>

namespace weft::cluster {

// Accepted in one turn; fewer, so that who talks at once is heard before it is dropped.
constexpr int kCallersATurn = 8;

struct Unproved {
    std::string from;    // "10.0.0.1:7000", "[fd00::1]:7000"
    bool spoke = false;  // a greeting that makes sense
};

// "10.0.0.1", or "fd00:0:0:0" of four groups.
std::string NetworkOf(const std::string& from);
// The place of the one to drop. callers: not empty.
size_t PickEvictee(std::span<const Unproved> callers, std::minstd_rand& dice);

}  // namespace weft::cluster
