#include "doctor/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "doctor/save_writers.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

namespace w = save;

struct Source {
    // Segments between slashes, each with at most one place: {if} an interface, {dev} an RDMA
    // device, {pci} an address, {n} a number, {id} a Thunderbolt address, {ip} an IPv4 address,
    // {release} a kernel's, {module} one of a card or GPU, {option} a name of an option of it,
    // {unit} a unit of Weft, {conf} a file of limits.d or a drop-in, {more} whatever else, left
    // out. One that ends with '/' is a folder.
    std::string_view path;
    w::Writer write;
    const char* kept;
};

constexpr const char* kNumber = "a number";
constexpr const char* kWord = "one of the words that the kernel has there";
constexpr const char* kThere = "that it is there";

constexpr Source kPci[] = {
    {"sys/bus/pci/devices/{pci}/class", w::Hexadecimal, kNumber},
    {"sys/bus/pci/devices/{pci}/vendor", w::Hexadecimal, kNumber},
    {"sys/bus/pci/devices/{pci}/device", w::Hexadecimal, kNumber},
    {"sys/bus/pci/devices/{pci}/max_link_speed", w::LinkSpeed, kNumber},
    {"sys/bus/pci/devices/{pci}/max_link_width", w::Numbers, kNumber},
    {"sys/bus/pci/devices/{pci}/current_link_speed", w::LinkSpeed, kNumber},
    {"sys/bus/pci/devices/{pci}/current_link_width", w::Numbers, kNumber},
    {"sys/bus/pci/devices/{pci}/aer_dev_correctable", w::AerCounts, "the total"},
    {"sys/bus/pci/devices/{pci}/aer_dev_nonfatal", w::AerCounts, "the total"},
    {"sys/bus/pci/devices/{pci}/aer_dev_fatal", w::AerCounts, "the total"},
    {"sys/bus/pci/devices/{pci}/secondary_bus_number", w::Numbers, kNumber},
    {"sys/bus/pci/devices/{pci}/subordinate_bus_number", w::Numbers, kNumber},
    {"sys/bus/pci/devices/{pci}/uevent", w::EventDriver, "the driver's name"},
    {"sys/bus/pci/devices/{pci}/net/{if}/", nullptr, kThere},
    {"sys/bus/pci/devices/{pci}/infiniband/{dev}/", nullptr, kThere},
    {"link/sys/bus/pci/devices/{pci}", w::PciPlace, "the PCI addresses above it"},
    {"link/sys/bus/pci/devices/{pci}/driver", w::DriverName, "the driver's name"},
    {"sys/class/hwmon/hwmon{n}/name", w::SensorName, kWord},
    {"sys/class/hwmon/hwmon{n}/temp{n}_input", w::Numbers, kNumber},
    {"sys/class/hwmon/hwmon{n}/temp{n}_crit", w::Numbers, kNumber},
    {"sys/class/hwmon/hwmon{n}/temp{n}_label", w::SensorName, kWord},
    {"sys/module/pcie_aspm/parameters/policy", w::Choice, kWord},
    {"sys/module/amdgpu/version", w::ShortVersion, "a version"},
    {"sys/kernel/iommu_groups/{n}/type", w::Choice, kWord},
    {"cmd/lspci_-vv{more}", w::Lspci, "names of devices, links, buses, drivers, ACS, ASPM"},
};

