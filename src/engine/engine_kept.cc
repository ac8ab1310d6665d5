// Pages kept outside of the devices' memory (page_store/rank_pages.h): restores what the next
// prompts need. Each step saves what the step before it completed.
#include <algorithm>
#include <utility>

#include "engine/page_store/rank_pages.h"
#include "engine/rank/running_request.h"

namespace weft::engine {
namespace {

// Most bytes of rank 0's share of the pages that are restored between two steps, which delays the
// tokens of other sequences.
constexpr int64_t kRestoredBytes = int64_t{128} << 20;

class PagesOfRank final : public KeptPages {
  public:
    explicit PagesOfRank(RankPages& pages) : pages_(pages) {}
    int64_t Leading(std::span<const PageKey> keys) const override { return pages_.Leading(keys); }
    bool HasState(const PageKey& key) const override { return pages_.HasState(key); }

  private:
    RankPages& pages_;
};

}  // namespace

// Saves what no further step will save. Requires that no step is in flight.
Status Engine::KeepPages() {
    std::vector<KeyedPage> saves = scheduler_->TakeSaves();
    if (saves.empty()) return {};
    return rank().SavePages(++runner_->step().number, std::move(saves));
}

Status Engine::RestorePages() {
    if (rank().pages() == nullptr) return {};
    const PagesOfRank kept(*rank().pages());
    const int64_t each = std::max<int64_t>(1, rank().pages()->page_bytes());
    int64_t left = std::max<int64_t>(1, kRestoredBytes / each);
    RestorePlan plan;
    while (left > 0 && scheduler_->PlanRestore(kept, left, plan)) {
        left -= std::ssize(plan.pages);
        // The ranks of later stages answer when they have run the steps before.
        const int64_t id = plan.sequence->id;
        WEFT_TRY(CompleteAllSteps());
        if (!active_.contains(id)) plan.sequence = nullptr;
        WEFT_TRY(KeepPages());
        WEFT_ASSIGN(const int64_t count, rank().RestorePages(++runner_->step().number, plan.pages));
        scheduler_->EndRestore(plan, plan.sequence == nullptr ? 0 : count);
    }
    return {};
}

}  // namespace weft::engine
