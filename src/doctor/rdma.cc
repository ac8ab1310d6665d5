#include "doctor/rdma.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/facts.h"
#include "doctor/network.h"
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

std::vector<RdmaPort> ReadPorts(HostView& view) {
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

constexpr size_t kMostPorts = 256;

// "LINK_UP (5)" -> "LINK_UP", "5: LinkUp" -> "LinkUp"
std::string_view StateText(std::string_view text) {
    if (const size_t colon = text.find(": "); colon != text.npos) text = text.substr(colon + 2);
    return Trim(text.substr(0, text.find(" (")));
}

// "LINK_UP (5)", "5: LinkUp" -> "linkup"; "PORT_ACTIVE (4)", "4: ACTIVE" -> "active".
std::string StateWord(std::string_view text) {
    std::string word = LowerCase(StateText(text));
    if (word.starts_with("port_")) word = word.substr(5);
    std::erase(word, '_');
    return word;
}

std::string PhysicalState(std::string_view text) {
    const std::string word = StateWord(text);
    for (const char* state : {"LinkUp", "Polling", "Disabled", "Sleep", "PortConfigurationTraining",
                              "LinkErrorRecovery"}) {
        if (word == LowerCase(state)) return state;
    }
    return std::string(StateText(text));
}

std::string LogicalState(std::string_view text) {
    const std::string word = StateWord(text);
    for (const char* state : {"ACTIVE", "DOWN", "INIT", "ARMED"}) {
        if (word == LowerCase(state)) return state;
    }
    return word == "initializing" ? "INIT" : std::string(StateText(text));
}

// Numbers of ibstat ("2") and ibstatus ("0x2").
std::optional<int64_t> LidOf(std::string_view text) {
    return Integer(text, text.starts_with("0x") ? 16 : 10);
}

bool IsZeroGuid(std::string_view text) {
    return text.find_first_not_of("0:x") == text.npos;
}

// "4X (2)" and "25.0 Gbps (32)" from `ibv_devinfo -v`.
void SetRate(RdmaPort& port, double lanes, double gigabits) {
    if (lanes <= 0 || gigabits <= 0 || lanes > 12) return;
    constexpr std::pair<double, const char*> kKinds[] = {
        {2.5, "SDR"}, {5, "DDR"}, {10, "QDR"}, {14, "FDR"}, {25, "EDR"}, {50, "HDR"}, {100, "NDR"}};
    const char* kind = "";
    for (const auto& [speed, name] : kKinds) {
        if (gigabits == speed) kind = name;
    }
    port.gigabits = lanes * gigabits;
    port.rate = fmt::format("{:g} Gb/sec ({:g}X {})", port.gigabits, lanes, kind);
}

class ProgramReader {
  public:
    std::vector<RdmaPort> Take(std::string_view text) {
        for (std::string_view line : Lines(text)) {
            if (ports_.size() >= kMostPorts) break;
            ReadRdmaLine(Trim(line));
        }
        return std::move(ports_);
    }

  private:
    void ReadRdmaLine(std::string_view line) {
        const std::string_view value = After(line, ":");
        // "Physical state" -> "physical_state"
        std::string key = LowerCase(line.substr(0, line.find(':')));
        std::ranges::replace(key, ' ', '_');
        if (line.starts_with("CA '")) {
            OpenDevice(After(line, "CA '", "'"));
        } else if (key == "hca_id") {
            OpenDevice(value);
        } else if (line.starts_with("Infiniband device '")) {
            OpenDevice(After(line, "device '", "'"));
            OpenPort(LeadingNumber(After(line, "port ")).value_or(1));
        } else if (line.starts_with("Port ") && line.ends_with(':')) {
            if (const auto number = Number(std::string_view(key).substr(5))) OpenPort(*number);
        } else if (line.starts_with("port:")) {
            if (const auto number = Number(value)) OpenPort(*number);
        } else if (Contains(line, "physical_state ") && Contains(line, "/")) {
            ReadRdmaLink(line);
        } else if (inside_) {
            ReadPortField(key, value, ports_.back());
        } else {
            ReadDeviceField(key, value);
        }
    }
    void OpenDevice(std::string_view name) {
        device_ = {};
        device_.device = std::string(name);
        inside_ = false;
    }
    void OpenPort(double number) {
        if (device_.device.empty()) return;
        ports_.push_back(device_);
        ports_.back().port = number >= 1 && number < 256 ? static_cast<int64_t>(number) : 1;
        inside_ = true;
        lanes_ = 0;
    }
    void ReadDeviceField(std::string_view key, std::string_view value) {
        if (IsOneOf(key, "firmware_version fw_ver")) device_.firmware = value;
        if (key == "ca_type") device_.kind = value;
        if (key == "vendor_part_id" && Integer(value)) {
            device_.kind = fmt::format("MT{}", *Integer(value));
        }
        if (key == "transport") device_.iwarp = Contains(value, "iWARP");
        if (IsOneOf(key, "system_image_guid sys_image_guid")) {
            device_.image = IsZeroGuid(value) || value.size() > 32 ? "" : value;
        }
        if (key == "node_guid") device_.no_guid = value.size() > 8 && IsZeroGuid(value);
    }
    void ReadPortField(std::string_view key, std::string_view value, RdmaPort& port) {
        if (key == "state") port.state = LogicalState(value);
        if (IsOneOf(key, "physical_state phys_state")) port.physical = PhysicalState(value);
        if (IsOneOf(key, "base_lid port_lid lid")) port.lid = LidOf(value);
        if (key == "sm_lid") port.sm_lid = LidOf(value);
        if (key == "link_layer") port.link_layer = value;
        if (key == "netdev") port.interface = value;
        if (key == "rate") {
            port.rate = std::string(value) + (Contains(value, "Gb/sec") ? "" : " Gb/sec");
            port.gigabits = LeadingNumber(value).value_or(0);
        }
        if (key == "active_width") lanes_ = LeadingNumber(value).value_or(0);
        if (key == "active_speed") SetRate(port, lanes_, LeadingNumber(value).value_or(0));
    }
    // "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev enp1s0", "0/1: mlx5_0/1: state ..."
    void ReadRdmaLink(std::string_view line) {
        RdmaPort port;
        const auto words = Words(line);
        for (size_t i = 0; i < words.size(); ++i) {
            const size_t slash = words[i].find('/');
            const bool numbered = slash != words[i].npos && !LeadingNumber(words[i]);
            if (port.device.empty() && numbered) {
                port.device = std::string(words[i].substr(0, slash));
                port.port =
                    static_cast<int64_t>(LeadingNumber(words[i].substr(slash + 1)).value_or(1));
            }
            if (i + 1 < words.size()) ReadPortField(words[i], words[i + 1], port);
        }
        if (port.device.empty()) return;
        port.link_layer = port.sm_lid ? "InfiniBand" : port.interface.empty() ? "" : "Ethernet";
        ports_.push_back(std::move(port));
        inside_ = false;
    }

    std::vector<RdmaPort> ports_;
    RdmaPort device_;
    bool inside_ = false;
    double lanes_ = 0;
};

}  // namespace

