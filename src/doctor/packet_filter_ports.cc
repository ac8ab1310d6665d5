// Ranges of ports, as firewalls write them.
#include <fmt/format.h>

#include "doctor/packet_filter.h"
#include "doctor/text.h"

namespace weft::doctor {

std::optional<FilterRule::Ports> ParsePorts(std::string_view text, char dash) {
    const size_t at = text.find(dash);
    const auto first = Integer(text.substr(0, at));
    const auto last = at == std::string_view::npos ? first : Integer(text.substr(at + 1));
    if (!first || !last || *first < 0 || *last > 65535 || *first > *last) return {};
    return FilterRule::Ports{*first, *last};
}

std::string PortsText(const std::vector<FilterRule::Ports>& ports, char dash) {
    std::string text;
    for (const auto& [first, last] : ports) {
        text += text.empty() ? "" : ",";
        text += first == last ? std::to_string(first) : fmt::format("{}{}{}", first, dash, last);
    }
    return text;
}

}  // namespace weft::doctor
