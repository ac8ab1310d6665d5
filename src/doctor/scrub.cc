#include "doctor/scrub.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

using Json = nlohmann::ordered_json;

bool IsHex(char c) {
    return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}

// Sets runs of six and more pairs of hexadecimal digits, joined by ':' or '-', to zeros: the
// addresses of Ethernet (6), of InfiniBand (20), and serial numbers of PCI devices (8).
void BlankHardwareAddresses(std::string& text) {
    constexpr size_t kLeastPairs = 6;
    for (size_t at = 0; at + 17 <= text.size();) {
        const bool starts = at == 0 || (!IsHex(text[at - 1]) && text[at - 1] != ':');
        size_t end = at, pairs = 0;
        while (starts && end + 2 <= text.size() && IsHex(text[end]) && IsHex(text[end + 1])) {
            ++pairs;
            end += 2;
            const bool joined = end < text.size() && (text[end] == ':' || text[end] == '-');
            if (!joined || end + 3 > text.size() || !IsHex(text[end + 1])) break;
            ++end;
        }
        const bool whole = end >= text.size() || !IsHex(text[end]);
        if (pairs < kLeastPairs || !whole) {
            ++at;
            continue;
        }
        std::replace_if(text.begin() + static_cast<std::ptrdiff_t>(at),
                        text.begin() + static_cast<std::ptrdiff_t>(end), IsHex, '0');
        at = end;
    }
}

template <typename Keep>
std::string KeepLines(std::string_view text, Keep keep) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        if (!keep(line)) continue;
        kept += line;
        kept += '\n';
    }
    return kept;
}

template <size_t N>
bool HasAny(std::string_view line, const std::array<std::string_view, N>& parts) {
    std::string lower(line);
    std::ranges::transform(lower, lower.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return std::ranges::any_of(parts, [&](std::string_view part) { return Contains(lower, part); });
}

constexpr std::array<std::string_view, 7> kSerialWords = {
    "serial number", "[sn]", "asset tag", "uuid", "guid", "[v0]", "[vu]"};
constexpr std::array<std::string_view, 23> kLogWords = {
    "mlx",         "pcie",       "aer:",          "amdgpu",          "rdma",       "infiniband",
    "thunderbolt", "iommu",      " ice 0000:",    "irdma",           "bnxt",       "i40e",
    "ixgbe",       " igc 0000:", "r8169",         "netdev watchdog", "nic link",   "thermal",
    "rxe",         "link is",    "out of memory", "hardware error",  "temperature"};
constexpr std::array<std::string_view, 19> kParameters = {"iommu",
                                                          "intel_iommu",
                                                          "amd_iommu",
                                                          "amdgpu.",
                                                          "ttm.",
                                                          "amdttm.",
                                                          "pcie_aspm",
                                                          "pci=",
                                                          "pcie_port",
                                                          "mitigations",
                                                          "isolcpus",
                                                          "nohz_full",
                                                          "transparent_hugepage",
                                                          "numa_balancing",
                                                          "nomodeset",
                                                          "intel_idle",
                                                          "processor.max_cstate",
                                                          "cpufreq",
                                                          "hugepages"};
constexpr std::array<std::string_view, 14> kAddressFields = {
    "ifname", "mtu",       "operstate", "flags",   "link_type", "addr_info", "family",
    "local",  "prefixlen", "dst",       "gateway", "dev",       "prefsrc",   "metric"};

// Only the fields that checks read, and no address of IPv6, which may repeat the hardware's.
Json KeepFields(const Json& value) {
    if (value.is_array()) {
        Json kept = Json::array();
        for (const Json& item : value) {
            if (item.is_object() && item.value("family", Json()) == "inet6") continue;
            kept.push_back(KeepFields(item));
        }
        return kept;
    }
    if (!value.is_object()) return value;
    Json kept = Json::object();
    for (const auto& [key, item] : value.items()) {
        if (std::ranges::find(kAddressFields, key) != kAddressFields.end()) {
            kept[key] = KeepFields(item);
        }
    }
    return kept;
}

std::string ScrubAddresses(const std::string& text) {
    const Json parsed = OrderedJsonOrDiscarded(text);
    if (parsed.is_discarded()) return {};
    return KeepFields(parsed).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ScrubCommandLine(std::string_view text) {
    std::string kept;
    for (std::string_view word : Words(text)) {
        if (!std::ranges::any_of(kParameters,
                                 [&](std::string_view name) { return word.starts_with(name); })) {
            continue;
        }
        if (!kept.empty()) kept += ' ';
        kept += word;
    }
    return kept + "\n";
}

// Lines of limits.conf about locked memory; of whom, only whether it is everybody or a group.
std::string ScrubLimits(std::string_view text) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line.substr(0, line.find('#')));
        if (words.size() < 4 || words[2] != "memlock") continue;
        const std::string_view who = words[0];
        const char* shown = who == "*"             ? "*"
                            : who == "root"        ? "root"
                            : who.starts_with('@') ? "@group"
                                                   : "user";
        kept += std::string(shown) + " " + std::string(words[1]) + " memlock " +
                std::string(words[3]) + "\n";
    }
    return kept;
}

// The half of a link-local GID that repeats the hardware's address.
std::string ScrubGid(std::string text) {
    constexpr size_t kPrefix = 19;  // "fe80:0000:0000:0000"
    if (!text.starts_with("fe80:") || text.size() <= kPrefix) return text;
    std::replace_if(text.begin() + kPrefix, text.end(), IsHex, '0');
    return text;
}

}  // namespace

std::string Scrub(const std::string& path, std::string text) {
    const std::string_view name =
        path.starts_with("later/") ? std::string_view(path).substr(6) : std::string_view(path);
    if (name == "proc/cmdline") return ScrubCommandLine(text);
    if (name.starts_with("cmd/ip_-j")) return ScrubAddresses(text);
    if (name.starts_with("etc/security/limits")) return ScrubLimits(text);
    if (Contains(name, "/gids/")) return ScrubGid(std::move(text));
    if (name.starts_with("cmd/dmesg")) {
        text = KeepLines(text, [](std::string_view line) { return HasAny(line, kLogWords); });
    } else if (name.starts_with("cmd/")) {
        text = KeepLines(text, [](std::string_view line) { return !HasAny(line, kSerialWords); });
    }
    if (name.starts_with("probe/")) return text;
    BlankHardwareAddresses(text);
    return text;
}

}  // namespace weft::doctor
