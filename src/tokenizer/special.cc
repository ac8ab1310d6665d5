#include "tokenizer/special.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace weft::tokenizer {
namespace {

uint8_t ByteAt(std::string_view text, size_t at) {
    return static_cast<uint8_t>(text[at]);
}

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
    return (begin > 0 && IsWordPoint(PointBefore(text, begin))) ||
           (end < text.size() && IsWordPoint(PointAt(text, end)));
}

}  // namespace

SpecialScanner::SpecialScanner(std::vector<Entry> entries) : entries_(std::move(entries)) {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.text < b.text; });
    first_.assign(257, entries_.size());
    for (size_t i = entries_.size(); i-- > 0;) first_[ByteAt(entries_[i].text, 0)] = i;
    for (size_t byte = 256; byte-- > 0;) first_[byte] = std::min(first_[byte], first_[byte + 1]);
}

SpecialScanner::Found SpecialScanner::Next(std::string_view text, size_t from, size_t floor) const {
    for (size_t at = from; at < text.size() && !entries_.empty(); ++at) {
        const uint8_t byte = ByteAt(text, at);
        if (first_[byte] == first_[byte + 1u]) continue;
        const Entry* entry = LongestAt(text, at);
        if (entry == nullptr) continue;
        size_t begin = at, end = at + entry->text.size();
        const size_t next = end;
        if (entry->single_word && TouchesWord(text, begin, end)) {
            at = end - 1;
            continue;
        }
        // White space before `floor` was taken by the previous token, so none is scanned twice.
        if (entry->takes_left) {
            const size_t free = std::max(floor, begin);
            begin = floor + SpacesBegin(text.substr(floor), free - floor);
        }
        if (entry->takes_right) end = SpacesEnd(text, std::max(end, floor));
        return {begin, end - begin, entry->id, next};
    }
    return {text.size(), 0, -1, text.size()};
}

size_t SpecialScanner::LengthAt(std::string_view text, size_t at) const {
    if (entries_.empty()) return 0;
    const Entry* entry = LongestAt(text, at);
    return entry == nullptr ? 0 : entry->text.size();
}

// Narrows the sorted entries byte by byte to those that match the text.
const SpecialScanner::Entry* SpecialScanner::LongestAt(std::string_view text, size_t at) const {
    const Entry* best = nullptr;
    auto begin = entries_.begin() + static_cast<ptrdiff_t>(first_[ByteAt(text, at)]);
    auto end = entries_.begin() + static_cast<ptrdiff_t>(first_[ByteAt(text, at) + 1u]);
    for (size_t depth = 1; begin != end; ++depth) {
        while (begin != end && begin->text.size() == depth) {  // sorts before all longer entries
            best = &*begin;
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

}  // namespace weft::tokenizer
