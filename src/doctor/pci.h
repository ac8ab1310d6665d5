// PCI Express devices of a host, from sysfs or `lspci -vv`: the maximum and current state of each
// device's link, and the bridges above it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/host_view.h"
#include "doctor/text.h"

namespace weft::doctor {

struct PciLink {
    double gigatransfers = 0;  // per second and lane; 0: unknown
    int width = 0;
    bool known() const { return gigatransfers > 0 && width > 0; }
    // Rate in one direction, in 10^9 bytes/s, without the overhead of the line code (PCI Express
    // base specification: 8b/10b up to 5 GT/s, 128b/130b, and from 64 GT/s on, flits with 236 of
    // 256 bytes).
    double GigabytesPerSecond() const;
    std::string Text() const;  // "8 GT/s x4"
};

struct PciDevice {
    std::string address;         // "0000:01:00.0"
    std::string name;            // from lspci; "": unknown
    int type = 0;                // base class and subclass: 0x0200 is Ethernet
    std::string vendor, device;  // "15b3", "1019"; "": unknown
    std::string driver;
    PciLink most, now;
    std::string power;                 // "L1" if ASPM is enabled, else ""
    std::vector<std::string> bridges;  // addresses, nearest first
    double port_gigabits = 0;          // its fastest network port; 0: unknown
    // A fast network card, recognized by its driver, vendor or RDMA device. (The class is not
    // enough: ConnectX-3 has class 0280, like Wi-Fi cards.)
    bool fabric = false;
    int node = -1;            // NUMA node; -1: unknown, or there is only one
    bool lost = false;        // all bits of its registers are 1: it has left the bus
    bool is_virtual = false;  // a virtual function (SR-IOV), without a link of its own
    bool denied = false;      // lspci could not read its link
    bool cut = false;         // lspci's text ends within this device
    bool last = false;        // lspci's text ends with this device; lines may be missing
    std::string modules;      // named by lspci: "nouveau, nvidia_drm, nvidia"
    double bar_bytes = 0, most_bar_bytes = 0;  // its largest resizable BAR; 0: unknown
    bool redirects = false;  // a bridge that sends requests between cards up to the root (ACS)
    // A bridge with a slot reports whether the slot holds a card, whether the slot is empty, and
    // whether the link below it is up.
    bool slot_filled = false, slot_empty = false, link_active = true;

    bool IsNetwork() const {
        return fabric || type == 0x0200 || type == 0x0207 || type == 0x0208 || type == 0x0c06;
    }
    bool IsGpu() const { return type >> 8 == 0x03 || type == 0x1200; }
    // A GPU for computing: not a server's management display, nor Intel's integrated graphics.
    bool IsComputeGpu() const;
    bool IsBridge() const { return type == 0x0604; }
    std::string Id() const { return vendor + ":" + device; }  // "15b3:1019"
    std::string Text() const;  // "0000:01:00.0 Mellanox ... [ConnectX-5]"
};

// Whether functions at these addresses, "0000:01:00.0" and "0000:01:00.1", belong to one card.
bool IsOneCard(std::string_view a, std::string_view b);

// How the speed of a card's link compares with the limits of the card and of its slot.
enum class LinkJudgement {
    kUnknown,       // the card's limit or the link's state is unknown
    kFull,          // at the card's limit
    kByDesign,      // at the slot's limit, which is below the card's limit
    kBelow,         // below both limits; or below the card's limit, if no slot is known
    kSlotUnknown,   // below the card's limit; this slot is unknown, others may be known
    kBridgeHidden,  // a virtual machine that owns the card reports an emulated link
};
LinkJudgement JudgeLink(HostView& view, const PciDevice& card);
// The bridge at the other end of the card's link; null: unknown.
const PciDevice* SlotOf(HostView& view, const PciDevice& card);

const std::vector<PciDevice>& PciDevices(HostView& view);
// Whether all devices of the host were listed, so that a missing device is absent.
bool HasAllPci(HostView& view);
// The first kernel that has a driver for the device; nullopt: unknown, or an old kernel.
std::optional<Version> FirstKernelOf(const PciDevice& device);
// The device at this address; null: no such device.
const PciDevice* FindPci(HostView& view, std::string_view address);

}  // namespace weft::doctor
