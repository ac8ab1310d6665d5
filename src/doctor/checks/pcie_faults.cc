// Checks errors on PCI Express links, and cards that left the bus.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

// ---- pcie-errors: errors that a retransmission corrected, and errors that it could not.

constexpr size_t kManyLogged = 20;  // the kernel logs only a part of the errors

struct ErrorCount {
    size_t corrected = 0, uncorrected = 0;
    bool any() const { return corrected + uncorrected > 0; }
    void TakeLarger(const ErrorCount& other) {
        corrected = std::max(corrected, other.corrected);
        uncorrected = std::max(uncorrected, other.uncorrected);
    }
};

// The kernel logs one error in two lines: the root port's "AER: Corrected error message received
// from 0000:01:00.0" ("AER: Multiple Corrected error received: 0000:01:00.0"), then the card's
// "PCIe Bus Error: severity=Corrected". Each form is counted by itself; the larger count holds.
struct LoggedErrors {
    ErrorCount by_card, by_port;
    ErrorCount count() const {
        ErrorCount larger = by_card;
        larger.TakeLarger(by_port);
        return larger;
    }
};
using ErrorsByAddress = std::map<std::string, LoggedErrors, std::less<>>;

// Linux 6.8 prints "Correctable" where older kernels print "Corrected", and "Uncorrectable (Fatal)"
// for "Uncorrected (Fatal)".
void CountLine(std::string_view lower, LoggedErrors& logged) {
    if (Contains(lower, "pcie bus error")) {
        logged.by_card.corrected += Contains(lower, "=correct");
        logged.by_card.uncorrected += Contains(lower, "=uncorrect");
    }
    const bool port = Contains(lower, "aer:") && (Contains(lower, "error received:") ||
                                                  Contains(lower, "error message received"));
    if (!port) return;
    const bool uncorrected = Contains(lower, "uncorrect");
    logged.by_port.uncorrected += uncorrected;
    logged.by_port.corrected += !uncorrected && Contains(lower, "correct");
}

// Errors by each address in a line: the card's and that of the port above it.
ErrorsByAddress ReadLoggedErrors(const std::vector<LogLine>& log) {
    ErrorsByAddress all;
    for (const LogLine& line : log) {
        LoggedErrors one;
        CountLine(line.lower, one);
        if (!one.count().any()) continue;
        std::string_view rest = line.known;
        std::set<std::string_view> addresses;
        for (std::string_view address = PciAddressIn(rest); !address.empty();
             address = PciAddressIn(rest)) {
            addresses.insert(address);
            rest.remove_prefix(static_cast<size_t>(address.data() - rest.data()) + address.size());
        }
        for (std::string_view address : addresses) {
            CountLine(line.lower, all[std::string(address)]);
        }
    }
    return all;
}

// Errors of the card's link. Either end may report them, and a line may name both ends, so the
// larger count is the link's.
ErrorCount ErrorsOfLink(const ErrorsByAddress& logged, const PciDevice& card) {
    ErrorCount count;
    std::vector<std::string> ends = {card.address};
    if (!card.bridges.empty()) ends.push_back(card.bridges.front());
    for (const std::string& end : ends) {
        if (const auto at = logged.find(end); at != logged.end()) {
            count.TakeLarger(at->second.count());
        }
    }
    return count;
}

double CounterIn(HostView& view, const std::string& path, std::string_view total) {
    const Reading file = view.Read(path);
    return file.found() ? NumberAfter(file.text, total).value_or(0) : 0;
}

void CheckErrors(HostView& view, const PciDevice& card, const ErrorCount& logged, Findings& out) {
    const std::string path = "sys/bus/pci/devices/" + card.address;
    const double corrected = CounterIn(view, path + "/aer_dev_correctable", "TOTAL_ERR_COR ");
    const double fatal = CounterIn(view, path + "/aer_dev_fatal", "TOTAL_ERR_FATAL ") +
                         CounterIn(view, path + "/aer_dev_nonfatal", "TOTAL_ERR_NONFATAL ");
    if (fatal > 0) {
        Report<found::kAerFatal>(view, out, card.Text(), fatal);
    } else if (logged.uncorrected > 0) {
        Report<found::kAerFatalLogged>(view, out, card.Text(), logged.uncorrected);
    } else if (corrected >= 100) {
        Report<found::kAerCorrected>(view, out, card.Text(), corrected);
    } else if (logged.corrected >= kManyLogged) {
        Report<found::kAerCorrectedLogged>(view, out, card.Text(), logged.corrected);
    }
}

