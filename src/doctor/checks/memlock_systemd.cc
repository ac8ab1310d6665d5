// Locked memory that a systemd unit gets.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kFolder = "etc/systemd/system";

// "infinity", bytes, or with a unit of 1024: "64G"; of "SOFT:HARD" the first counts.
bool IsEnoughLocked(std::string_view value) {
    constexpr std::string_view kUnits = "KMGTPE";
    value = Trim(value.substr(0, value.find(':')));
    if (value == "infinity") return true;
    double unit = 1;
    if (const size_t at = value.empty() ? kUnits.npos : kUnits.find(value.back());
        at != kUnits.npos) {
        for (size_t i = 0; i <= at; ++i) unit *= 1024;
        value.remove_suffix(1);
    }
    const auto number = Number(value);
    return number && *number * unit >= kLockedBytesNeeded;
}

// What a unit or a drop-in says last; an empty value takes back what was said before.
void ReadLimit(HostView& view, const std::string& path, std::string& limit, bool& cut) {
    const Reading file = view.Read(path);
    const std::string_view text = file.text;
    cut = cut || file.cut;
    for (std::string_view line : Lines(text)) {
        line = Trim(line);
        constexpr std::string_view kKey = "LimitMEMLOCK";
        if (!line.starts_with(kKey)) continue;
        line = Trim(line.substr(kKey.size()));
        if (line.starts_with('=')) limit = std::string(Trim(line.substr(1)));
    }
}

// The unit's own, then that of its drop-ins in the order of their names (systemd.unit(5)).
// cut: whether the end of one of them is missing.
std::string LimitOf(HostView& view, const std::string& name, bool& cut) {
    std::string limit;
    const std::string path = fmt::format("{}/{}", kFolder, name);
    ReadLimit(view, path, limit, cut);
    for (const std::string& drop_in : view.List(path + ".d")) {
        if (drop_in.ends_with(".conf")) ReadLimit(view, path + ".d/" + drop_in, limit, cut);
    }
    return limit;
}

void RunMemlockSystemd(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const Reading manager = view.Command("systemctl show --property=DefaultLimitMEMLOCK");
    const std::string usual(After(manager.text, "DefaultLimitMEMLOCK="));
    const bool usual_enough = IsEnoughLocked(usual);
    const std::string expected = "LimitMEMLOCK=infinity";
    for (const std::string& name : view.List(kFolder)) {
        if (!name.starts_with("weft") || !name.ends_with(".service")) continue;
        bool cut = false;
        const std::string own = LimitOf(view, name, cut);
        const std::string read = fmt::format("{}: LimitMEMLOCK={}", name,
                                             own.empty() ? "not set, by default " + usual : own);
        if (own.empty() ? usual_enough : IsEnoughLocked(own)) {
            out.Ok(read, expected);
            continue;
        }
        if (cut) {
            out.Note(read + "; the end of its file, or of a drop-in, is missing", expected,
                     "what it says of LimitMEMLOCK is not known", "'systemctl cat " + name + "'");
            continue;
        }
        out.Fail(read, expected,
                 "limits.conf does not count for services: the unit can't register memory for "
                 "RDMA and falls back to TCP",
                 UnlockUnit(view, name));
        out.AskCost(TcpQuestion(view));
    }
    if (!out.empty() || usual.empty()) return;
    if (usual_enough) return out.Ok("DefaultLimitMEMLOCK=" + usual, expected);
    out.Note("DefaultLimitMEMLOCK=" + usual, "LimitMEMLOCK=infinity in Weft's unit",
             "a service gets this much whatever limits.conf says: too little for RDMA",
             UnlockUnit(view, "weft.service") + ", where Weft runs as such a service");
}

}  // namespace

const Check kMemlockSystemd = {
    .name = "memlock-systemd",
    .what = "Memory that systemd units may lock, where there is RDMA.",
    .reads = "systemctl show, /etc/systemd/system/weft*.service and their drop-ins",
    .why = "What works in a shell fails as a service: limits.conf does not count there.",
    .run = RunMemlockSystemd,
};

}  // namespace weft::doctor::checks
