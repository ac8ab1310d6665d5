#include "cli/cluster/sizes.h"

#include <charconv>
#include <string_view>

namespace weft::cli {
namespace {

constexpr size_t kMostSizes = 256;

Error NoSize(std::string_view word) {
    return MakeError(
        ErrorCode::kUsage,
        "--sizes: '{}' is not a size; expected a size such as 64, 8K, 1M, or a range 64:1M:x4",
        word);
}

Result<int64_t> ParseNumber(std::string_view word, std::string_view whole) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const std::string_view rest(end, static_cast<size_t>(word.data() + word.size() - end));
    constexpr std::string_view kUnits = "KkMmGg";
    const size_t unit = rest.size() == 1 ? kUnits.find(rest[0]) : kUnits.npos;
    const bool known = rest.empty() || unit != kUnits.npos;
    if (!known || error != std::errc() || value < 0 || value > (int64_t{1} << 32)) {
        return NoSize(whole);
    }
    return rest.empty() ? value : value << (unit / 2 * 10 + 10);
}

// BEGIN:END[:xFACTOR | :+STEP]
Status AddRange(std::string_view word, size_t colon, std::vector<int64_t>& sizes) {
    std::string_view last = word.substr(colon + 1), step = "x2";
    if (const size_t second = last.find(':'); second != std::string_view::npos) {
        step = last.substr(second + 1);
        last = last.substr(0, second);
    }
    WEFT_ASSIGN(const int64_t begin, ParseNumber(word.substr(0, colon), word));
    WEFT_ASSIGN(const int64_t end, ParseNumber(last, word));
    const bool times = step.starts_with('x');
    if (step.size() < 2 || (!times && !step.starts_with('+'))) return NoSize(word);
    WEFT_ASSIGN(const int64_t by, ParseNumber(step.substr(1), word));
    if (begin < 1 || end < begin || by < (times ? 2 : 1)) return NoSize(word);
    for (int64_t size = begin; size <= end; size = times ? size * by : size + by) {
        sizes.push_back(size);
        if (sizes.size() > kMostSizes || size > end / (times ? by : 1)) break;
    }
    return {};
}

}  // namespace

Result<std::vector<int64_t>> ParseSizes(const std::string& text, int64_t least, int64_t most) {
    std::vector<int64_t> sizes;
    for (std::string_view rest = text; !rest.empty();) {
        const size_t comma = std::min(rest.find(','), rest.size());
        const std::string_view word = rest.substr(0, comma);
        rest.remove_prefix(std::min(comma + 1, rest.size()));
        if (const size_t colon = word.find(':'); colon != std::string_view::npos) {
            WEFT_TRY(AddRange(word, colon, sizes));
        } else {
            WEFT_ASSIGN(const int64_t size, ParseNumber(word, word));
            sizes.push_back(size);
        }
        if (sizes.size() > kMostSizes) {
            return MakeError(ErrorCode::kUsage, "--sizes: more than {} sizes", kMostSizes);
        }
    }
    if (sizes.empty()) return NoSize(text);
    for (int64_t size : sizes) {
        if (size >= least && size <= most) continue;
        return MakeError(ErrorCode::kUsage, "--sizes: {} bytes; expected {} to {}", size, least,
                         most);
    }
    return sizes;
}

}  // namespace weft::cli
