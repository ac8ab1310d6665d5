// An RDMA card without an RDMA device.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/cures.h"
#include "doctor/network.h"
#include "doctor/pci.h"
#include "doctor/rdma.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// Of the cards that i40e drives only X722 can do RDMA.
bool IsX722(const NetDevice& device, const std::vector<PciDevice>& cards) {
    const PciDevice* card = FindPci(cards, device.pci);
    if (card == nullptr) return false;
    const int64_t id = Integer(card->device, 16).value_or(0);
    return (id >= 0x37cc && id <= 0x37d3) || Contains(card->name, "X722");
}

// The module that makes an RDMA device of a card with this driver.
const char* RdmaModule(const NetDevice& device, const std::vector<PciDevice>& cards) {
    const std::string& driver = device.driver;
    if (driver == "mlx5_core") return "mlx5_ib";
    if (driver == "mlx4_core" || driver == "mlx4_en") return "mlx4_ib";
    if (driver == "ice" || (driver == "i40e" && IsX722(device, cards))) return "irdma";
    if (driver == "bnxt_en") return "bnxt_re";
    if (driver == "cxgb4") return "iw_cxgb4";
    if (driver == "qede") return "qedr";
    return nullptr;
}

void RunRdmaDevice(HostView& view, Findings& out) {
    const std::vector<RdmaPort> ports = RdmaPorts(view);
    if (!ports.empty()) {
        std::string read;
        for (const RdmaPort& port : ports) read += (read.empty() ? "" : ", ") + port.Text();
        if (ports.front().device.starts_with("rxe")) {
            return out.Note(read + ": emulated in software (rdma_rxe)", "a card with RDMA",
                            "Soft-RoCE is for tests: 10 to 30 us a message, more than plain TCP",
                            "--transport tcp");
        }
        return out.Ok(read);
    }
    const bool known = view.Complete() || view.Has("sys/class/infiniband");
    const std::vector<PciDevice> cards = PciDevices(view);
    for (const NetDevice& device : NetDevices(view)) {
        const char* module = RdmaModule(device, cards);
        if (module == nullptr) continue;
        return out.Add(
            known ? Severity::kWarn : Severity::kNote,
            fmt::format("{}: driver {}, but no RDMA device", device.name, device.driver),
            "a device under /sys/class/infiniband",
            "the card could do RDMA, 2 us a message; without its module Weft uses TCP, 10 to 50 us",
            fmt::format("{} && sudo modprobe -a {} ib_uverbs rdma_ucm", Install(view, kRdmaCore),
                        module));
    }
}

}  // namespace

const Check kRdmaDevice = {
    .name = "rdma-device",
    .what = "Cards that can do RDMA have an RDMA device.",
    .reads = "/sys/class/infiniband or ibstat, ethtool -i",
    .why =
        "The module of the driver's RDMA half is often not loaded: 10 to 50 us a message over "
        "TCP in place of 2.",
    .run = RunRdmaDevice,
};

}  // namespace weft::doctor::checks
