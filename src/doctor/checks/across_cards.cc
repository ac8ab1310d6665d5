// The same kind of card, driver and firmware on all hosts.
#include <fmt/format.h>

#include <map>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/pci.h"

namespace weft::doctor::checks {
namespace {

// Made of others, or of nothing but software.
bool IsMade(const NetDevice& device) {
    for (const char* prefix : {"bond", "team", "br", "docker", "virbr", "veth", "vlan", "tun",
                               "tap", "wg", "cni", "podman", "lxc", "vxlan", "macvlan", "dummy"}) {
        if (device.name.starts_with(prefix)) return true;
    }
    return device.name.find('.') != std::string::npos;
}

// Null where it can't be told.
const NetDevice* Fastest(const std::vector<NetDevice>& devices) {
    const NetDevice* fastest = nullptr;
    for (const NetDevice& device : devices) {
        const bool known = device.physical && !device.driver.empty();
        // One that is up, and of which the speed or the driver was not read, may be the fastest.
        const bool thunderbolt = device.name.starts_with("thunderbolt");
        if (device.up && !device.wireless && !IsMade(device) && !thunderbolt &&
            (!known || device.megabits <= 0)) {
            return nullptr;
        }
        if (!known) continue;
        if (fastest == nullptr || device.megabits > fastest->megabits) fastest = &device;
    }
    return fastest;
}

// Drivers of one vendor whose cards understand each other's settings.
std::string Vendor(const std::string& driver) {
    if (driver.starts_with("mlx")) return "NVIDIA (Mellanox)";
    if (driver == "ice" || driver == "i40e" || driver == "ixgbe" || driver == "igc") return "Intel";
    if (driver.starts_with("bnxt")) return "Broadcom";
    if (driver == "r8169" || driver == "r8125" || driver == "r8126") return "Realtek";
    return driver;
}

// Of a snapshot that holds lspci but no interfaces: the card that can do RDMA, else the first.
std::string DriverByPci(HostView& view) {
    std::string first;
    for (const PciDevice& card : PciDevices(view)) {
        if (!card.IsNetwork() || card.driver.empty()) continue;
        if (card.driver.starts_with("mlx") || card.driver == "ice") return card.driver;
        if (first.empty()) first = card.driver;
    }
    return first;
}

void AcrossCards(Hosts hosts, Findings& out) {
    std::map<std::string, std::vector<std::string>> vendors, drivers, firmware, speeds;
    for (const auto& host : hosts) {
        const std::vector<NetDevice> devices = NetDevices(*host);
        const NetDevice* card = Fastest(devices);
        if (card == nullptr && !devices.empty()) continue;
        if (card == nullptr) {
            const std::string driver = DriverByPci(*host);
            if (driver.empty()) continue;
            vendors[Vendor(driver)].push_back(host->host());
            drivers[driver].push_back(host->host());
            continue;
        }
        vendors[Vendor(card->driver)].push_back(host->host());
        drivers[card->driver].push_back(host->host());
        if (!card->firmware.empty()) firmware[card->firmware].push_back(host->host());
        if (card->megabits > 0) speeds[card->SpeedText()].push_back(host->host());
    }
    const auto text = [](const auto& groups) {
        std::string words;
        for (const auto& [name, names] : groups) {
            words += fmt::format("{}{} on {}", words.empty() ? "" : "; ", name, Joined(names));
        }
        return words;
    };
    const bool rdma = [&] {
        for (const auto& host : hosts) {
            if (HasRdma(*host)) return true;
        }
        return false;
    }();
    if (speeds.size() > 1) {
        out.Warn(text(speeds), "cards of one speed",
                 "each sync waits for the slowest link: the faster cards give nothing",
                 "the same card and port speed on all hosts, or --pp in place of --tp across the "
                 "slow one");
    }
    if (vendors.size() > 1) {
        const char* why =
            "RDMA between cards of different makers meets different defaults of GID, MTU, retry "
            "and flow control: links that hang instead of failing";
        if (rdma) {
            out.Warn(text(vendors), "cards of one maker", why,
                     "the same card on all hosts; else --transport tcp where RDMA hangs");
        } else {
            out.Note(text(vendors), "cards of one maker", "fine for TCP; RDMA would mind", "");
        }
    } else if (drivers.size() > 1) {
        out.Note(text(drivers), "one driver",
                 "generations of cards differ in RoCE v2 and its defaults",
                 "the same generation on all hosts");
    } else if (firmware.size() > 1) {
        out.Note(text(firmware), "the same firmware",
                 "different firmware of one card negotiates differently",
                 "update the older ones (mstflint)");
    }
    if (!drivers.empty() && out.empty()) out.Ok(text(drivers));
}

}  // namespace

const Check kAcrossCards = {
    .name = "across-cards",
    .what = "The fastest cards of all hosts: maker, driver, firmware and speed.",
    .reads = "/sys/class/net/*/{speed,device/driver}, ethtool -i",
    .why = "Mixed cards hang where equal ones work, and the slowest sets the pace.",
    .across = AcrossCards,
};

}  // namespace weft::doctor::checks
