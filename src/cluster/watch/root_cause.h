// Finds the rank that causes a stall, from the waits in all ranks' heartbeats.
//
// A wait is an edge from the waiter to the rank whose data it needs. From any waiter, the edges
// lead to a rank that waits for no other rank and is stuck elsewhere, or into a cycle. In a cycle,
// one rank waits for data that was sent and lost, and each other rank waits for a rank that cannot
// continue. The rank that is furthest behind in the Program waits for the lost data.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace weft::cluster {

struct LongWait {
    int on = -1;  // the rank waited for; -1: none
    // Progress of the waiter: the step, the op in its program, the message in the op.
    int64_t step = 0;
    int64_t index = 0;
    int64_t place = 0;
    std::string op{};      // op's name in "op #index of step"; if step is -1, the whole text
    int64_t still_ms = 0;  // time since any part of the awaited data has arrived

    bool operator==(const LongWait&) const = default;
};

// Returns the rank whose wait is the root cause; LongWait::on of that wait is the rank that causes
// the stall. Precondition: rank `first` waits.
int RootWait(std::span<const LongWait> by_rank, int first);

}  // namespace weft::cluster
