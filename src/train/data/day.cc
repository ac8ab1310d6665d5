#include "train/data/day.h"

#include <array>
#include <ctime>

namespace weft::train {

std::string Today() {
    const time_t now = std::time(nullptr);
    tm parts{};
    std::array<char, 16> text{};
    if (localtime_r(&now, &parts) == nullptr) return "";
    return {text.data(), strftime(text.data(), text.size(), "%Y-%m-%d", &parts)};
}

Result<int64_t> NoonOf(const std::string& day) {
    if (day.empty()) return 1;
    tm parts{};
    const char* end = day.size() == 10 ? strptime(day.c_str(), "%Y-%m-%d", &parts) : nullptr;
    const int month_day = parts.tm_mday;
    parts.tm_hour = 12;
    parts.tm_isdst = -1;
    if (end != day.c_str() + day.size() || parts.tm_year < 71 || mktime(&parts) <= 1 ||
        parts.tm_mday != month_day) {
        return MakeError(ErrorCode::kCorrupt, "'{}' is not a day; expected one such as 2026-11-29",
                         day.substr(0, 32));
    }
    return mktime(&parts);
}

}  // namespace weft::train
