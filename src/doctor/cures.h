// Commands that mend something, in the words of the host's distribution.
#pragma once

#include <string>

#include "doctor/host_view.h"

namespace weft::doctor {

enum class Distribution { kUnknown, kDebian, kFedora, kArch, kNixOs, kSuse };

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
// Installs and starts the subnet manager.
std::string StartManager(HostView& view);

inline constexpr Packages kRdmaCore = {"rdma-core ibverbs-providers", "rdma-core libibverbs",
                                       "rdma-core"};

}  // namespace weft::doctor
