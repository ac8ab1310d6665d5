#include "doctor/pci.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "doctor/facts.h"
#include "doctor/saved_words.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr const char* kFolder = "sys/bus/pci/devices";
constexpr int kMostWidth = 32;

struct BusRange {
    int64_t first = -1, last = -1;
};

PciLink LinkOf(std::string_view speed, std::string_view width) {
    PciLink link;
    link.gigatransfers = LeadingNumber(speed).value_or(0);
    const double lanes = LeadingNumber(width).value_or(0);
    link.width = lanes >= 1 && lanes <= kMostWidth ? static_cast<int>(lanes) : 0;
    if (!(link.gigatransfers > 0 && link.gigatransfers <= 128)) link.gigatransfers = 0;
    return link;
}

// "Port #0, Speed 8GT/s, Width x16, ASPM ..." or "Speed 8GT/s (ok), Width x4 (downgraded)".
PciLink LinkOfLspci(std::string_view line) {
    return LinkOf(After(line, "Speed ", ","), After(line, "Width x"));
}

int BusOf(std::string_view address) {
    return static_cast<int>(Integer(address.substr(address.size() - 7, 2), 16).value_or(-1));
}

// Drivers of cards that Weft may use, whatever class their devices have.
bool IsFabricDriver(std::string_view driver) {
    return IsOneOf(driver,
                   "mlx4_core mlx4_en mlx5_core mlxsw_core ice i40e ixgbe irdma bnxt_en bnxt_re "
                   "qede qed cxgb4 hfi1 efa sfc ib_qib ib_mthca ionic mana cxi_core cxi_ss1");
}

// `lspci -vv`, and in a handmade snapshot output with any other flags ("lspci -nnvv", "sudo lspci
// -vvv", "lspci -nnk"); the most detailed first.
std::vector<Reading> LspciReadings(HostView& view) {
    std::vector<Reading> readings;
    const auto add = [&](Reading reading) {
        if (reading.found() && readings.size() < 8) readings.push_back(std::move(reading));
    };
    add(view.Command("lspci -vv"));
    if (view.Complete()) return readings;
    for (const std::string& name : view.List("cmd")) {
        if (Contains(name, "lspci") && name != "lspci_-vv") add(view.Read("cmd/" + name));
    }
    std::ranges::stable_sort(readings, [](const Reading& a, const Reading& b) {
        return Contains(a.text, "LnkSta:") && !Contains(b.text, "LnkSta:");
    });
    return readings;
}

// Virtual functions of Mellanox and Intel cards in a guest, where there is no physfn.
bool IsVirtualId(const PciDevice& device) {
    return IsOneOf(
        device.Id(),
        "15b3:1002 15b3:1004 15b3:1012 15b3:1014 15b3:1016 15b3:1018 15b3:101a 15b3:101c "
        "15b3:101e 8086:1889 8086:154c 8086:10ed 8086:1515 1d0f:ec20");
}

// "256MB", "16GB"
double BarSize(std::string_view text) {
    const double number = LeadingNumber(text).value_or(0);
    return number * (text.ends_with("TB") ? 1e12 : text.ends_with("GB") ? 1e9 : 1e6);
}

class PciReader {
  public:
    explicit PciReader(HostView& view) : view_(view) {}
    std::vector<PciDevice> Take() {
        ReadSysfs();
        for (const Reading& lspci : LspciReadings(view_)) ReadLspci(lspci.text);
        FindBridges();
        for (auto& [address, device] : devices_) StepOverOwnSwitch(device);
        FindFabric();
        std::vector<PciDevice> devices;
        for (auto& [address, device] : devices_) devices.push_back(std::move(device));
        return devices;
    }

