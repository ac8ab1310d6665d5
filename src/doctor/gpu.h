// GPUs of a host, for checks of driver, memory and kernel.
#pragma once

#include <string>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

struct AmdGpu {
    std::string card;    // "card0", its folder in /sys/class/drm; "": known only from PCI
    std::string target;  // "gfx1151"; "": unknown
    double vram_bytes = 0, gtt_bytes = 0;  // 0: unknown
    bool unified = false;                  // an APU, which shares the processor's memory
    bool IsStrixHalo() const { return target == "gfx1151"; }
};
const std::vector<AmdGpu>& AmdGpus(HostView& view);

// The module that limits the memory of AMD's GPUs: "ttm", or with amdgpu-dkms "amdttm".
const char* TtmModule(HostView& view);
// A fix that sets kernel parameters so that the GPU may use all memory except 8 GiB for the system.
// All checks use it, so they state the same numbers.
std::string BorrowForModels(HostView& view);
// Version of ROCm in /opt/rocm, such as "7.1.1"; "": none.
std::string RocmVersion(HostView& view);

// A driver interface that weft uses beside Vulkan: its library and its compiler.
struct NativeDriver {
    // Versions of the files; "": programs find none.
    std::string library, compiler;
    bool known = false;  // whether this host was queried
    bool Works() const { return !library.empty() && !compiler.empty(); }
};
const NativeDriver& Cuda(HostView& view);
const NativeDriver& Hip(HostView& view);
// Whether Vulkan has no driver for the GPU, so that weft needs HIP: AMD's Instinct cards.
bool NeedsHip(const AmdGpu& gpu);

}  // namespace weft::doctor
