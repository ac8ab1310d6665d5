// The devices through which a program uses RDMA.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

void RunRdmaAccess(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const std::vector<std::string> devices = Numbered(view, "dev/infiniband", "uverbs");
    const char* expected = "/dev/infiniband/uverbs*, readable and writable";
    if (devices.empty() && !view.Complete() && view.List("dev").empty()) return;
    for (const std::string& card : view.List("sys/class/infiniband")) {
        const Reading proof = view.Probe("register_memory/" + card);
        if (devices.empty() && proof.text.starts_with("registered")) {
            return out.Ok(card + ": " + std::string(Trim(proof.text)), expected);
        }
    }
    if (devices.empty()) {
        out.Fail("no /dev/infiniband/uverbs*, though the kernel has an RDMA device", expected,
                 "programs can't reach the card: Weft uses TCP",
                 "sudo modprobe -a ib_uverbs rdma_ucm (in a container: --device "
                 "/dev/infiniband)");
        return out.AskCost(TcpQuestion(view));
    }
    for (const std::string& device : devices) {
        const Reading access = view.Probe("access/dev/infiniband/" + device);
        if (!access.found()) continue;
        const std::string read = fmt::format("/dev/infiniband/{}: {}", device, Trim(access.text));
        if (Trim(access.text) != "rw") {
            out.Fail(read, expected, "this user can't use the card: Weft uses TCP",
                     Install(view, kRdmaCore) +
                         " (its udev rules give 0666), or sudo usermod -aG rdma $USER and log in "
                         "again");
            return out.AskCost(TcpQuestion(view));
        }
    }
    out.Ok("/dev/infiniband: " + Joined(devices), expected);
}

}  // namespace

const Check kRdmaAccess = {
    .name = "rdma-access",
    .what = "The device files of RDMA, and whether this user may use them.",
    .reads = "/dev/infiniband, access(2)",
    .why = "Without them RDMA silently becomes TCP.",
    .run = RunRdmaAccess,
};

}  // namespace weft::doctor::checks
