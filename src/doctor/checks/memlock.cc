// Locked memory of this process: the limit, and what mlock really gives.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

std::string MemlockFix(HostView& view) {
    return UnlockLogin(view) +
           " (a systemd unit: LimitMEMLOCK=infinity; a container: --ulimit memlock=-1)";
}

constexpr const char* kWhy =
    "RDMA pins 4 MiB for each peer and direction: with less, ibv_reg_mr and ibv_create_cq fail "
    "with 'Cannot allocate memory', or the link falls back to TCP";

// The best proof: memory registered with each RDMA device. False where none could be tried.
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

// "soft BYTES ...": as the probe has it, or out of /proc/self/limits or `ulimit -l` (KiB) of a
// snapshot made by hand.
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
    if (HasRdma(view)) {
        out.Fail(read, expected, kWhy, MemlockFix(view));
        return out.AskCost(TcpQuestion(view));
    }
    out.Note(read, expected, std::string(kWhy) + "; without an RDMA device it does not matter yet",
             MemlockFix(view));
}

}  // namespace

const Check kMemlock = {
    .name = "memlock",
    .what =
        "Memory that this process may lock: the limit, proved by locking 64 MiB, and by "
        "registering them where there is an RDMA device.",
    .reads = "getrlimit(RLIMIT_MEMLOCK), mlock(2), ibv_reg_mr",
    .why =
        "RDMA registers, and so pins, its memory: with the usual 8 MiB it fails with 'Cannot "
        "allocate memory'.",
    .run = RunMemlock,
};

}  // namespace weft::doctor::checks
