#include "cluster/gather_rounds.h"

#include <charconv>
#include <optional>

namespace weft::cluster {
namespace {

// First letters of heads and answers.
constexpr char kWhole = 'v', kSize = 's';
// Sizes of kMostRanks such values have a sum.
constexpr size_t kMostValue = size_t{1} << 48;

// nullopt: not a number of bytes that a value or all values can have.
std::optional<size_t> NumberIn(std::string_view text) {
    size_t number = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
    return number;
}

}  // namespace

std::string GatherRounds::HeadOf(std::string_view value) {
    if (IsLong(value)) return kSize + std::to_string(value.size());
    return kWhole + std::string(value);
}

Error GatherRounds::Malformed() const {
    return MakeError(ErrorCode::kCorrupt, "'{}': a rank sent a malformed value", name_);
}

Result<std::string> GatherRounds::Heads(const std::vector<std::string>& heads) {
    values_.clear();
    bytes_.clear();
    size_t all = 0;
    bool rest = false;
    for (const std::string& head : heads) {
        const std::string_view text =
            std::string_view(head).substr(std::min<size_t>(1, head.size()));
        const bool whole = head.starts_with(kWhole), is_long = head.starts_with(kSize);
        const auto number = is_long ? NumberIn(text) : std::optional(text.size());
        if ((!whole && !is_long) || !number || *number > kMostValue) return Malformed();
        values_.emplace_back(whole ? text : "");
        bytes_.push_back(*number);
        all += *number;  // (of at most kMostRanks values)
        rest = rest || is_long;
    }
    if (all > kMostGathered) return kSize + std::to_string(all);
    return rest ? std::string(kRestFollows) : kWhole + PackValues(values_);
}

Result<std::string> GatherRounds::Rests(const std::vector<std::string>& rests) {
    if (rests.size() != values_.size()) return Malformed();
    for (size_t rank = 0; rank < rests.size(); ++rank) {
        if (IsLong(rests[rank])) values_[rank] = rests[rank];
        if (values_[rank].size() != bytes_[rank]) return Malformed();
    }
    return kWhole + PackValues(values_);
}

Result<std::vector<std::string>> GatherRounds::ValuesOf(std::string_view answer,
                                                        size_t size) const {
    const std::string_view text = answer.substr(std::min<size_t>(1, answer.size()));
    if (const auto all = NumberIn(text); answer.starts_with(kSize) && all) {
        return MakeError(ErrorCode::kUnsupported,
                         "'{}': the values of all ranks have {} bytes; at most {} are possible",
                         name_, *all, kMostGathered);
    }
    if (!answer.starts_with(kWhole)) return Malformed();
    WEFT_ASSIGN(auto values, UnpackValues(text));
    if (values.size() == size) return values;
    return MakeError(ErrorCode::kCorrupt, "'{}': values of {} ranks, {} were expected", name_,
                     values.size(), size);
}

}  // namespace weft::cluster
