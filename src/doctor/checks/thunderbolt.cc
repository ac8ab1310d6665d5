// Networks over Thunderbolt and USB4 cables.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/network.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

bool IsThunderbolt(const NetDevice& device) {
    return device.name.starts_with("thunderbolt") || device.driver == "thunderbolt-net" ||
           device.driver == "thunderbolt_net";
}

// A link to another host: "0-1" and the like, with rx_speed "20.0 Gb/s" and rx_lanes "2".
void LookAtLinks(HostView& view, Findings& out) {
    constexpr const char* kFolder = "sys/bus/thunderbolt/devices";
    for (const std::string& name : view.List(kFolder)) {
        const std::string path = std::string(kFolder) + "/" + name;
        const auto speed = LeadingNumber(view.Text(path + "/rx_speed"));
        const auto lanes = LeadingNumber(view.Text(path + "/rx_lanes"));
        // Hosts have a name of their own; docks and drives are not a network.
        const bool host = view.List(path).empty() ? false
                                                  : view.Has(path + "/" + name + ".0") ||
                                                        view.Has(path + "/" + name + ".1");
        if (!speed || !lanes || !host) continue;
        const double gigabits = *speed * *lanes;
        const std::string read = fmt::format("{}: {:g} Gb/s x{:g}", name, *speed, *lanes);
        if (gigabits >= 40) {
            out.Ok(read);
            continue;
        }
        out.Warn(read, "20 Gb/s x2",
                 fmt::format("{:.1f} GB/s on the cable instead of {:.1f}", gigabits / 8, 40.0 / 8),
                 "a short cable marked 40 Gb/s; unplug both ends and plug it in again, with other "
                 "network cables off (some boards then train at full speed)");
    }
}

void RunThunderbolt(HostView& view, Findings& out) {
    bool any = false;
    for (const NetDevice& device : NetDevices(view)) {
        if (!IsThunderbolt(device)) continue;
        any = true;
        const std::string read =
            fmt::format("{}: {}, MTU {}, {}", device.name, device.up ? "up" : "down", device.mtu,
                        !device.addresses.empty() ? device.addresses.front().Text()
                        : device.addressed        ? "no IPv4 address"
                                                  : "addresses not read");
        if (!device.up || (device.addressed && device.addresses.empty())) {
            out.Warn(read, "up, with an IPv4 address",
                     "the cable is there but carries nothing: peers are reached by another network",
                     fmt::format("sudo ip link set dev {0} up && sudo ip addr add 10.0.1.1/24 dev "
                                 "{0}",
                                 Quoted(device.name)));
        } else if (device.mtu < 9000) {
            out.Note(read, "MTU 65520 on both ends",
                     "TCP over Thunderbolt at MTU 1500: 10 to 20 Gb/s of 40, and a core for it",
                     fmt::format("sudo ip link set dev {} mtu 65520, on both ends",
                                 Quoted(device.name)));
        } else {
            out.Ok(read);
        }
    }
    if (any) LookAtLinks(view, out);
}

}  // namespace

const Check kThunderbolt = {
    .name = "thunderbolt",
    .what = "Thunderbolt and USB4 cables used as a network: state, MTU, speed and lanes.",
    .reads = "/sys/class/net/thunderbolt*, /sys/bus/thunderbolt/devices/*/{rx_speed,rx_lanes}",
    .why = "Such a link trains at half of its speed as easily as at all of it.",
    .run = RunThunderbolt,
};

}  // namespace weft::doctor::checks
