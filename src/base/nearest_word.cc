#include "base/nearest_word.h"

#include <algorithm>
#include <vector>

namespace weft {
namespace {

constexpr size_t kMostCharacters = 80;  // a longer one is not a misspelled word
constexpr size_t kLeastBeginning = 3;

char LowerLetter(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool Same(char a, char b) {
    return LowerLetter(a) == LowerLetter(b);
}

size_t CommonPrefix(std::string_view a, std::string_view b) {
    size_t n = 0;
    while (n < std::min(a.size(), b.size()) && Same(a[n], b[n])) ++n;
    return n;
}

}  // namespace

// Rows are prefixes of `a`, columns prefixes of `b`.
size_t EditDistance(std::string_view a, std::string_view b) {
    std::vector<size_t> two(b.size() + 1), one(b.size() + 1), row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) one[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t changed = one[j - 1] + (Same(a[i - 1], b[j - 1]) ? 0 : 1);
            row[j] = std::min({one[j] + 1, row[j - 1] + 1, changed});
            const bool swapped =
                i > 1 && j > 1 && Same(a[i - 1], b[j - 2]) && Same(a[i - 2], b[j - 1]);
            if (swapped) row[j] = std::min(row[j], two[j - 2] + 1);
        }
        two.swap(one);
        one.swap(row);
    }
    return one[b.size()];
}

std::string NearestWord(std::string_view word, std::span<const std::string> words) {
    if (word.size() < 2 || word.size() > kMostCharacters) return {};
    const size_t most = std::max<size_t>(1, word.size() / 3);
    std::string nearest;
    size_t least = most + 1, prefix = 0;
    for (const std::string& other : words) {
        if (other.size() < 2 || other.size() > kMostCharacters) continue;
        const size_t distance = EditDistance(word, other), common = CommonPrefix(word, other);
        if (distance > least || (distance == least && common <= prefix)) continue;
        if (distance > most) continue;
        nearest = other;
        least = distance;
        prefix = common;
    }
    if (!nearest.empty() || word.size() < kLeastBeginning) return nearest;
    for (const std::string& other : words) {
        const bool begins = CommonPrefix(word, other) == word.size();
        if (begins && (nearest.empty() || other.size() < nearest.size())) nearest = other;
    }
    return nearest;
}

std::string DidYouMean(std::string_view word, std::span<const std::string> words) {
    const std::string nearest = NearestWord(word, words);
    return nearest.empty() ? std::string() : " Did you mean '" + nearest + "'?";
}

}  // namespace weft
