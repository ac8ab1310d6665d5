// Cures of drivers and cards, in the words of the host's distribution: options of kernel modules,
// firmware files, firmware of the card itself, and the protocol that a port speaks.
#pragma once

#include <string>
#include <string_view>

#include "doctor/host_view.h"

namespace weft::doctor {

// "sudo dracut -f"; "" where the distribution needs none of its own.
std::string RebuildInitramfs(HostView& view);
// Sets an option of a module for good: "log_num_mgm_entry_size=-7" of mlx4_core.
std::string SetModuleOption(HostView& view, const std::string& module, const std::string& option);
// Loads a module now and at each boot.
std::string LoadModule(HostView& view, const std::string& module);
// The package with intel/ice/ddp/ice.pkg, and loading it.
std::string InstallIcePackage(HostView& view);
// The tool that reads and writes the firmware of NVIDIA's cards, and its query of one.
std::string QueryFirmware(HostView& view, const std::string& pci);
// Makes a port of a VPI card speak InfiniBand or Ethernet. pci: "" where it is not known.
// infiniband: which of the two. mlx4: a ConnectX-3, whose ports change while the machine runs.
std::string SetLinkType(HostView& view, const std::string& pci, int64_t port, bool infiniband,
                        bool mlx4);

// `fix` with {aspm}, {iommu}, {ddp}, {steering}, {mstflint}, {linktype}, {ixgbe}, {gpufirmware}
// and {device} filled in for this host. device: the interface; "" where it is not known.
std::string FilledFix(HostView& view, std::string_view fix, const std::string& pci,
                      const std::string& device);

}  // namespace weft::doctor
