// Checks locked-memory limits of this process, of a login shell, and of systemd units.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

// "unlimited", or a number times `unit` bytes.
bool IsEnough(std::string_view value, double unit) {
    const auto number = Number(value);
    return value == "unlimited" || value == "infinity" || value == "-1" ||
           (number && *number * unit >= kLockedBytesNeeded);
}

// "soft BYTES ...": from the probe, or in a handmade snapshot from /proc/self/limits or `ulimit -l`
// (KiB).
Reading ProcessLimit(HostView& view) {
    Reading limit = view.Probe("memlock");
    if (limit.found() || view.Complete()) return limit;
    const Reading limits = view.Read("proc/self/limits");
    const auto words = Words(After(limits.text, "Max locked memory"));
    if (!words.empty()) return {ReadState::kFound, "soft " + std::string(words[0])};
    const Reading ulimit = view.Command("ulimit -l");
    const std::string_view value = Trim(ulimit.text);
    if (value == "unlimited") return {ReadState::kFound, "soft unlimited"};
    const auto kib = Integer(value);
    if (kib && *kib >= 0 && *kib < int64_t{1} << 50) {
        return {ReadState::kFound, fmt::format("soft {}", *kib * 1024)};
    }
    return limit;
}

// ---- memlock-login: locked memory of a login shell.

// Value of the last line that applies to everybody (or to a group or user); "": none.
struct LoginLimits {
    std::string everybody, somebody, file;
};

void ReadLoginLimits(std::string_view text, const std::string& file, LoginLimits& limits) {
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line.substr(0, line.find('#')));
        if (words.size() < 4 || words[2] != "memlock" || !IsOneOf(words[1], "soft -")) continue;
        (words[0] == "*" ? limits.everybody : limits.somebody) = words[3];
        limits.file = file;
    }
}

// ---- memlock-systemd: locked memory of a systemd unit.

constexpr const char* kUnits = "etc/systemd/system";

// "infinity", bytes, or with a unit of 1024: "64G"; in "SOFT:HARD" the first value counts.
bool IsEnoughForUnit(std::string_view value) {
    constexpr std::string_view kPowers = "KMGTPE";
    value = Trim(value.substr(0, value.find(':')));
    double unit = 1;
    if (const size_t at = value.empty() ? kPowers.npos : kPowers.find(value.back());
        at != kPowers.npos) {
        for (size_t i = 0; i <= at; ++i) unit *= 1024;
        value.remove_suffix(1);
    }
    return value == "infinity" || (value != "unlimited" && value != "-1" && IsEnough(value, unit));
}

// The last value in the unit and its drop-ins, in order of their names (systemd.unit(5)); an empty
// value resets earlier ones. cut: one of the files is incomplete.
std::string UnitLimit(HostView& view, const std::string& name, bool& cut) {
    constexpr std::string_view kKey = "LimitMEMLOCK";
    std::string limit;
    std::vector<std::string> files = ConfFiles(view, fmt::format("{}/{}.d", kUnits, name));
    files.insert(files.begin(), fmt::format("{}/{}", kUnits, name));
    for (const std::string& path : files) {
        const Reading file = view.Read(path);
        cut = cut || file.cut;
        for (std::string_view line : Lines(file.text)) {
            line = Trim(line);
            if (!line.starts_with(kKey)) continue;
            line = Trim(line.substr(kKey.size()));
            if (line.starts_with('=')) limit = std::string(Trim(line.substr(1)));
        }
    }
    return limit;
}

}  // namespace

// ---- memlock: locked memory of this process: the limit, and the result of mlock.

