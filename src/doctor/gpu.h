// What GPU a host has, as far as checks of its driver, memory and kernel need to know.
#pragma once

#include <string>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

struct AmdGpu {
    std::string card;    // "card0", the folder under /sys/class/drm; "" where only PCI tells of it
    std::string target;  // "gfx1151"; "" where not known
    double vram_bytes = 0, gtt_bytes = 0;  // 0: not known
    bool unified = false;                  // an APU: its memory is the processor's
    bool IsStrixHalo() const { return target == "gfx1151"; }
};
std::vector<AmdGpu> AmdGpus(HostView& view);

// The release of ROCm under /opt/rocm, "7.1.1"; "" without.
std::string RocmVersion(HostView& view);

}  // namespace weft::doctor