constexpr Source kNetwork[] = {
    {"sys/class/net/{if}/speed", w::Numbers, kNumber},
    {"sys/class/net/{if}/mtu", w::Numbers, kNumber},
    {"sys/class/net/{if}/type", w::Numbers, kNumber},
    {"sys/class/net/{if}/duplex", w::Choice, kWord},
    {"sys/class/net/{if}/operstate", w::Choice, kWord},
    {"sys/class/net/{if}/mode", w::Choice, kWord},
    {"sys/class/net/{if}/wireless/", nullptr, kThere},
    {"sys/class/net/{if}/phy80211/", nullptr, kThere},
    {"link/sys/class/net/{if}/device", w::DevicePlace, "the bus address"},
    {"link/sys/class/net/{if}/device/driver", w::DriverName, "the driver's name"},
    {"cmd/ethtool_-i_{if}", w::EthtoolDriver, "driver, firmware, bus address"},
    {"cmd/ethtool_-c_{if}", w::EthtoolCoalescing, "adaptive RX, rx-usecs"},
    {"cmd/ethtool_-S_{if}", w::EthtoolCounters, "counters of packets lost and damaged"},
    {"cmd/ethtool_-a_{if}", w::EthtoolPause, "pause frames on or off"},
    {"cmd/ethtool_--show-fec_{if}", w::Fec, "kinds of error correction"},
    {"cmd/ethtool_{if}", w::EthtoolLink, "speed, the fastest mode, duplex, link"},
    {"cmd/mlnx_qos_-i_{if}", w::Qos, "PFC on or off"},
    {"cmd/ip_-j_addr{more}", w::IpJson, "interfaces, MTU, state, IPv4 addresses"},
    {"cmd/ip_-j_route{more}", w::IpJson, "IPv4 routes: subnet, interface, metric"},
    {"cmd/ping_-c_1_-W_1_-M_do_-s_{n}_{ip}", w::Ping, "packets lost, and the time"},
    {"proc/net/snmp", w::TcpSegments, "TCP segments sent, and sent again"},
    {"proc/sys/net/ipv4/tcp_rmem", w::Numbers, kNumber},
    {"proc/sys/net/ipv4/tcp_timestamps", w::Numbers, kNumber},
    {"proc/sys/net/ipv4/tcp_sack", w::Numbers, kNumber},
    {"sys/bus/thunderbolt/devices/{id}/rx_speed", w::LinkSpeed, kNumber},
    {"sys/bus/thunderbolt/devices/{id}/rx_lanes", w::Numbers, kNumber},
    {"sys/bus/thunderbolt/devices/{id}/{id}/", nullptr, kThere},
    {"cmd/ufw_status_verbose", w::Ufw,
     "state, default, rules about incoming TCP: ports, interface, source"},
    {"cmd/ufw_status", w::Ufw,
     "state, default, rules about incoming TCP: ports, interface, source"},
    {"cmd/firewall-cmd_--state", w::FirewalldState, kWord},
    {"cmd/firewall-cmd_--get-active-zones", w::FirewalldZones, "zones and their interfaces"},
    {"cmd/firewall-cmd_--list-all", w::FirewalldZones, "a zone's target, interfaces, TCP ports"},
    {"cmd/firewall-cmd_--list-all-zones", w::FirewalldZones,
     "zones' targets, interfaces, sources, TCP ports"},
    {"cmd/nft_list_ruleset", w::Nft, "rules about incoming TCP, without names and comments"},
    {"cmd/iptables_-S", w::Iptables, "rules about incoming TCP, without names and comments"},
    {"cmd/iptables-save{more}", w::Iptables,
     "rules about incoming TCP, without names and comments"},
    {"cmd/iptables_-L{more}", w::Iptables, "rules about incoming TCP, without names and comments"},
    {"cmd/iptables_-n{more}", w::Iptables, "rules about incoming TCP, without names and comments"},
    {"cmd/iptables_-v{more}", w::Iptables, "rules about incoming TCP, without names and comments"},
    {"cmd/iptables_-S_INPUT", w::Iptables, "rules about incoming TCP, without names and comments"},
};

constexpr Source kRdma[] = {
    {"sys/class/infiniband/{dev}/fw_ver", w::ShortVersion, "a version"},
    {"sys/class/infiniband/{dev}/ports/{n}/state", w::PortState, kWord},
    {"sys/class/infiniband/{dev}/ports/{n}/phys_state", w::PortState, kWord},
    {"sys/class/infiniband/{dev}/ports/{n}/link_layer", w::Choice, kWord},
    {"sys/class/infiniband/{dev}/ports/{n}/rate", w::PortRate, kNumber},
    {"sys/class/infiniband/{dev}/ports/{n}/lid", w::Hexadecimal, kNumber},
    {"sys/class/infiniband/{dev}/ports/{n}/sm_lid", w::Hexadecimal, kNumber},
    {"sys/class/infiniband/{dev}/ports/{n}/gids/{n}", w::Gid, "its IPv4 address, if it has one"},
    {"sys/class/infiniband/{dev}/ports/{n}/gid_attrs/types/{n}", w::GidType, kWord},
    {"sys/class/infiniband/{dev}/ports/{n}/gid_attrs/ndevs/{n}", w::Interface, "the interface"},
    {"sys/class/infiniband/{dev}/ports/{n}/counters/{counter}", w::Numbers, kNumber},
    {"sys/class/infiniband/{dev}/ports/{n}/hw_counters/{counter}", w::Numbers, kNumber},
    {"sys/class/infiniband/{dev}/device/net/{if}/", nullptr, kThere},
    {"link/sys/class/infiniband/{dev}/device", w::DevicePlace, "the bus address"},
    {"dev/infiniband/uverbs{n}/", nullptr, kThere},
    {"cmd/ibstat", w::RdmaPortsText, "devices, ports, state, rate, lids"},
    {"cmd/rdma_resource_show", w::RdmaResources, "counts"},
    {"cmd/systemctl_is-active_opensm", w::Choice, kWord},
    {"etc/security/limits.conf", w::LoginLimits, "lines about memlock, users and groups unnamed"},
    {"etc/security/limits.d/{conf}", w::LoginLimits,
     "lines about memlock, users and groups unnamed"},
    {"etc/systemd/system/{unit}", w::UnitLimits, "LimitMEMLOCK"},
    {"etc/systemd/system/{unit}.d/{conf}", w::UnitLimits, "LimitMEMLOCK"},
    {"cmd/systemctl_show_--property=DefaultLimitMEMLOCK", w::Property, "the limit"},
    {"cmd/ulimit_-l", w::Numbers, "the limit"},
    {"proc/self/limits", w::ProcessLimits, "the limit of locked memory"},
};

