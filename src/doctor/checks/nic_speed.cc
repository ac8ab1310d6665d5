// What Ethernet links negotiated.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/network.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

void LookNicSpeed(const NetDevice& device, Findings& out) {
    const std::string read = fmt::format("{}: {}{}", device.name, device.SpeedText(),
                                         device.duplex.empty() ? "" : ", duplex " + device.duplex);
    const char* fix_cable =
        "another cable (Cat 6 or better, all eight wires), another port of the "
        "switch; then: sudo ethtool -r ";
    if (device.wireless) {
        return out.Note(fmt::format("{}: wireless, in use", device.name), "a cable",
                        "a message over Wi-Fi takes 2 to 20 ms, over 10 GbE 0.02: a model of 32 "
                        "layers with 65 syncs a token stays below 8 tokens a second",
                        "--hosts with addresses of the wired network");
    }
    if (device.duplex == "half") {
        return out.Fail(read, "duplex full",
                        "sender and receiver take turns, with collisions: a tenth of the speed",
                        fix_cable + Quoted(device.name));
    }
    if (device.megabits > 0 && device.megabits < 1000) {
        return out.Warn(
            read, "1 Gb/s or more",
            fmt::format(
                "8 KB take {:.0f} us on the wire alone (1 Gb/s: 66, 10 Gb/s: 7): a broken pair "
                "of wires or a bad plug",
                8192 * 8 / device.megabits),
            fix_cable + Quoted(device.name));
    }
    if (device.megabits > 0) out.Ok(read);
}

void RunNicSpeed(HostView& view, Findings& out) {
    for (const NetDevice& device : NetDevices(view)) {
        if (device.physical && device.up) LookNicSpeed(device, out);
    }
}

}  // namespace

const Check kNicSpeed = {
    .name = "nic-speed",
    .what = "Speed and duplex that Ethernet links negotiated; wireless links in use.",
    .reads = "/sys/class/net/*/{speed,duplex,operstate,wireless}",
    .why = "One bad wire of eight turns 1 Gb/s into 100 Mb/s without a word.",
    .run = RunNicSpeed,
};

}  // namespace weft::doctor::checks
