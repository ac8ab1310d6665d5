#include "engine/stop.h"

#include <algorithm>
#include <utility>

namespace weft::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool includes)
    : stops_(std::move(stops)), includes_(includes) {
    std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopMatcher::Push(std::string_view text, bool ends) {
    if (stopped_) return "";
    const size_t before = held_.size();
    held_ += text;
    size_t begin = std::string::npos, end = std::string::npos;
    for (const std::string& stop : stops_) {
        if (!ends) break;
        const size_t at = held_.find(stop, before - std::min(before, stop.size() - 1));
        if (at == std::string::npos || at + stop.size() > end) continue;
        begin = at + stop.size() < end ? at : std::min(begin, at);
        end = at + stop.size();
    }
    if (begin != std::string::npos) {
        stopped_ = true;
        found_ = held_.substr(begin, end - begin);
        std::string shown = held_.substr(0, includes_ ? end : begin);
        held_.clear();
        return shown;
    }
    // Holds back the longest tail that is a prefix of a stop string.
    size_t hold = 0;
    for (const std::string& stop : stops_) {
        for (size_t n = std::min(stop.size() - 1, held_.size()); n > hold; --n) {
            if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) hold = n;
        }
    }
    std::string shown = held_.substr(0, held_.size() - hold);
    held_.erase(0, shown.size());
    return shown;
}

std::string StopMatcher::Flush() {
    return stopped_ ? "" : std::exchange(held_, "");
}

}  // namespace weft::engine
