// Pages kept outside of the devices' memory (page_store/rank_pages.h): restores pages that the next
// prompts need. Each step saves pages that the previous step completed.
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

// ---- Slots --------------------------------------------------------------------------------------

// The keys alternate. nullopt: no request waits for a slot.
std::optional<SlotRequest> Engine::NextSlot() {
    while (!slots_.empty()) {
        auto of_key = slots_.upper_bound(slot_key_);
        if (of_key == slots_.end()) of_key = slots_.begin();
        SlotRequest request = std::move(of_key->second.front());
        of_key->second.pop_front();
        if (of_key->second.empty()) slots_.erase(of_key);
        if (!request.gone || !request.gone()) return request;
        request.done(MakeError(ErrorCode::kCancelled, "the client has disconnected"));
    }
    return {};
}

// Saves or restores one slot at most. While sequences run, slots take at most half of the time.
Status Engine::RunSlots() {
    if (slots_.empty() || (!active_.empty() && NowNs() < slot_ns_)) return {};
    const std::optional<SlotRequest> request = NextSlot();
    if (!request) return {};
    slot_key_ = request->key;
    const int64_t begin_ns = NowNs();
    Status fault;
    const auto done = RunSlot(*request, fault);
    slot_ns_ = NowNs() + (NowNs() - begin_ns);
    request->done(done);
    return fault;
}

void Engine::EndSlots(const Error& error) {
    for (const auto& [key, requests] : std::exchange(slots_, {})) {
        for (const SlotRequest& request : requests) request.done(error);
    }
}

// fault: an error that ends the step, besides the error of the request.
Result<SlotRequest::Done> Engine::RunSlot(const SlotRequest& request, Status& fault) {
    if (rank().pages() == nullptr || !rank().pages()->has_slots()) {
        return MakeError(ErrorCode::kUnsupported, "the server has no --slot-save-path");
    }
    const int64_t begin_ns = NowNs();
    SlotRequest::Done done;
    const auto result = request.restores ? LoadSlot(request, done) : SaveSlot(request, done);
    if (!result.ok()) {
        fault = result.error();
        return result.error();
    }
    if (result->error) return *result->error;
    done.bytes = result->bytes;
    done.seconds = Seconds(begin_ns, NowNs());
    return done;
}

Result<Rank::SlotResult> Engine::SaveSlot(const SlotRequest& request, SlotRequest::Done& done) {
    WEFT_TRY(CompleteAllSteps());
    WEFT_TRY(KeepPages());
    const std::vector<KeyedPage> held =
        scheduler_->HoldCached({request.tenant, request.adapter}, request.tokens);
    auto result = rank().SaveSlot(++runner_->step().number, request.file, request.tokens,
                                  request.adapter, held);
    scheduler_->Release(held);
    done.pages_tokens =
        std::ranges::count(held, false, &KeyedPage::is_state) * rank().page_tokens();
    return result;
}

Result<Rank::SlotResult> Engine::LoadSlot(const SlotRequest& request, SlotRequest::Done& done) {
    auto head = rank().ReadSlot(request.file);
    if (!head.ok()) return Rank::SlotResult{0, head.error()};
    done.tokens = std::move(head->tokens);
    done.adapter = static_cast<int32_t>(head->adapter);
    done.pages_tokens = head->pages * rank().page_tokens();
    WEFT_TRY(CompleteAllSteps());
    WEFT_TRY(KeepPages());
    return rank().LoadSlot(++runner_->step().number, request.file, *head,
                           scheduler_->KeysOf({request.tenant, done.adapter}, done.tokens,
                                              head->pages, head->state_bytes > 0));
}

}  // namespace weft::engine
