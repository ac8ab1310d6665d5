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
// Parameters that let the GPU borrow all memory but 8 GiB for the system, as a cure; the same
// numbers whoever asks.
std::string BorrowForModels(HostView& view);
std::string RocmVersion(HostView& view);

}  // namespace weft::doctor