  private:
    void ReadSysfs() {
        for (const std::string& address : view_.List(kFolder)) {
            if (!IsPciAddress(address)) continue;
            const std::string path = std::string(kFolder) + "/" + address;
            PciDevice& device = devices_[address];
            device.address = address;
            device.type =
                static_cast<int>(Integer(view_.Text(path + "/class"), 16).value_or(0) >> 8);
            const auto id = [&](const char* file) {
                const std::string text = view_.Text(path + file);
                return text.starts_with("0x") ? text.substr(2) : text;
            };
            device.vendor = id("/vendor");
            device.device = id("/device");
            device.most =
                LinkOf(view_.Text(path + "/max_link_speed"), view_.Text(path + "/max_link_width"));
            device.now = LinkOf(view_.Text(path + "/current_link_speed"),
                                view_.Text(path + "/current_link_width"));
            device.driver = BaseName(view_.Link(path + "/driver").text);
            if (!view_.Complete()) ReadCopied(path, device);
            device.node = static_cast<int>(Integer(view_.Text(path + "/numa_node")).value_or(-1));
            device.is_virtual = view_.Link(path + "/physfn").found() || IsVirtualId(device);
            device.lost = device.vendor == "ffff";
            const std::string place = view_.Link(path).text;
            for (std::string_view part : Split(place, '/')) {
                if (IsPciAddress(part) && part != address) {
                    device.bridges.insert(device.bridges.begin(), std::string(part));
                }
            }
        }
    }
    // A handmade copy often has files without the links between them.
    void ReadCopied(const std::string& path, PciDevice& device) {
        const std::string event = view_.Text(path + "/uevent");
        if (device.driver.empty()) device.driver = std::string(After(event, "DRIVER="));
        const auto first = Integer(view_.Text(path + "/secondary_bus_number"));
        const auto last = Integer(view_.Text(path + "/subordinate_bus_number"));
        if (first && last && *first > 0) buses_[device.address] = {*first, *last};
    }
    // Records the PCI device of a class entry.
    void AddOwner(const std::string& entry, std::map<std::string, std::vector<std::string>>& of) {
        const std::string place = view_.Link("sys/class/" + entry + "/device").text;
        const std::string address = BaseName(place);
        if (IsPciAddress(address)) of[address].push_back(BaseName(entry));
    }
    // Finds the cards of a fabric and the speed of their ports.
    void FindFabric() {
        std::map<std::string, std::vector<std::string>> rdma, net;
        for (const std::string& name : view_.List("sys/class/infiniband")) {
            AddOwner("infiniband/" + name, rdma);
        }
        for (const std::string& name : view_.List("sys/class/net")) AddOwner("net/" + name, net);
        for (auto& [address, device] : devices_) {
            const std::string path = std::string(kFolder) + "/" + address;
            for (const std::string& name : view_.List(path + "/infiniband")) {
                rdma[address].push_back(name);
            }
            for (const std::string& name : view_.List(path + "/net")) net[address].push_back(name);
            const bool other = device.type != 0 && device.type >> 8 != 0x02;
            device.fabric = !other && (IsFabricDriver(device.driver) || device.vendor == "15b3" ||
                                       Contains(device.name, "Mellanox") || rdma.contains(address));
            if (device.IsNetwork()) device.port_gigabits = PortRate(rdma[address], net[address]);
        }
    }
    double PortRate(const std::vector<std::string>& rdma, const std::vector<std::string>& net) {
        double rate = 0;
        for (const std::string& name : net) {
            const auto mbps = view_.Number("sys/class/net/" + name + "/speed");
            if (mbps) rate = std::max(rate, *mbps * 1e-3);
        }
        for (const std::string& name : rdma) {
            const std::string ports = "sys/class/infiniband/" + name + "/ports";
            for (const std::string& port : Numbered(view_, ports, "")) {
                const std::string state = view_.Text(ports + "/" + port + "/state");
                if (!state.empty() && !Contains(state, "ACTIVE")) continue;
                const auto gbps = LeadingNumber(view_.Text(ports + "/" + port + "/rate"));
                if (gbps) rate = std::max(rate, *gbps);
            }
        }
        return rate;
    }
    void ReadLspci(std::string_view text) {
        PciDevice* device = nullptr;
        for (std::string_view line : Lines(text)) {
            if (!line.empty() && line[0] != '\t' && line[0] != ' ') {
                device = Open(line);
            } else if (device != nullptr) {
                ReadDetail(Trim(line), *device);
            }
        }
        if (device == nullptr) return;
        device->last = true;
        device->cut = !text.ends_with('\n');
    }
    // "01:00.0 Ethernet controller: Mellanox Technologies MT27800 Family [ConnectX-5]"
    PciDevice* Open(std::string_view line) {
        std::string address(line.substr(0, line.find(' ')));
        if (address.size() == 7) address = "0000:" + address;
        if (!IsPciAddress(address)) return nullptr;
        PciDevice& device = devices_[address];
        device.address = address;
        const std::string_view kind = After(line, " ", ":[");
        device.name = std::string(After(line, ": "));
        device.is_virtual = device.is_virtual || Contains(device.name, "Virtual Function");
        device.lost = device.lost || Contains(device.name, "(rev ff)");
        ReadIds(device);
        if (device.type == 0) {
            static constexpr std::pair<std::string_view, int> kKinds[] = {
                {"Ethernet controller", 0x0200},
                {"Infiniband controller", 0x0207},
                {"InfiniBand", 0x0207},
                {"Network controller", 0x0280},
                {"VGA compatible controller", 0x0300},
                {"3D controller", 0x0302},
                {"Display controller", 0x0380},
                {"PCI bridge", 0x0604},
                {"Processing accelerators", 0x1200}};
            for (const auto& [name, type] : kKinds) {
                if (Trim(kind) == name) device.type = type;
            }
        }
        return &device;
    }
    // "[15b3:1003]" at the end of the name, from -nn.
    static void ReadIds(PciDevice& device) {
        const std::string_view name = device.name;
        for (size_t at = name.find('['); at != name.npos; at = name.find('[', at + 1)) {
            const std::string_view ids = name.substr(at + 1, 9);
            const bool form = ids.size() == 9 && ids[4] == ':' && name.size() > at + 10 &&
                              name[at + 10] == ']' && Integer(ids.substr(0, 4), 16) &&
                              Integer(ids.substr(5), 16);
            if (!form || !device.vendor.empty()) continue;
            device.vendor = std::string(ids.substr(0, 4));
            device.device = std::string(ids.substr(5));
        }
    }
    void ReadDetail(std::string_view line, PciDevice& device) {
        if (line.starts_with("LnkCap:") && !device.most.known()) {
            device.most = LinkOfLspci(line);
        } else if (line.starts_with("LnkSta:") && !device.now.known()) {
            device.now = LinkOfLspci(line);
        } else if (line.starts_with("LnkCtl:")) {
            const std::string_view power = After(line, "ASPM ", ";,");
            if (power.ends_with(" Enabled")) {
                device.power = std::string(power.substr(0, power.size() - 8));
            }
        } else if (line.starts_with("Bus: primary=")) {
            buses_[device.address] = {Integer(After(line, "secondary=", ","), 16).value_or(-1),
                                      Integer(After(line, "subordinate=", ","), 16).value_or(-1)};
        } else if (line.starts_with("Kernel driver in use: ")) {
            device.driver = std::string(After(line, "in use: "));
        } else if (line.starts_with("Kernel modules: ")) {
            device.modules = std::string(After(line, "modules: "));
        } else {
            ReadState(line, device);
        }
        ReadBar(line, device);
        // "TrErr- Train- SlotClk+ DLActive- ...", on the line of LnkSta or the next one.
        if (Contains(line, "DLActive-")) device.link_active = false;
    }
    static void ReadState(std::string_view line, PciDevice& device) {
        if (line.starts_with("NUMA node:") && device.node < 0) {
            device.node = static_cast<int>(Integer(After(line, "NUMA node:")).value_or(-1));
        } else if (Contains(line, "PresDet+") && line.starts_with("SltSta:")) {
            device.slot_filled = true;
        } else if (Contains(line, "PresDet-") && line.starts_with("SltSta:")) {
            device.slot_empty = true;
        } else if (Contains(line, "ReqRedir+") && line.starts_with("ACSCtl:")) {
            device.redirects = true;
        } else if (line.starts_with("!!! Unknown header type")) {
            device.lost = true;
        } else if (line.starts_with("Capabilities: <access denied>")) {
            device.denied = true;
        }
    }
    // "BAR 1: current size: 256MB, supported: 64MB 128MB 256MB 512MB 16GB"
    static void ReadBar(std::string_view line, PciDevice& device) {
        if (!line.starts_with("BAR ")) return;
        const double now = BarSize(After(line, "current size: ", ","));
        double most = 0;
        for (std::string_view size : Words(After(line, "supported: "))) {
            most = std::max(most, BarSize(size));
        }
        if (most <= device.most_bar_bytes) return;
        device.bar_bytes = now;
        device.most_bar_bytes = most;
    }
    // GPUs of AMD and Intel have a switch of their own whose inner links always run at full speed.
    // The card's link is the one of the switch's upstream port.
    void StepOverOwnSwitch(PciDevice& gpu) {
        if (!gpu.IsGpu() || gpu.bridges.size() < 2) return;
        const auto is_own = [&](const std::string& address) {
            const auto port = devices_.find(address);
            if (port == devices_.end()) return false;
            const PciDevice& bridge = port->second;
            return IsOneOf(bridge.Id(), "1002:1478 1002:1479 8086:4fa0 8086:4fa1 8086:4fa4") ||
                   bridge.Id().starts_with("8086:e2f") || Contains(bridge.name, "Navi 10 XL") ||
                   Contains(bridge.name, "Port of PCI");
        };
        if (!is_own(gpu.bridges[0]) || !is_own(gpu.bridges[1])) return;
        const PciDevice& upstream = devices_[gpu.bridges[1]];
        if (upstream.most.known() && upstream.now.known()) {
            gpu.most = upstream.most;
            gpu.now = upstream.now;
        }
        gpu.bridges.erase(gpu.bridges.begin(), gpu.bridges.begin() + 2);
    }
    // For devices known only from lspci: every bridge whose bus range includes the device's bus.
    void FindBridges() {
        for (auto& [address, device] : devices_) {
            if (!device.bridges.empty()) continue;
            const int bus = BusOf(address);
            std::vector<std::pair<int64_t, std::string>> found;  // the narrowest range is nearest
            for (const auto& [bridge, range] : buses_) {
                const bool same_domain =
                    bridge.substr(0, bridge.size() - 8) == address.substr(0, address.size() - 8);
                if (same_domain && bridge != address && range.first <= bus && bus <= range.last) {
                    found.emplace_back(range.last - range.first, bridge);
                }
            }
            std::ranges::stable_sort(found, {}, &std::pair<int64_t, std::string>::first);
            for (auto& [size, bridge] : found) device.bridges.push_back(std::move(bridge));
        }
    }

