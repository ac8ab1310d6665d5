// Checks kernel parameters that affect GPUs and cards.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

using Parameters = std::map<std::string, std::string, std::less<>>;

Parameters ParseKernelParameters(std::string_view text) {
    Parameters parameters;
    for (std::string_view word : Words(text)) {
        const size_t equals = word.find('=');
        const std::string_view value =
            equals == std::string_view::npos ? "" : word.substr(equals + 1);
        parameters[std::string(word.substr(0, equals))] = std::string(value);
    }
    return parameters;
}

std::optional<double> Find(const Parameters& parameters, std::string_view name) {
    const auto found = parameters.find(name);
    return found == parameters.end() ? std::nullopt : Number(found->second);
}

void LookAtMemory(HostView& view, const Parameters& parameters, Findings& out) {
    const auto gtt_mib = Find(parameters, "amdgpu.gttsize");
    const auto pages = Find(parameters, "ttm.pages_limit");
    const auto ram = MemInfo(view, "MemTotal");
    if (!gtt_mib && !pages) return;
    const double gtt = gtt_mib.value_or(0) * (1 << 20), limit = pages.value_or(0) * 4096;
    const std::string read =
        fmt::format("amdgpu.gttsize={:.0f} ({}), ttm.pages_limit={:.0f} ({})", gtt_mib.value_or(0),
                    SizeText(gtt), pages.value_or(0), SizeText(limit));
    const std::string fix = BorrowForModels(view);
    if (ram && (gtt > *ram || limit > *ram)) {
        return out.Warn(read, fmt::format("less than the memory, {}", SizeText(*ram)),
                        "the GPU may take what the system needs: the machine freezes or kills "
                        "programs when a model fills it",
                        fix);
    }
    if (gtt_mib && pages && *gtt_mib > 0 && limit < gtt * 0.98) {
        return out.Warn(
            read, "ttm.pages_limit * 4 KiB at least amdgpu.gttsize",
            fmt::format("the smaller one counts: {} instead of {}", SizeText(limit), SizeText(gtt)),
            fix);
    }
    if (gtt_mib && !pages) {
        return out.Note(read, "ttm.pages_limit",
                        "new kernels no longer listen to amdgpu.gttsize alone", fix);
    }
    out.Ok(read);
}

}  // namespace

void RunKernelParameters(HostView& view, Findings& out) {
    const Reading line = view.Read("proc/cmdline");
    if (!line.found()) return;
    const Parameters parameters = ParseKernelParameters(line.text);
    const bool gpu = !AmdGpus(view).empty();
    LookAtMemory(view, parameters, out);
    if (gpu && parameters.contains("nomodeset")) {
        out.Fail("nomodeset", "no nomodeset", "the GPU's driver is not loaded at all",
                 RemoveParameter(view, "nomodeset"));
    }
    if (const auto cwsr = Find(parameters, "amdgpu.cwsr_enable"); cwsr && *cwsr == 0) {
        out.Note(
            "amdgpu.cwsr_enable=0", "not set, with current kernel and firmware",
            "a way around hangs of older kernels: programs can't share the GPU while it is on",
            "once the kernel is 6.18.4 or newer: " + RemoveParameter(view, "amdgpu.cwsr_enable"));
    }
    if (out.empty()) out.Ok("no parameter on the kernel's command line that hurts");
}

}  // namespace weft::doctor::checks
