// How the ranks of a job are, as rank 0 knows it from their connections, heartbeats and ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::cluster {

enum class MemberState {
    kUp,
    kLost,       // gone, or silent for too long
    kRejoining,  // another process has its place, and is not ready yet
};

struct Member {
    int rank = 0;
    std::string host{};
    MemberState state = MemberState::kUp;
    int64_t since_s = 0;  // Unix time: when the state began
    std::string why{};    // how the rank was lost; "": it is up
    int64_t epoch = 0;    // Membership::departed: the last one that it was part of
};

struct Membership {
    std::vector<Member> ranks{};     // by number, rank 0 as well
    std::vector<Member> departed{};  // lost ones that the others go on without, by old numbers
};

}  // namespace weft::cluster