constexpr Source kMachine[] = {
    {"sys/class/drm/card{n}/device/vendor", w::Hexadecimal, kNumber},
    {"sys/class/drm/card{n}/device/device", w::Hexadecimal, kNumber},
    {"sys/class/drm/card{n}/device/mem_info_vram_total", w::Numbers, kNumber},
    {"sys/class/drm/card{n}/device/mem_info_gtt_total", w::Numbers, kNumber},
    {"sys/class/kfd/kfd/topology/nodes/{n}/properties", w::KfdNode, "the GPU's target"},
    {"dev/kfd/", nullptr, kThere},
    {"dev/dri/renderD{n}/", nullptr, kThere},
    {"usr/share/vulkan/icd.d/radeon_icd{more}/", nullptr, kThere},
    {"usr/share/vulkan/icd.d/amd_icd{more}/", nullptr, kThere},
    {"usr/share/vulkan/icd.d/amd_pro_icd{more}/", nullptr, kThere},
    {"usr/share/vulkan/icd.d/intel_icd{more}/", nullptr, kThere},
    {"usr/share/vulkan/icd.d/intel_hasvk{more}/", nullptr, kThere},
    {"usr/share/vulkan/icd.d/nvidia_icd{more}/", nullptr, kThere},
    {"usr/share/vulkan/icd.d/nouveau_icd{more}/", nullptr, kThere},
    {"usr/share/vulkan/icd.d/lvp_icd{more}/", nullptr, kThere},
    {"usr/share/vulkan/icd.d/virtio_icd{more}/", nullptr, kThere},
    {"etc/vulkan/icd.d/radeon_icd{more}/", nullptr, kThere},
    {"etc/vulkan/icd.d/amd_icd{more}/", nullptr, kThere},
    {"etc/vulkan/icd.d/amd_pro_icd{more}/", nullptr, kThere},
    {"etc/vulkan/icd.d/intel_icd{more}/", nullptr, kThere},
    {"etc/vulkan/icd.d/intel_hasvk{more}/", nullptr, kThere},
    {"etc/vulkan/icd.d/nvidia_icd{more}/", nullptr, kThere},
    {"etc/vulkan/icd.d/nouveau_icd{more}/", nullptr, kThere},
    {"etc/vulkan/icd.d/lvp_icd{more}/", nullptr, kThere},
    {"etc/vulkan/icd.d/virtio_icd{more}/", nullptr, kThere},
    {"usr/local/share/vulkan/icd.d/radeon_icd{more}/", nullptr, kThere},
    {"usr/local/share/vulkan/icd.d/amd_icd{more}/", nullptr, kThere},
    {"usr/local/share/vulkan/icd.d/amd_pro_icd{more}/", nullptr, kThere},
    {"usr/local/share/vulkan/icd.d/intel_icd{more}/", nullptr, kThere},
    {"usr/local/share/vulkan/icd.d/intel_hasvk{more}/", nullptr, kThere},
    {"usr/local/share/vulkan/icd.d/nvidia_icd{more}/", nullptr, kThere},
    {"usr/local/share/vulkan/icd.d/nouveau_icd{more}/", nullptr, kThere},
    {"usr/local/share/vulkan/icd.d/lvp_icd{more}/", nullptr, kThere},
    {"usr/local/share/vulkan/icd.d/virtio_icd{more}/", nullptr, kThere},
    {"run/opengl-driver/share/vulkan/icd.d/radeon_icd{more}/", nullptr, kThere},
    {"run/opengl-driver/share/vulkan/icd.d/amd_icd{more}/", nullptr, kThere},
    {"run/opengl-driver/share/vulkan/icd.d/amd_pro_icd{more}/", nullptr, kThere},
    {"run/opengl-driver/share/vulkan/icd.d/intel_icd{more}/", nullptr, kThere},
    {"run/opengl-driver/share/vulkan/icd.d/intel_hasvk{more}/", nullptr, kThere},
    {"run/opengl-driver/share/vulkan/icd.d/nvidia_icd{more}/", nullptr, kThere},
    {"run/opengl-driver/share/vulkan/icd.d/nouveau_icd{more}/", nullptr, kThere},
    {"run/opengl-driver/share/vulkan/icd.d/lvp_icd{more}/", nullptr, kThere},
    {"run/opengl-driver/share/vulkan/icd.d/virtio_icd{more}/", nullptr, kThere},
    {"sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor", w::Choice, kWord},
    {"sys/devices/system/cpu/cpufreq/policy{n}/scaling_driver", w::Choice, kWord},
    {"sys/devices/system/cpu/cpufreq/policy{n}/energy_performance_preference", w::Choice, kWord},
    {"sys/devices/system/cpu/cpufreq/policy{n}/scaling_min_freq", w::Numbers, kNumber},
    {"sys/devices/system/cpu/cpufreq/policy{n}/cpuinfo_max_freq", w::Numbers, kNumber},
    {"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor", w::Choice, kWord},
    {"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_driver", w::Choice, kWord},
    {"sys/devices/system/cpu/cpu{n}/cpufreq/energy_performance_preference", w::Choice, kWord},
    {"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_min_freq", w::Numbers, kNumber},
    {"sys/devices/system/cpu/cpu{n}/cpufreq/cpuinfo_max_freq", w::Numbers, kNumber},
    {"sys/devices/system/cpu/cpu{n}/thermal_throttle/package_throttle_count", w::Numbers, kNumber},
    {"sys/devices/system/node/node{n}/", nullptr, kThere},
    {"sys/kernel/mm/transparent_hugepage/enabled", w::Choice, kWord},
    {"etc/os-release", w::OsRelease, "the distribution and its version"},
    {"proc/self/cgroup", w::ControlGroup, "the group, without names"},
    {"proc/cpuinfo", w::CpuInfo, "flags: avx2 and its like, hypervisor"},
    {"proc/meminfo", w::MemoryInfo, "memory and swap"},
    {"proc/swaps", w::Swaps, "which swap is memory, sizes"},
    {"proc/cmdline", w::KernelParameters, "parameters of IOMMU, GPU memory, ASPM"},
    {"proc/version", w::KernelVersionLine, "the kernel's release"},
    {"proc/sys/kernel/osrelease", w::Release, "the kernel's release"},
    {"proc/sys/kernel/numa_balancing", w::Numbers, kNumber},
    {"cmd/uname_-r", w::Release, "the kernel's release"},
    {"opt/rocm/.info/version", w::ShortVersion, "a version"},
    {"opt/rocm/.info/version-dev", w::ShortVersion, "a version"},
    {"cmd/dmesg{more}", w::Dmesg, "lines of cards, GPUs and hardware errors, known words only"},
    {"cmd/timedatectl", w::ClockState, "yes or no"},
    {"cmd/timedatectl_status", w::ClockState, "yes or no"},
    {"cmd/dmidecode_-t_17", w::MemoryModules, "sizes and speeds of memory modules"},
    {"cmd/dmidecode_--type_memory", w::MemoryModules, "sizes and speeds of memory modules"},
    {"cmd/dmidecode", w::MemoryModules, "sizes and speeds of memory modules"},
    {"cmd/dmidecode_-t_memory", w::MemoryModules, "sizes and speeds of memory modules"},
    {"cmd/timedatectl_show_--property=NTPSynchronized", w::Property, "yes or no"},
    {"cmd/dpkg-query_-W_-f=${Version}_linux-firmware", w::DatedPackage, "its date"},
    {"cmd/dpkg-query_-W_-f=${Version}_firmware-amd-graphics", w::DatedPackage, "its date"},
    {"cmd/dpkg-query_-W_-f=${Version}_ibverbs-providers", w::Package, "a version"},
    {"cmd/rpm_-q_--qf=%{VERSION}_amd-gpu-firmware", w::DatedPackage, "its date"},
    {"cmd/rpm_-q_--qf=%{VERSION}_linux-firmware", w::DatedPackage, "its date"},
    {"cmd/rpm_-q_--qf=%{VERSION}_libibverbs", w::Package, "a version"},
    {"cmd/dpkg-query_-W_-f=${Version}_mesa-vulkan-drivers", w::Package, "a version"},
    {"cmd/rpm_-q_--qf=%{VERSION}_mesa-vulkan-drivers", w::Package, "a version"},
    {"cmd/pacman_-Q_vulkan-radeon", w::Package, "a version"},
    {"cmd/pacman_-Q_rdma-core", w::Package, "a version"},
    {"cmd/pacman_-Q_linux-firmware-amdgpu", w::DatedPackage, "its date"},
    {"probe/hostname", w::HostName, "a pseudonym"},
    {"probe/complete", w::Choice, kWord},
    {"probe/clock", w::Numbers, kNumber},
    {"probe/clock_asked", w::Numbers, kNumber},
    {"probe/cpus", w::Numbers, kNumber},
    {"probe/memlock", w::Outcome, "the limit"},
    {"probe/lock_memory", w::Outcome, "how it went"},
    {"probe/register_memory/{dev}", w::Outcome, "how it went"},
    {"probe/access/dev/infiniband/uverbs{n}", w::Outcome, "how it went"},
    {"probe/access/dev/dri/renderD{n}", w::Outcome, "how it went"},
    {"probe/access/dev/kfd", w::Outcome, "how it went"},
    {"probe/measure/shm", w::Times, "times"},
    {"probe/measure/tcp", w::Times, "times"},
};

