// Cures: commands that repair a fault on a host. The commands depend on the host's distribution and
// boot loader, and on whether it is a container. Each cure is a row of cures.inc.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "doctor/host_view.h"
#include "doctor/pci.h"
#include "doctor/rdma.h"

namespace weft::doctor {

// The host's distribution by /etc/os-release, else by the kernel's release: "debian" (and
// derivatives), "fedora", "yum" (Red Hat's 7), "ostree" (Fedora's images: Silverblue, Bazzite),
// "arch", "nixos", "suse", "gentoo", "alpine", "appliance" (read-only systems with their own tools:
// TrueNAS, Unraid, Talos), "unknown".
std::string_view DistributionOf(HostView& view);
// Debian and derivatives with their own boot loader or network setup: "plain", "ubuntu", "proxmox",
// "raspberry", "pop".
std::string_view DebianKindOf(HostView& view);

using CureValues = std::map<std::string, std::string, std::less<>>;
// The command of the first row of cures.inc that is called `name` and whose tags match the host or
// `tags`. The command's {marks} are replaced by `values` and by other rows. CHECKs that there is a
// row.
std::string Cure(HostView& view, std::string_view name, const CureValues& values = {},
                 std::initializer_list<std::string_view> tags = {});
// Replaces the {marks} in `fix`: by rows of cures.inc, and by the values of {pci}, {device} and
// {chip} (the driver module of a Realtek card). pci, device: "" if unknown.
std::string FilledFix(HostView& view, std::string_view fix, const std::string& pci,
                      const std::string& device);

// A quoted string literal of the Nix language.
std::string NixString(std::string_view name);
// Installs and starts the subnet manager; if it already runs on this host, adds the port to it.
std::string StartManager(HostView& view, const RdmaPort& port);
// Adds parameters (separated by blanks) to the kernel's command line, or removes one.
std::string AddParameter(HostView& view, const std::string& parameters);
std::string RemoveParameter(HostView& view, const std::string& parameter);
// Upgrades the kernel if it is too old to have the device's driver; "": it is new enough.
std::string NewerKernelFor(HostView& view, const PciDevice& device);
// Sets kernel settings by sysctl, now and at each boot. settings: lines "NAME=VALUE".
std::string SetSysctl(HostView& view, const std::string& settings);
// Lets the programs of a systemd unit lock memory.
std::string UnlockUnit(HostView& view, const std::string& unit);
// Sets the MTU of an interface, now and at each boot.
std::string SetMtu(HostView& view, const std::string& device, int mtu);
// Gives an interface an address in an unused private subnet. RunChecks replaces kHostByte in the
// address by a byte that differs between hosts (ForHost).
std::string AddAddress(HostView& view, const std::string& device);
inline constexpr std::string_view kHostByte = "\x01";
// Sets a port of a VPI card to InfiniBand or Ethernet.
std::string SetLinkType(HostView& view, const RdmaPort& port, bool infiniband);

// Adapts `fix` to a host. Removes sudo on Proxmox, where the administrator is root. Replaces
// kHostByte by `number`, or if that is 0, by a number derived from the host's name.
std::string ForHost(HostView& view, std::string fix, size_t number);

}  // namespace weft::doctor
