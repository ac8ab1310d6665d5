// Kernels, and what processors can, on all hosts.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"

namespace weft::doctor::checks {
namespace {

// The instruction sets that decide which kernels a rank computes with.
std::string Sets(HostView& view) {
    const Reading cpu = view.Read("proc/cpuinfo");
    if (!cpu.found()) return "";
    for (std::string_view line : Lines(cpu.text)) {
        if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
        const auto has = [&](std::string_view flag) {
            const auto words = Words(line);
            return std::find(words.begin(), words.end(), flag) != words.end();
        };
        if (has("avx512bw") && has("avx512_vnni")) return "AVX-512 with VNNI";
        if (has("avx512bw")) return "AVX-512";
        if (has("avx2")) return "AVX2";
        return "no AVX2";
    }
    return "";
}

void Group(std::map<std::string, std::vector<std::string>>& groups, const std::string& key,
           const std::string& host) {
    if (!key.empty()) groups[key].push_back(host);
}

std::string Text(const std::map<std::string, std::vector<std::string>>& groups) {
    std::string words;
    for (const auto& [name, names] : groups) {
        words += fmt::format("{}{} on {}", words.empty() ? "" : "; ", name, Joined(names));
    }
    return words;
}

void AcrossKernel(Hosts hosts, Findings& out) {
    std::map<std::string, std::vector<std::string>> kernels, sets;
    for (const auto& host : hosts) {
        const auto version = KernelVersion(*host);
        Group(kernels,
              version ? fmt::format("kernel {}.{}", version->part[0], version->part[1]) : "",
              host->host());
        Group(sets, Sets(*host), host->host());
    }
    if (sets.size() > 1) {
        out.Note(Text(sets), "processors of one kind",
                 "ranks of different speed wait for each other: the slowest sets the pace",
                 "--tensor-split, with shares by speed (weft bench on each host tells it)");
    }
    if (kernels.size() > 1) {
        out.Note(Text(kernels), "one kernel",
                 "drivers of cards and GPUs differ with it: what works on one host may hang on "
                 "the other",
                 "the same kernel on all hosts");
    }
    if (out.empty() && !kernels.empty()) out.Ok(Text(kernels));
}

}  // namespace

const Check kAcrossKernel = {
    .name = "across-kernel",
    .what = "Kernel version and processor kind of all hosts.",
    .reads = "/proc/sys/kernel/osrelease, /proc/cpuinfo",
    .why = "Hosts that differ fail in ways that no single host shows.",
    .across = AcrossKernel,
};

}  // namespace weft::doctor::checks
