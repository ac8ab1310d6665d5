// Checks locked-memory limits of this process, of a login shell, and of systemd units.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {

// ---- memlock: Locked memory of this process: the limit, and the result of mlock.

namespace {

std::string MemlockFix(HostView& view) {
    return Cure(view, "unlock-login") +
           " (a systemd unit: LimitMEMLOCK=infinity; a container: --ulimit memlock=-1)";
}

constexpr const char* kWhy =
    "RDMA pins 4 MiB for each peer and direction: with less, ibv_reg_mr and ibv_create_cq fail "
    "with 'Cannot allocate memory', or the link falls back to TCP";

// Registers memory with each RDMA device, the strongest proof. False: no device could be tried.
bool LookAtDevices(HostView& view, std::string_view soft, Findings& out) {
    bool tried = false;
    for (const std::string& device : view.List("sys/class/infiniband")) {
        const Reading proof = view.Probe("register_memory/" + device);
        if (!proof.found()) continue;
        tried = true;
        const std::string read = fmt::format("{}: {}; limit {}", device, Trim(proof.text), soft);
        if (proof.text.starts_with("registered")) {
            out.Ok(read);
        } else {
            out.Fail(read, fmt::format("{} can be registered", SizeText(kLockedBytesNeeded)), kWhy,
                     MemlockFix(view));
            out.AskCost(TcpQuestion(view));
        }
    }
    return tried;
}

// "soft BYTES ...": from the probe, or in a handmade snapshot from /proc/self/limits or `ulimit -l`
// (KiB).
Reading Limit(HostView& view) {
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

}  // namespace

void RunMemlock(HostView& view, Findings& out) {
    const Reading limit = Limit(view);
    const Reading tried = view.Probe("lock_memory");
    if (!limit.found() && !tried.found()) return;
    const std::string_view soft = After(limit.text, "soft ", " ");
    if (LookAtDevices(view, soft, out)) return;
    const auto bytes = Number(soft);
    const std::string read =
        fmt::format("limit {}; mlock {}", bytes ? SizeText(*bytes) : std::string(soft),
                    tried.found() ? Trim(tried.text) : "not tried");
    const std::string expected = fmt::format("{} can be locked", SizeText(kLockedBytesNeeded));
    const bool small =
        tried.found() ? Contains(tried.text, "refused") : bytes && *bytes < kLockedBytesNeeded;
    if (!small) return out.Ok(read, expected);
    const bool passed = !HasTag(view, "container") || !view.List("dev/infiniband").empty();
    if (HasRdma(view) && passed) {
        out.Fail(read, expected, kWhy, MemlockFix(view));
        return out.AskCost(TcpQuestion(view));
    }
    out.Note(read, expected, std::string(kWhy) + "; without an RDMA device it does not matter yet",
             MemlockFix(view));
}

// ---- memlock-login: Locked memory of a login shell.

namespace {

// Value of the last line that applies to everybody (or to a group or user); "": none.
struct Limits {
    std::string everybody, somebody, file;
};

void ReadLimits(std::string_view text, const std::string& file, Limits& limits) {
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line.substr(0, line.find('#')));
        if (words.size() < 4 || words[2] != "memlock") continue;
        if (words[1] != "soft" && words[1] != "-") continue;
        std::string& value = words[0] == "*" ? limits.everybody : limits.somebody;
        value = std::string(words[3]);
        limits.file = file;
    }
}

bool IsEnough(const std::string& value) {
    const auto kib = Number(value);
    return value == "unlimited" || value == "infinity" || value == "-1" ||
           (kib && *kib * 1024 >= kLockedBytesNeeded);
}

}  // namespace

void RunMemlockLogin(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    Limits limits;
    std::vector<std::string> files = {"etc/security/limits.conf"};
    for (const std::string& name : view.List("etc/security/limits.d")) {
        if (name.ends_with(".conf")) files.push_back("etc/security/limits.d/" + name);
    }
    bool any = false;
    for (const std::string& file : files) {
        const Reading reading = view.Read(file);
        any = any || reading.found();
        if (reading.found()) ReadLimits(reading.text, file, limits);
    }
    if (!any) return;
    const std::string expected = "* soft memlock unlimited";
    const Reading limit = view.Probe("memlock");
    const std::string session(After(limit.text, "soft ", " "));
    const auto bytes = Number(session);
    if (IsEnough(limits.everybody) && bytes && *bytes < kLockedBytesNeeded) {
        return out.Warn(
            fmt::format("/{} grants memlock {}, this session has {}", limits.file, limits.everybody,
                        SizeText(*bytes)),
            "the limit that is set",
            "limits count from the next login on: RDMA still fails with 'Cannot allocate memory'",
            "log out of the whole session and in again (a desktop, tmux or VS Code server keeps "
            "the old one: sudo systemctl reboot); services: LimitMEMLOCK=infinity");
    }
    if (IsEnough(limits.everybody) || (limits.everybody.empty() && IsEnough(limits.somebody))) {
        return out.Ok(
            fmt::format("memlock {} in /{}",
                        limits.everybody.empty() ? limits.somebody : limits.everybody, limits.file),
            expected);
    }
    for (const std::string& card : view.List("sys/class/infiniband")) {
        const Reading proof = view.Probe("register_memory/" + card);
        if (proof.text.starts_with("registered")) {
            return out.Ok(fmt::format("{}: {} in this session", card, Trim(proof.text)), expected);
        }
    }
    // The session has the limit for another reason: it is root's, or systemd's default.
    if (session == "unlimited" || (bytes && *bytes >= kLockedBytesNeeded)) {
        return out.Ok(fmt::format("memlock {} in this session", session), expected);
    }
    if (!view.Complete() && !bytes && limits.file.empty() && files.size() == 1) {
        return out.Note("no line about memlock in /etc/security/limits.conf; limits.d was not read",
                        expected, "the limit decides whether memory can be registered for RDMA",
                        "the folder limits.d beside it into the snapshot");
    }
    const std::string read =
        limits.everybody.empty()
            ? std::string("no line about memlock in /etc/security/limits.conf and limits.d")
            : fmt::format("memlock {} KiB in /{}", limits.everybody, limits.file);
    out.Warn(read, expected,
             "a login shell gets 8 MiB (64 KiB on old systems): a Weft started from it by hand or "
             "over ssh can't register memory and falls back to TCP",
             Cure(view, "unlock-login"));
}

// ---- memlock-systemd: Locked memory of a systemd unit.

namespace {

constexpr const char* kFolder = "etc/systemd/system";

// "infinity", bytes, or with a unit of 1024: "64G"; in "SOFT:HARD" the first value counts.
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

// The last value in a unit or drop-in; an empty value resets earlier ones.
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

// The unit's value, overridden by its drop-ins in order of their names (systemd.unit(5)). cut: one
// of the files is incomplete.
std::string LimitOf(HostView& view, const std::string& name, bool& cut) {
    std::string limit;
    const std::string path = fmt::format("{}/{}", kFolder, name);
    ReadLimit(view, path, limit, cut);
    for (const std::string& drop_in : view.List(path + ".d")) {
        if (drop_in.ends_with(".conf")) ReadLimit(view, path + ".d/" + drop_in, limit, cut);
    }
    return limit;
}

}  // namespace

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

}  // namespace weft::doctor::checks
