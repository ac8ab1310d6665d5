#include "chat/text.h"

#include <algorithm>
#include <utility>

namespace weft::chat {
namespace {

// The first range that ends after `at`.
auto FirstAfter(const std::vector<TextRange>& ranges, size_t at) {
    return std::upper_bound(ranges.begin(), ranges.end(), at,
                            [](size_t value, const TextRange& range) { return value < range.end; });
}

}  // namespace

Text::Text(std::string bytes, bool given) : bytes_(std::move(bytes)) {
    if (given) AddGiven(0, bytes_.size());
}

bool Text::GivenAt(size_t at) const {
    const auto range = FirstAfter(given_, at);
    return range != given_.end() && range->begin <= at;
}

void Text::AddGiven(size_t begin, size_t end) {
    if (begin == end) return;
    if (!given_.empty() && given_.back().end == begin) {
        given_.back().end = end;
    } else {
        given_.push_back({begin, end});
    }
}

void Text::Append(std::string_view bytes, bool given) {
    const size_t begin = bytes_.size();
    bytes_ += bytes;
    if (given) AddGiven(begin, bytes_.size());
}

void Text::Append(const Text& other) {
    AppendCut(other, 0, other.size());
}

void Text::AppendCut(const Text& other, size_t begin, size_t end) {
    const size_t base = bytes_.size();
    bytes_.append(other.bytes_, begin, end - begin);
    for (auto range = FirstAfter(other.given_, begin);
         range != other.given_.end() && range->begin < end; ++range) {
        AddGiven(base + std::max(range->begin, begin) - begin,
                 base + std::min(range->end, end) - begin);
    }
}

Text Text::Cut(size_t begin, size_t end) const {
    Text part;
    part.AppendCut(*this, begin, end);
    return part;
}

}  // namespace weft::chat
