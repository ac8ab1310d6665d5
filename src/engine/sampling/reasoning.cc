#include "engine/sampling/reasoning.h"

#include <algorithm>

namespace weft::engine {
namespace {

// Tokens of one byte that a code point takes at most, after its first.
constexpr int64_t kMostBytes = 3;

}  // namespace

ReasoningTrack::ReasoningTrack(const Reasoning& asked) : asked_(asked) {
    const bool may = !asked_.end.empty() && (!asked_.begin.empty() || asked_.begun);
    place_ = !may ? Place::kAfter : asked_.begun ? Place::kInside : Place::kBefore;
}

int32_t ReasoningTrack::Forced() const {
    if (closing()) return asked_.closing[closed_ - 1];
    const bool spent = asked_.budget >= 0 && tokens_ >= asked_.budget && closed_ == 0;
    if (place_ != Place::kInside || !spent || asked_.closing.empty()) return -1;
    if (!whole_ && tokens_ < asked_.budget + kMostBytes) return -1;
    return asked_.closing[0];
}

bool ReasoningTrack::MayForce(int64_t tokens) const {
    if (closing()) return true;
    if (place_ == Place::kAfter || asked_.budget < 0 || asked_.closing.empty()) return false;
    return (place_ == Place::kInside ? tokens_ : 0) + tokens > asked_.budget;
}

bool ReasoningTrack::Close() {
    if (place_ != Place::kInside || closed_ > 0 || asked_.closing.empty()) return false;
    closed_ = 1;
    return true;
}

void ReasoningTrack::Take(int32_t token, std::string_view text, bool constrained) {
    if (place_ == Place::kAfter && !closing()) return;
    if (const int32_t forced = Forced(); forced >= 0 && forced == token) {
        closed_ = std::max<size_t>(closed_, 1) + 1;
        if (closed_ > asked_.closing.size()) place_ = Place::kAfter;
    }
    ++tokens_;
    whole_ = !text.empty();
    if (place_ == Place::kBefore && constrained) place_ = Place::kAfter;
    if (place_ == Place::kBefore && token == asked_.opening) {
        place_ = Place::kInside;
        tokens_ = 0;
    }
    if (!asked_.head_tokens.empty()) return SearchHeads(token, text);
    const bool ends = asked_.end_token < 0 || token == asked_.end_token;
    if (place_ != Place::kAfter) Search(text, ends);
}

// (Only tokens are markers: a thought may quote a whole head as text.)
void ReasoningTrack::SearchHeads(int32_t token, std::string_view text) {
    const bool begins = std::ranges::find(asked_.head_tokens, token) != asked_.head_tokens.end();
    if (begins) tail_.clear();
    in_head_ = in_head_ || begins;
    if (in_head_) tail_ += text;
    if (token != asked_.end_token) return;
    if (tail_.find(asked_.end) != tail_.npos) place_ = Place::kAfter;
    in_head_ = false;
    tail_.clear();
}

// ends: the text may end with asked_.end.
void ReasoningTrack::Search(std::string_view text, bool ends) {
    tail_ += text;
    if (place_ == Place::kBefore) {
        const size_t at = tail_.find_first_not_of(" \t\r\n");
        const std::string_view words = std::string_view(tail_).substr(std::min(at, tail_.size()));
        if (words.starts_with(asked_.begin)) {
            place_ = Place::kInside;
            tokens_ = 0;
            tail_.erase(0, tail_.size() - words.size() + asked_.begin.size());
        } else {
            if (!asked_.begin.starts_with(words)) place_ = Place::kAfter;
            return;
        }
    }
    if (!end_seen_) {
        const size_t at = ends ? tail_.find(asked_.end) : tail_.npos;
        end_seen_ = at != tail_.npos;
        const size_t kept = std::min(tail_.size(), asked_.end.size());
        tail_.erase(0, end_seen_ ? at + asked_.end.size() : tail_.size() - kept);
    }
    if (!end_seen_ || tail_.find(asked_.end_rest) == tail_.npos) return;
    place_ = Place::kAfter;
    tail_.clear();
}

}  // namespace weft::engine
