// Detects changes that take effect only after a reboot or login.
#include <span>

#include "doctor/checks/checks.h"
#include "doctor/kernel_release.h"

namespace weft::doctor::checks {
namespace {

// Compares the running kernel with the installed ones.
void CheckKernels(HostView& view, Findings& out) {
    const std::string running = KernelRelease(view);
    const std::vector<std::string> installed = InstalledKernels(view);
    if (running.empty() || installed.empty()) return;
    const bool listed = view.List("lib/modules").size() + view.List("usr/lib/modules").size() > 0;
    if (HasTag(view, "container")) return;  // the modules belong to the host
    if (listed && !IsIn(installed, running)) {
        return Report<found::kModulesGone>(view, out, running, Joined(installed));
    }
    const auto newest = std::ranges::max_element(installed, {}, [&](const std::string& one) {
        const bool same = FlavourOfRelease(one) == FlavourOfRelease(running);
        return same ? NumbersOfRelease(one) : std::vector<int64_t>();
    });
    if (FlavourOfRelease(*newest) != FlavourOfRelease(running)) return;
    if (!(NumbersOfRelease(*newest) > NumbersOfRelease(running))) return;
    if (const std::string keeper = WhatKeepsKernel(view, running); !keeper.empty()) {
        return Report<found::kKernelKept>(view, out, *newest, running, keeper);
    }
    Report<found::kKernelOld>(view, out, *newest, running);
}

// Reports reboot flags of the distribution.
void CheckFlags(HostView& view, Findings& out) {
    for (const char* path : {"run/reboot-required", "var/run/reboot-required"}) {
        if (!view.Has(path)) continue;
        const std::string packages = view.Text(std::string(path) + ".pkgs");
        std::vector<std::string> names;
        for (std::string_view word : Words(packages)) {
            if (!IsIn(names, word)) names.emplace_back(word);
        }
        const auto is_kernel = [](const std::string& name) { return name.starts_with("linux-"); };
        const bool matters = std::ranges::any_of(names, [&](const std::string& name) {
            return is_kernel(name) || Contains(name, "nvidia") || Contains(name, "amdgpu") ||
                   Contains(name, "mlnx");
        });
        const bool kept = std::ranges::all_of(names, is_kernel) &&
                          !WhatKeepsKernel(view, KernelRelease(view)).empty();
        return ReportAs<found::kRebootFlag>(matters && !kept ? Severity::kWarn : Severity::kNote,
                                            view, out, path, names.empty() ? "" : ": ",
                                            Joined(names));
    }
    for (const char* command : {"needs-restarting -r", "dnf needs-restarting -r"}) {
        const Reading told = view.Complete() ? Reading{} : view.Command(command);
        if (!told.found() || !Contains(told.text, "Reboot is required")) continue;
        return Report<found::kRebootNeeded>(view, out, command);
    }
}

// Reports module options set after the module was loaded: "options mlx4_core
// log_num_mgm_entry_size=-7" in modprobe.d(5).
void CheckModuleOptions(HostView& view, Findings& out) {
    constexpr std::array<std::string_view, 9> kModules = {
        "mlx4_core", "mlx5_core", "ttm", "amdgpu", "ice", "irdma", "ixgbe", "i40e", "nvidia"};
    // Module and option; the last value has precedence.
    std::map<std::pair<std::string, std::string>, std::string> options;
    for (const std::string& file : view.List("etc/modprobe.d")) {
        if (!file.ends_with(".conf")) continue;
        const std::string text = view.Text("etc/modprobe.d/" + file);
        for (std::string_view line : Lines(text)) {
            const auto words = Words(line.substr(0, line.find('#')));
            if (words.size() < 3 || words[0] != "options" || !IsIn(kModules, words[1])) continue;
            for (std::string_view word : std::span(words).subspan(2)) {
                const size_t equals = word.find('=');
                if (equals == word.npos) continue;
                options[{std::string(words[1]), std::string(word.substr(0, equals))}] =
                    word.substr(equals + 1);
            }
        }
    }
    for (const auto& [name, wanted] : options) {
        const auto& [module, option] = name;
        const auto now =
            Number(view.Text(fmt::format("sys/module/{}/parameters/{}", module, option)));
        const auto then = Number(wanted);
        if (now && then && *now != *then) {
            Report<found::kModuleOption>(view, out, module, option, *now, *then);
        }
    }
}

// Reports kernel parameters for ranks that need a reboot.
void CheckCommandLine(HostView& view, Findings& out) {
    constexpr std::array<std::string_view, 9> kParameters = {
        "iommu",          "iommu.passthrough", "intel_iommu",        "amd_iommu",
        "amdgpu.gttsize", "ttm.pages_limit",   "ttm.page_pool_size", "amdttm.pages_limit",
        "pcie_aspm"};
    const Reading running = view.Read("proc/cmdline");  // a saved one may have no word left
    const auto running_words = Words(running.text);
    if (!running.found()) return;
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
            if (!IsIn(kParameters, word.substr(0, word.find('='))) || IsIn(running_words, word)) {
                continue;
            }
            return Report<found::kParameterPending>(view, out, file, word);
        }
    }
}

}  // namespace

void RunRebootPending(HostView& view, Findings& out) {
    CheckKernels(view, out);
    if (out.empty()) CheckFlags(view, out);
    CheckModuleOptions(view, out);
    CheckCommandLine(view, out);
    if (out.empty() && !InstalledKernels(view).empty()) {
        ReportOk(out, "kernel {} is the newest that is installed", KernelRelease(view));
    }
}

}  // namespace weft::doctor::checks