std::string RdmaPort::Text() const {
    return fmt::format("{} port {}", device, port);
}

const std::vector<RdmaPort>& RdmaPorts(HostView& view) {
    return view.Derived(ReadPorts);
}

bool RdmaPort::mlx4() const {
    const auto model =
        kind.starts_with("MT") ? Integer(std::string_view(kind).substr(2)) : std::nullopt;
    if (model) return *model >= 4099 && *model < 4113 ? true : *model > 20000;
    return device.starts_with("mlx4");
}

int64_t PortOfCard(HostView& view, const RdmaPort& port) {
    if (port.mlx4() || port.port > 1) return port.port;
    if (port.pci.size() == 12) return port.pci.back() == '1' ? 2 : 1;
    if (port.image.empty()) return port.port;
    const auto of_card = [&](const RdmaPort& one) {
        return one.image == port.image && one.device < port.device;
    };
    return std::min<int64_t>(1 + std::ranges::count_if(RdmaPorts(view), of_card), 2);
}

bool LacksRoceV2(HostView& view, const RdmaPort& port) {
    if (!port.mlx4()) return false;
    const PciDevice* card = FindPci(view, port.pci);
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
        if (const auto mapped = ParseMappedIpv4(text)) gid.ipv4 = mapped->Text();
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

std::vector<RdmaPort> ParseRdmaPorts(std::string_view text) {
    return ProgramReader().Take(text);
}

}  // namespace weft::doctor
