// Detects changes that take effect only after a reboot or login.
#include <span>

#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

// ---- Names of kernel releases, as in /lib/modules.

constexpr size_t kMostNumbers = 8;

bool IsDigitOf(char c) {
    return c >= '0' && c <= '9';
}

// End of the version's numbers: the first part that does not begin with a digit.
size_t EndOfNumbers(std::string_view release) {
    size_t at = 0;
    while (at < release.size()) {
        if (!IsDigitOf(release[at])) return at == 0 ? 0 : at - 1;
        const size_t end = std::min(release.find_first_of(".-+~", at), release.size());
        const size_t digits = std::min(release.find_first_not_of("0123456789", at), release.size());
        if (digits < end) return digits;
        at = end + 1;
    }
    return release.size();
}

// "kernel-core-6.17.8-300.fc43.x86_64", "linux-image-6.14.0-37-generic", "vmlinuz-6.12.57+deb13".
void AddRelease(std::string_view word, std::vector<std::string>& found) {
    constexpr std::string_view kBeginnings =
        "kernel-core- kernel- linux-image-unsigned- linux-image- vmlinuz- /boot/vmlinuz- "
        "kernel-default- kernel-uek-core-";
    for (std::string_view begin : Words(kBeginnings)) {
        if (!word.starts_with(begin) || word.size() == begin.size()) continue;
        word.remove_prefix(begin.size());
        if (IsDigitOf(word[0])) found.emplace_back(word);
        return;
    }
}

// "linux 6.18.1.arch1-1", "linux-lts 6.12.58-1" -> names as in /lib/modules.
void AddArch(std::string_view text, std::vector<std::string>& found) {
    for (const auto& words : WordLines(text)) {
        if (words.size() < 2 || !words[0].starts_with("linux") || !IsDigitOf(words[1][0])) continue;
        std::string release(words[1]);
        for (std::string_view part : {".arch", ".zen", ".hardened"}) {
            if (const size_t at = release.find(part); at != release.npos) release[at] = '-';
        }
        const std::string_view kind = words[0].substr(5);
        if (!kind.empty() && !IsOneOf(kind, "-zen -lts -hardened")) continue;
        found.push_back(release.ends_with(kind) ? release : release + std::string(kind));
    }
}

// A setting by which a boot loader chooses the kernel.
struct Keeper {
    const char* path;
    std::string_view key;  // beginning of the line
    const char* what;
};
constexpr Keeper kKeepers[] = {
    {"etc/default/grub", "GRUB_DEFAULT=", "GRUB_DEFAULT in /etc/default/grub"},
    {"boot/grub/grubenv", "saved_entry=", "saved_entry in /boot/grub/grubenv"},
    {"boot/grub2/grubenv", "saved_entry=", "saved_entry in /boot/grub2/grubenv"},
    {"etc/kernel/proxmox-boot-pin", "", "proxmox-boot-tool kernel pin"},
    {"boot/loader/loader.conf", "default", "default in /boot/loader/loader.conf"},
    {"boot/efi/loader/loader.conf", "default", "default in /boot/efi/loader/loader.conf"},
    {"efi/loader/loader.conf", "default", "default in /efi/loader/loader.conf"},
    {"cmd/grubby_--default-kernel", "", "grubby --set-default"},
    {"cmd/grub2-editenv_list", "saved_entry=", "grub2-set-default"},
};

// "GRUB_DEFAULT=2", "GRUB_DEFAULT=\"1>2\"": the setting names an entry other than the first.
bool IsOtherEntry(std::string_view line) {
    constexpr std::string_view kKey = "GRUB_DEFAULT=";
    if (!line.starts_with(kKey)) return false;
    return LeadingNumber(WithoutQuotes(line.substr(kKey.size()))).value_or(0) > 0;
}

// "6.14.0-37-generic" -> 6, 14, 0, 37. Stops at the first part that does not begin with a digit
// ("generic", "arch1"), or after eight numbers.
std::vector<int64_t> NumbersOfRelease(std::string_view release) {
    std::vector<int64_t> numbers;
    const std::string_view version = release.substr(0, EndOfNumbers(release));
    for (size_t at = 0; at < version.size() && numbers.size() < kMostNumbers;) {
        const size_t end = std::min(version.find_first_of(".-+~", at), version.size());
        numbers.push_back(Integer(version.substr(at, end - at)).value_or(0));
        at = end + 1;
    }
    return numbers;
}

// The part after the numbers: "-generic", ".fc43.x86_64". A newer kernel replaces older ones of the
// same flavor.
std::string FlavourOfRelease(std::string_view release) {
    std::string flavour(release.substr(EndOfNumbers(release)));
    // "-arch1-1" and "-arch1-2" are one flavor.
    std::erase_if(flavour, IsDigitOf);
    return flavour;
}

// The setting that makes the boot loader start the running kernel although a newer one is
// installed, such as "GRUB_DEFAULT in /etc/default/grub"; "": no such setting was found.
std::string WhatKeepsKernel(HostView& view, const std::string& running) {
    for (const Keeper& keeper : kKeepers) {
        const Reading file = view.Read(keeper.path);
        const std::string_view text = file.text;
        for (std::string_view line : Lines(text)) {
            line = Trim(line);
            if (!line.starts_with(keeper.key)) continue;
            if (Contains(line, running) || IsOtherEntry(line)) return keeper.what;
        }
        if (file.cut) return fmt::format("the end of /{} is missing", keeper.path);
    }
    if (view.Complete()) return {};
    const std::string list = CommandLike(view, "proxmox-boot-tool kernel list").text;
    const size_t pinned = list.find("Pinned kernel:");
    if (pinned != list.npos && list.find(running, pinned) != list.npos) {
        return "proxmox-boot-tool kernel pin";
    }
    return {};
}

