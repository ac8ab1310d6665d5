// Locked memory that a login shell gets.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

// The value that the last line for everybody (or for a group or user) gives; "" where none does.
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
    // The session that was looked at got it by another way: as root, by systemd's default.
    const Reading limit = view.Probe("memlock");
    const std::string session(After(limit.text, "soft ", " "));
    const auto bytes = Number(session);
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
             UnlockLogin(view));
}

}  // namespace

const Check kMemlockLogin = {
    .name = "memlock-login",
    .what = "Memory that programs of a login shell may lock, where there is RDMA.",
    .reads = "/etc/security/limits.conf, /etc/security/limits.d",
    .why = "The limit is set by PAM at login: it differs between a shell, ssh and a service.",
    .run = RunMemlockLogin,
};

}  // namespace weft::doctor::checks
