// Checks flow control of RoCE, which otherwise loses packets as soon as two hosts send to one.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/rdma.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr int kPriorities = 8;
constexpr int kRocePriority = 3;  // default of cards and switches for RoCE
constexpr int kRoceDscp = 26;

struct FlowControl {
    bool rx_pause = false, tx_pause = false;
    bool told = false;         // some setting was read
    std::set<int> priorities;  // with PFC
    int roce_priority = -1;    // priority of RoCE packets by their DSCP; -1: unknown
};

// "prio-pfc 0:off 1:off 2:off 3:on ..." from `dcb pfc show` (iproute2), "26:3" from `dcb app show`.
template <typename Each>
void EachPair(std::string_view line, Each&& each) {
    for (std::string_view word : Words(line)) {
        const size_t colon = word.find(':');
        if (colon == word.npos) continue;
        const auto number = Integer(word.substr(0, colon));
        if (number) each(static_cast<int>(*number), word.substr(colon + 1));
    }
}

// "PFC configuration: ... enabled   0 0 0 1 0 0 0 0" from mlnx_qos.
void ReadMlnxQos(std::string_view text, FlowControl& flow) {
    int priority = 0;
    for (std::string_view word : Words(After(text, "enabled "))) {
        if (word == "1") flow.priorities.insert(priority);
        if (++priority == kPriorities) break;
    }
}

// "Enabled: 3" or "enabled: 3,4" from lldptool and from Broadcom's bnxtqos and niccli.
void ReadList(std::string_view text, std::string_view key, FlowControl& flow) {
    std::string list(After(text, key));
    std::ranges::replace(list, ',', ' ');
    for (std::string_view word : Words(list)) {
        const auto priority = Integer(word);
        if (priority && *priority >= 0 && *priority < kPriorities) {
            flow.priorities.insert(static_cast<int>(*priority));
        }
    }
}

FlowControl ReadFlowControl(HostView& view, const std::string& name) {
    FlowControl flow;
    const Reading pause = view.Command("ethtool -a " + name);
    flow.rx_pause = After(pause.text, "RX:") == "on";
    flow.tx_pause = After(pause.text, "TX:") == "on";
    const Reading mlnx = view.Command("mlnx_qos -i " + name);
    ReadMlnxQos(mlnx.text, flow);
    const Reading dcb = view.Command("dcb pfc show dev " + name);
    EachPair(After(dcb.text, "prio-pfc "), [&](int priority, std::string_view state) {
        if (state == "on") flow.priorities.insert(priority);
    });
    const Reading lldp =
        view.Complete() ? Reading{} : CommandLike(view, "lldptool -t -i " + name + " -V PFC");
    ReadList(lldp.text, "Enabled:", flow);
    const Reading app = view.Command("dcb app show dev " + name);
    EachPair(After(app.text, "dscp-prio "), [&](int dscp, std::string_view priority) {
        if (dscp == kRoceDscp)
            flow.roce_priority = static_cast<int>(Integer(priority).value_or(-1));
    });
    if (!view.Complete()) {
        for (const char* words : {"bnxtqos", "niccli"}) {
            const Reading broadcom = CommandLike(view, words);
            ReadList(broadcom.text, "PFC enabled:", flow);
        }
    }
    flow.told = pause.found() || mlnx.found() || dcb.found() || lldp.found();
    return flow;
}

std::string PrioritiesText(const std::set<int>& priorities) {
    std::string text;
    for (int priority : priorities) {
        text += fmt::format("{}{}", text.empty() ? "" : ", ", priority);
    }
    return text;
}

void LookAtFlowControl(const std::string& name, bool broadcom, const FlowControl& flow,
                       Findings& out) {
    std::string read = fmt::format("{}: pause frames rx {}, tx {}", name,
                                   flow.rx_pause ? "on" : "off", flow.tx_pause ? "on" : "off");
    if (!flow.priorities.empty()) {
        read += fmt::format(", PFC on for priority {}", PrioritiesText(flow.priorities));
    }
    const bool pfc = !flow.priorities.empty();
    if (pfc && flow.roce_priority >= 0 && !flow.priorities.contains(flow.roce_priority)) {
        return out.Warn(
            fmt::format("{}; RoCE (DSCP {}) goes by priority {}", read, kRoceDscp,
                        flow.roce_priority),
            "PFC on for the priority of RoCE",
            "the priority that RoCE goes by is not paused when the other end is full: its packets "
            "are lost, each costs up to 0.5 s",
            fmt::format(
                "sudo dcb app replace dev {0} dscp-prio {1}:{2} (iproute2), on both ends and "
                "the switch",
                ShellWord(name), kRoceDscp, *flow.priorities.begin()));
    }
    if (pfc || (flow.rx_pause && flow.tx_pause)) return out.Ok(read);
    const std::string by_pause = fmt::format("sudo ethtool -A {} rx on tx on", ShellWord(name));
    const std::string by_pfc = fmt::format(
        "sudo dcb pfc set dev {0} prio-pfc {1}:on && sudo dcb app add dev {0} dscp-prio {2}:{1}",
        ShellWord(name), kRocePriority, kRoceDscp);
    out.Note(read, "pause frames or PFC on, at both ends and the switch",
             "two senders to one port overflow it, and each lost RDMA packet costs up to 0.5 s; "
             "between two hosts with one cable it does not matter",
             broadcom ? by_pfc +
                            "; the same on the switch (Broadcom: PFC and pause frames exclude "
                            "each other)"
                      : by_pause);
}

}  // namespace

void RunRoceFlowControl(HostView& view, Findings& out) {
    const std::vector<NetDevice> devices = NetDevices(view);
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.ethernet() || !port.active() || port.software()) continue;
        for (const std::string& name : RdmaInterfaces(view, port)) {
            const bool plain = !name.empty() && !name.starts_with('-') && name.size() < 64 &&
                               name.find_first_of(" \t/") == name.npos;
            // A VLAN has the settings of the interface below it.
            if (!plain || name.find('.') != name.npos) continue;
            const FlowControl flow = ReadFlowControl(view, name);
            if (!flow.told) continue;
            const NetDevice* device = FindNetDevice(devices, name);
            const bool broadcom = port.device.starts_with("bnxt") ||
                                  (device != nullptr && device->driver.starts_with("bnxt"));
            LookAtFlowControl(name, broadcom, flow, out);
        }
    }
}

}  // namespace weft::doctor::checks
