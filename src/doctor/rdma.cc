#include "doctor/rdma.h"

#include <fmt/format.h>

#include <algorithm>

#include "doctor/facts.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr const char* kDeviceFolder = "sys/class/infiniband";

// "4: ACTIVE" -> "ACTIVE"
std::string AfterColon(const std::string& text) {
    const size_t colon = text.find(':');
    const std::string_view rest = colon == std::string::npos
                                      ? std::string_view(text)
                                      : std::string_view(text).substr(colon + 1);
    return std::string(Trim(rest));
}

RdmaPort ReadPort(HostView& view, const std::string& device, const std::string& number) {
    RdmaPort port;
    port.device = device;
    port.port = Integer(number).value_or(1);
    port.path = fmt::format("{}/{}/ports/{}", kDeviceFolder, device, number);
    port.state = AfterColon(view.Text(port.path + "/state"));
    port.physical = AfterColon(view.Text(port.path + "/phys_state"));
    port.link_layer = view.Text(port.path + "/link_layer");
    port.rate = view.Text(port.path + "/rate");
    port.gigabits = LeadingNumber(port.rate).value_or(0);
    port.lid = Integer(view.Text(port.path + "/lid"), 16);
    port.sm_lid = Integer(view.Text(port.path + "/sm_lid"), 16);
    port.firmware = view.Text(fmt::format("{}/{}/fw_ver", kDeviceFolder, device));
    return port;
}

std::string Upper(std::string_view text) {
    std::string upper(text);
    std::ranges::transform(upper, upper.begin(), [](unsigned char c) {
        return static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    });
    return upper;
}

std::vector<RdmaPort> ParseIbstat(std::string_view text) {
    std::vector<RdmaPort> ports;
    std::string device, firmware;
    bool inside = false;
    for (std::string_view line : Lines(text)) {
        const std::string_view trimmed = Trim(line);
        if (trimmed.starts_with("CA '")) {
            device = std::string(After(trimmed, "CA '", "'"));
            inside = false;
        } else if (trimmed.starts_with("Firmware version:")) {
            firmware = std::string(After(trimmed, ":"));
        } else if (trimmed.starts_with("Port ") && trimmed.ends_with(":") && !device.empty()) {
            ports.emplace_back();
            ports.back().device = device;
            ports.back().firmware = firmware;
            ports.back().port = Integer(trimmed.substr(5, trimmed.size() - 6)).value_or(1);
            inside = true;
        } else if (inside) {
            RdmaPort& port = ports.back();
            const std::string_view value = After(trimmed, ":");
            if (trimmed.starts_with("State:")) {
                port.state = Upper(value);
                if (port.state == "INITIALIZING") port.state = "INIT";
            } else if (trimmed.starts_with("Physical state:")) {
                port.physical = std::string(value);
            } else if (trimmed.starts_with("Rate:")) {
                port.rate = std::string(value) + " Gb/sec";
                port.gigabits = LeadingNumber(value).value_or(0);
            } else if (trimmed.starts_with("Base lid:")) {
                port.lid = Integer(value);
            } else if (trimmed.starts_with("SM lid:")) {
                port.sm_lid = Integer(value);
            } else if (trimmed.starts_with("Link layer:")) {
                port.link_layer = std::string(value);
            }
        }
    }
    return ports;
}

// "0000:0000:0000:0000:0000:ffff:0a00:0001" -> "10.0.0.1"
std::string MappedIpv4(std::string_view gid) {
    constexpr std::string_view kMapped = "0000:0000:0000:0000:0000:ffff:";
    if (!gid.starts_with(kMapped) || gid.size() != kMapped.size() + 9) return "";
    const auto high = Integer(gid.substr(kMapped.size(), 4), 16);
    const auto low = Integer(gid.substr(kMapped.size() + 5, 4), 16);
    if (!high || !low || *high < 0 || *low < 0) return "";
    return fmt::format("{}.{}.{}.{}", *high >> 8, *high & 255, *low >> 8, *low & 255);
}

}  // namespace

std::string RdmaPort::Text() const {
    return fmt::format("{} port {}", device, port);
}

std::vector<RdmaPort> RdmaPorts(HostView& view) {
    std::vector<RdmaPort> ports;
    for (const std::string& device : view.List(kDeviceFolder)) {
        for (const std::string& port :
             Numbered(view, fmt::format("{}/{}/ports", kDeviceFolder, device), "")) {
            ports.push_back(ReadPort(view, device, port));
        }
    }
    if (!ports.empty()) return ports;
    const Reading ibstat = view.Command("ibstat");
    return ibstat.found() ? ParseIbstat(ibstat.text) : ports;
}

std::vector<RdmaGid> RdmaGids(HostView& view, const RdmaPort& port) {
    std::vector<RdmaGid> gids;
    if (port.path.empty()) return gids;
    for (const std::string& index : Numbered(view, port.path + "/gids", "")) {
        const std::string text = view.Text(port.path + "/gids/" + index);
        if (text.find_first_not_of("0:") == std::string::npos) continue;
        RdmaGid gid;
        gid.index = Integer(index).value_or(0);
        gid.type = view.Text(port.path + "/gid_attrs/types/" + index);
        gid.interface = view.Text(port.path + "/gid_attrs/ndevs/" + index);
        gid.ipv4 = MappedIpv4(text);
        gids.push_back(std::move(gid));
    }
    return gids;
}

std::vector<std::string> RdmaInterfaces(HostView& view, const RdmaPort& port) {
    std::vector<std::string> names;
    for (const RdmaGid& gid : RdmaGids(view, port)) {
        if (!gid.interface.empty()) names.push_back(gid.interface);
    }
    if (names.empty()) {
        names = view.List(fmt::format("{}/{}/device/net", kDeviceFolder, port.device));
    }
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

}  // namespace weft::doctor
