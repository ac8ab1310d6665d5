// State of a job's ranks, which rank 0 derives from connections, heartbeats and exits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::cluster {

enum class MemberState {
    kUp,
    kLost,       // ended, or silent for too long
    kRejoining,  // a new process replaces it, and is not ready yet
};

struct Member {
    int rank = 0;
    std::string host{};
    MemberState state = MemberState::kUp;
    int64_t since_s = 0;  // Unix time at which the state began
    std::string why{};    // how the rank was lost; "": it is up
    int64_t epoch = 0;    // in Membership::departed: the rank's last epoch
};

struct Membership {
    std::vector<Member> ranks{};     // by number, including rank 0
    std::vector<Member> departed{};  // lost ranks that were not replaced, by old numbers
};

}  // namespace weft::cluster
