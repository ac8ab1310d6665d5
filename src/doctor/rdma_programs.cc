// Parses output about RDMA ports from ibstat, ibstatus, ibv_devinfo and `rdma link` (rdma-core,
// infiniband-diags, iproute2).
#include <fmt/format.h>

#include <algorithm>

#include "doctor/rdma.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostPorts = 256;

// "LINK_UP (5)" -> "LINK_UP", "5: LinkUp" -> "LinkUp"
std::string_view StateText(std::string_view text) {
    if (const size_t colon = text.find(": "); colon != text.npos) text = text.substr(colon + 2);
    return Trim(text.substr(0, text.find(" (")));
}

// "LINK_UP (5)", "5: LinkUp" -> "linkup"; "PORT_ACTIVE (4)", "4: ACTIVE" -> "active".
std::string StateWord(std::string_view text) {
    std::string word = Lower(StateText(text));
    if (word.starts_with("port_")) word = word.substr(5);
    std::erase(word, '_');
    return word;
}

std::string PhysicalState(std::string_view text) {
    const std::string word = StateWord(text);
    for (const char* state : {"LinkUp", "Polling", "Disabled", "Sleep", "PortConfigurationTraining",
                              "LinkErrorRecovery"}) {
        if (word == Lower(state)) return state;
    }
    return std::string(StateText(text));
}

std::string LogicalState(std::string_view text) {
    const std::string word = StateWord(text);
    for (const char* state : {"ACTIVE", "DOWN", "INIT", "ARMED"}) {
        if (word == Lower(state)) return state;
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
        std::string key = Lower(line.substr(0, line.find(':')));
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

std::vector<RdmaPort> ParseRdmaPorts(std::string_view text) {
    return ProgramReader().Take(text);
}

}  // namespace weft::doctor
