// The date of the GPU's firmware package.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// linux-firmware 20251125 brought scheduler firmware (MES 0x83) that faults on Strix Halo; it was
// taken back later; 20260110 is known good.
constexpr int64_t kBroken = 20251125, kGood = 20260110, kOldForHalo = 20250808;

Reading FirmwarePackage(HostView& view) {
    for (const char* words :
         {"dpkg-query -W -f=${Version} linux-firmware",
          "dpkg-query -W -f=${Version} firmware-amd-graphics",
          "rpm -q --qf=%{VERSION} amd-gpu-firmware", "rpm -q --qf=%{VERSION} linux-firmware",
          "pacman -Q linux-firmware-amdgpu"}) {
        Reading reading = view.Command(words);
        if (reading.found() && DateIn(reading.text)) return reading;
    }
    return {};
}

void RunGpuFirmware(HostView& view, Findings& out) {
    bool halo = false;
    const std::vector<AmdGpu> gpus = AmdGpus(view);
    for (const AmdGpu& gpu : gpus) halo = halo || gpu.IsStrixHalo();
    if (gpus.empty()) return;
    const Reading package = FirmwarePackage(view);
    if (!package.found()) return;
    const int64_t date = *DateIn(package.text);
    const std::string read = fmt::format("firmware package {}", Trim(package.text));
    const std::string expected = fmt::format("{} or newer", kGood);
    const bool debian = view.Command("dpkg-query -W -f=${Version} firmware-amd-graphics").found();
    const std::string fix = Install(view, {debian ? "firmware-amd-graphics" : "linux-firmware",
                                           "amd-gpu-firmware", "linux-firmware-amdgpu"}) +
                            " (the newest), then boot: the firmware is loaded from the initramfs";
    if (halo && date == kBroken) {
        return out.Fail(read, expected,
                        "this date's firmware makes ROCm fault on Strix Halo, whatever its "
                        "version: memory faults and hangs under load",
                        fix);
    }
    if (halo && date < kOldForHalo) {
        return out.Warn(read, expected,
                        "firmware older than the card's fixes: the GPU hangs under compute load",
                        fix);
    }
    if (date < 20240101) {
        return out.Note(read, "2024 or newer", "older firmware does not know GPUs of today", fix);
    }
    out.Ok(read, halo ? expected : "");
}

}  // namespace

const Check kGpuFirmware = {
    .name = "gpu-firmware",
    .what = "The date of the firmware package of AMD GPUs.",
    .reads = "dpkg-query, rpm or pacman",
    .why = "linux-firmware 20251125 breaks ROCm on Strix Halo; very old ones hang too.",
    .run = RunGpuFirmware,
};

}  // namespace weft::doctor::checks
