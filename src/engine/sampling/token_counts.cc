#include "engine/sampling/token_counts.h"

#include <algorithm>

namespace weft::engine {

void TokenCounts::Set(std::span<const int32_t> text, size_t begin) {
    const std::span<const int32_t> wanted = text.subspan(std::min(begin, text.size()));
    const size_t had = text_.size() - head_;
    // The tokens before `begin` leave. (All leave if the two parts do not meet.)
    const size_t leave = begin < begin_ || begin - begin_ > had ? had : begin - begin_;
    for (size_t i = 0; i < leave; ++i) Remove(text_[head_ + i]);
    head_ += leave;
    begin_ = begin;
    if (2 * head_ > text_.size()) {
        text_.erase(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(head_));
        head_ = 0;
    }
    const auto counted = std::span<const int32_t>(text_).subspan(head_);
    size_t same = std::min(counted.size(), wanted.size());
    if (!std::ranges::equal(counted.first(same), wanted.first(same))) {
        same = static_cast<size_t>(std::ranges::mismatch(counted, wanted).in1 - counted.begin());
    }
    for (const int32_t id : counted.subspan(same)) Remove(id);
    text_.resize(head_ + same);
    for (const int32_t id : wanted.subspan(same)) Add(id);
    text_.insert(text_.end(), wanted.begin() + static_cast<ptrdiff_t>(same), wanted.end());
}

void TokenCounts::Add(int32_t id) {
    ++changes_;
    const auto [at, is_new] = places_.try_emplace(id, entries_.size());
    if (is_new) entries_.push_back({id, 0});
    ++entries_[at->second].times;
}

void TokenCounts::Remove(int32_t id) {
    ++changes_;
    const auto at = places_.find(id);
    const size_t place = at->second;
    if (--entries_[place].times > 0) return;
    entries_[place] = entries_.back();
    places_[entries_[place].id] = place;
    places_.erase(id);
    entries_.pop_back();
}

}  // namespace weft::engine
