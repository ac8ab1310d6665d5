// Facts about a host that several checks ask for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/host_view.h"
#include "doctor/text.h"

namespace weft::doctor {

// The output of `words`; in a snapshot made by hand also that of the same program with a few more
// flags ("cmd/lspci_-vv_-nn" for "lspci -vv").
Reading CommandLike(HostView& view, const std::string& words);
// Whether the kernel has an RDMA device that can be used, so that limits on locked memory matter.
bool HasRdma(HostView& view);
// Whether the processor says that it is a virtual one: much of the hardware is then hidden.
bool IsVirtualMachine(HostView& view);
// Where the host is: "container" with its kind ("lxc", "podman", "docker"), the boot loader
// ("grub", "limine", "systemd-boot"), "ostree". Nothing that was not read.
std::vector<std::string> SystemTags(HostView& view);
bool HasTag(HostView& view, std::string_view tag);
std::string KernelRelease(HostView& view);  // "6.14.0-37-generic"; "" where not known
std::optional<Version> KernelVersion(HostView& view);
// A value of /proc/meminfo in bytes.
std::optional<double> MemInfo(HostView& view, const std::string& name);
// "cpu0", "eth3": the names under `folder` that are `prefix` and a number, in order.
std::vector<std::string> Numbered(HostView& view, const std::string& folder,
                                  const std::string& prefix);
// "a, b, c"; and N more where there are many.
std::string Joined(const std::vector<std::string>& words);

// Windows that Weft registers for RDMA: 4 MiB for each peer and direction, and room for more.
inline constexpr double kLockedBytesNeeded = 64.0 * (1 << 20);

}  // namespace weft::doctor