// For a snapshot with only the log: the driver in a line identifies the device.
void CheckUnlisted(HostView& view, const std::vector<LogLine>& log, const ErrorsByAddress& logged,
                   Findings& out) {
    std::string worst;
    size_t max_weight = kManyLogged - 1;
    for (const auto& [address, errors] : logged) {
        const ErrorCount count = errors.count();
        const size_t weight = count.corrected + count.uncorrected * kManyLogged;
        if (weight > max_weight) worst = address, max_weight = weight;
    }
    if (worst.empty()) return;
    std::string_view driver;
    for (const LogLine& line : log) {
        if (!Contains(line.known, worst)) continue;
        if (driver.empty()) driver = NetworkDriverIn(line.known);
        if (driver.empty()) driver = GpuDriverIn(line.known);
    }
    const ErrorCount count = logged.at(worst).count();
    const std::string name = driver.empty() ? worst : fmt::format("{} ({})", worst, driver);
    if (count.uncorrected > 0) {
        Report<found::kAerFatalLogged>(view, out, name, count.uncorrected);
    } else {
        Report<found::kAerCorrectedLogged>(view, out, name, count.corrected);
    }
}

// ---- pcie-absent: cards that left the bus or did not come up.

// A driver that is only loaded for a card.
struct CardDriver {
    std::string_view module, vendor;
    const char* card;
};
constexpr std::array<CardDriver, 6> kCardDrivers = {{{"mlx4_core", "15b3", "ConnectX-3"},
                                                     {"mlx5_core", "15b3", "ConnectX"},
                                                     {"ice", "8086", "E810"},
                                                     {"bnxt_en", "14e4", "Broadcom NetXtreme-E"},
                                                     {"ionic", "1dd8", "Pensando"},
                                                     {"cxgb4", "1425", "Chelsio"}}};

bool HasModule(HostView& view, std::string_view module) {
    if (view.Has("sys/module/" + std::string(module))) return true;
    const Reading list = view.Command("lsmod");
    return list.found() && std::ranges::any_of(Lines(list.text), [&](std::string_view line) {
               const auto words = Words(line);
               return words.size() >= 2 && words[0] == module && LeadingNumber(words[1]);
           });
}

// Cards whose registers read as ones, and slots with a card whose link did not come up.
void CheckListed(HostView& view, const std::vector<PciDevice>& devices, Findings& out) {
    for (const PciDevice& card : devices) {
        if (card.lost && (card.IsNetwork() || card.IsGpu() || card.type == 0)) {
            Report<found::kCardLost>(view, out, card.Text());
        }
    }
    for (const PciDevice& port : devices) {
        if (!port.IsBridge() || !port.slot_filled || port.link_active || port.now.known()) continue;
        const bool used = std::ranges::any_of(devices, [&](const PciDevice& one) {
            return !one.bridges.empty() && one.bridges.front() == port.address;
        });
        if (!used) Report<found::kCardLinkDown>(view, out, port.Text());
    }
}

// Reports a driver's card that the log names and that is no longer listed.
void CheckLogged(HostView& view, const std::vector<PciDevice>& devices, Findings& out) {
    std::set<std::string> reported;
    for (const LogLine& line : KernelLogLines(KernelLog(view))) {
        const std::string_view driver = NetworkDriverIn(line.known);
        const std::string address(PciAddressIn(line.known));
        if (driver.empty() || address.empty() || FindPci(devices, address) != nullptr) continue;
        if (std::ranges::find(kCardDrivers, driver, &CardDriver::module) == kCardDrivers.end()) {
            continue;
        }
        if (reported.insert(address).second) {
            Report<found::kCardGone>(view, out, driver, address);
        }
    }
}

}  // namespace

void RunPcieErrors(HostView& view, Findings& out) {
    size_t checked = 0;
    const std::vector<LogLine> log = KernelLogLines(KernelLog(view));
    const ErrorsByAddress logged = ReadLoggedErrors(log);
    const std::vector<PciDevice> devices = PciDevices(view);
    for (const PciDevice& card : devices) {
        if (!card.IsNetwork() && !card.IsGpu()) continue;
        const ErrorCount of_link = ErrorsOfLink(logged, card);
        const bool counted =
            view.Has("sys/bus/pci/devices/" + card.address + "/aer_dev_correctable");
        if (!counted && !of_link.any()) continue;
        ++checked;
        CheckErrors(view, card, of_link, out);
    }
    if (devices.empty()) CheckUnlisted(view, log, logged, out);
    if (checked > 0 && out.empty()) ReportOk(out, "{} cards without errors", checked);
}

void RunPcieAbsent(HostView& view, Findings& out) {
    const std::vector<PciDevice> devices = PciDevices(view);
    CheckListed(view, devices, out);
    if (!KnowsAllPci(view)) return;
    CheckLogged(view, devices, out);
    if (!out.empty()) return;
    for (const CardDriver& driver : kCardDrivers) {
        const bool present = std::ranges::any_of(devices, [&](const PciDevice& one) {
            return one.vendor == driver.vendor || one.driver == driver.module || one.fabric;
        });
        if (present || !RdmaPorts(view).empty() || !HasModule(view, driver.module)) continue;
        return Report<found::kCardAbsent>(view, out, driver.module, driver.card);
    }
    if (!devices.empty()) ReportOk(out, "{} devices, none lost", devices.size());
}

}  // namespace weft::doctor::checks