constexpr const char* kLogWords = "lines of cards, GPUs and hardware errors, known words only";
constexpr const char* kPorts = "devices, ports, state, rate, lids";

// Of checks of cards.
constexpr Source kCards[] = {
    {"sys/bus/pci/devices/{pci}/numa_node", w::Numbers, kNumber},
    {"link/sys/bus/pci/devices/{pci}/physfn", w::PciPlace, "that it is a virtual function"},
    {"sys/module/mlx4_core/", nullptr, kThere},
    {"sys/module/mlx5_core/", nullptr, kThere},
    {"sys/module/ice/", nullptr, kThere},
    {"sys/module/bnxt_en/", nullptr, kThere},
    {"sys/module/ionic/", nullptr, kThere},
    {"sys/module/cxgb4/", nullptr, kThere},
    {"sys/module/{module}/parameters/{option}", w::OptionValue, kNumber},
    {"sys/class/cxi/{dev}/", nullptr, kThere},
    {"cmd/lsmod", w::Modules, "drivers of cards"},
    {"cmd/nvidia-smi_topo_-m", w::Topology, "ways between GPUs and cards"},
    {"link/sys/class/net/{if}/master", w::MasterName, "the bridge or bond"},
    {"sys/class/net/{if}/brif/{if}/", nullptr, kThere},
    {"sys/class/net/{if}/pkey", w::Hexadecimal, kNumber},
    {"sys/class/net/{if}/bonding/mode", w::BondMode, kWord},
    {"sys/class/net/{if}/bonding/slaves", w::InterfaceList, "interfaces"},
    {"proc/net/bonding/{if}", w::BondFile, "mode and interfaces"},
    {"sys/bus/thunderbolt/devices/{id}/maxhopid/", nullptr, kThere},
    {"sys/bus/thunderbolt/devices/{id}/", nullptr, kThere},
    {"sys/class/infiniband/{dev}/hca_type", w::CardModel, "the model"},
    {"sys/class/infiniband/{dev}/node_type", w::NodeType, kWord},
    {"sys/class/infiniband/{dev}/node_guid", w::ZeroGuid, "whether it is zero"},
    {"sys/class/infiniband/{dev}/parent", w::Interface, "the interface"},
    {"sys/class/infiniband/{dev}/ports/{n}/pkeys/{n}", w::Hexadecimal, kNumber},
    {"cmd/ibstatus", w::RdmaPortsText, kPorts},
    {"cmd/ibv_devinfo{more}", w::RdmaPortsText, kPorts},
    {"cmd/rdma_link{more}", w::RdmaPortsText, kPorts},
    {"cmd/ls_-Z__var_log_opensm.log", w::SecurityLabel, "the type of its label"},
    {"cmd/getenforce", w::SecurityState, kWord},
    {"cmd/dcb_pfc_show_dev_{if}", w::Priorities, "priorities"},
    {"cmd/dcb_app_show_dev_{if}", w::Priorities, "priorities"},
    {"cmd/lldptool_-t_-i_{if}_-V_PFC", w::Priorities, "priorities"},
    {"cmd/bnxtqos{more}", w::Priorities, "priorities"},
    {"cmd/niccli{more}", w::Priorities, "priorities"},
    {"cmd/journalctl_-k{more}", w::Dmesg, kLogWords},
    {"cmd/journalctl_-b{more}", w::Dmesg, kLogWords},
    {"cmd/journalctl_--dmesg{more}", w::Dmesg, kLogWords},
    {"cmd/sudo_dmesg{more}", w::Dmesg, kLogWords},
    {"var/log/messages", w::Dmesg, kLogWords},
    {"var/log/dmesg", w::Dmesg, kLogWords},
    {"var/log/kern.log", w::Dmesg, kLogWords},
    {"lib/modules/{release}/", nullptr, "kernels that are installed"},
    {"usr/lib/modules/{release}/", nullptr, "kernels that are installed"},
    {"run/current-system/kernel-modules/lib/modules/{release}/", nullptr,
     "kernels that are installed"},
    {"run/.containerenv/", nullptr, kThere},
    {"run/reboot-required/", nullptr, kThere},
    {"run/reboot-required.pkgs", w::WaitingPackages, "kernel and drivers among them"},
    {"var/run/reboot-required/", nullptr, kThere},
    {"var/run/reboot-required.pkgs", w::WaitingPackages, "kernel and drivers among them"},
    {"cmd/needs-restarting_-r", w::RebootAnswer, "yes or no"},
    {"cmd/dnf_needs-restarting_-r", w::RebootAnswer, "yes or no"},
    {"cmd/rpm_-q_kernel{more}", w::KernelPackages, "kernels that are installed"},
    {"cmd/pacman_-Q_linux{more}", w::KernelPackages, "kernels that are installed"},
    {"cmd/dpkg_-l_linux-image{more}", w::KernelPackages, "kernels that are installed"},
    {"etc/modprobe.d/{conf}", w::ModuleOptionLines, "numbers of cards' and GPUs' modules"},
    {"etc/default/grub", w::GrubParameters,
     "parameters of IOMMU, GPU memory, ASPM; the kernel that is chosen"},
    {"boot/grub/grubenv", w::LoaderChoice, "the kernel that is chosen"},
    {"boot/grub2/grubenv", w::LoaderChoice, "the kernel that is chosen"},
    {"boot/loader/loader.conf", w::LoaderChoice, "the kernel that is chosen"},
    {"boot/efi/loader/loader.conf", w::LoaderChoice, "the kernel that is chosen"},
    {"efi/loader/loader.conf", w::LoaderChoice, "the kernel that is chosen"},
    {"etc/kernel/proxmox-boot-pin", w::ChosenRelease, "the kernel that is chosen"},
    {"cmd/grubby_--default-kernel", w::ChosenRelease, "the kernel that is chosen"},
    {"cmd/grub2-editenv_list", w::LoaderChoice, "the kernel that is chosen"},
    {"etc/kernel/cmdline", w::KernelParameters, "parameters of IOMMU, GPU memory, ASPM"},
    {"cmd/ip_route{more}", w::IpText, "IPv4 routes: subnet, interface, metric"},
    {"cmd/ip_a", w::IpText, "interfaces, MTU, state, IPv4 addresses"},
    {"cmd/ip_addr{more}", w::IpText, "interfaces, MTU, state, IPv4 addresses"},
    {"cmd/ip_link{more}", w::IpText, "interfaces, MTU, state"},
    {"cmd/ip_-4{more}", w::IpText, "interfaces, MTU, state, IPv4 addresses"},
    {"cmd/ip_-br{more}", w::IpText, "interfaces, MTU, state, IPv4 addresses"},
    {"cmd/ip_-d_link{more}", w::IpText, "interfaces, MTU, state"},
    {"cmd/lspci{more}", w::Lspci, "names of devices, links, buses, drivers, ACS, ASPM"},
};

