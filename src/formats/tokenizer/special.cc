#include "formats/tokenizer/special.h"

#include <algorithm>

namespace weft::formats {
namespace {

uint8_t ByteAt(std::string_view text, size_t at) {
    return static_cast<uint8_t>(text[at]);
}

}  // namespace

SpecialScanner::SpecialScanner(std::vector<Entry> entries) : entries_(std::move(entries)) {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.text < b.text; });
    first_.assign(257, entries_.size());
    for (size_t i = entries_.size(); i-- > 0;) first_[ByteAt(entries_[i].text, 0)] = i;
    for (size_t byte = 256; byte-- > 0;) first_[byte] = std::min(first_[byte], first_[byte + 1]);
}

SpecialScanner::Found SpecialScanner::Next(std::string_view text, size_t from) const {
    for (size_t at = from; at < text.size() && !entries_.empty(); ++at) {
        const uint8_t byte = ByteAt(text, at);
        if (first_[byte] == first_[byte + 1u]) continue;
        const Found found = LongestAt(text, at);
        if (found.id >= 0) return found;
    }
    return {text.size(), 0, -1};
}

// Walks down the sorted entries a byte at a time, keeping those that still agree with the text.
SpecialScanner::Found SpecialScanner::LongestAt(std::string_view text, size_t at) const {
    Found best{text.size(), 0, -1};
    auto begin = entries_.begin() + static_cast<ptrdiff_t>(first_[ByteAt(text, at)]);
    auto end = entries_.begin() + static_cast<ptrdiff_t>(first_[ByteAt(text, at) + 1u]);
    for (size_t depth = 1; begin != end; ++depth) {
        if (begin->text.size() == depth) {  // sorts before all that go on
            best = {at, depth, begin->id};
            ++begin;
        }
        if (at + depth >= text.size()) break;
        const uint8_t byte = ByteAt(text, at + depth);
        begin = std::lower_bound(begin, end, byte, [depth](const Entry& entry, uint8_t wanted) {
            return ByteAt(entry.text, depth) < wanted;
        });
        end = std::upper_bound(begin, end, byte, [depth](uint8_t wanted, const Entry& entry) {
            return wanted < ByteAt(entry.text, depth);
        });
    }
    return best;
}

}  // namespace weft::formats
