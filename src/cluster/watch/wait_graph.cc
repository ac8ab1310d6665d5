#include "cluster/watch/wait_graph.h"

#include <algorithm>

#include "base/check.h"
#include "net/link.h"

namespace weft::cluster {
namespace {

class Waits {
  public:
    Waits(std::span<const RankWaits> by_rank, int64_t least_ms)
        : by_rank_(by_rank), least_ms_(least_ms), stuck_(by_rank.size(), true) {
        bool changed = true;
        while (changed) {
            changed = false;
            for (size_t rank = 0; rank < by_rank_.size(); ++rank) {
                if (!stuck_[rank] || IsStuck(by_rank_[rank])) continue;
                stuck_[rank] = false;
                changed = true;
            }
        }
    }

    std::vector<int> Ranks() const {
        std::vector<int> ranks;
        for (size_t rank = 0; rank < stuck_.size(); ++rank) {
            if (stuck_[rank]) ranks.push_back(static_cast<int>(rank));
        }
        return ranks;
    }

  private:
    bool OnStuck(const LongWait& wait) const {
        return wait.on >= 0 && static_cast<size_t>(wait.on) < stuck_.size() &&
               stuck_[static_cast<size_t>(wait.on)] && wait.still_ms >= least_ms_;
    }
    // A rank that needs all of its waits is stuck if one of them never ends. A rank that needs any
    // of them is stuck if none of them ends.
    bool IsStuck(const RankWaits& rank_waits) const {
        const auto on_stuck = [this](const LongWait& wait) { return OnStuck(wait); };
        if (std::ranges::any_of(rank_waits.waits, on_stuck)) return true;
        return rank_waits.awaits_own && rank_waits.waits.empty() && !rank_waits.beside.empty() &&
               std::ranges::all_of(rank_waits.beside, on_stuck);
    }

    std::span<const RankWaits> by_rank_;
    const int64_t least_ms_;
    std::vector<bool> stuck_;
};

}  // namespace

std::vector<int> FindDeadlock(std::span<const RankWaits> by_rank, int64_t least_ms) {
    return Waits(by_rank, least_ms).Ranks();
}

std::vector<CycleWait> CycleOf(std::span<const RankWaits> by_rank, std::span<const int> stuck) {
    WEFT_CHECK(!stuck.empty());
    std::vector<CycleWait> path;
    const auto place_of = [&](int rank) {
        return std::ranges::find(path, rank, &CycleWait::rank) - path.begin();
    };
    int rank = stuck.front();
    while (place_of(rank) == std::ssize(path)) {
        const RankWaits& rank_waits = by_rank[static_cast<size_t>(rank)];
        const auto& waits = rank_waits.waits.empty() ? rank_waits.beside : rank_waits.waits;
        const LongWait* longest = nullptr;
        for (const LongWait& wait : waits) {
            const bool leads_on = std::ranges::find(stuck, wait.on) != stuck.end();
            const bool longer = longest == nullptr || wait.still_ms > longest->still_ms;
            if (leads_on && longer) longest = &wait;
        }
        WEFT_CHECK(longest != nullptr);
        path.push_back({rank, *longest});
        rank = longest->on;
    }
    path.erase(path.begin(), path.begin() + place_of(rank));
    std::rotate(path.begin(), std::ranges::min_element(path, {}, &CycleWait::rank), path.end());
    return path;
}

std::string OpOf(const LongWait& wait) {
    if (wait.step < 0) return wait.op;
    return net::OpTag{wait.op.c_str(), wait.index, wait.step, wait.place}.Text();
}

}  // namespace weft::cluster