bool OnlyOf(std::string_view text, std::string_view letters, size_t most) {
    return !text.empty() && text.size() <= most &&
           text.find_first_not_of(letters) == std::string_view::npos;
}

// "weft.service"; of another name only that it is Weft's.
std::optional<std::string> UnitName(std::string_view text, Names& names) {
    constexpr std::array<std::string_view, 5> kUsual = {"weft", "weft-worker", "weft-serve",
                                                        "weft-train", "weft-run"};
    if (!text.starts_with("weft") || !text.ends_with(".service")) return {};
    const std::string_view stem = text.substr(0, text.size() - 8);
    if (std::ranges::find(kUsual, stem) != kUsual.end()) return std::string(text);
    if (names.real() && Printable(text) == text) return std::string(text);
    std::string_view rest = stem.substr(4);
    if (rest.starts_with('-')) rest.remove_prefix(1);
    return "weft-" + names.File(rest) + ".service";
}

bool IsCounter(std::string_view name) {
    constexpr std::array<std::string_view, 11> kCounters = {
        "out_of_sequence",     "packet_seq_err",     "local_ack_timeout_err", "rnr_nak_retry_err",
        "np_cnp_sent",         "symbol_error",       "port_rcv_errors",       "link_downed",
        "link_error_recovery", "port_xmit_discards", "VL15_dropped"};
    return std::ranges::find(kCounters, name) != kCounters.end();
}