// Releases of the installed kernels, from /lib/modules or, if that was not read, from the output of
// package managers and `ls /boot`. Empty if none of these was read.
std::vector<std::string> InstalledKernels(HostView& view) {
    std::vector<std::string> found;
    for (const char* folder :
         {"lib/modules", "usr/lib/modules", "run/current-system/kernel-modules/lib/modules"}) {
        for (const std::string& name : view.List(folder)) {
            if (!name.empty() && IsDigitOf(name[0])) found.push_back(name);
        }
        if (!found.empty()) return found;
    }
    if (view.Complete()) return found;
    for (const std::string& name : view.List("cmd")) {
        if (name.starts_with("pacman_-Q")) AddArch(view.Text("cmd/" + name), found);
        if (!BeginsWithOneOf(name, "rpm_-q dpkg_-l ls_ dpkg-query")) continue;
        const std::string text = view.Text("cmd/" + name);
        for (const auto& words : WordLines(text)) {
            // For dpkg, only installed packages.
            if (name.starts_with("dpkg") && words[0] != "ii") continue;
            for (std::string_view word : words) AddRelease(word, found);
        }
    }
    return found;
}

// Compares the running kernel with the installed ones.
void CheckKernels(HostView& view, Findings& out) {
    const std::string running = KernelRelease(view);
    const std::vector<std::string> installed = InstalledKernels(view);
    if (running.empty() || installed.empty()) return;
    const bool listed = view.List("lib/modules").size() + view.List("usr/lib/modules").size() > 0;
    if (HasTag(view, "container")) return;  // the modules belong to the host
    if (listed && !IsIn(installed, running)) {
        return Report<found::kModulesGone>(out, running, Joined(installed));
    }
    const auto newest = std::ranges::max_element(installed, {}, [&](const std::string& one) {
        const bool same = FlavourOfRelease(one) == FlavourOfRelease(running);
        return same ? NumbersOfRelease(one) : std::vector<int64_t>();
    });
    if (FlavourOfRelease(*newest) != FlavourOfRelease(running)) return;
    if (!(NumbersOfRelease(*newest) > NumbersOfRelease(running))) return;
    if (const std::string keeper = WhatKeepsKernel(view, running); !keeper.empty()) {
        return Report<found::kKernelKept>(out, *newest, running, keeper);
    }
    Report<found::kKernelOld>(out, *newest, running);
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
            return is_kernel(name) || ContainsAny(name, "nvidia|amdgpu|mlnx");
        });
        const bool kept = std::ranges::all_of(names, is_kernel) &&
                          !WhatKeepsKernel(view, KernelRelease(view)).empty();
        return ReportAs<found::kRebootFlag>(matters && !kept ? kWarn : kNote, out, path,
                                            names.empty() ? "" : ": ", Joined(names));
    }
    for (const char* command : {"needs-restarting -r", "dnf needs-restarting -r"}) {
        const Reading told = view.Complete() ? Reading{} : view.Command(command);
        if (!told.found() || !Contains(told.text, "Reboot is required")) continue;
        return Report<found::kRebootNeeded>(out, command);
    }
}

// Reports module options set after the module was loaded: "options mlx4_core
// log_num_mgm_entry_size=-7" in modprobe.d(5).
void CheckModuleOptions(HostView& view, Findings& out) {
    constexpr std::string_view kModules =
        "mlx4_core mlx5_core ttm amdttm amdgpu ice irdma ixgbe i40e nvidia";
    // Module and option; the last value has precedence.
    std::map<std::pair<std::string, std::string>, std::string> options;
    for (const std::string& file : ConfFiles(view, "etc/modprobe.d")) {
        const std::string text = view.Text(file);
        for (std::string_view line : Lines(text)) {
            const auto words = Words(line.substr(0, line.find('#')));
            if (words.size() < 3 || words[0] != "options" || !IsOneOf(words[1], kModules)) continue;
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
        const auto now = view.Number(fmt::format("sys/module/{}/parameters/{}", module, option));
        const auto then = Number(wanted);
        if (now && then && *now != *then) {
            Report<found::kModuleOption>(out, module, option, *now, *then);
        }
    }
}

// Reports kernel parameters for ranks that take effect only after a reboot.
void CheckCommandLine(HostView& view, Findings& out) {
    constexpr std::string_view kParameters =
        "iommu iommu.passthrough intel_iommu amd_iommu amdgpu.gttsize ttm.pages_limit "
        "ttm.page_pool_size amdttm.pages_limit amdttm.page_pool_size pcie_aspm";
    const Reading running = view.Read("proc/cmdline");  // a saved command line may have no words
    if (!running.found()) return;
    const auto running_words = Words(running.text);
    for (const std::string file : {"etc/default/grub", "etc/kernel/cmdline"}) {
        const std::string text = view.Text(file);
        for (std::string_view line : Lines(text)) {
            if (file == "etc/default/grub") {
                if (!Trim(line).starts_with("GRUB_CMDLINE_LINUX")) continue;
                line = After(line, "=");
            }
            const std::string parameters = WithoutQuotes(line);
            for (std::string_view word : Words(parameters)) {
                if (!IsOneOf(word.substr(0, word.find('=')), kParameters)) continue;
                if (IsIn(running_words, word)) continue;
                return Report<found::kParameterPending>(out, file, word);
            }
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
