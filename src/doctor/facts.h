// Facts about a host that several checks use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/host_view.h"
#include "doctor/network.h"
#include "doctor/rdma.h"
#include "doctor/text.h"

namespace weft::doctor {

// Output of the command `words`. In a handmade snapshot, the output may also come from the same
// program with more flags ("cmd/lspci_-vv_-nn" for "lspci -vv").
Reading CommandLike(HostView& view, const std::string& words);
// Whether the kernel has a usable RDMA device, so that limits on locked memory matter.
bool HasRdma(HostView& view);
// The cloud's own interface (driver hv_netvsc and the like) whose virtual function is this port;
// "": none. The cloud's interface has the address, and clouds offer no RDMA on such a port.
std::string CloudInterface(HostView& view, const RdmaPort& port);
// The interfaces that ranks would use: the interfaces of RDMA ports, InfiniBand and Thunderbolt; if
// there are none, the fastest other network cards. Interfaces that are down or have no address are
// omitted, so the list is empty if addresses could not be read.
const std::vector<NetDevice>& FabricDevices(HostView& view);
// Whether ranks use, or may use, this interface.
bool IsForRanks(HostView& view, const NetDevice& device);
// Whether the processor reports that it is virtual. Much of the hardware is then hidden.
bool IsVirtualMachine(HostView& view);
// Tags for the environment of the host, as far as known: "container" and its kind ("lxc", "podman",
// "docker", "kubernetes"), the boot loader ("grub", "limine", "systemd-boot"), "ostree".
const std::vector<std::string>& SystemTags(HostView& view);
bool HasTag(HostView& view, std::string_view tag);
std::string KernelRelease(HostView& view);  // "6.14.0-37-generic"; "": unknown
std::optional<Version> KernelVersion(HostView& view);
// "mlx5_0: registered 67108864", for the first RDMA device that registered memory; "": none.
std::string ProvenDevice(HostView& view);
// Whether libibverbs found no provider for the RDMA device when this process tried to use it.
bool LacksProvider(HostView& view, const std::string& device);
// The paths of the files in `folder` whose names end with ".conf", in order.
std::vector<std::string> ConfFiles(HostView& view, const std::string& folder);
// A value of /proc/meminfo in bytes.
std::optional<double> MemInfo(HostView& view, const std::string& name);
// The names in `folder` that are `prefix` and a number ("cpu0", "cpu1"), in the order of the
// numbers.
std::vector<std::string> Numbered(HostView& view, const std::string& folder,
                                  const std::string& prefix);
// "a, b, c"; long lists end in "and N more".
std::string Joined(const std::vector<std::string>& words);

// Bytes that Weft registers for RDMA: 4 MiB per peer and direction, and a reserve.
inline constexpr double kLockedBytesNeeded = 64.0 * (1 << 20);

}  // namespace weft::doctor
