// Checks PCI Express errors that were corrected by retransmission.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/kernel_log.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// The kernel logs only a part of the errors.
constexpr size_t kManyLogged = 20;
constexpr const char* kErrorFix =
    "reseat the card, change the riser or cable, update the BIOS; as a last resort one "
    "generation less for the slot in the BIOS";
constexpr const char* kLostTransfers =
    "transfers were lost: the driver resets the card, and the job with it";
constexpr const char* kCorrectedWhy =
    "each is a packet sent again, 1 to 10 us late, and the log fills; a link on its way out";

double Count(HostView& view, const std::string& path, std::string_view total) {
    const Reading file = view.Read(path);
    return file.found() ? NumberAfter(file.text, total).value_or(0) : 0;
}

struct Logged {
    size_t corrected = 0, uncorrected = 0;
    bool any() const { return corrected + uncorrected > 0; }
    void Add(const Logged& other) {
        corrected += other.corrected;
        uncorrected += other.uncorrected;
    }
    void Raise(const Logged& other) {
        corrected = std::max(corrected, other.corrected);
        uncorrected = std::max(uncorrected, other.uncorrected);
    }
};

// Linux 6.8 prints "Correctable" where older kernels print "Corrected", and "Uncorrectable (Fatal)"
// for "Uncorrected (Fatal)". For one error, the root port prints "AER: Corrected error message
// received from 0000:01:00.0" or "AER: Multiple Corrected error received: 0000:01:00.0", and the
// device prints "PCIe Bus Error: severity=Corrected".
bool IsOfPort(std::string_view lower) {
    return Contains(lower, "aer:") && !Contains(lower, "pcie bus error") &&
           (Contains(lower, "error received:") || Contains(lower, "error message received"));
}

Logged CountLine(std::string_view lower) {
    const bool bus = Contains(lower, "pcie bus error"), port = IsOfPort(lower);
    if (Contains(lower, bus ? "=uncorrect" : "uncorrect")) return {0, bus || port ? 1u : 0u};
    return {(bus || port) && Contains(lower, bus ? "=correct" : "correct") ? 1u : 0u, 0};
}

// Errors by each address in a line: the card's and that of the port above it. The lines of ports
// and those of devices report the same errors, so the larger count of the two is taken.
std::map<std::string, Logged, std::less<>> LoggedErrors(const std::vector<LogLine>& log) {
    std::map<std::string, Logged, std::less<>> of_ports, all;
    for (const LogLine& line : log) {
        const Logged one = CountLine(line.lower);
        if (!one.any()) continue;
        auto& counts = IsOfPort(line.lower) ? of_ports : all;
        std::string_view rest = line.known;
        std::vector<std::string> seen;
        for (std::string_view address = PciAddressIn(rest); !address.empty();
             address = PciAddressIn(rest)) {
            if (std::ranges::find(seen, address) == seen.end()) {
                counts[std::string(address)].Add(one);
                seen.emplace_back(address);
            }
            rest.remove_prefix(static_cast<size_t>(address.data() - rest.data()) + address.size());
        }
    }
    for (const auto& [address, logged] : of_ports) all[address].Raise(logged);
    return all;
}

using LoggedByAddress = std::map<std::string, Logged, std::less<>>;

// Errors of the card's link. Either end may see them, and a line may name both ends, so the larger
// count is the link's.
Logged OfLink(const LoggedByAddress& log, const PciDevice& card) {
    Logged logged;
    const auto take = [&](const std::string& address) {
        const auto found = log.find(address);
        if (found != log.end()) logged.Raise(found->second);
    };
    take(card.address);
    if (!card.bridges.empty()) take(card.bridges.front());
    return logged;
}

void LookAtCard(HostView& view, const PciDevice& card, const Logged& logged, Findings& out) {
    const std::string path = "sys/bus/pci/devices/" + card.address;
    const double corrected = Count(view, path + "/aer_dev_correctable", "TOTAL_ERR_COR ");
    const double fatal = Count(view, path + "/aer_dev_fatal", "TOTAL_ERR_FATAL ") +
                         Count(view, path + "/aer_dev_nonfatal", "TOTAL_ERR_NONFATAL ");
    if (fatal > 0 || logged.uncorrected > 0) {
        out.Fail(fatal > 0
                     ? fmt::format("{}: {} errors that could not be corrected", card.Text(), fatal)
                     : fmt::format("{}: {} lines of errors that could not be corrected in the "
                                   "kernel's log",
                                   card.Text(), logged.uncorrected),
                 "0", kLostTransfers, kErrorFix);
    } else if (corrected >= 100 || logged.corrected >= kManyLogged) {
        out.Warn(corrected >= 100
                     ? fmt::format("{}: {} corrected errors", card.Text(), corrected)
                     : fmt::format("{}: {} lines of corrected errors in the kernel's log",
                                   card.Text(), logged.corrected),
                 "fewer than 100", kCorrectedWhy, kErrorFix);
    }
}

// For a snapshot with only the log: the driver in a line identifies the device.
void LookAtUnlisted(const std::vector<LogLine>& log, const LoggedByAddress& logged, Findings& out) {
    std::string worst;
    size_t most = 0;
    for (const auto& [address, one] : logged) {
        const size_t count = one.corrected + one.uncorrected * kManyLogged;
        if (count > most) worst = address, most = count;
    }
    if (most < kManyLogged) return;
    std::string_view driver;
    for (const LogLine& line : log) {
        if (!Contains(line.known, worst)) continue;
        if (driver.empty()) driver = NetworkDriverIn(line.known);
        if (driver.empty()) driver = GpuDriverIn(line.known);
    }
    const Logged& errors = logged.at(worst);
    const std::string who = driver.empty() ? worst : fmt::format("{} ({})", worst, driver);
    if (errors.uncorrected > 0) {
        return out.Fail(fmt::format("{}: {} lines of errors that could not be corrected in the "
                                    "kernel's log",
                                    who, errors.uncorrected),
                        "0", kLostTransfers, kErrorFix);
    }
    out.Warn(
        fmt::format("{}: {} lines of corrected errors in the kernel's log", who, errors.corrected),
        "fewer than 20", kCorrectedWhy, kErrorFix);
}

}  // namespace

void RunPcieErrors(HostView& view, Findings& out) {
    size_t looked = 0;
    const std::vector<LogLine> log = KernelLogLines(KernelLog(view));
    const LoggedByAddress logged = LoggedErrors(log);
    const std::vector<PciDevice> devices = PciDevices(view);
    for (const PciDevice& card : devices) {
        if (!card.IsNetwork() && !card.IsGpu()) continue;
        const Logged of_link = OfLink(logged, card);
        const bool counted =
            view.Has("sys/bus/pci/devices/" + card.address + "/aer_dev_correctable");
        if (!counted && !of_link.any()) continue;
        ++looked;
        LookAtCard(view, card, of_link, out);
    }
    if (devices.empty()) LookAtUnlisted(log, logged, out);
    if (looked > 0 && out.empty()) out.Ok(fmt::format("{} cards without errors", looked));
}

}  // namespace weft::doctor::checks
