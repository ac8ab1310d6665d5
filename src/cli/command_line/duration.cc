#include "cli/command_line/duration.h"

#include <charconv>
#include <string_view>

namespace weft::cli {

Result<double> ParseTime(const std::string& flag, const std::string& text) {
    const Error wrong = MakeError(
        ErrorCode::kUsage, "{} {}: expected such as 90s, 30m, 4h, 1h30m or 4:00:00", flag, text);
    double seconds = 0;
    const char *at = text.data(), *const end = at + text.size();
    const bool clock = text.find(':') != text.npos;
    for (int parts = 0; at < end; ++parts) {
        double number = 0;
        const auto parsed = std::from_chars(at, end, number, std::chars_format::fixed);
        if (parsed.ec != std::errc() || !(number >= 0) || parts > 3) return wrong;
        at = parsed.ptr;
        if (at == end && parts > 0 && !clock) return wrong;
        const char unit = at < end ? *at++ : clock ? ':' : 's';
        if (clock) {
            if (unit != ':' || (at == end && text.back() == ':')) return wrong;
            seconds = seconds * 60 + number;
            continue;
        }
        const std::string_view units = "smhd";
        constexpr double kSeconds[] = {1, 60, 3600, 86400};
        if (units.find(unit) == units.npos) return wrong;
        seconds += number * kSeconds[units.find(unit)];
    }
    return seconds > 0 && seconds < 1e9 ? Result<double>(seconds) : Result<double>(wrong);
}

}  // namespace weft::cli
