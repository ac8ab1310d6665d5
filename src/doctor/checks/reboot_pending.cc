// Changes that were made, and wait for a boot or a login.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/kernel_release.h"
#include "doctor/module_remediation.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kBoot = "sudo systemctl reboot";

// The running kernel against those that are installed.
void LookAtKernels(HostView& view, Findings& out) {
    const std::string running = KernelRelease(view);
    const std::vector<std::string> installed = InstalledKernels(view);
    if (running.empty() || installed.empty()) return;
    const std::string read =
        fmt::format("kernel {} runs; installed: {}", running, Joined(installed));
    const bool listed = view.List("lib/modules").size() + view.List("usr/lib/modules").size() > 0;
    const bool there = std::ranges::find(installed, running) != installed.end();
    // In a container the modules are the host's.
    if (listed && !there && !view.Has("run/.containerenv")) {
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

// Flags that the distribution itself raises.
void LookAtFlags(HostView& view, Findings& out) {
    for (const char* folder : {"run", "var/run"}) {
        const std::string path = std::string(folder) + "/reboot-required";
        if (!view.Has(path)) continue;
        const std::string packages = view.Text(path + ".pkgs");
        std::vector<std::string> names;
        for (std::string_view word : Words(packages)) {
            if (std::ranges::find(names, word) == names.end()) names.emplace_back(word);
        }
        const bool matters = std::ranges::any_of(names, [](const std::string& name) {
            return name.starts_with("linux-") || Contains(name, "nvidia") ||
                   Contains(name, "amdgpu") || Contains(name, "mlnx");
        });
        const std::string read =
            fmt::format("/{}{}{}", path, names.empty() ? "" : ": ", Joined(names));
        const char* why = "updates wait for a boot: the kernel and drivers of before still run";
        const bool kernels = std::ranges::all_of(
            names, [](const std::string& name) { return name.starts_with("linux-"); });
        const bool kept = kernels && !WhatKeepsKernel(view, KernelRelease(view)).empty();
        if (matters && !kept) return out.Warn(read, "no boot pending", why, kBoot);
        return out.Note(read, "no boot pending", why, kBoot);
    }
    for (const char* words : {"needs-restarting -r", "dnf needs-restarting -r"}) {
        const Reading told = view.Complete() ? Reading{} : view.Command(words);
        if (!told.found() || !Contains(told.text, "Reboot is required")) continue;
        return out.Warn(fmt::format("{}: Reboot is required", words), "no boot pending",
                        "updates wait for a boot: the kernel and libraries of before still run",
                        kBoot);
    }
}

bool IsOfCards(std::string_view module) {
    constexpr std::array<std::string_view, 9> kModules = {
        "mlx4_core", "mlx5_core", "ttm", "amdgpu", "ice", "irdma", "ixgbe", "i40e", "nvidia"};
    return std::ranges::find(kModules, module) != kModules.end();
}

using Options = std::map<std::string, std::string, std::less<>>;

// "options mlx4_core log_num_mgm_entry_size=-7" of modprobe.d(5), as "mlx4_core.NAME".
Options ModuleOptions(HostView& view) {
    Options options;
    for (const std::string& file : view.List("etc/modprobe.d")) {
        if (!file.ends_with(".conf")) continue;
        const std::string text = view.Text("etc/modprobe.d/" + file);
        for (std::string_view line : Lines(text)) {
            const auto words = Words(line.substr(0, line.find('#')));
            if (words.size() < 3 || words[0] != "options" || !IsOfCards(words[1])) continue;
            for (std::string_view word : std::span(words).subspan(2)) {
                const size_t equals = word.find('=');
                if (equals == word.npos) continue;
                options[fmt::format("{}.{}", words[1], word.substr(0, equals))] =
                    std::string(word.substr(equals + 1));
            }
        }
    }
    return options;
}

void LookAtModules(HostView& view, Findings& out) {
    for (const auto& [name, wanted] : ModuleOptions(view)) {
        const size_t dot = name.find('.');
        const std::string path =
            fmt::format("sys/module/{}/parameters/{}", name.substr(0, dot), name.substr(dot + 1));
        const auto now = Number(view.Text(path)), then = Number(wanted);
        if (!now || !then || *now == *then) continue;
        const std::string initramfs = RebuildInitramfs(view);
        out.Warn(fmt::format("{}: {:g} runs, /etc/modprobe.d says {:g}", name, *now, *then),
                 "the option that is set",
                 "the module was loaded before the change, from an initramfs without it",
                 initramfs.empty() ? fmt::format("rebuild the initramfs, then {}", kBoot)
                                   : fmt::format("{} && {}", initramfs, kBoot));
    }
}

// Hands the parameters that a file already holds to the boot loader. word: where the distribution
// keeps them elsewhere.
std::string GiveToLoader(HostView& view, const std::string& word) {
    switch (DistributionOf(view)) {
        case Distribution::kDebian:
            switch (DebianKindOf(view)) {
                case DebianKind::kProxmox:
                    return "sudo update-grub; sudo proxmox-boot-tool refresh; sudo systemctl "
                           "reboot";
                case DebianKind::kPlain:
                case DebianKind::kUbuntu: return fmt::format("sudo update-grub && {}", kBoot);
                case DebianKind::kRaspberry:
                case DebianKind::kPop: break;
            }
            break;
        case Distribution::kArch:
            return fmt::format("sudo grub-mkconfig -o /boot/grub/grub.cfg && {}", kBoot);
        case Distribution::kSuse:
            return fmt::format("sudo grub2-mkconfig -o /boot/grub2/grub.cfg && {}", kBoot);
        case Distribution::kFedora:
        case Distribution::kYum:
        case Distribution::kOstree:
        case Distribution::kNixOs:
        case Distribution::kGentoo:
        case Distribution::kAlpine:
        case Distribution::kUnknown: break;
    }
    return fmt::format("{} (it gives it to the boot loader)", AddParameter(view, word));
}

// Parameters of the kernel's command line that matter to ranks and wait for a boot.
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
                GiveToLoader(view, std::string(word)));
        }
    }
}