// The place named `kind`, filled with what may be saved of `text`; none where it does not fit.
std::optional<std::string> Filled(std::string_view kind, std::string_view text, Names& names) {
    if (kind == "more") return std::string();
    if (text.empty() || text.size() > 255) return {};
    if (kind == "if") return names.Interface(text);
    if (kind == "dev") return names.RdmaDevice(text);
    if (kind == "release") {
        const std::string release(Trim(std::string_view(w::Release(text, names))));
        return release.empty() ? std::nullopt : std::optional(release);
    }
    if (kind == "unit") return UnitName(text, names);
    if (kind == "conf") return names.OrderedFile(text);
    bool fits = false;
    if (kind == "n") fits = OnlyOf(text, "0123456789", 6);
    if (kind == "module") fits = w::IsOptionModule(text);
    if (kind == "option") fits = OnlyOf(text, "abcdefghijklmnopqrstuvwxyz_0123456789", 32);
    if (kind == "pci") fits = w::IsPciAddress(text);
    if (kind == "id") fits = OnlyOf(text, "0123456789-:.", 16);
    if (kind == "counter") fits = IsCounter(text);
    if (kind == "ip") {
        const std::string shown = names.AddressText(text);
        return shown.empty() ? std::nullopt : std::optional(shown);
    }
    return fits ? std::optional(std::string(text)) : std::nullopt;
}

