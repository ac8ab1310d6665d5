// Checks negotiated Ethernet speeds.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/fabric_devices.h"
#include "doctor/facts.h"
#include "doctor/kernel_log.h"
#include "doctor/network.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// Cards, by PCI id, all of whose ports reach this speed. For hosts without ethtool's output.
struct PortSpeed {
    std::string_view vendor, device;
    double megabits;
};
constexpr std::array<PortSpeed, 6> kPortSpeeds = {{{"8086", "1592", 100000},    // E810-C for QSFP
                                                   {"15b3", "1013", 100000},    // ConnectX-4
                                                   {"15b3", "1019", 100000},    // ConnectX-5 Ex
                                                   {"15b3", "101b", 100000},    // ConnectX-6
                                                   {"15b3", "1021", 100000},    // ConnectX-7
                                                   {"14e4", "1760", 200000}}};  // Thor 2

double MostOf(const NetDevice& device, const std::vector<PciDevice>& cards) {
    if (device.most_megabits > 0) return device.most_megabits;
    const PciDevice* card = FindPci(cards, device.pci);
    if (card == nullptr || card->is_virtual) return 0;
    const auto known = std::ranges::find_if(kPortSpeeds, [&](const PortSpeed& one) {
        return one.vendor == card->vendor && one.device == card->device;
    });
    return known == kPortSpeeds.end() ? 0 : known->megabits;
}

// One of four lanes: 25 Gb/s on a 100 Gb/s port, 10 on a 40 Gb/s port.
bool LostLanes(double megabits, double most) {
    if (most < 40000 || megabits >= 100000) return false;
    return megabits * 4 <= most || megabits == 25000 || (megabits == 50000 && most == 100000);
}

bool IsForRanksOf(const NetDevice& device, const std::vector<NetDevice>& fabric) {
    return fabric.empty() ||
           std::ranges::find(fabric, device.name, &NetDevice::name) != fabric.end();
}

// Asks for the cost of the link compared with one of `megabits`.
void AskSpeed(HostView& view, const NetDevice& device, double megabits, Findings& out) {
    const auto so = PortLink(device);
    if (!so) return;
    HostLink otherwise = *so;
    otherwise.gigabits = megabits / 1000;
    out.AskCost(LinkQuestion(view, *so, otherwise));
}

void LookAtLanes(HostView& view, const NetDevice& device, const std::vector<NetDevice>& all,
                 const std::vector<NetDevice>& fabric, double most, Findings& out) {
    const std::string read = fmt::format("{}: {} of {:g} that its port can do", device.name,
                                         device.SpeedText(), most / 1000);
    const std::string expected = fmt::format("{:g} Gb/s", most / 1000);
    const std::string why = fmt::format(
        "{:.1f} GB/s instead of {:.1f}: a cable or module of the wrong kind (25 Gb/s, a breakout), "
        "or lanes that did not train",
        device.megabits / 8000, most / 8000);
    const std::string fix = fmt::format(
        "a QSFP28 cable for all four lanes (DAC up to 3 m), the port of the other end or the "
        "switch not split, the same FEC and speed on both ends; look: ethtool -m {0}; an E810 may "
        "be set to split ports: 'devlink port show' and Intel's epct; then sudo ethtool -r {0}",
        ShellWord(device.name));
    const bool for_ranks = IsForRanksOf(device, fabric);
    const bool sibling = std::ranges::any_of(all, [&](const NetDevice& one) {
        return one.up && one.name != device.name && one.pci.size() == 12 &&
               one.pci.substr(0, 10) == device.pci.substr(0, 10) && one.megabits > device.megabits;
    });
    if (LostLanes(device.megabits, most) && for_ranks && !sibling) {
        out.Warn(read, expected, why, fix);
    } else {
        out.Note(read, expected, why, fix);
    }
    AskSpeed(view, device, most, out);
}

// The kernel's USB port of an adapter, "2-1.4"; "": not on USB.
std::string UsbPort(HostView& view, const NetDevice& device) {
    constexpr std::array<std::string_view, 5> kDrivers = {"r8152", "ax88179_178a", "cdc_ncm",
                                                          "cdc_ether", "aqc111"};
    if (std::ranges::find(kDrivers, device.driver) == kDrivers.end()) return {};
    // A USB adapter's bus address is its interface, "2-1.4:1.0".
    if (!device.pci.empty() && device.pci[0] < ':' && Contains(device.pci, "-")) {
        return device.pci.substr(0, device.pci.find(':'));
    }
    const Reading info = view.Command("ethtool -i " + device.name);
    const std::string bus(After(info.text, "bus-info: usb-"));
    const size_t dash = bus.rfind('-');
    return dash == bus.npos ? std::string() : bus.substr(dash);
}

