#include "doctor/rdma.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/facts.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr const char* kDeviceFolder = "sys/class/infiniband";

// "4: ACTIVE" -> "ACTIVE"
std::string AfterColon(std::string text) {
    text.resize(std::min(text.find('\n'), text.size()));
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
    const std::string folder = fmt::format("{}/{}/", kDeviceFolder, device);
    port.firmware = view.Text(folder + "fw_ver");
    port.kind = view.Text(folder + "hca_type");
    port.iwarp = Contains(view.Text(folder + "node_type"), "RNIC");
    const std::string guid = view.Text(folder + "node_guid");
    port.no_guid = guid.size() > 8 && guid.find_first_not_of("0:") == guid.npos;
    port.pci = BaseName(view.Link(folder + "device").text);
    port.interface = view.Text(folder + "parent");
    return port;
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
    for (const char* words : {"ibstat", "ibstatus", "ibv_devinfo", "rdma link", "rdma -d link"}) {
        const Reading told = view.Complete() ? view.Command(words) : CommandLike(view, words);
        if (told.found()) ports = ParseRdmaPorts(told.text);
        if (!ports.empty() || (view.Complete() && words == std::string_view("ibstat"))) break;
    }
    return ports;
}

bool RdmaPort::mlx4() const {
    const auto model =
        kind.starts_with("MT") ? Integer(std::string_view(kind).substr(2)) : std::nullopt;
    if (model) return *model >= 4099 && *model < 4113 ? true : *model > 20000;
    return device.starts_with("mlx4");
}

int64_t PortOfCard(const RdmaPort& port, const std::vector<RdmaPort>& all) {
    if (port.mlx4() || port.port > 1) return port.port;
    if (port.pci.size() == 12) return port.pci.back() == '1' ? 2 : 1;
    if (port.image.empty()) return port.port;
    const auto of_card = [&](const RdmaPort& one) {
        return one.image == port.image && one.device < port.device;
    };
    return std::min<int64_t>(1 + std::ranges::count_if(all, of_card), 2);
}

bool LacksRoceV2(HostView& view, const RdmaPort& port) {
    if (!port.mlx4()) return false;
    const std::vector<PciDevice> cards = PciDevices(view);
    const PciDevice* card = FindPci(cards, port.pci);
    if (card == nullptr) return port.kind == "MT4099";
    return card->device == "1003" || card->device == "1004" ||
           (Contains(card->name, "ConnectX-3") && !Contains(card->name, "ConnectX-3 Pro"));
}

bool CanSpeak(HostView& view, const RdmaPort& port, bool infiniband) {
    // ConnectX-4 Lx, ConnectX-6 Dx and Lx; Connect-IB.
    constexpr std::array<std::string_view, 3> kEthernetOnly = {"MT4117", "MT4125", "MT4127"};
    constexpr std::string_view kInfinibandOnly = "MT4113";
    if (port.iwarp || (!infiniband && LacksRoceV2(view, port))) return false;
    if (infiniband == port.infiniband()) return true;
    if (!port.mellanox()) return false;
    return infiniband ? std::ranges::find(kEthernetOnly, port.kind) == kEthernetOnly.end()
                      : port.kind != kInfinibandOnly;
}

double LeastRateOf(const RdmaPort& port) {
    const auto model =
        port.kind.starts_with("MT") ? Integer(std::string_view(port.kind).substr(2)) : std::nullopt;
    // mlx4 also drives ConnectX-2 with QDR; ConnectX of 2008 had DDR and reports its model.
    if (!model && port.mlx4()) return 40;
    if (!model) return port.device.starts_with("mlx5") ? 56 : 0;
    if (*model >= 4099 && *model < 4113) return 40;  // ConnectX-3: QDR, most of them FDR
    if (*model >= 4113 && *model < 4200) return 56;  // Connect-IB, ConnectX-4 and newer
    return *model == 26428 ? 40 : 0;                 // a ConnectX-2 with QDR
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
    if (names.empty() && !port.interface.empty()) names.push_back(port.interface);
    if (names.empty()) {
        names = view.List(fmt::format("{}/{}/device/net", kDeviceFolder, port.device));
    }
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

}  // namespace weft::doctor
