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

Text::Text(std::string bytes, uint32_t source) : bytes_(std::move(bytes)) {
    AddGiven({0, bytes_.size(), source});
}

uint32_t Text::SourceAt(size_t at) const {
    const auto range = FirstAfter(given_, at);
    return range != given_.end() && range->begin <= at ? range->source : 0;
}

void Text::AddGiven(const TextRange& range) {
    if (range.source == 0 || range.begin == range.end) return;
    const bool joins =
        !given_.empty() && given_.back().end == range.begin && given_.back().source == range.source;
    if (joins) {
        given_.back().end = range.end;
    } else {
        given_.push_back(range);
    }
}

void Text::Append(std::string_view bytes, uint32_t source) {
    const size_t begin = bytes_.size();
    bytes_ += bytes;
    AddGiven({begin, bytes_.size(), source});
}

void Text::Append(const Text& other) {
    AppendCut(other, 0, other.size());
}

void Text::AppendCut(const Text& other, size_t begin, size_t end) {
    const size_t base = bytes_.size();
    bytes_.append(other.bytes_, begin, end - begin);
    for (auto range = FirstAfter(other.given_, begin);
         range != other.given_.end() && range->begin < end; ++range) {
        AddGiven({base + std::max(range->begin, begin) - begin,
                  base + std::min(range->end, end) - begin, range->source});
    }
}

Text Text::Cut(size_t begin, size_t end) const {
    Text part;
    part.AppendCut(*this, begin, end);
    return part;
}

}  // namespace weft::chat
