#include "doctor/cures.h"

#include <fmt/format.h>

#include "base/check.h"
#include "doctor/facts.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

// "ID=fedora" and "ID_LIKE="rhel centos fedora"" of os-release(5).
Distribution ByWord(std::string_view word) {
    if (word == "debian" || word == "ubuntu" || word == "linuxmint" || word == "pop") {
        return Distribution::kDebian;
    }
    if (word == "fedora" || word == "rhel" || word == "centos" || word == "rocky" ||
        word == "almalinux") {
        return Distribution::kFedora;
    }
    if (word == "arch" || word == "manjaro") return Distribution::kArch;
    if (word == "nixos") return Distribution::kNixOs;
    if (word.starts_with("opensuse") || word == "suse" || word == "sles") {
        return Distribution::kSuse;
    }
    return Distribution::kUnknown;
}

}  // namespace

Distribution DistributionOf(HostView& view) {
    const std::string release = view.Text("etc/os-release");
    for (std::string_view line : Lines(release)) {
        if (!line.starts_with("ID=") && !line.starts_with("ID_LIKE=")) continue;
        std::string values(line.substr(line.find('=') + 1));
        std::erase(values, '"');
        for (std::string_view word : Words(values)) {
            const Distribution found = ByWord(word);
            if (found != Distribution::kUnknown) return found;
        }
    }
    const std::string kernel = KernelRelease(view);
    if (Contains(kernel, ".fc") || Contains(kernel, ".el")) return Distribution::kFedora;
    if (Contains(kernel, "-arch")) return Distribution::kArch;
    if (Contains(kernel, "deb") || kernel.ends_with("-generic")) return Distribution::kDebian;
    return Distribution::kUnknown;
}

std::string Install(HostView& view, const Packages& packages) {
    switch (DistributionOf(view)) {
        case Distribution::kFedora: return fmt::format("sudo dnf install {}", packages.fedora);
        case Distribution::kArch: return fmt::format("sudo pacman -S {}", packages.arch);
        case Distribution::kSuse: return fmt::format("sudo zypper install {}", packages.fedora);
        case Distribution::kNixOs:
            return fmt::format(
                "{} in environment.systemPackages of /etc/nixos/configuration.nix, then sudo "
                "nixos-rebuild switch",
                packages.arch);
        case Distribution::kDebian:
        case Distribution::kUnknown: return fmt::format("sudo apt install {}", packages.debian);
    }
    WEFT_CHECK(false);
}

std::string StartManager(HostView& view) {
    return fmt::format("on one host only: {} && sudo systemctl enable --now opensm",
                       Install(view, {"opensm", "opensm", "opensm"}));
}

}  // namespace weft::doctor
