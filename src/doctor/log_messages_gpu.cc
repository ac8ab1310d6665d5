// What drivers of GPUs say, and the kernel of processor and memory.
#include <array>

#include "doctor/log_messages.h"

namespace weft::doctor {
namespace {

using enum Severity;
constexpr LogSubject kGpuSays = LogSubject::kGpu, kMachineSays = LogSubject::kMachine;

constexpr const char* kSee = "see gpu-kernel and gpu-firmware";
constexpr const char* kOnBus = "a GPU that stays on the bus";
constexpr const char* kGoneWhy =
    "the GPU has gone from the PCIe bus: all work on it was lost, and it stays away until the "
    "machine is booted";
constexpr const char* kGoneFix =
    "power the machine off and on; reseat the GPU, its riser and its power cables, and a power "
    "supply with room; then keep its link awake: {aspm}";
constexpr const char* kCoolGpu = "no heat events";
constexpr const char* kCool =
    "clean the fans, more air; less power to the GPU or the APU (BIOS, or its tool) until then";
constexpr const char* kGoodGpu = "a GPU without errors";
constexpr const char* kReplace =
    "run its vendor's diagnosis; where it comes back, the GPU is broken: replace it";

// drivers/gpu/drm/amd, drivers/gpu/drm/xe, drivers/gpu/drm/i915; NVIDIA's Xid catalog.
constexpr std::array<LogMessage, 34> kGpuRows = {{
    {kGpuSays, "mes * failed to respond", "", kWarn, "a GPU scheduler that answers",
     "the GPU's scheduler hung: the job ends, often with a reset of the GPU",
     "see gpu-kernel and gpu-firmware; current kernel, firmware and ROCm"},
    {kGpuSays, "mes ring buffer is full", "", kWarn, "a GPU scheduler that answers",
     "the GPU's scheduler hung: the job ends, often with a reset of the GPU",
     "see gpu-kernel and gpu-firmware; current kernel, firmware and ROCm"},
    {kGpuSays, "gpu reset begin", "", kWarn, "no reset of the GPU", "all work on the GPU was lost",
     kSee},
    {kGpuSays, "ring * timeout", "gpu", kNote, "no time-outs of the GPU's rings",
     "a job ran too long or hung the GPU", kSee},
    {kGpuSays, "[gfxhub] page fault", "", kNote, "no page faults of the GPU",
     "a program reached beyond its memory, or firmware and driver don't match", "see gpu-firmware"},
    {kGpuSays, "device lost from bus", "gpu", kFail, kOnBus, kGoneWhy, kGoneFix},
    {kGpuSays, "device is lost from bus", "gpu", kFail, kOnBus, kGoneWhy, kGoneFix},
    {kGpuSays, "change power state from d3cold to d0", "gpu", kFail, kOnBus, kGoneWhy, kGoneFix},
    {kGpuSays, "device inaccessible", "gpu", kFail, kOnBus, kGoneWhy, kGoneFix},
    {kGpuSays, "fallen off the bus", "", kFail, kOnBus, kGoneWhy, kGoneFix},
    {kGpuSays, "over temperature range", "", kFail, kCoolGpu,
     "the GPU is too hot: it throttles, then the machine shuts down", kCool},
    {kGpuSays, "shutdown due to gpu sw ctf", "", kFail, kCoolGpu,
     "the GPU is too hot: the machine shuts down", kCool},
    {kGpuSays, "gpu hw ctf", "", kFail, kCoolGpu, "the GPU is too hot: the machine shuts down",
     kCool},
    {kGpuSays, "smu is in hanged state", "", kWarn, "a GPU whose power controller answers",
     "the GPU's power controller hung: clocks stay low, or the GPU is lost", kSee},
    {kGpuSays, "smu: i'm not done with your previous command", "", kWarn,
     "a GPU whose power controller answers",
     "the GPU's power controller hung: clocks stay low, or the GPU is lost", kSee},
    {kGpuSays, "ack should not assert", "gpu", kWarn, "a GPU whose interrupts are in order",
     "the GPU hung or was lost", kSee},
    {kGpuSays, "fatal error during gpu init", "", kFail, "a driver that starts the GPU",
     "the driver could not start the GPU: programs compute on the processor",
     "{gpufirmware}; a newer kernel where the GPU is newer than it"},
    {kGpuSays, "xid * ): 79,", "", kFail, kOnBus, kGoneWhy, kGoneFix},
    {kGpuSays, "xid * ): 119,", "", kFail, "a GPU whose firmware answers",
     "the GPU's system processor (GSP) hung: all work on it was lost",
     "boot; a newer NVIDIA driver, or options nvidia NVreg_EnableGpuFirmware=0"},
    {kGpuSays, "xid * ): 120,", "", kFail, "a GPU whose firmware answers",
     "the GPU's system processor (GSP) hung: all work on it was lost",
     "boot; a newer NVIDIA driver, or options nvidia NVreg_EnableGpuFirmware=0"},
    {kGpuSays, "xid * ): 48,", "", kFail, kGoodGpu, "memory of the GPU failed: results are wrong",
     kReplace},
    {kGpuSays, "xid * ): 63,", "", kWarn, kGoodGpu,
     "a page of the GPU's memory was taken out of use", kReplace},
    {kGpuSays, "xid * ): 64,", "", kFail, kGoodGpu, "the GPU's memory fails, and can't be mended",
     kReplace},
    {kGpuSays, "xid * ): 74,", "", kWarn, "NVLink without errors", "a link between GPUs fails",
     "reseat the bridge; boot"},
    {kGpuSays, "xid * ): 94,", "", kWarn, kGoodGpu, "memory of the GPU failed: the job was ended",
     kReplace},
    {kGpuSays, "xid * ): 95,", "", kFail, kGoodGpu, "memory of the GPU failed: results are wrong",
     kReplace},
    {kGpuSays, "xid", "", kNote, kGoodGpu, "a program on the GPU failed",
     "NVIDIA's list of Xid errors says what the number means"},
    {kGpuSays, "rminitadapter failed", "", kFail, "a driver that starts the GPU",
     "the driver could not start the GPU: programs compute on the processor",
     "power the machine off and on; the driver's version that knows this GPU"},
    {kGpuSays, "has declared device * as wedged", "", kFail, "a GPU that works",
     "the driver gave the GPU up: nothing runs on it until the machine is booted",
     "boot; a newer kernel and firmware; {aspm}"},
    {kGpuSays, "device is lost", "gpu", kFail, kOnBus, kGoneWhy, kGoneFix},
    {kGpuSays, "gpu hang:", "gpu", kWarn, "a GPU that works", "a job hung the GPU",
     "a newer kernel and Mesa"},
    {kGpuSays, "engine reset:", "xe i915", kNote, "a GPU that works", "a job hung the GPU",
     "a newer kernel and Mesa"},
    {kGpuSays, "hardware error from * gpu", "gpu", kWarn, kGoodGpu, "the GPU reports errors",
     kReplace},
    {kGpuSays, "uncorrectable hardware errors detected", "gpu", kFail, kGoodGpu,
     "memory of the GPU failed: results are wrong", kReplace},
}};

// mm/oom_kill.c, arch/x86/kernel/cpu/mce, drivers/thermal, drivers/acpi/thermal.c.
constexpr std::array<LogMessage, 8> kMachineRows = {{
    {kMachineSays, "out of memory: killed process", "", kNote,
     "no program killed for want of memory",
     "a model that does not fit ends so, without a word of its own",
     "a smaller quantization or context, --tp over more hosts"},
    {kMachineSays, "[hardware error]", "", kWarn, "no hardware errors",
     "memory or processor report errors: results may be wrong, programs crash",
     "test the memory (memtest86+), lower its profile in the BIOS"},
    {kMachineSays, "package temperature above threshold", "", kNote, kCoolGpu,
     "a hot processor runs at half its clock: all ranks wait for this one",
     "clean the fans, more air"},
    {kMachineSays, "temperature is above threshold", "", kNote, kCoolGpu,
     "a hot processor runs at half its clock: all ranks wait for this one",
     "clean the fans, more air"},
    {kMachineSays, "core temperature above threshold", "", kNote, kCoolGpu,
     "a hot processor runs at half its clock: all ranks wait for this one",
     "clean the fans, more air"},
    {kMachineSays, "critical temperature reached", "", kFail, kCoolGpu,
     "the machine shuts down from heat",
     "clean the fans, more air; a lower power limit in the "
     "BIOS"},
    {kMachineSays, "task * blocked for more than", "", kNote, "no task that waits for minutes",
     "a driver or a drive does not answer", "'sudo dmesg' shows below the line what it waits for"},
    {kMachineSays, "self-detected stall on cpu", "", kWarn, "processors that take their turns",
     "a processor was stuck in the kernel for 20 s and more: every rank waited",
     "a newer kernel; the trace below the line in 'sudo dmesg' names the driver"},
}};

constexpr auto kAllGpuMessages = JoinedRows(kGpuRows, kMachineRows);

}  // namespace

std::span<const LogMessage> GpuMessages() {
    return kAllGpuMessages;
}

}  // namespace weft::doctor
