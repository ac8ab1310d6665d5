#include "cluster/watch/root_cause.h"

#include <tuple>
#include <vector>

#include "base/check.h"

namespace weft::cluster {
namespace {

bool IsBehind(const LongWait& a, const LongWait& b) {
    return std::tie(a.step, a.index, a.place) < std::tie(b.step, b.index, b.place);
}

}  // namespace

int RootWait(std::span<const LongWait> by_rank, int first) {
    const int ranks = static_cast<int>(by_rank.size());
    const auto wait = [&](int rank) -> const LongWait& {
        return by_rank[static_cast<size_t>(rank)];
    };
    WEFT_CHECK(first >= 0 && first < ranks && wait(first).on >= 0);
    std::vector<bool> seen(by_rank.size());
    int at = first;
    for (;;) {
        seen[static_cast<size_t>(at)] = true;
        const int next = wait(at).on;
        if (next >= ranks || wait(next).on < 0) return at;
        at = next;
        if (seen[static_cast<size_t>(at)]) break;
    }
    // `at` is in the cycle.
    int worst = at;
    for (int other = wait(at).on; other != at; other = wait(other).on) {
        if (IsBehind(wait(other), wait(worst))) worst = other;
    }
    return worst;
}

}  // namespace weft::cluster
