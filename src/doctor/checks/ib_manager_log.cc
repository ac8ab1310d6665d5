// Detects a subnet manager that SELinux denies its log file, so that it does not start.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/kernel_log.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kLog = "/var/log/opensm.log";
constexpr const char* kLabel = "opensm_log_t";
constexpr const char* kManagerLogWhy =
    "SELinux keeps opensm from its log: it ends, and no port of the fabric becomes ACTIVE";
constexpr const char* kRelabel =
    "sudo restorecon -Fv /var/log/opensm.log && sudo systemctl restart opensm";

// "avc: denied { open } for comm="opensm" path="/var/log/opensm.log" ... permissive=0"
std::string Denial(HostView& view) {
    for (const LogLine& line : KernelLogLines(KernelLog(view))) {
        if (Contains(line.lower, "avc:") && Contains(line.lower, "comm=\"opensm\"") &&
            !Contains(line.lower, "permissive=1")) {
            return line.raw;
        }
    }
    if (view.Complete()) return "";
    for (const std::string& name : view.List("cmd")) {
        const bool log = name.starts_with("ausearch") || name.starts_with("journalctl") ||
                         name.starts_with("systemctl_status_opensm");
        if (!log) continue;
        const std::string text = view.Text("cmd/" + name);
        for (std::string_view line : Lines(text)) {
            const bool avc = Contains(line, "avc:") && Contains(line, "opensm");
            const bool own = Contains(line, "opensm") && Contains(line, "ermission denied") &&
                             Contains(line, kLog);
            if ((avc && !Contains(line, "permissive=1")) || own) {
                return std::string(line.substr(0, 200));
            }
        }
    }
    return "";
}

// "system_u:object_r:var_log_t:s0 /var/log/opensm.log" -> "var_log_t".
std::string LabelOfLog(HostView& view) {
    const Reading listed = CommandLike(view, "ls -Z /var/log/opensm.log");
    for (std::string_view word : Words(listed.text)) {
        const auto parts = Split(word, ':');
        if (parts.size() >= 3 && parts[2].ends_with("_t")) return std::string(parts[2]);
    }
    return "";
}

}  // namespace

void RunIbManagerLog(HostView& view, Findings& out) {
    const Reading state = view.Command("systemctl is-active opensm");
    const bool active = state.found() && Trim(state.text) == "active";
    const std::string denial = Denial(view);
    const std::string label = LabelOfLog(view);
    const std::string expected = fmt::format("{} with the label {}", kLog, kLabel);
    if (!denial.empty()) {
        const std::string read =
            fmt::format("opensm is {}: {}", state.found() ? Trim(state.text) : "denied", denial);
        const Severity severity = active ? Severity::kWarn : Severity::kFail;
        return out.Add(severity, read, expected, kManagerLogWhy, kRelabel);
    }
    if (label.empty()) return;
    const std::string read = fmt::format("{}: {}", kLog, label);
    if (label == kLabel) return out.Ok(read, expected);
    const Reading enforce = view.Command("getenforce");
    const bool lets = Contains(enforce.text, "Permissive") || Contains(enforce.text, "Disabled");
    out.Add(lets ? Severity::kNote : Severity::kWarn, read, expected, kManagerLogWhy, kRelabel);
}

}  // namespace weft::doctor::checks