    HostView& view_;
    std::map<std::string, PciDevice> devices_;
    std::map<std::string, BusRange> buses_;
};

std::vector<PciDevice> ReadDevicesOfPci(HostView& view) {
    return PciReader(view).Take();
}

}  // namespace

double PciLink::GigabytesPerSecond() const {
    const double code = gigatransfers <= 5 ? 0.8 : gigatransfers < 64 ? 128.0 / 130 : 236.0 / 256;
    return gigatransfers * width * code / 8;
}

std::string PciLink::Text() const {
    return known() ? fmt::format("{:g} GT/s x{}", gigatransfers, width) : "not known";
}

bool PciDevice::IsComputeGpu() const {
    if (!IsGpu()) return false;
    if (vendor == "1002" || vendor == "10de" || driver == "amdgpu" || driver == "nvidia")
        return true;
    return (vendor == "8086" || driver == "xe") && !address.ends_with(":00:02.0");
}

std::string PciDevice::Text() const {
    std::string text = address;
    if (!name.empty()) return text + " " + name;
    if (!driver.empty()) return text + " (" + driver + ")";
    return text;
}

bool IsOneCard(std::string_view a, std::string_view b) {
    return a.size() == 12 && b.size() == 12 && a.substr(0, 10) == b.substr(0, 10);
}

