#include "doctor/facts.h"

#include <algorithm>

#include "doctor/rdma.h"

namespace weft::doctor {

Reading CommandLike(HostView& view, const std::string& words) {
    Reading reading = view.Command(words);
    if (reading.state != ReadState::kAbsent || view.Complete()) return reading;
    const std::string path = CommandPath(words);
    for (const std::string& name : view.List("cmd")) {
        if (("cmd/" + name).starts_with(path)) return view.Read("cmd/" + name);
    }
    return reading;
}

std::string CloudInterface(HostView& view, const RdmaPort& port) {
    if (!IsVirtualMachine(view)) return "";
    for (const std::string& name : RdmaInterfaces(view, port)) {
        const NetDevice* device = FindNetDevice(view, name);
        if (device == nullptr || device->master.empty()) continue;
        const NetDevice* master = FindNetDevice(view, device->master);
        const bool cloud =
            master != nullptr && !master->name.starts_with("bond") && !master->addresses.empty();
        if (cloud) return master->name;
    }
    return "";
}

bool HasRdma(HostView& view) {
    if (IsVirtualMachine(view)) {
        const std::vector<RdmaPort>& ports = RdmaPorts(view);
        const auto cloud = [&](const RdmaPort& port) {
            return !CloudInterface(view, port).empty();
        };
        if (!ports.empty() && std::ranges::all_of(ports, cloud)) return false;
    }
    if (!view.List("sys/class/infiniband").empty()) return true;
    if (Contains(view.Command("ibstat").text, "CA '")) return true;
    return !view.Complete() && !RdmaPorts(view).empty();
}

bool IsVirtualMachine(HostView& view) {
    const Reading cpu = view.Read("proc/cpuinfo");
    if (!cpu.found()) return false;
    for (std::string_view line : Lines(cpu.text)) {
        if (line.starts_with("flags")) return Contains(line, " hypervisor");
    }
    return false;
}

namespace {

// For a handmade snapshot, which has no probe.
std::string SystemByHand(HostView& view) {
    std::string words = view.Text("run/systemd/container");
    const std::string virt = view.Text("cmd/systemd-detect-virt");
    for (const char* kind : {"lxc", "podman", "docker", "systemd-nspawn", "wsl"}) {
        if (virt == kind) words += std::string(" ") + kind;
    }
    const std::string group = view.Text("proc/self/cgroup");
    for (const auto& [part, word] :
         {std::pair("/lxc", " lxc"), std::pair("/docker", " docker"),
          std::pair("libpod-", " podman"), std::pair("kubepods", " kubernetes")}) {
        if (Contains(group, part)) words += word;
    }
    if (view.Has("var/run/secrets/kubernetes.io")) words += " kubernetes";
    if (view.Has("run/.containerenv")) words += " podman";
    if (view.Read("etc/default/limine").found()) words += " limine";
    return words;
}

std::vector<std::string> ReadTags(HostView& view) {
    const Reading probe = view.Probe("system");
    const std::string words = probe.found() || view.Complete() ? probe.text : SystemByHand(view);
    std::vector<std::string> tags;
    for (std::string_view word : Words(words)) tags.emplace_back(word);
    const auto has = [&](std::string_view tag) {
        return std::ranges::find(tags, tag) != tags.end();
    };
    // The variable may also be "systemd-nspawn", "oci" and so on.
    if (std::ranges::any_of(tags, [](const std::string& tag) {
            return tag != "limine" && tag != "grub" && tag != "systemd-boot" && tag != "ostree";
        })) {
        tags.emplace_back("container");
        return tags;
    }
    if (has("limine") || has("grub") || has("systemd-boot")) return tags;
    const std::string line = view.Text("proc/cmdline");
    if (Contains(line, "BOOT_IMAGE=")) {  // systemd-boot and the firmware pass no such word
        tags.emplace_back("grub");
    } else if (Contains(line, "initrd=\\") || (view.Read("boot/loader/loader.conf").found() &&
                                               !view.Read("etc/default/grub").found())) {
        tags.emplace_back("systemd-boot");
    }
    return tags;
}

std::vector<NetDevice> ReadFabric(HostView& view) {
    std::vector<std::string> rdma;
    for (const RdmaPort& port : RdmaPorts(view)) {
        for (std::string& name : RdmaInterfaces(view, port)) rdma.push_back(std::move(name));
    }
    std::vector<NetDevice> special, cards;
    for (const NetDevice& device : NetDevices(view)) {
        if (!device.up || device.wireless || device.addresses.empty()) continue;
        const auto is_rdma = [&](const std::string& name) {
            return std::ranges::find(rdma, name) != rdma.end();
        };
        const bool fabric = is_rdma(device.name) || is_rdma(device.lower) ||  // a VLAN over it
                            device.name.starts_with("thunderbolt") || IsIpoib(view, device);
        if (fabric) special.push_back(device);
        if (device.physical || device.over_card) cards.push_back(device);
    }
    if (!special.empty() || cards.empty()) return special;
    const double fastest = std::ranges::max(cards, {}, &NetDevice::megabits).megabits;
    std::erase_if(cards, [&](const NetDevice& card) { return card.megabits < fastest; });
    return cards;
}

}  // namespace

const std::vector<std::string>& SystemTags(HostView& view) {
    return view.Derived(ReadTags);
}

bool HasTag(HostView& view, std::string_view tag) {
    return std::ranges::find(SystemTags(view), tag) != SystemTags(view).end();
}

const std::vector<NetDevice>& FabricDevices(HostView& view) {
    return view.Derived(ReadFabric);
}

bool IsForRanks(HostView& view, const NetDevice& device) {
    const std::vector<NetDevice>& fabric = FabricDevices(view);
    return fabric.empty() ||
           std::ranges::find(fabric, device.name, &NetDevice::name) != fabric.end();
}

std::string KernelRelease(HostView& view) {
    std::string release = view.Text("proc/sys/kernel/osrelease");
    release.resize(std::min(release.find('\n'), release.size()));
    if (!release.empty() || view.Complete()) return release;
    const Reading uname = view.Command("uname -r");
    if (uname.found()) return std::string(Trim(uname.text));
    const Reading version = view.Read("proc/version");
    return std::string(After(version.text, "Linux version ", " "));
}

std::optional<Version> KernelVersion(HostView& view) {
    return ParseVersion(KernelRelease(view));
}

std::string ProvenDevice(HostView& view) {
    for (const std::string& device : view.List("sys/class/infiniband")) {
        const std::string proof = view.Text("probe/register_memory/" + device);
        if (proof.starts_with("registered")) return device + ": " + proof;
    }
    return "";
}

bool LacksProvider(HostView& view, const std::string& device) {
    return Contains(view.Text("probe/register_memory/" + device), "no user-space driver");
}

std::vector<std::string> ConfFiles(HostView& view, const std::string& folder) {
    std::vector<std::string> paths;
    for (const std::string& name : view.List(folder)) {
        if (name.ends_with(".conf")) paths.push_back(folder + "/" + name);
    }
    return paths;
}

std::optional<double> MemInfo(HostView& view, const std::string& name) {
    const Reading info = view.Read("proc/meminfo");
    if (!info.found()) return {};
    for (std::string_view line : Lines(info.text)) {
        if (!line.starts_with(name + ":")) continue;
        const auto kib = LeadingNumber(line.substr(name.size() + 1));
        if (kib && Contains(line, "kB")) return *kib * 1024;
    }
    return {};
}

std::vector<std::string> Numbered(HostView& view, const std::string& folder,
                                  const std::string& prefix) {
    std::vector<std::pair<int64_t, std::string>> found;
    for (const std::string& name : view.List(folder)) {
        if (!name.starts_with(prefix)) continue;
        const auto number = Integer(std::string_view(name).substr(prefix.size()));
        if (number) found.emplace_back(*number, name);
    }
    std::ranges::sort(found);
    std::vector<std::string> names;
    for (auto& [number, name] : found) names.push_back(std::move(name));
    return names;
}

std::string Joined(const std::vector<std::string>& words) {
    constexpr size_t kMost = 6;
    std::string text;
    for (size_t i = 0; i < std::min(words.size(), kMost); ++i) {
        text += (i == 0 ? "" : ", ") + words[i];
    }
    if (words.size() > kMost) text += " and " + std::to_string(words.size() - kMost) + " more";
    return text;
}

}  // namespace weft::doctor
