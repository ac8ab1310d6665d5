// Commands that mend a fault, in the words of the host: its distribution, its boot loader, and
// whether it is a container. The commands are the rows of cures.inc.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "doctor/host_view.h"
#include "doctor/pci.h"
#include "doctor/rdma.h"

namespace weft::doctor {

enum class Distribution {
    kUnknown,
    kDebian,
    kFedora,
    kYum,     // Red Hat's 7
    kOstree,  // Fedora's images: Silverblue, Bazzite
    kArch,
    kNixOs,
    kSuse,
    kGentoo,
    kAlpine,
    kAppliance  // read-only systems with tools of their own: TrueNAS, Unraid, Talos
};
// By /etc/os-release, else by the kernel's release.
Distribution DistributionOf(HostView& view);

// Members of Debian's family with their own boot loader or network set-up.
enum class DebianKind { kPlain, kUbuntu, kProxmox, kRaspberry, kPop };
DebianKind DebianKindOf(HostView& view);

using CureValues = std::map<std::string, std::string, std::less<>>;
// The first row `name` whose tags fit the host or are in `tags`, with its marks filled in.
std::string Cure(HostView& view, std::string_view name, const CureValues& values = {},
                 std::initializer_list<std::string_view> tags = {});
// `fix` with the marks of rows, {pci} and {device} filled in. device: "" where it is not known.
std::string FilledFix(HostView& view, std::string_view fix, const std::string& pci,
                      const std::string& device);

// The packages that hold one thing, by distribution; null: as Fedora (SUSE) and Arch (NixOS).
struct Packages {
    const char* debian;
    const char* fedora;
    const char* arch;
    const char* suse = nullptr;
    const char* nixos = nullptr;  // a line of the configuration
};
// "sudo apt install rdma-core".
std::string Install(HostView& view, const Packages& packages);
// The lines of NixOS' configuration, and the command that applies them.
std::string Configure(const std::string& lines);
// A name as a string of NixOS' language, with its quotes.
std::string NixString(std::string_view name);
// Installs and starts the subnet manager; if it runs on this host, sets it up for the port.
std::string StartManager(HostView& view, const RdmaPort& port);
// Adds parameters, with blanks between them, to the kernel's command line; removes one.
std::string AddParameter(HostView& view, const std::string& parameters);
std::string RemoveParameter(HostView& view, const std::string& parameter);
// Upgrades a kernel that is older than the driver of the device; "" where it is new enough.
std::string NewerKernelFor(HostView& view, const PciDevice& device);
// "NAME=VALUE" of sysctl, now and at each boot; several with newlines between them.
std::string SetSysctl(HostView& view, const std::string& settings);
// Lets the programs of a systemd unit lock memory.
std::string UnlockUnit(HostView& view, const std::string& unit);
// Sets the MTU of an interface, now and at each boot.
std::string SetMtu(HostView& view, const std::string& device, int mtu);
// Gives an interface an address in a private subnet that the host does not use yet. RunChecks
// replaces kHostByte, so that no two hosts get the same address.
std::string AddAddress(HostView& view, const std::string& device);
inline constexpr std::string_view kHostByte = "\x01";
// The file with the rules of nftables that is loaded at boot.
std::string NftablesFile(HostView& view);
// Makes a port of a VPI card speak InfiniBand or Ethernet. pci: "" where it is not known. mlx4: a
// ConnectX-3, whose ports change while the machine runs.
std::string SetLinkType(HostView& view, const std::string& pci, int64_t port, bool infiniband,
                        bool mlx4);

// `fix` for a host whose administrator is root without sudo (Proxmox), and with the last byte of
// its addresses: `number`, or one from the host's name if that is 0.
std::string ForHost(HostView& view, std::string fix, size_t number);

inline constexpr Packages kRdmaCore = {"rdma-core ibverbs-providers", "rdma-core libibverbs",
                                       "rdma-core"};

}  // namespace weft::doctor
