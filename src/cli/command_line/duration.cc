#include "cli/command_line/duration.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string_view>

namespace weft::cli {
namespace {

// Returns the number at the front of `text` and removes it. Returns -1 if `text` begins otherwise.
double TakeNumber(std::string_view& text) {
    double number = -1;
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, number, std::chars_format::fixed);
    if (parsed.ec != std::errc() || !(number >= 0)) return -1;
    text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
    return number;
}

// "4:00:00", "1:4:00:00", "1-4", "1-4:00": with '-', hours follow the days, as in Slurm; else the
// last part is seconds. -1: wrong.
double ClockSeconds(std::string_view text) {
    constexpr double kSeconds[] = {86400, 3600, 60, 1};
    const auto colons = static_cast<size_t>(std::ranges::count(text, ':'));
    const bool has_days = text.find('-') != text.npos;
    if (colons > (has_days ? 2 : 3)) return -1;
    double seconds = 0;
    for (size_t part = has_days ? 0 : 3 - colons;; ++part) {
        const double number = TakeNumber(text);
        if (number < 0) return -1;
        seconds += number * kSeconds[part];
        if (text.empty()) return part == 0 ? -1 : seconds;
        if (text[0] != (has_days && part == 0 ? '-' : ':')) return -1;
        text.remove_prefix(1);
    }
}

// "1h30m", "90". -1: wrong.
double UnitSeconds(std::string_view text) {
    double seconds = 0;
    for (int parts = 0; !text.empty(); ++parts) {
        const double number = TakeNumber(text);
        if (number < 0 || parts > 3 || (text.empty() && parts > 0)) return -1;
        constexpr std::string_view kUnits = "smhd";
        constexpr double kSeconds[] = {1, 60, 3600, 86400};
        const size_t unit = text.empty() ? 0 : kUnits.find(text[0]);
        if (unit == kUnits.npos) return -1;
        seconds += number * kSeconds[unit];
        text.remove_prefix(text.empty() ? 0 : 1);
    }
    return seconds;
}

}  // namespace

Result<double> ParseTime(const std::string& flag, const std::string& text) {
    const bool clock = text.find_first_of(":-") != text.npos;
    const double seconds = clock ? ClockSeconds(text) : UnitSeconds(text);
    if (seconds > 0 && seconds < 1e9) return seconds;
    return MakeError(ErrorCode::kUsage,
                     "{} {}: expected such as 90s, 30m, 4h, 1h30m, 4:00:00 or 2-12:00:00", flag,
                     text);
}

}  // namespace weft::cli