const PciDevice* SlotOf(HostView& view, const PciDevice& card) {
    return card.bridges.empty() ? nullptr : FindPci(view, card.bridges.front());
}

LinkJudgement JudgeLink(HostView& view, const PciDevice& card) {
    constexpr double kEnough = 0.98;
    if (!card.most.known() || !card.now.known()) return LinkJudgement::kUnknown;
    const double now = card.now.GigabytesPerSecond();
    if (now >= card.most.GigabytesPerSecond() * kEnough) return LinkJudgement::kFull;
    if (card.bridges.empty() && IsVirtualMachine(view)) return LinkJudgement::kBridgeHidden;
    const PciDevice* slot = SlotOf(view, card);
    if (slot == nullptr || !slot->most.known()) {
        // A device with few facts may be the bridge.
        const bool others = std::ranges::any_of(
            PciDevices(view), [](const PciDevice& one) { return one.IsBridge() || one.type == 0; });
        return others ? LinkJudgement::kSlotUnknown : LinkJudgement::kBelow;
    }
    const PciLink both{std::min(card.most.gigatransfers, slot->most.gigatransfers),
                       std::min(card.most.width, slot->most.width)};
    const bool all = now >= both.GigabytesPerSecond() * kEnough;
    return all ? LinkJudgement::kByDesign : LinkJudgement::kBelow;
}

