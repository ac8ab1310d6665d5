#include "doctor/saved_sources.h"

#include "base/check.h"

namespace weft::doctor {
namespace {

using enum SavedForm;

constexpr std::string_view kIbKeys =
    "CA '|CA type:|hca_id:|Infiniband device|Port |port:|link |*/|State:|state:|Physical state:|"
    "phys state:|phys_state:|Rate:|rate:|Base lid:|base lid:|port_lid:|SM lid:|sm lid:|sm_lid:|"
    "Link layer:|link_layer:|active_width:|active_speed:|netdev:|Firmware version:|fw_ver:|"
    "vendor_part_id:|transport:|System image GUID:|sys_image_guid:|Node GUID:|node_guid:";
constexpr std::string_view kLspciKeys =
    "LnkCap:|LnkSta:|LnkCtl:|Bus:|Kernel driver in use:|NUMA node:|SltSta:|ACSCtl:|"
    "!!! Unknown header|Capabilities: <access denied>|Kernel modules:|BAR |*DLActive-|@";
constexpr std::string_view kCounters =
    "NIC statistics:|rx_total_frames:|rx_good_frames:|rx_unicast.nic:|port.rx_unicast:|"
    "rx_fcs_err_frames:|rx_total_discard_pkts:|rx_pfc_frames:|tx_pfc_frames:|rx_crc_errors.nic:|"
    "port.rx_crc_errors:|rx_dropped.nic:|port.rx_dropped:|rx_packets:|rx_discards_phy:|"
    "rx_out_of_buffer:|rx_missed_errors:|rx_no_buffer_count:|out_of_sequence:|rx_crc_errors_phy:|"
    "rx_crc_errors:|rx_symbol_err_phy:|link_down_events_phy:|tx_timeout:|rx_pause_ctrl_phy:|"
    "rx_prio3_pause:|tx_pause_ctrl_phy:";
constexpr std::string_view kKernelParameters =
    "iommu|iommu.passthrough|intel_iommu|amd_iommu|amdgpu.gttsize|amdgpu.cwsr_enable|"
    "ttm.pages_limit|ttm.page_pool_size|amdttm.pages_limit|amdttm.page_pool_size|pcie_aspm|"
    "pcie_aspm.policy|nomodeset|mitigations|numa|mem|maxcpus|nr_cpus|nosmp|acpi|initrd";
constexpr std::string_view kMemoryKeys =
    "Memory Device|Size:|Speed:|Configured Memory Speed:|Locator:|Bank Locator:|"
    "Number Of Devices:";

constexpr std::string_view kNvidiaKeys =
    "GPU |*Product Name|*SW Power Cap|*HW Slowdown|*HW Thermal Slowdown|*HW Power Brake Slowdown|"
    "*SW Thermal Slowdown|*Clocks|*SM |*Utilization|*Gpu |*GPU |*Power Limit";

constexpr SavedRow kRows[] = {
    // PCI devices
    {"sys/bus/pci/devices/<pci>/<class|vendor|device|max_link_speed|max_link_width|"
     "current_link_speed|current_link_width|secondary_bus_number|subordinate_bus_number|numa_node>",
     kValue},
    {"sys/bus/pci/devices/<pci>/<aer_dev_correctable|aer_dev_nonfatal|aer_dev_fatal>", kLines,
     "TOTAL_ERR_COR|TOTAL_ERR_FATAL|TOTAL_ERR_NONFATAL"},
    {"sys/bus/pci/devices/<pci>/uevent", kFields, "DRIVER="},
    {"sys/bus/pci/devices/<pci>/<net|infiniband>/<if>/", kThere},
    {"link/sys/bus/pci/devices/<pci>", kPath},
    {"link/sys/bus/pci/devices/<pci>/<driver|physfn>", kPath},
    {"sys/module/pcie_aspm/parameters/policy", kValue},
    {"sys/module/<amdgpu|nvidia>/version", kVersion},
    {"sys/module/"
     "<mlx4_core|mlx5_core|ice|bnxt_en|ionic|cxgb4|thunderbolt_ibverbs|thunderbolt_net|odl_tb5>/",
     kThere},
    {"sys/module/<mlx4_core|mlx5_core|ttm|amdttm|amdgpu|ice|irdma|ixgbe|i40e|nvidia>/"
     "parameters/<word>",
     kValue},
    {"sys/kernel/iommu_groups/<n>/type", kValue},
    {"sys/class/hwmon/hwmon<n>/name", kValue},
    {"sys/class/hwmon/hwmon<n>/temp<n>_<input|crit|label>", kValue},
    {"cmd/lspci_-vv<more>", kLines, kLspciKeys},
    {"cmd/lspci<more>", kLines, kLspciKeys},
    {"cmd/lsmod", kLines, "mlx4_core |mlx5_core |ice |bnxt_en |ionic |cxgb4 |irdma |amdgpu "},
    {"cmd/nvidia-smi_topo_-m", kTable, "*GPU|*NIC"},
    // Network
    {"sys/class/net/<if>/<speed|mtu|type|duplex|operstate|mode|pkey>", kValue},
    {"sys/class/net/<if>/<wireless|phy80211>/", kThere},
    {"sys/class/net/<if>/brif/<if>/", kThere},
    {"sys/class/net/<if>/bonding/mode", kValue},
    {"sys/class/net/<if>/bonding/slaves", kTable},
    {"sys/class/net/<if>/bonding/ad_num_ports", kValue},
    {"link/sys/class/net/<if>/device", kPath},
    {"link/sys/class/net/<if>/device/driver", kPath},
    {"link/sys/class/net/<if>/master", kDevice},
    {"proc/net/bonding/<if>", kTable, "Bonding Mode:|Slave Interface:|Number of ports:"},
    {"proc/net/snmp", kTable, "Tcp:"},
    {"proc/sys/net/ipv4/<tcp_rmem|tcp_timestamps|tcp_sack>", kValue},
    {"cmd/ethtool_-i_<if>", kFields, "driver:|firmware-version:|bus-info:"},
    {"cmd/ethtool_-c_<if>", kFields, "Adaptive RX:|rx-usecs:"},
    {"cmd/ethtool_-S_<if>", kLines, kCounters},
    {"cmd/ethtool_-a_<if>", kFields, "RX:|TX:"},
    {"cmd/ethtool_--show-fec_<if>", kLines, "Configured FEC encoding"},
    {"cmd/ethtool_<if>", kLines, "Speed:|Duplex:|Link detected:|*link modes:|*base"},
    {"cmd/mlnx_qos_-i_<if>", kLines, "PFC configuration:|enabled "},
    {"cmd/dcb_<pfc|app>_show_dev_<if>", kLines, "prio-pfc |dscp-prio "},
    {"cmd/lldptool_-t_-i_<if>_-V_PFC", kLines, "Enabled:|PFC enabled:"},
    {"cmd/<bnxtqos|niccli><more>", kLines, "Enabled:|PFC enabled:"},
    {"cmd/ip_-j_<addr|route><more>", kIp},
    {"cmd/ip_<route|addr|link|-4|-br|-d_link><more>", kTable},
    {"cmd/ip_a", kTable},
    {"cmd/tailscale_status", kLines, "*; relay|*; peer-relay"},
    {"cmd/ping_-c_1_-W_1_-M_do_-s_<n>_<ip>", kLines,
     "*time=|*packet loss|*not found|*not permitted"},
    {"sys/bus/thunderbolt/devices/<id>/<rx_speed|rx_lanes>", kValue},
    {"sys/bus/thunderbolt/devices/<id>/", kThere},
    {"sys/bus/thunderbolt/devices/<id>/<maxhopid>/", kThere},
    {"sys/bus/thunderbolt/devices/<id>/<id>/", kThere},
    // Firewalls
    {"cmd/ufw_status", kRules},
    {"cmd/ufw_status_verbose", kRules},
    {"cmd/firewall-cmd_--<state|get-active-zones|list-all|list-all-zones>", kRules},
    {"cmd/nft_list_ruleset", kRules},
    {"cmd/iptables<-save|_-S|_-L|_-n|_-v><more>", kRules},
    // RDMA
    {"sys/class/infiniband/<if>/fw_ver", kVersion},
    {"sys/class/infiniband/<if>/<hca_type|node_type|node_guid>", kValue},
    {"sys/class/infiniband/<if>/parent", kDevice},
    {"sys/class/infiniband/<if>/ports/<n>/<state|phys_state|link_layer|rate|lid|sm_lid>", kValue},
    {"sys/class/infiniband/<if>/ports/<n>/pkeys/<n>", kValue},
    {"sys/class/infiniband/<if>/ports/<n>/gids/<n>", kGid},
    {"sys/class/infiniband/<if>/ports/<n>/gid_attrs/types/<n>", kValue},
    {"sys/class/infiniband/<if>/ports/<n>/gid_attrs/ndevs/<n>", kDevice},
    {"sys/class/infiniband/<if>/ports/<n>/<counters|hw_counters>/<out_of_sequence|packet_seq_err|"
     "local_ack_timeout_err|rnr_nak_retry_err|np_cnp_sent|symbol_error|port_rcv_errors|link_downed|"
     "link_error_recovery|port_xmit_discards|VL15_dropped>",
     kValue},
    {"sys/class/infiniband/<if>/device/net/<if>/", kThere},
    {"link/sys/class/infiniband/<if>/device", kPath},
    {"sys/class/cxi/<if>/", kThere},
    {"link/usr/<lib|lib64>/libibverbs.so.1", kVersion},
    {"link/usr/lib/<x86_64-linux-gnu|aarch64-linux-gnu>/libibverbs.so.1", kVersion},
    {"usr/<lib|lib64>/libibverbs/lib<word>-rdmav<n>.so/", kThere},
    {"usr/lib/<x86_64-linux-gnu|aarch64-linux-gnu>/libibverbs/lib<word>-rdmav<n>.so/", kThere},
    {"dev/infiniband/uverbs<n>/", kThere},
    {"cmd/<ibstat|ibstatus>", kTable, kIbKeys},
    {"cmd/<ibv_devinfo|rdma_link><more>", kTable, kIbKeys},
    {"cmd/ibv_devices", kLines, "device "},
    {"cmd/systemctl_is-active_NetworkManager", kValue},
    {"cmd/systemctl_is-active_opensm", kValue},
    {"cmd/ls_-Z__var_log_opensm.log", kValue},
    {"cmd/getenforce", kValue},
    // Limits
    {"etc/security/limits.conf", kTable, "*memlock"},
    {"etc/security/limits.d/<conf>", kTable, "*memlock"},
    {"etc/systemd/system/<unit>", kLines, "[Service]|LimitMEMLOCK"},
    {"etc/systemd/system/<unit>.d/<conf>", kLines, "[Service]|LimitMEMLOCK"},
    {"cmd/systemctl_show_--property=DefaultLimitMEMLOCK", kLines, "DefaultLimitMEMLOCK="},
    {"cmd/ulimit_-l", kValue},
    {"proc/self/limits", kLines, "Max locked memory"},
    {"proc/self/cgroup", kGroup},
    // GPUs and drivers of Vulkan
    {"sys/class/drm/card<n>/device/<vendor|device|mem_info_vram_total|mem_info_gtt_total>", kValue},
    {"sys/class/kfd/kfd/topology/nodes/<n>/properties", kLines, "gfx_target_version "},
    {"dev/kfd/", kThere},
    {"dev/dri/renderD<n>/", kThere},
    {"dev/nvidia<n>/", kThere},
    {"usr/share/vulkan/icd.d/<icd>_icd<more>/", kThere},
    {"etc/vulkan/icd.d/<icd>_icd<more>/", kThere},
    {"usr/local/share/vulkan/icd.d/<icd>_icd<more>/", kThere},
    {"run/opengl-driver/share/vulkan/icd.d/<icd>_icd<more>/", kThere},
    {"opt/rocm/.info/<version|version-dev>", kVersion},
    // Processors, memory and the kernel
    {"sys/devices/system/cpu/cpufreq/policy<n>/<scaling_governor|scaling_driver|"
     "energy_performance_preference|scaling_min_freq|scaling_max_freq|cpuinfo_max_freq>",
     kValue},
    {"sys/devices/system/cpu/cpu<n>/cpufreq/<scaling_governor|scaling_driver|"
     "energy_performance_preference|scaling_min_freq|cpuinfo_max_freq>",
     kValue},
    {"sys/devices/system/cpu/cpufreq/boost", kValue},
    {"sys/devices/system/cpu/intel_pstate/<no_turbo|max_perf_pct>", kValue},
    {"sys/firmware/acpi/platform_profile", kValue},
    {"sys/class/drm/card<n>/device/power_dpm_force_performance_level", kValue},
    {"cmd/nvidia-smi_-q", kLines, kNvidiaKeys},
    {"sys/devices/system/cpu/cpu<n>/thermal_throttle/package_throttle_count", kValue},
    {"sys/devices/system/node/node<n>/", kThere},
    {"sys/devices/system/node/node<n>/meminfo", kLines, "*MemTotal:"},
    {"sys/devices/system/node/node<n>/cpulist", kValue},
    {"proc/spl/kstat/zfs/arcstats", kLines, "size "},
    {"proc/sys/vm/overcommit_memory", kValue},
    {"sys/kernel/mm/transparent_hugepage/enabled", kValue},
    {"proc/cpuinfo", kLines, "flags|Features|model name|physical id"},
    {"proc/meminfo", kLines,
     "MemTotal:|MemAvailable:|SwapTotal:|SwapFree:|HugePages_Total:|HugePages_Free:|"
     "HugePages_Rsvd:|Hugepagesize:|CommitLimit:"},
    {"proc/swaps", kTable, "/"},
    {"proc/cmdline", kParameters, kKernelParameters},
    {"proc/version", kVersion},
    {"proc/sys/kernel/osrelease", kVersion},
    {"proc/sys/kernel/numa_balancing", kValue},
    {"cmd/uname_-r", kVersion},
    {"cmd/<dmidecode|dmidecode_-t_17|dmidecode_--type_memory|dmidecode_-t_memory>", kLines,
     kMemoryKeys},
    {"cmd/<timedatectl|timedatectl_status>", kLines,
     "System clock synchronized:|NTP synchronized:"},
    {"cmd/timedatectl_show_--property=NTPSynchronized", kLines, "NTPSynchronized="},
    // Installed or chosen kernels, packages, files that mark a pending reboot
    {"etc/os-release", kFields, "ID=|ID_LIKE=|VERSION_ID=|VARIANT_ID="},
    {"etc/modprobe.d/<conf>", kLines,
     "options mlx4_core |options mlx5_core |options ttm |options amdgpu |options ice |options "
     "irdma |options ixgbe |options i40e |options nvidia "},
    {"etc/default/grub", kGrub, kKernelParameters},
    {"etc/kernel/cmdline", kParameters, kKernelParameters},
    {"etc/kernel/proxmox-boot-pin", kVersion},
    {"boot/<grub|grub2>/grubenv", kVersion, "saved_entry="},
    {"boot/loader/loader.conf", kVersion, "default "},
    {"boot/efi/loader/loader.conf", kVersion, "default "},
    {"efi/loader/loader.conf", kVersion, "default "},
    {"cmd/grubby_--default-kernel", kVersion},
    {"cmd/grub2-editenv_list", kVersion, "saved_entry="},
    {"lib/modules/<release>/", kThere},
    {"usr/lib/modules/<release>/", kThere},
    {"run/current-system/kernel-modules/lib/modules/<release>/", kThere},
    {"run/<.containerenv|reboot-required>/", kThere},
    {"var/run/secrets/kubernetes.io/", kThere},
    {"run/systemd/container", kValue},
    {"cmd/<systemd-detect-virt|dkms_status|mokutil_--sb-state>", kValue},
    {"etc/default/limine", kValue},
    {"var/run/reboot-required/", kThere},
    {"run/reboot-required.pkgs", kVersion},
    {"var/run/reboot-required.pkgs", kVersion},
    {"cmd/<needs-restarting_-r|dnf_needs-restarting_-r>", kLines, "Reboot is required"},
    {"cmd/dpkg-query_-W_-f=${Version}_<linux-firmware|firmware-amd-graphics|ibverbs-providers|"
     "mesa-vulkan-drivers>",
     kVersion},
    {"cmd/rpm_-q_--qf=%{VERSION}_<amd-gpu-firmware|linux-firmware|libibverbs|mesa-vulkan-drivers>",
     kVersion},
    {"cmd/pacman_-Q_<vulkan-radeon|rdma-core|linux-firmware-amdgpu>", kVersion},
    {"cmd/<rpm_-q_kernel|pacman_-Q_linux|dpkg_-l_linux-image><more>", kVersion},
    // The kernel's log
    {"cmd/<dmesg|sudo_dmesg|journalctl_-k|journalctl_-b|journalctl_--dmesg><more>", kLog},
    {"var/log/<messages|dmesg|kern.log>", kLog},
    // Probes
    {"probe/hostname", kHost},
    {"probe/<complete|clock|clock_asked|cpus>", kValue},
    {"probe/<memlock|lock_memory>", kTable},
    {"probe/register_memory/<if>", kTable},
    {"probe/reach", kTable},
    {"probe/system", kValue},
    {"probe/access/dev/<infiniband|dri>/<uverbs|renderD><n>", kTable},
    {"probe/access/dev/kfd", kTable},
    {"probe/access/dev/nvidia<n>", kTable},
    {"probe/library/<libcuda.so.1|libnvrtc.so.13|libnvrtc.so.12|libamdhip64.so.7|libamdhip64.so.6|"
     "libamdhip64.so.5|libhiprtc.so.7|libhiprtc.so.6|libhiprtc.so.5>",
     kVersion},
    {"probe/measure/<shm|tcp>", kTable, "one_way |all_reduce "},
};

}  // namespace

std::span<const SavedRow> SavedRows() {
    return kRows;
}

const char* SavedFormText(SavedForm form) {
    switch (form) {
        case kThere: return "that it is there";
        case kValue: return "numbers and known words";
        case kLines:
        case kFields: return "numbers and known words of some lines";
        case kTable: return "numbers, known words, pseudonyms";
        case kRules: return "rules without comments, pseudonyms";
        case kVersion: return "a version";
        case kParameters: return "parameters of IOMMU, GPU memory, ASPM";
        case kGrub: return "the chosen kernel, parameters";
        case kPath: return "PCI addresses, the driver";
        case kDevice: return "the interface";
        case kGid: return "its IPv4 address";
        case kHost: return "a pseudonym";
        case kGroup: return "the group without names";
        case kIp: return "interfaces, MTU, state, IPv4 addresses, routes";
        case kLog: return "lines of cards, GPUs and hardware errors, known words";
    }
    WEFT_CHECK(false);
}

}  // namespace weft::doctor
