#include "doctor/checks/checks.h"

namespace weft::doctor::checks {

std::string FilledIn(const Findings& out, std::string_view fix, fmt::format_args args) {
    std::string filled;
    for (size_t at = fix.find("<<"); at != fix.npos; at = fix.find("<<")) {
        const size_t end = fix.find(">>", at);
        const std::string mark = fmt::vformat(fix.substr(at + 2, end - at - 2), args);
        const size_t blank = std::min(mark.find(' '), mark.size());
        filled += fmt::vformat(fix.substr(0, at), args);
        CureValues values;
        if (blank < mark.size()) values["value"] = mark.substr(blank + 1);
        filled += Cure(out.view(), mark.substr(0, blank), values);
        fix.remove_prefix(end + 2);
    }
    return filled + fmt::vformat(fix, args);
}

std::string InterfaceText(const NetDevice& device, std::string_view more) {
    return fmt::format("{}: {}{}, MTU {}, {}", device.name,
                       device.up           ? "up"
                       : device.state_read ? "down"
                                           : "state not read",
                       more, device.mtu,
                       !device.addresses.empty() ? device.addresses.front().Text()
                       : device.addressed        ? "no IPv4 address"
                                                 : "addresses not read");
}

std::string TextOf(const HostGroups& groups) {
    std::vector<std::string> parts;
    for (const auto& [property, hosts] : groups) {
        parts.push_back(fmt::format("{} on {}", property, Joined(hosts)));
    }
    return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace weft::doctor::checks
