// Commands that mend something, in the words of the host's distribution.
#pragma once

#include <string>

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

// The packages that hold one thing, by distribution.
struct Packages {
    const char* debian;
    const char* fedora;
    const char* arch;
};
// "sudo apt install rdma-core".
std::string Install(HostView& view, const Packages& packages);
// Installs and starts the subnet manager; where it runs on this host, sets it up for the port.
std::string StartManager(HostView& view, const RdmaPort& port);
// Adds a parameter to the kernel's command line.
std::string AddParameter(HostView& view, const std::string& parameter);

inline constexpr Packages kRdmaCore = {"rdma-core ibverbs-providers", "rdma-core libibverbs",
                                       "rdma-core"};

}  // namespace weft::doctor