void RunMemlock(HostView& view, Findings& out) {
    const Reading limit = ProcessLimit(view);
    const Reading tried = view.Probe("lock_memory");
    if (!limit.found() && !tried.found()) return;
    const std::string_view soft = After(limit.text, "soft ", " ");
    const std::string needed = SizeText(kLockedBytesNeeded);
    // Registering memory with an RDMA device is the strongest proof.
    for (const std::string& device : view.List("sys/class/infiniband")) {
        const Reading proof = view.Probe("register_memory/" + device);
        if (!proof.found() || LacksProvider(view, device)) continue;  // rdma-library reports it
        const bool fine = proof.text.starts_with("registered");
        ReportUnless<found::kMemlockDevice>(fine, out, device, Trim(proof.text), soft, needed);
        if (!fine) out.EstimateCost(TcpQuestion(view));
    }
    if (!out.empty()) return;
    const auto bytes = Number(soft);
    const bool small =
        tried.found() ? Contains(tried.text, "refused") : bytes && *bytes < kLockedBytesNeeded;
    const bool passed = !HasTag(view, "container") || !view.List("dev/infiniband").empty();
    const bool matters = HasRdma(view) && passed;
    const Severity severity = !small ? kOk : matters ? kFail : kNote;
    ReportAs<found::kMemlockSmall>(severity, out, bytes ? SizeText(*bytes) : std::string(soft),
                                   tried.found() ? Trim(tried.text) : "not tried", needed,
                                   matters ? "" : "; it does not matter without an RDMA device");
    if (severity == kFail) out.EstimateCost(TcpQuestion(view));
}

void RunMemlockLogin(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    LoginLimits limits;
    std::vector<std::string> files = ConfFiles(view, "etc/security/limits.d");
    files.insert(files.begin(), "etc/security/limits.conf");
    bool any = false;
    for (const std::string& file : files) {
        const Reading reading = view.Read(file);
        any = any || reading.found();
        if (reading.found()) ReadLoginLimits(reading.text, file, limits);
    }
    if (!any) return;
    const bool enough = IsEnough(limits.everybody, 1024);
    const Reading limit = view.Probe("memlock");
    const std::string session(After(limit.text, "soft ", " "));
    const auto bytes = Number(session);
    const std::string proven = ProvenDevice(view);
    if (enough && bytes && *bytes < kLockedBytesNeeded) {
        Report<found::kLoginPending>(out, limits.file, limits.everybody, SizeText(*bytes));
    } else if (enough || (limits.everybody.empty() && IsEnough(limits.somebody, 1024))) {
        const std::string& value = limits.everybody.empty() ? limits.somebody : limits.everybody;
        Report<found::kLoginFine>(out, fmt::format("memlock {} in /{}", value, limits.file));
    } else if (!proven.empty()) {
        Report<found::kLoginFine>(out, proven + " in this session");
    } else if (session == "unlimited" || (bytes && *bytes >= kLockedBytesNeeded)) {
        // No file sets the session's limit: the limit is root's or systemd's default.
        Report<found::kLoginFine>(out, fmt::format("memlock {} in this session", session));
    } else if (!view.Complete() && !bytes && limits.file.empty() && files.size() == 1) {
        Report<found::kLoginUnread>(out);
    } else {
        Report<found::kLoginSmall>(
            out, limits.everybody.empty()
                     ? "no line about memlock in /etc/security/limits.conf and limits.d"
                     : fmt::format("memlock {} KiB in /{}", limits.everybody, limits.file));
    }
}

void RunMemlockSystemd(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const Reading manager = view.Command("systemctl show --property=DefaultLimitMEMLOCK");
    const std::string usual(After(manager.text, "DefaultLimitMEMLOCK="));
    const bool usual_enough = IsEnoughForUnit(usual);
    for (const std::string& name : view.List(kUnits)) {
        if (!name.starts_with("weft") || !name.ends_with(".service")) continue;
        bool cut = false;
        const std::string own = UnitLimit(view, name, cut);
        const std::string value = own.empty() ? "not set, by default " + usual : own;
        if (own.empty() ? usual_enough : IsEnoughForUnit(own)) {
            Report<found::kUnitFine>(out, name, value);
        } else if (cut) {
            Report<found::kUnitCut>(out, name, value);
        } else {
            Report<found::kUnitSmall>(out, name, value, UnlockUnit(view, name));
            out.EstimateCost(TcpQuestion(view));
        }
    }
    if (!out.empty() || usual.empty()) return;
    ReportUnless<found::kUnitDefault>(usual_enough, out, usual, UnlockUnit(view, "weft.service"));
}

}  // namespace weft::doctor::checks
