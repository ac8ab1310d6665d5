// Commands that mend something, in the words of the host's distribution.
#pragma once

#include <string>
#include <string_view>

#include "doctor/host_view.h"
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
    kAlpine
};

// By /etc/os-release, else by the kernel's release.
Distribution DistributionOf(HostView& view);

// Of the family of Debian, what boots and sets up networks in ways of its own.
enum class DebianKind { kPlain, kUbuntu, kProxmox, kRaspberry, kPop };
DebianKind DebianKindOf(HostView& view);

// The packages that hold one thing, by distribution; null: as Fedora (SUSE) and Arch (NixOS).
struct Packages {
    const char* debian;
    const char* fedora;
    const char* arch;
    const char* suse = nullptr;
    const char* nixos = nullptr;
};
// "sudo apt install rdma-core".
std::string Install(HostView& view, const Packages& packages);
// The lines that NixOS' configuration gets, and what makes it so: "nixos-rebuild switch", or "boot"
// for what the kernel reads at its start.
std::string Configure(const std::string& lines, bool boots = false);
// A name as a string of NixOS' language, with its quotes.
std::string NixString(std::string_view name);
// Installs and starts the subnet manager; where it runs on this host, sets it up for the port.
std::string StartManager(HostView& view, const RdmaPort& port);
// Adds parameters to the kernel's command line, several with blanks between them; takes one away.
std::string AddParameter(HostView& view, const std::string& parameters);
std::string RemoveParameter(HostView& view, const std::string& parameter);
// "NAME=VALUE" of sysctl, now and at each boot; several with newlines between them.
std::string SetSysctl(HostView& view, const std::string& settings);
// Lets programs of a login shell lock memory; and those of a systemd unit.
std::string UnlockLogin(HostView& view);
std::string UnlockUnit(HostView& view, const std::string& unit);
// Sets the MTU of an interface, now and at each boot.
std::string SetMtu(HostView& view, const std::string& device, int mtu);
// Gives an interface an address in a private subnet that the host does not use yet.
std::string AddAddress(HostView& view, const std::string& device);
// Where a file of nftables' rules is that is loaded at boot.
const char* NftablesFile(HostView& view);

// `fix` in the words of a host whose administrator is root and that has no sudo (Proxmox).
std::string ForHost(HostView& view, const std::string& fix);

inline constexpr Packages kRdmaCore = {"rdma-core ibverbs-providers", "rdma-core libibverbs",
                                       "rdma-core"};

}  // namespace weft::doctor
