// Who is to blame when nobody moves: from what every rank waits for, as its heartbeats tell.
//
// A wait is an arrow from the waiter to the rank whose data it needs. From any waiter the arrows
// lead to a rank that waits for nobody, which then is stuck in something else; or into a circle.
// In a circle somebody waits for what was sent but never came, and everybody else for somebody who
// could not go on: the one that is furthest behind in the program is the one whose data is missing.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace weft::cluster {

struct LongWait {
    int on = -1;  // the rank waited for; -1: waits for nobody
    // How far the waiter has got: the step, the op in its program, the message in the op.
    int64_t step = 0;
    int64_t index = 0;
    int64_t place = 0;
    std::string op{};      // as in "op #index of step"; with a step of -1 it says all
    int64_t still_ms = 0;  // for so long nothing has come that it waits for, not even in part

    bool operator==(const LongWait&) const = default;
};

// The rank whose wait says what is wrong: that wait's `on` is to blame. `first` waits for somebody.
int RootWait(std::span<const LongWait> by_rank, int first);

}  // namespace weft::cluster
