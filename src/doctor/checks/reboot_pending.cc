// Detects changes that take effect only after a reboot or login.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/kernel_release.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kBoot = "sudo systemctl reboot";

// Compares the running kernel with the installed ones.
void LookAtKernels(HostView& view, Findings& out) {
    const std::string running = KernelRelease(view);
    const std::vector<std::string> installed = InstalledKernels(view);
    if (running.empty() || installed.empty()) return;
    const std::string read =
        fmt::format("kernel {} runs; installed: {}", running, Joined(installed));
    const bool listed = view.List("lib/modules").size() + view.List("usr/lib/modules").size() > 0;
    const bool there = std::ranges::find(installed, running) != installed.end();
    if (HasTag(view, "container")) return;  // the modules belong to the host
    if (listed && !there) {
        return out.Warn(read, "the modules of the running kernel",
                        "an update took the running kernel's modules away: no driver can be loaded "
                        "(mlx5_ib, irdma, amdgpu) until the machine is booted",
                        kBoot);
    }
    const auto newest = std::ranges::max_element(installed, {}, [&](const std::string& one) {
        const bool same = FlavourOfRelease(one) == FlavourOfRelease(running);
        return same ? NumbersOfRelease(one) : std::vector<int64_t>();
    });
    if (FlavourOfRelease(*newest) != FlavourOfRelease(running)) return;
    if (!(NumbersOfRelease(*newest) > NumbersOfRelease(running))) return;
    const std::string newer =
        fmt::format("kernel {} is installed, {} still runs", *newest, running);
    if (const std::string keeper = WhatKeepsKernel(view, running); !keeper.empty()) {
        return out.Note(fmt::format("{}: it may have been chosen ({})", newer, keeper),
                        "the kernel that is wanted",
                        "nothing, where the older kernel is meant; an older driver or GPU fault "
                        "stays with it");
    }
    out.Warn(newer, "the newest kernel that is installed",
             "what the update mends (drivers, GPU, firmware in the initramfs) is not there until "
             "the machine is booted",
             kBoot);
}

// Reports reboot flags of the distribution.
void LookAtFlags(HostView& view, Findings& out) {
    const char* why = "updates wait for a boot: the kernel and libraries from before still run";
    for (const char* path : {"run/reboot-required", "var/run/reboot-required"}) {
        if (!view.Has(path)) continue;
        const std::string packages = view.Text(std::string(path) + ".pkgs");
        std::vector<std::string> names;
        for (std::string_view word : Words(packages)) {
            if (std::ranges::find(names, word) == names.end()) names.emplace_back(word);
        }
        const auto is_kernel = [](const std::string& name) { return name.starts_with("linux-"); };
        const bool matters = std::ranges::any_of(names, [&](const std::string& name) {
            return is_kernel(name) || Contains(name, "nvidia") || Contains(name, "amdgpu") ||
                   Contains(name, "mlnx");
        });
        const bool kept = std::ranges::all_of(names, is_kernel) &&
                          !WhatKeepsKernel(view, KernelRelease(view)).empty();
        return out.Add(matters && !kept ? Severity::kWarn : Severity::kNote,
                       fmt::format("/{}{}{}", path, names.empty() ? "" : ": ", Joined(names)),
                       "no boot pending", why, kBoot);
    }
    for (const char* words : {"needs-restarting -r", "dnf needs-restarting -r"}) {
        const Reading told = view.Complete() ? Reading{} : view.Command(words);
        if (!told.found() || !Contains(told.text, "Reboot is required")) continue;
        return out.Warn(fmt::format("{}: Reboot is required", words), "no boot pending", why,
                        kBoot);
    }
}

// Reports module options set after the module was loaded: "options mlx4_core
// log_num_mgm_entry_size=-7" in modprobe.d(5).
void LookAtModules(HostView& view, Findings& out) {
    constexpr std::array<std::string_view, 9> kModules = {
        "mlx4_core", "mlx5_core", "ttm", "amdgpu", "ice", "irdma", "ixgbe", "i40e", "nvidia"};
    std::map<std::string, std::string> options;  // the last value has precedence
    for (const std::string& file : view.List("etc/modprobe.d")) {
        if (!file.ends_with(".conf")) continue;
        const std::string text = view.Text("etc/modprobe.d/" + file);
        for (std::string_view line : Lines(text)) {
            const auto words = Words(line.substr(0, line.find('#')));
            if (words.size() < 3 || words[0] != "options") continue;
            if (std::ranges::find(kModules, words[1]) == kModules.end()) continue;
            for (std::string_view word : std::span(words).subspan(2)) {
                const size_t equals = word.find('=');
                if (equals == word.npos) continue;
                options[fmt::format("{}/parameters/{}", words[1], word.substr(0, equals))] =
                    std::string(word.substr(equals + 1));
            }
        }
    }
    for (const auto& [path, wanted] : options) {
        const auto now = Number(view.Text("sys/module/" + path)), then = Number(wanted);
        if (!now || !then || *now == *then) continue;
        std::string name = path;
        name.replace(name.find('/'), std::string_view("/parameters/").size(), ".");
        out.Warn(fmt::format("{}: {:g} runs, /etc/modprobe.d says {:g}", name, *now, *then),
                 "the option that is set",
                 "the module was loaded before the change, from an initramfs without it",
                 Cure(view, "initramfs") + " && " + kBoot);
    }
}

// Reports kernel parameters for ranks that need a reboot.
void LookAtCommandLine(HostView& view, Findings& out) {
    constexpr std::array<std::string_view, 9> kMatter = {
        "iommu",          "iommu.passthrough", "intel_iommu",        "amd_iommu",
        "amdgpu.gttsize", "ttm.pages_limit",   "ttm.page_pool_size", "amdttm.pages_limit",
        "pcie_aspm"};
    const std::string running = view.Text("proc/cmdline");
    if (running.empty()) return;
    const auto has = [&](std::string_view word) {
        const auto words = Words(running);
        return std::ranges::find(words, word) != words.end();
    };
    for (const char* file : {"etc/default/grub", "etc/kernel/cmdline"}) {
        std::string text = view.Text(file);
        if (std::string_view(file) == "etc/default/grub") {
            std::string lines;
            for (std::string_view line : Lines(text)) {
                if (!Trim(line).starts_with("GRUB_CMDLINE_LINUX")) continue;
                const size_t equals = line.find('=');
                if (equals != line.npos) lines += fmt::format("{} ", line.substr(equals + 1));
            }
            text = lines;
        }
        std::erase_if(text, [](char c) { return c == '"' || c == '\''; });
        for (std::string_view word : Words(text)) {
            const std::string_view name = word.substr(0, word.find('='));
            if (std::ranges::find(kMatter, name) == kMatter.end() || has(word)) continue;
            return out.Warn(
                fmt::format("/{} has {}, the running kernel's command line has not", file, word),
                "the parameters that are set",
                "the change waits for a boot, or was never given to the boot loader",
                Cure(view, "give-loader", {{"value", std::string(word)}}));
        }
    }
}

}  // namespace

void RunRebootPending(HostView& view, Findings& out) {
    LookAtKernels(view, out);
    if (out.empty()) LookAtFlags(view, out);
    LookAtModules(view, out);
    LookAtCommandLine(view, out);
    if (out.empty() && !InstalledKernels(view).empty()) {
        out.Ok(fmt::format("kernel {} is the newest that is installed", KernelRelease(view)));
    }
}

}  // namespace weft::doctor::checks