// Limits that a file grants, and this session does not have yet.
void LookAtLogin(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const Reading limit = view.Probe("memlock");
    const auto bytes = Number(After(limit.text, "soft ", " "));
    if (!limit.found() || !bytes || *bytes >= kLockedBytesNeeded) return;
    std::vector<std::string> files = {"etc/security/limits.conf"};
    for (const std::string& file : view.List("etc/security/limits.d")) {
        if (file.ends_with(".conf")) files.push_back("etc/security/limits.d/" + file);
    }
    for (const std::string& file : files) {
        const std::string text = view.Text(file);
        for (std::string_view line : Lines(text)) {
            const auto words = Words(line.substr(0, line.find('#')));
            if (words.size() < 4 || words[2] != "memlock" || words[1] == "hard") continue;
            const auto kib = Number(words[3]);
            const bool enough = words[3] == "unlimited" || words[3] == "infinity" ||
                                (kib && *kib * 1024 >= kLockedBytesNeeded);
            if (!enough || (words[0] != "*" && !words[0].starts_with('@'))) continue;
            return out.Warn(
                fmt::format("/{} grants memlock {}, this session has {}", file, words[3],
                            SizeText(*bytes)),
                "the limit that is set",
                "limits count from the next login on: RDMA still fails with 'Cannot allocate "
                "memory'",
                "log out of the whole session and in again (a desktop, tmux or VS Code server "
                "keeps the old one: sudo systemctl reboot); services: LimitMEMLOCK=infinity");
        }
    }
}

void RunRebootPending(HostView& view, Findings& out) {
    LookAtKernels(view, out);
    if (out.empty()) LookAtFlags(view, out);
    LookAtModules(view, out);
    LookAtCommandLine(view, out);
    LookAtLogin(view, out);
    if (out.empty() && !InstalledKernels(view).empty()) {
        out.Ok(fmt::format("kernel {} is the newest that is installed", KernelRelease(view)));
    }
}

}  // namespace

const Check kRebootPending = {
    .name = "reboot-pending",
    .what = "Changes of kernel, its parameters, modules' options and limits that wait for a boot.",
    .reads =
        "/lib/modules, /run/reboot-required, /etc/modprobe.d, /sys/module/*/parameters, "
        "/etc/default/grub, /etc/kernel/cmdline, /proc/cmdline, /etc/security/limits.d",
    .why = "What was mended is not mended before the machine is booted.",
    .run = RunRebootPending,
};

}  // namespace weft::doctor::checks