const std::vector<PciDevice>& PciDevices(HostView& view) {
    return view.Derived(ReadDevicesOfPci);
}

bool HasAllPci(HostView& view) {
    constexpr size_t kFewest = 6;  // every machine has more; one card's folder has fewer
    const auto listed =
        static_cast<size_t>(std::ranges::count_if(view.List(kFolder), IsPciAddress));
    if (view.Complete()) return listed > 0;
    if (listed >= kFewest) return true;
    for (const Reading& lspci : LspciReadings(view)) {
        const auto heads = std::ranges::count_if(Lines(lspci.text), [](std::string_view line) {
            return !line.empty() && line[0] != '\t' && line[0] != ' ';
        });
        if (lspci.text.ends_with('\n') && static_cast<size_t>(heads) >= kFewest) return true;
    }
    return false;
}

std::optional<Version> FirstKernelOf(const PciDevice& device) {
    // Each entry: vendor, beginning of the device's id, first kernel. In this order: Navi 48, Strix
    // Halo, Navi 31 and 32, Battlemage, Alchemist, RTL8126, RTL8127, E610, E830, AQC113.
    constexpr std::string_view kKnown =
        "1002 755 6.12|1002 1586 6.11|1002 744 6.0|1002 747 6.3|8086 e20 6.12|8086 56 6.2|10ec "
        "8126 "
        "6.9|10ec 8127 6.16|8086 57ae 6.15|8086 57b 6.15|8086 12d 6.9|1d6a 04c0 5.15";
    for (std::string_view row : Split(kKnown, '|')) {
        const auto words = Words(row);
        if (words[0] == device.vendor && device.device.starts_with(words[1])) {
            return ParseVersion(words[2]);
        }
    }
    return {};
}

const PciDevice* FindPci(HostView& view, std::string_view address) {
    const std::vector<PciDevice>& devices = PciDevices(view);
    const auto found = std::ranges::find(devices, address, &PciDevice::address);
    return found == devices.end() ? nullptr : &*found;
}

}  // namespace weft::doctor
