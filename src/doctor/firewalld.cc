#include "doctor/firewalld.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostZones = 256;

// "1025-65535/tcp", "22/tcp"; other protocols are left out.
void AddPorts(std::string_view text, FirewallZone& zone) {
    for (std::string_view word : Words(text)) {
        if (!word.ends_with("/tcp")) continue;
        word.remove_suffix(4);
        const size_t dash = word.find('-');
        const auto first = Integer(word.substr(0, dash));
        const auto last = dash == std::string_view::npos ? first : Integer(word.substr(dash + 1));
        if (first && last && *first >= 0 && *last <= 65535) zone.ports.push_back({*first, *last});
    }
}

}  // namespace

Passage FirewallZone::Opens() const {
    constexpr int64_t kFirst = 32768, kLast = 60999;  // ports of the system's choice
    if (name == "trusted" || accepts) return Passage::kAccepted;
    for (const auto& [first, last] : ports) {
        if (first <= kFirst && last >= kLast) return Passage::kAccepted;
    }
    if (described) return Passage::kDropped;
    // As they are delivered: Workstation's opens the ports from 1025 on.
    if (name == "FedoraWorkstation") return Passage::kAccepted;
    constexpr std::array<std::string_view, 9> kClosed = {
        "public", "FedoraServer", "block", "dmz", "drop", "external", "home", "internal", "work"};
    return std::ranges::find(kClosed, name) != kClosed.end() ? Passage::kDropped
                                                             : Passage::kUncertain;
}

std::vector<FirewallZone> ParseZones(std::string_view text) {
    std::vector<FirewallZone> zones;
    for (std::string_view line : Lines(text)) {
        const std::string_view trimmed = Trim(line);
        if (trimmed.empty()) continue;
        if (line[0] != ' ' && line[0] != '\t') {
            if (zones.size() >= kMostZones) break;
            zones.emplace_back();
            zones.back().name = std::string(trimmed.substr(0, trimmed.find(' ')));
            zones.back().is_default = Contains(trimmed, "(default");
            continue;
        }
        if (zones.empty()) continue;
        FirewallZone& zone = zones.back();
        const std::string_view value = After(trimmed, ":");
        if (trimmed.starts_with("interfaces:")) {
            for (std::string_view word : Words(value)) zone.interfaces.emplace_back(word);
        } else if (trimmed.starts_with("sources:")) {
            for (std::string_view word : Words(value)) {
                if (const auto address = ParseIpv4(word)) zone.sources.push_back(*address);
            }
        } else if (trimmed.starts_with("target:")) {
            zone.accepts = value == "ACCEPT";
        } else if (trimmed.starts_with("ports:")) {
            AddPorts(value, zone);
        } else if (trimmed.starts_with("protocols:")) {  // the line after the ports
            zone.described = true;
        }
    }
    return zones;
}

std::string WriteZones(const std::vector<FirewallZone>& zones, Names& names) {
    std::string text;
    for (const FirewallZone& zone : zones) {
        text += fmt::format("{}{}\n", names.Zone(zone.name), zone.is_default ? " (default)" : "");
        if (zone.described)
            text += fmt::format("  target: {}\n", zone.accepts ? "ACCEPT" : "default");
        text += "  interfaces:";
        for (const std::string& one : zone.interfaces)
            text += fmt::format(" {}", names.Interface(one));
        text += "\n  sources:";
        for (const Ipv4& one : zone.sources) {
            const std::string shown = fmt::format("{}/{}", one.Text(), one.prefix);
            text += fmt::format(" {}", names.AddressText(shown));
        }
        text += '\n';
        if (!zone.described) continue;
        text += "  ports:";
        for (const auto& [first, last] : zone.ports) text += fmt::format(" {}-{}/tcp", first, last);
        text += "\n  protocols:\n";
    }
    return text;
}

void AddZones(std::vector<FirewallZone>& zones, std::vector<FirewallZone> more) {
    for (FirewallZone& zone : more) {
        const auto found = std::ranges::find(zones, zone.name, &FirewallZone::name);
        if (found == zones.end()) {
            zones.push_back(std::move(zone));
            continue;
        }
        found->is_default = found->is_default || zone.is_default;
        if (zone.described) {
            found->described = true;
            found->accepts = zone.accepts;
            found->ports = std::move(zone.ports);
        }
        if (found->interfaces.empty()) found->interfaces = std::move(zone.interfaces);
        if (found->sources.empty()) found->sources = std::move(zone.sources);
    }
}

}  // namespace weft::doctor
