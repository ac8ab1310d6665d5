// Locked memory that a systemd unit gets.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

bool IsEnough(std::string_view value) {
    const auto bytes = Number(value);
    return value == "infinity" || (bytes && *bytes >= kLockedBytesNeeded);
}

void Run(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const Reading manager = view.Command("systemctl show --property=DefaultLimitMEMLOCK");
    const std::string usual(After(manager.text, "DefaultLimitMEMLOCK="));
    const bool usual_enough = IsEnough(usual);
    const std::string expected = "LimitMEMLOCK=infinity";
    constexpr const char* kFolder = "etc/systemd/system";
    for (const std::string& name : view.List(kFolder)) {
        if (!name.starts_with("weft") || !name.ends_with(".service")) continue;
        const std::string unit = view.Text(std::string(kFolder) + "/" + name);
        const std::string own(After(unit, "LimitMEMLOCK="));
        const std::string read = fmt::format("{}: LimitMEMLOCK={}", name,
                                             own.empty() ? "not set, by default " + usual : own);
        if (own.empty() ? usual_enough : IsEnough(own)) {
            out.Ok(read, expected);
            continue;
        }
        out.Fail(read, expected,
                 "limits.conf does not count for services: the unit can't register memory for "
                 "RDMA and falls back to TCP, 10 to 50 us a message instead of 2",
                 fmt::format("sudo systemctl edit {} (add [Service] LimitMEMLOCK=infinity), then "
                             "sudo systemctl restart {}",
                             Quoted(name), Quoted(name)));
    }
    if (!out.empty() || usual.empty()) return;
    if (usual_enough) return out.Ok("DefaultLimitMEMLOCK=" + usual, expected);
    out.Note("DefaultLimitMEMLOCK=" + usual, "LimitMEMLOCK=infinity in Weft's unit",
             "a service gets this much whatever limits.conf says: too little for RDMA",
             "write LimitMEMLOCK=infinity into the unit that starts Weft");
}

}  // namespace

const Check kMemlockSystemd = {
    .name = "memlock-systemd",
    .what = "Memory that systemd units may lock, where there is RDMA.",
    .reads = "systemctl show, /etc/systemd/system/weft*.service",
    .why = "What works in a shell fails as a service: limits.conf does not count there.",
    .run = Run,
};

}  // namespace weft::doctor::checks