// Warns about an adapter for 1 Gb/s or more on a 480 Mb/s port.
bool LookAtUsb(HostView& view, const NetDevice& device, bool for_ranks, Findings& out) {
    const std::string port = UsbPort(view, device);
    if (port.empty() || device.megabits < 1000) return false;
    bool slow = false;
    std::string line_read;
    for (const LogLine& line : KernelLogLines(KernelLog(view))) {
        if (!Contains(line.lower, "usb ") || !Contains(line.lower, port + ":")) continue;
        if (!Contains(line.lower, "usb device number")) continue;
        slow = Contains(line.lower, " high-speed usb device");
        line_read = line.raw;
    }
    if (!slow) return false;
    out.Add(for_ranks ? Severity::kWarn : Severity::kNote,
            fmt::format("{}: {} on a USB 2 port ({})", device.name, device.SpeedText(), line_read),
            "a USB 3 port (SuperSpeed)",
            fmt::format("40 MB/s at most instead of {:.0f}", device.megabits / 8),
            "plug the adapter into a USB 3 port (blue, or marked SS), without a hub or a cable of "
            "USB 2");
    return true;
}

// Reports a card that the hypervisor emulates.
bool LookAtEmulated(HostView& view, const NetDevice& device, bool for_ranks, Findings& out) {
    constexpr std::array<std::string_view, 5> kDrivers = {"e1000", "8139cp", "8139too", "pcnet32",
                                                          "ne2k-pci"};
    const bool emulated = std::ranges::find(kDrivers, device.driver) != kDrivers.end();
    if (!emulated || !IsVirtualMachine(view)) return false;
    out.Add(for_ranks ? Severity::kWarn : Severity::kNote,
            fmt::format("{}: driver {} in a virtual machine", device.name, device.driver),
            "virtio-net (VMware: vmxnet3), or a virtual function",
            "the hypervisor emulates an old card register by register: 1 Gb/s at most, and "
            "hundreds of us a message",
            "change the card's model to virtio (VMware: vmxnet3) in the guest's settings, and "
            "start the guest again");
    return true;
}

void LookNicSpeed(HostView& view, const NetDevice& device, bool for_ranks, Findings& out) {
    if (LookAtUsb(view, device, for_ranks, out) || LookAtEmulated(view, device, for_ranks, out)) {
        return;
    }
    const std::string read = fmt::format("{}: {}{}", device.name, device.SpeedText(),
                                         device.duplex.empty() ? "" : ", duplex " + device.duplex);
    const char* fix_cable =
        "another cable (Cat 6 or better, all eight wires), another port of the "
        "switch; then: sudo ethtool -r ";
    if (device.wireless) {
        return out.Note(fmt::format("{}: wireless, in use", device.name), "a cable",
                        "a message over Wi-Fi waits for its turn on the air, for milliseconds, and "
                        "a token has two in each layer",
                        "--hosts with addresses of the wired network");
    }
    const bool slow = device.megabits > 0 && device.megabits < 1000;
    // The port of the management controller, or a port without an address.
    const bool unused = device.addressed && device.addresses.empty();
    const bool management = device.driver.starts_with("cdc_") || device.driver == "rndis_host";
    if (!for_ranks && (unused || management) && (slow || device.duplex == "half")) {
        return out.Note(read, "1 Gb/s or more, duplex full", "ranks don't talk over it",
                        fix_cable + ShellWord(device.name));
    }
    if (device.duplex == "half") {
        return out.Fail(read, "duplex full", "sender and receiver take turns, with collisions",
                        fix_cable + ShellWord(device.name));
    }
    if (slow) {
        out.Warn(read, "1 Gb/s or more",
                 fmt::format("{:g} times less than 1 Gb/s: a broken pair of wires or a bad plug",
                             1000 / device.megabits),
                 fix_cable + ShellWord(device.name));
        return AskSpeed(view, device, 1000, out);
    }
    if (device.megabits > 0) out.Ok(read);
}

}  // namespace

void RunNicSpeed(HostView& view, Findings& out) {
    const std::vector<NetDevice> all = NetDevices(view), fabric = FabricDevices(view);
    const std::vector<PciDevice> cards = PciDevices(view);
    for (const NetDevice& device : all) {
        if (!device.physical || !device.up) continue;
        const double most = MostOf(device, cards);
        const bool ethernet = view.Text("sys/class/net/" + device.name + "/type") != "32";
        if (ethernet && !device.wireless && device.megabits > 0 && most >= 40000 &&
            device.megabits * 2 <= most) {
            LookAtLanes(view, device, all, fabric, most, out);
        } else {
            LookNicSpeed(view, device, IsForRanksOf(device, fabric), out);
        }
    }
}

}  // namespace weft::doctor::checks
