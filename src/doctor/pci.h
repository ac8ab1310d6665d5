// The PCI Express devices of a host, out of sysfs or of `lspci -vv`, whichever was read: what each
// link could be, what it is, and the bridges that it hangs under.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/host_view.h"
#include "doctor/text.h"

namespace weft::doctor {

struct PciLink {
    double gigatransfers = 0;  // per second and lane; 0: not known
    int width = 0;
    bool known() const { return gigatransfers > 0 && width > 0; }
    // What it carries one way, of 10^9 bytes, after the line code (PCI Express base
    // specification: 8b/10b up to 5 GT/s, 128b/130b, flits of 236 in 256 from 64 on).
    double GigabytesPerSecond() const;
    std::string Text() const;  // "8 GT/s x4"
};

struct PciDevice {
    std::string address;         // "0000:01:00.0"
    std::string name;            // as lspci has it; "" without
    int type = 0;                // base class and subclass: 0x0200 is Ethernet
    std::string vendor, device;  // "15b3", "1019"; "" where not known
    std::string driver;
    PciLink most, now;
    std::string power;                 // "L1" where ASPM is enabled, else ""
    std::vector<std::string> bridges;  // addresses, the nearest first
    double port_gigabits = 0;          // fastest network port on it; 0: not known
    // By its driver, vendor or RDMA device: ConnectX-3 has class 0280, as Wi-Fi cards have.
    bool fabric = false;
    int node = -1;            // of memory (NUMA); -1: not known, or there is one only
    bool lost = false;        // its registers read as ones: it has left the bus
    bool is_virtual = false;  // a virtual function (SR-IOV): it has no link of its own
    bool denied = false;      // lspci was not allowed to read its link
    bool cut = false;         // lspci's text ends in the middle of it
    std::string modules;      // that lspci names for it: "nouveau, nvidia_drm, nvidia"
    double bar_bytes = 0, most_bar_bytes = 0;  // of its largest resizable BAR; 0: not known
    // Of a bridge with a slot: something is in it, and the link to it is up.
    bool slot_filled = false, slot_empty = false, link_active = true;

    bool IsNetwork() const {
        return fabric || type == 0x0200 || type == 0x0207 || type == 0x0208 || type == 0x0c06;
    }
    bool IsGpu() const { return type >> 8 == 0x03 || type == 0x1200; }
    // A GPU that computes: not the screen of a server's management, nor Intel's inside a processor.
    bool IsComputeGpu() const;
    bool IsBridge() const { return type == 0x0604; }
    std::string Text() const;  // "0000:01:00.0 Mellanox ... [ConnectX-5]"
};

// How a card's link is, against what the card and the slot can.
enum class LinkJudgement {
    kUnknown,      // what it could be, or is, is not known
    kFull,         // all that the card can
    kByDesign,     // all that the slot has, which is less than the card could
    kBelow,        // less than both can, or the slot is not known
    kSlotUnknown,  // less than the card can; other slots were read, not this one
};
LinkJudgement JudgeLink(const PciDevice& card, const std::vector<PciDevice>& devices);
// The bridge that the card's link ends at; null where not known.
const PciDevice* SlotOf(const PciDevice& card, const std::vector<PciDevice>& devices);

std::vector<PciDevice> PciDevices(HostView& view);
// Whether all devices of the host were listed, so that one that is not in the list is not there.
bool KnowsAllPci(HostView& view);
// The first kernel whose driver knows the device; none where that is not known, or long ago.
std::optional<Version> FirstKernelOf(const PciDevice& device);
// Null where there is none.
const PciDevice* FindPci(const std::vector<PciDevice>& devices, const std::string& address);

}  // namespace weft::doctor
