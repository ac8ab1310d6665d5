#include "serve/pool/merge_metrics.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

namespace weft::serve {
namespace {

struct Metric {
    std::string help, type, samples;
};

// The second and third word of "# HELP NAME ...".
std::string_view WordAfter(std::string_view line, size_t at) {
    return line.substr(at, line.find(' ', at) - at);
}

}  // namespace

std::string MergeMetrics(std::span<const std::string> texts) {
    constexpr std::string_view kHelp = "# HELP ", kType = "# TYPE ";
    std::map<std::string, Metric, std::less<>> metrics;
    std::vector<Metric*> order;
    for (const std::string& text : texts) {
        Metric* current = nullptr;
        for (std::string_view rest = text; !rest.empty();) {
            const size_t end = std::min(rest.find('\n'), rest.size() - 1);
            const std::string_view line = rest.substr(0, end + 1);
            rest.remove_prefix(end + 1);
            const bool help = line.starts_with(kHelp), type = line.starts_with(kType);
            if (help || type) {
                const auto [found, is_new] =
                    metrics.try_emplace(std::string(WordAfter(line, kHelp.size())));
                current = &found->second;
                if (is_new) order.push_back(current);
                std::string& kept = help ? current->help : current->type;
                if (kept.empty()) kept = line;
            } else if (current != nullptr && !line.starts_with('#') && line != "\n") {
                current->samples += line;
            }
        }
    }
    std::string out;
    for (const Metric* metric : order) out += metric->help + metric->type + metric->samples;
    return out;
}

}  // namespace weft::serve
