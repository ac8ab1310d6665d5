// Parses output about RDMA ports from ibstat, ibstatus, ibv_devinfo and `rdma link` (rdma-core,
// infiniband-diags, iproute2).
#include <fmt/format.h>

#include <algorithm>

#include "doctor/rdma.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostPorts = 256;

std::string UpperRdma(std::string_view text) {
    std::string upper(text);
    std::ranges::transform(upper, upper.begin(), [](unsigned char c) {
        return static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    });
    return upper;
}

// "LINK_UP (5)", "5: LinkUp", "LinkUp" -> "LinkUp".
std::string PhysicalState(std::string_view text) {
    if (const size_t colon = text.find(": "); colon != text.npos) text = text.substr(colon + 2);
    text = text.substr(0, text.find(" ("));
    const std::string upper = UpperRdma(text);
    if (upper == "LINK_UP") return "LinkUp";
    for (const char* state : {"Polling", "Disabled", "Sleep"}) {
        if (upper == UpperRdma(state)) return state;
    }
    return std::string(Trim(text));
}

// "PORT_ACTIVE (4)", "4: ACTIVE", "Active", "Initializing" -> "ACTIVE", "INIT".
std::string LogicalState(std::string_view text) {
    if (const size_t colon = text.find(": "); colon != text.npos) text = text.substr(colon + 2);
    std::string state = UpperRdma(Trim(text.substr(0, text.find(" ("))));
    if (state.starts_with("PORT_")) state = state.substr(5);
    return state == "INITIALIZING" ? "INIT" : state;
}

// Numbers of ibstat ("2") and ibstatus ("0x2").
std::optional<int64_t> LidOf(std::string_view text) {
    if (text.starts_with("0x")) return Integer(text, 16);
    return Integer(text);
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
        if (line.starts_with("CA '")) {
            OpenDevice(After(line, "CA '", "'"));
        } else if (line.starts_with("hca_id:")) {
            OpenDevice(After(line, "hca_id:"));
        } else if (line.starts_with("Infiniband device '")) {
            OpenDevice(After(line, "device '", "'"));
            OpenPort(LeadingNumber(After(line, "port ")).value_or(1));
        } else if (line.starts_with("Port ") && line.ends_with(':')) {
            const auto number = Integer(line.substr(5, line.size() - 6));
            if (number) OpenPort(static_cast<double>(*number));
        } else if (line.starts_with("port:")) {
            const auto number = Integer(After(line, "port:"));
            if (number) OpenPort(static_cast<double>(*number));
        } else if (Contains(line, "physical_state ") && Contains(line, "/")) {
            ReadRdmaLink(line);
        } else if (inside_) {
            ReadPortField(line, ports_.back());
        } else {
            ReadDeviceField(line);
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
    void ReadDeviceField(std::string_view line) {
        const std::string_view value = After(line, ":");
        if (line.starts_with("Firmware version:") || line.starts_with("fw_ver:")) {
            device_.firmware = std::string(value);
        } else if (line.starts_with("CA type:")) {
            device_.kind = std::string(value);
        } else if (line.starts_with("vendor_part_id:") && Integer(value)) {
            device_.kind = fmt::format("MT{}", *Integer(value));
        } else if (line.starts_with("transport:")) {
            device_.iwarp = Contains(value, "iWARP");
        } else if (line.starts_with("System image GUID:") || line.starts_with("sys_image_guid:")) {
            const bool zero = value.find_first_not_of("0:x") == value.npos;
            device_.image = zero || value.size() > 32 ? "" : std::string(value);
        } else if (line.starts_with("Node GUID:") || line.starts_with("node_guid:")) {
            device_.no_guid = value.size() > 8 && value.find_first_not_of("0:x") == value.npos;
        }
    }
    void ReadPortField(std::string_view line, RdmaPort& port) {
        const std::string_view value = After(line, ":");
        const std::string_view key = line.substr(0, line.find(':'));
        if (key == "State" || key == "state") {
            port.state = LogicalState(value);
        } else if (key == "Physical state" || key == "phys state" || key == "phys_state") {
            port.physical = PhysicalState(value);
        } else if (key == "Rate" || key == "rate") {
            port.rate = std::string(value) + (Contains(value, "Gb/sec") ? "" : " Gb/sec");
            port.gigabits = LeadingNumber(value).value_or(0);
        } else if (key == "Base lid" || key == "base lid" || key == "port_lid") {
            port.lid = LidOf(value);
        } else if (key == "SM lid" || key == "sm lid" || key == "sm_lid") {
            port.sm_lid = LidOf(value);
        } else if (key == "Link layer" || key == "link_layer") {
            port.link_layer = std::string(value);
        } else if (key == "active_width") {
            lanes_ = LeadingNumber(value).value_or(0);
        } else if (key == "active_speed") {
            SetRate(port, lanes_, LeadingNumber(value).value_or(0));
        } else if (key == "netdev") {
            port.interface = std::string(value);
        }
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
            const std::string_view value = i + 1 < words.size() ? words[i + 1] : std::string_view();
            if (words[i] == "state") port.state = LogicalState(value);
            if (words[i] == "physical_state") port.physical = PhysicalState(value);
            if (words[i] == "netdev") port.interface = std::string(value);
            if (words[i] == "lid") port.lid = LidOf(value);
            if (words[i] == "sm_lid") port.sm_lid = LidOf(value);
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

std::vector<RdmaPort> ParseRdmaPorts(std::string_view text) {
    return ProgramReader().Take(text);
}

}  // namespace weft::doctor