// "${Version}" and "%{VERSION}" are words of dpkg-query and rpm.
bool IsSavedPlace(std::string_view pattern, size_t at) {
    return pattern[at] == '{' && (at == 0 || (pattern[at - 1] != '$' && pattern[at - 1] != '%'));
}

// One segment of a path against one of a pattern.
std::optional<std::string> FillSegment(std::string_view pattern, std::string_view text,
                                       Names& names) {
    const size_t open = pattern.find('{');
    if (open == pattern.npos || !IsSavedPlace(pattern, open))
        return pattern == text ? std::optional(std::string(text)) : std::nullopt;
    const size_t close = pattern.find('}', open);
    const std::string_view before = pattern.substr(0, open), after = pattern.substr(close + 1);
    if (!text.starts_with(before)) return {};
    text.remove_prefix(before.size());
    const std::string_view kind = pattern.substr(open + 1, close - open - 1);
    if (const size_t next = after.find('{'); next != after.npos) {  // "{n}_{ip}"
        const size_t end = text.find(after.substr(0, next));
        if (end == text.npos) return {};
        const auto first = Filled(kind, text.substr(0, end), names);
        const auto rest = FillSegment(after, text.substr(end), names);
        if (!first || !rest) return {};
        return std::string(before) + *first + *rest;
    }
    if (!text.ends_with(after) || text.size() < after.size()) return {};
    const auto filled = Filled(kind, text.substr(0, text.size() - after.size()), names);
    if (!filled) return {};
    return std::string(before) + *filled + std::string(after);
}

struct Match {
    const Source* source = nullptr;
    std::string path;  // as it is saved
};

// `path` of a file, or (with '/' at its end) of a folder: one of the sources, or one above them.
std::optional<Match> Fit(const Source& source, std::string_view path, Names& names) {
    const bool folder = path.ends_with('/');
    if (folder) path.remove_suffix(1);
    std::string_view pattern = source.path;
    const bool folder_source = pattern.ends_with('/');
    if (folder_source) pattern.remove_suffix(1);
    const auto wanted = Split(pattern, '/'), given = Split(path, '/');
    if (given.size() > wanted.size() || (!folder && given.size() != wanted.size())) return {};
    std::string shown;
    for (size_t i = 0; i < given.size(); ++i) {
        const auto segment = FillSegment(wanted[i], given[i], names);
        if (!segment) return {};
        shown += (i == 0 ? "" : "/") + *segment;
    }
    return Match{&source, folder || folder_source ? shown + "/" : shown};
}

std::optional<Match> FindSource(std::string_view path, Names& names) {
    // A command that was only listed is none; it would hide that it is missing.
    if (path.starts_with("cmd/") && path.ends_with('/')) return {};
    for (std::span<const Source> table :
         {std::span<const Source>(kPci), std::span<const Source>(kNetwork),
          std::span<const Source>(kRdma), std::span<const Source>(kMachine),
          std::span<const Source>(kCards)}) {
        for (const Source& source : table) {
            if (auto match = Fit(source, path, names)) return match;
        }
    }
    return {};
}

constexpr Source kGroup = {"sys/fs/cgroup/**/memory.max, cpu.max", w::Numbers, kNumber};

// "sys/fs/cgroup/user.slice/alice.scope/memory.max": the group's path without names.
std::optional<Match> FindGroup(std::string_view path) {
    constexpr std::string_view kRoot = "sys/fs/cgroup";
    std::string_view file = path;
    const bool folder = file.ends_with('/');
    if (folder) file.remove_suffix(1);
    const size_t slash = file.rfind('/');
    if (!file.starts_with(kRoot) || slash == file.npos || slash < kRoot.size()) return {};
    const std::string_view name = file.substr(slash + 1);
    if (name != "memory.max" && name != "cpu.max") return {};
    return Match{&kGroup, std::string(kRoot) +
                              w::GroupPath(file.substr(kRoot.size(), slash - kRoot.size())) + "/" +
                              std::string(name) + (folder ? "/" : "")};
}

