#include "engine/drafts/drafting.h"

#include <algorithm>

#include "model_files/draft_source.h"

namespace weft::engine {
namespace {

// A lookup costs nothing, and an answer that repeats a text repeats it for long.
constexpr int64_t kLookupTokens = 16;
constexpr int64_t kModelTokens = 8;
// A head is trained for the first token; on its own states it becomes worse with each token.
constexpr int64_t kHeadTokens = 4;
// Cost of one more row relative to a step of one row, before such a step was measured. Small, so
// that the first drafts are tried.
constexpr double kDraftRowShare = 0.1;
// Weight of a new measurement, and the limit on it relative to the previous estimate, so that a
// disturbance is soon forgotten.
constexpr double kNewShare = 0.2;
constexpr double kMostTimes = 2;

}  // namespace

int64_t DraftOptions::most() const {
    if (at_once > 0) return tokens > 0 ? std::min(tokens, at_once) : at_once;
    if (tokens > 0) return tokens;
    return lookup ? kLookupTokens : head() ? kHeadTokens : kModelTokens;
}

DraftOptions DraftOptions::Resolved() const {
    DraftOptions resolved = *this;
    resolved.separate_head =
        !model.empty() && model != kDraftHead && model_files::IsDraftHead(model);
    resolved.at_once = resolved.separate_head ? model_files::DraftsAtOnce(model) : 0;
    return resolved;
}

Status CheckDraft(const DraftOptions& o) {
    if (o.lookup && !o.model.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--draft and --prompt-lookup exclude each other: draft tokens come either "
                         "from a draft model or from the text so far");
    }
    if (!o.on() && (o.tokens != 0 || o.always)) {
        return MakeError(ErrorCode::kUsage, "{} needs --draft MODEL or --prompt-lookup",
                         o.tokens != 0 ? "--draft-tokens" : "--draft-always");
    }
    if (o.tokens < 0 || o.tokens > kMostDraftTokens) {
        return MakeError(ErrorCode::kUsage, "--draft-tokens {}: expected 1 to {}", o.tokens,
                         kMostDraftTokens);
    }
    return {};
}

void StepCosts::Learn(int64_t rows, double seconds) {
    const auto at = std::ranges::lower_bound(seen_, rows, {}, &Seen::rows);
    if (at == seen_.end() || at->rows != rows) {
        seen_.insert(at, {rows, seconds});
        return;
    }
    const double counted = std::min(seconds, kMostTimes * at->seconds);
    at->seconds += kNewShare * (counted - at->seconds);
}

double StepCosts::Of(int64_t rows) const {
    if (seen_.empty()) return 0;
    const auto above = std::ranges::lower_bound(seen_, rows, {}, &Seen::rows);
    if (above != seen_.end() && above->rows == rows) return above->seconds;
    const auto assumed = [](int64_t r) { return 1 + kDraftRowShare * static_cast<double>(r - 1); };
    if (above == seen_.begin()) return above->seconds * assumed(rows) / assumed(above->rows);
    const Seen& low = *(above - 1);
    if (above != seen_.end()) {
        const double part =
            static_cast<double>(rows - low.rows) / static_cast<double>(above->rows - low.rows);
        return low.seconds + part * (above->seconds - low.seconds);
    }
    // Beyond the last measured count: extends the line through the last two, with at least a small
    // slope.
    double slope = kDraftRowShare * seen_.front().seconds / static_cast<double>(seen_.front().rows);
    if (seen_.size() > 1) {
        const Seen& before = *(above - 2);
        const double last =
            (low.seconds - before.seconds) / static_cast<double>(low.rows - before.rows);
        slope = std::max(slope, last);
    }
    return low.seconds + slope * static_cast<double>(rows - low.rows);
}

}  // namespace weft::engine
