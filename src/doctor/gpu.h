// GPUs of a host, for checks of driver, memory and kernel.
#pragma once

#include <string>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

struct AmdGpu {
    std::string card;    // "card0", the folder under /sys/class/drm; "": known from PCI only
    std::string target;  // "gfx1151"; "": unknown
    double vram_bytes = 0, gtt_bytes = 0;  // 0: unknown
    bool unified = false;                  // an APU: it shares the processor's memory
    bool IsStrixHalo() const { return target == "gfx1151"; }
};
std::vector<AmdGpu> AmdGpus(HostView& view);

// Parameters with which the GPU may use all memory except 8 GiB for the system, as a cure. The same
// numbers in every check.
std::string BorrowForModels(HostView& view);
// The release of ROCm under /opt/rocm, "7.1.1"; "": none.
std::string RocmVersion(HostView& view);

}  // namespace weft::doctor
