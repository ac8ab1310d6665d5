#include "doctor/cures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "doctor/facts.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

Distribution ByWord(std::string_view word) {
    struct Word {
        std::string_view name;
        Distribution distribution;
    };
    using enum Distribution;
    constexpr std::array<Word, 25> kWords = {
        {{"debian", kDebian},    {"ubuntu", kDebian},  {"linuxmint", kDebian},
         {"pop", kDebian},       {"bazzite", kOstree}, {"bluefin", kOstree},
         {"aurora", kOstree},    {"fedora", kFedora},  {"rhel", kFedora},
         {"centos", kFedora},    {"rocky", kFedora},   {"ol", kFedora},
         {"almalinux", kFedora}, {"arch", kArch},      {"archlinux", kArch},
         {"manjaro", kArch},     {"cachyos", kArch},   {"endeavouros", kArch},
         {"garuda", kArch},      {"nixos", kNixOs},    {"suse", kSuse},
         {"sles", kSuse},        {"gentoo", kGentoo},  {"alpine", kAlpine},
         {"raspbian", kDebian}}};
    const auto found = std::ranges::find(kWords, word, &Word::name);
    if (found != kWords.end()) return found->distribution;
    return word.starts_with("opensuse") ? kSuse : kUnknown;
}

// A line of os-release(5): "ID=fedora", "ID_LIKE="rhel centos fedora"", "ID='arch'".
std::string ValueOfCure(std::string_view release, std::string_view key) {
    for (std::string_view line : Lines(release)) {
        if (!line.starts_with(key) || line.substr(key.size(), 1) != "=") continue;
        std::string value(line.substr(key.size() + 1));
        std::erase_if(value, [](char c) { return c == '"' || c == '\''; });
        return value;
    }
    return "";
}

// Fedora's images are changed by rpm-ostree, Red Hat's 7 by yum.
Distribution OfFedora(std::string_view release) {
    constexpr std::array<std::string_view, 9> kImages = {
        "silverblue", "kinoite",     "sericea",       "onyx",         "coreos",
        "iot",        "sway-atomic", "cosmic-atomic", "budgie-atomic"};
    const std::string variant = ValueOfCure(release, "VARIANT_ID");
    if (std::ranges::find(kImages, variant) != kImages.end()) return Distribution::kOstree;
    const std::string id = ValueOfCure(release, "ID");
    const bool old = id != "fedora" && ValueOfCure(release, "VERSION_ID").starts_with("7");
    return old ? Distribution::kYum : Distribution::kFedora;
}

bool RunsManagerHere(HostView& view) {
    const Reading state = view.Command("systemctl is-active opensm");
    return state.found() && Trim(state.text) == "active";
}

}  // namespace

Distribution DistributionOf(HostView& view) {
    const std::string release = view.Text("etc/os-release");
    const std::string words = ValueOfCure(release, "ID") + " " + ValueOfCure(release, "ID_LIKE");
    for (std::string_view word : Words(words)) {
        const Distribution found = ByWord(word);
        if (found == Distribution::kFedora) return OfFedora(release);
        if (found != Distribution::kUnknown) return found;
    }
    const std::string kernel = KernelRelease(view);
    if (Contains(kernel, ".el7")) return Distribution::kYum;
    if (Contains(kernel, ".fc") || Contains(kernel, ".el")) return Distribution::kFedora;
    if (Contains(kernel, "-arch")) return Distribution::kArch;
    if (Contains(kernel, "deb") || kernel.ends_with("-generic")) return Distribution::kDebian;
    return Distribution::kUnknown;
}

std::string Install(HostView& view, const Packages& packages) {
    switch (DistributionOf(view)) {
        case Distribution::kFedora: return fmt::format("sudo dnf install {}", packages.fedora);
        case Distribution::kYum: return fmt::format("sudo yum install {}", packages.fedora);
        case Distribution::kOstree:
            return fmt::format("sudo rpm-ostree install --apply-live {}", packages.fedora);
        case Distribution::kGentoo:
        case Distribution::kAlpine: return fmt::format("install the package {}", packages.arch);
        case Distribution::kArch: return fmt::format("sudo pacman -S {}", packages.arch);
        case Distribution::kSuse: return fmt::format("sudo zypper install {}", packages.fedora);
        case Distribution::kNixOs:
            return fmt::format(
                "{} in environment.systemPackages of /etc/nixos/configuration.nix, then sudo "
                "nixos-rebuild switch",
                packages.arch);
        case Distribution::kDebian: return fmt::format("sudo apt install {}", packages.debian);
        case Distribution::kUnknown: return fmt::format("install the package {}", packages.debian);
    }
    WEFT_CHECK(false);
}

std::string StartManager(HostView& view, const RdmaPort& port) {
    if (RunsManagerHere(view)) {
        return fmt::format(
            "opensm runs here, but not for {0}: PORTS=ALL in /etc/default/opensm (Fedora: "
            "/etc/rdma/opensm.conf), then sudo systemctl restart opensm; or a second one for this "
            "port: sudo opensm -B -g \"$(ibstat {1} {2} | awk '/Port GUID/ {{print $3}}')\"",
            port.Text(), Quoted(port.device), port.port);
    }
    constexpr const char* kBegin = "on one host only: ";
    constexpr const char* kUnit = "sudo systemctl enable --now opensm";
    switch (DistributionOf(view)) {
        case Distribution::kArch:
            return fmt::format("{}install opensm (of the AUR), then {}", kBegin, kUnit);
        case Distribution::kNixOs:
            return fmt::format("{}{}, then sudo opensm -B", kBegin,
                               Install(view, {"opensm", "opensm", "opensm"}));
        case Distribution::kGentoo:
        case Distribution::kAlpine:
        case Distribution::kUnknown:
            return fmt::format("{}install the package opensm, then sudo opensm -B", kBegin);
        case Distribution::kDebian:
        case Distribution::kFedora:
        case Distribution::kYum:
        case Distribution::kOstree:
        case Distribution::kSuse:
            return fmt::format("{}{} && {}", kBegin, Install(view, {"opensm", "opensm", "opensm"}),
                               kUnit);
    }
    WEFT_CHECK(false);
}

std::string AddParameter(HostView& view, const std::string& parameter) {
    constexpr const char* kGrub =
        "add {0} to GRUB_CMDLINE_LINUX in /etc/default/grub, then {1}, and boot";
    switch (DistributionOf(view)) {
        case Distribution::kDebian: return fmt::format(kGrub, parameter, "sudo update-grub");
        case Distribution::kFedora:
        case Distribution::kYum:
            return fmt::format("sudo grubby --update-kernel=ALL --args={}, and boot", parameter);
        case Distribution::kOstree:
            return fmt::format("sudo rpm-ostree kargs --append={}, and boot", parameter);
        case Distribution::kArch:
        case Distribution::kGentoo:
            return fmt::format(kGrub, parameter, "sudo grub-mkconfig -o /boot/grub/grub.cfg");
        case Distribution::kSuse:
            return fmt::format(kGrub, parameter, "sudo grub2-mkconfig -o /boot/grub2/grub.cfg");
        case Distribution::kNixOs:
            return fmt::format(
                "\"{}\" in boot.kernelParams of /etc/nixos/configuration.nix, then sudo "
                "nixos-rebuild boot, and boot",
                parameter);
        case Distribution::kAlpine:
        case Distribution::kUnknown:
            return fmt::format("add {} to the kernel's command line, and boot", parameter);
    }
    WEFT_CHECK(false);
}

}  // namespace weft::doctor