std::string PathOfUnread(std::string_view path, Names& names) {
    auto match = FindSource(path, names);
    if (!match) match = FindGroup(path);
    return match ? match->path : "";
}

// "PATH: why" a line; the files that were not read, and the system's word for why.
std::string Unread(std::string_view text, Names& names) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const size_t colon = line.find(": ");
        if (colon == line.npos) continue;
        const std::string path = PathOfUnread(line.substr(0, colon), names);
        if (!path.empty()) kept += path + ": " + w::Reason(line.substr(colon + 2)) + "\n";
    }
    return kept;
}

// As a pattern of the shell.
std::string ShownSource(std::string_view path) {
    std::string shown;
    for (size_t at = 0; at < path.size(); ++at) {
        if (IsSavedPlace(path, at)) {
            shown += '*';
            at = path.find('}', at);
        } else {
            shown += path[at];
        }
    }
    return shown;
}

void CountSource(const Source& source, std::vector<SavedSource>& sources) {
    const std::string path = ShownSource(source.path);
    auto found = std::ranges::find(sources, path, &SavedSource::path);
    if (found == sources.end()) {
        sources.push_back({path, source.kept, 0});
        found = sources.end() - 1;
    }
    ++found->files;
}

// What was only listed stays as an empty folder; what was also read, or has something inside, is
// there already.
void DropCovered(SnapshotFiles& files) {
    for (auto it = files.begin(); it != files.end();) {
        bool covered = false;
        if (it->first.ends_with('/')) {
            const auto next = std::next(it);
            covered = files.contains(it->first.substr(0, it->first.size() - 1)) ||
                      (next != files.end() && next->first.starts_with(it->first));
        }
        it = covered ? files.erase(it) : std::next(it);
    }
}

// Names of files of limits.d and of drop-ins.
void AddOrdered(std::string_view path, std::set<std::string>& files) {
    if (path.ends_with('/')) path.remove_suffix(1);
    const size_t slash = path.rfind('/');
    if (slash == path.npos || !path.ends_with(".conf")) return;
    const std::string_view folder = path.substr(0, slash);
    const bool drop_ins = folder.starts_with("etc/systemd/system/") && folder.ends_with(".d");
    if (drop_ins || folder == "etc/security/limits.d" || folder == "etc/modprobe.d")
        files.emplace(path.substr(slash + 1));
}

std::set<std::string> OrderedFiles(const SnapshotFiles& raw) {
    std::set<std::string> files;
    for (const auto& [path, text] : raw) {
        AddOrdered(path, files);
        if (path != "unread") continue;
        for (std::string_view line : Lines(text))
            AddOrdered(line.substr(0, line.find(": ")), files);
    }
    return files;
}

}  // namespace

SnapshotFiles SavedFiles(const SnapshotFiles& raw, Names& names,
                         std::vector<SavedSource>* sources) {
    constexpr std::string_view kLater = "later/";
    constexpr Source kUnread = {"unread", nullptr, "what could not be read"};
    SnapshotFiles files;
    names.OrderFiles(OrderedFiles(raw));
    for (const auto& [path, text] : raw) {
        if (path == kUnread.path) {
            if (std::string kept = Unread(text, names); !kept.empty()) {
                files[path] = std::move(kept);
                if (sources != nullptr) CountSource(kUnread, *sources);
            }
            continue;
        }
        std::string_view place = path;
        const bool later = place.starts_with(kLater);
        if (later) place.remove_prefix(kLater.size());
        // What was saved may be saved again.
        if (place.starts_with("link/") && place.ends_with(kLinkEnd)) {
            place.remove_suffix(std::string_view(kLinkEnd).size());
        }
        auto match = FindSource(place, names);
        if (!match) match = FindGroup(place);
        if (!match) continue;
        const bool folder = match->path.ends_with('/');
        std::string kept = folder || match->source->write == nullptr
                               ? std::string()
                               : match->source->write(text, names);
        std::string saved = (later ? std::string(kLater) : "") + match->path;
        if (!folder && saved.starts_with("link/")) saved += kLinkEnd;
        files[saved] = std::move(kept);
        if (sources != nullptr && (!folder || match->source->write == nullptr)) {
            CountSource(*match->source, *sources);
        }
    }
    DropCovered(files);
    return files;
}

}  // namespace weft::doctor
