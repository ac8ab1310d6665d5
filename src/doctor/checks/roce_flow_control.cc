// RoCE without any flow control loses packets as soon as two hosts send to one.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/rdma.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

void RunRoceFlowControl(HostView& view, Findings& out) {
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.ethernet() || !port.active()) continue;
        for (const std::string& name : RdmaInterfaces(view, port)) {
            if (name.starts_with('-')) continue;
            const Reading pause = view.Command("ethtool -a " + name);
            const Reading pfc = view.Command("mlnx_qos -i " + name);
            if (!pause.found()) continue;
            const bool rx = After(pause.text, "RX:") == "on", tx = After(pause.text, "TX:") == "on";
            // "PFC configuration: ... enabled   0 0 0 1 0 0 0 0"
            const bool priority = Contains(After(pfc.text, "enabled "), "1");
            const std::string read =
                fmt::format("{}: pause frames rx {}, tx {}{}", name, rx ? "on" : "off",
                            tx ? "on" : "off", priority ? ", PFC on" : "");
            if ((rx && tx) || priority) {
                out.Ok(read);
                continue;
            }
            out.Note(read, "pause frames or PFC on, at both ends and the switch",
                     "two senders to one port overflow it, and each lost RDMA packet costs up to "
                     "0.5 s; between two hosts with one cable it does not matter",
                     fmt::format("sudo ethtool -A {} rx on tx on", Quoted(name)));
        }
    }
}

}  // namespace

const Check kRoceFlowControl = {
    .name = "roce-flow-control",
    .what = "Flow control on the Ethernet under RoCE.",
    .reads = "ethtool -a, mlnx_qos -i",
    .why = "RDMA expects a network that loses nothing.",
    .run = RunRoceFlowControl,
};

}  // namespace weft::doctor::checks
