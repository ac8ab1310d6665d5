// Settings of TCP that hold back fast links.
#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

void RunTcpSettings(HostView& view, Findings& out) {
    const std::string window = view.Text("proc/sys/net/ipv4/tcp_rmem");  // least, usual, most
    const auto words = Words(window);
    if (words.size() != 3) return;
    const auto most = Number(words[2]);
    double fastest = 0;
    for (const NetDevice& device : NetDevices(view)) {
        if (device.physical && device.up) fastest = std::max(fastest, device.megabits);
    }
    const std::string read =
        fmt::format("net.ipv4.tcp_rmem = {} {} {}", words[0], words[1], words[2]);
    // What is under way in 0.5 ms, a round trip through a busy host.
    const double needed = fastest * 1e6 / 8 * 0.5e-3;
    if (most && *most < needed) {
        out.Note(read, fmt::format("at least {:.0f} bytes as the most", needed),
                 fmt::format("one connection gets {:.1f} GB/s of the card's {:.1f} when a round "
                             "trip takes 0.5 ms",
                             *most / 0.5e-3 * 1e-9, fastest / 8000),
                 SetSysctl(view,
                           "net.core.rmem_max=67108864\nnet.core.wmem_max=67108864\n"
                           "net.ipv4.tcp_rmem=4096 131072 67108864\n"
                           "net.ipv4.tcp_wmem=4096 65536 67108864"));
    }
    if (view.Text("proc/sys/net/ipv4/tcp_timestamps") == "0" &&
        view.Text("proc/sys/net/ipv4/tcp_sack") == "0") {
        out.Note("net.ipv4.tcp_sack = 0", "1",
                 "a lost packet makes TCP send everything after it again",
                 SetSysctl(view, "net.ipv4.tcp_sack=1"));
    }
    if (out.empty()) out.Ok(read);
}

}  // namespace

const Check kTcpSettings = {
    .name = "tcp-settings",
    .what = "TCP buffers against the speed of the fastest card.",
    .reads = "/proc/sys/net/ipv4/{tcp_rmem,tcp_sack}, /sys/class/net/*/speed",
    .why = "A window smaller than what is under way holds a fast link back.",
    .run = RunTcpSettings,
};

}  // namespace weft::doctor::checks
