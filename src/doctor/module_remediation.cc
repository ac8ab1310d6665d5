#include "doctor/module_remediation.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/shell_word.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

bool IsUbuntu(HostView& view) {
    return Contains(view.Text("etc/os-release"), "ubuntu") ||
           KernelRelease(view).ends_with("-generic");
}

// "12" of Debian's /etc/os-release.
bool IsDebian12(HostView& view) {
    return Contains(view.Text("etc/os-release"), "VERSION_ID=\"12\"") ||
           Contains(KernelRelease(view), "deb12");
}

void Replace(std::string& text, std::string_view mark, const std::string& with) {
    for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + with.size())) {
        text.replace(at, mark.size(), with);
    }
}

std::string FirmwareOfIce(HostView& view) {
    switch (DistributionOf(view)) {
        case Distribution::kDebian:
            if (Contains(KernelRelease(view), "pve")) return "sudo apt install pve-firmware";
            if (IsUbuntu(view)) return "sudo apt install --reinstall linux-firmware";
            return fmt::format("sudo apt install {} (of non-free-firmware)",
                               IsDebian12(view) ? "firmware-misc-nonfree" : "firmware-intel-misc");
        case Distribution::kNixOs:
            return "hardware.enableRedistributableFirmware = true; in "
                   "/etc/nixos/configuration.nix, then sudo nixos-rebuild boot";
        case Distribution::kSuse: return "sudo zypper install kernel-firmware-all";
        case Distribution::kFedora:
        case Distribution::kYum:
        case Distribution::kOstree:
        case Distribution::kArch:
        case Distribution::kGentoo:
        case Distribution::kAlpine:
        case Distribution::kUnknown:
            return Install(view, {"linux-firmware", "linux-firmware", "linux-firmware-intel"});
    }
    WEFT_CHECK(false);
}

std::string FirmwareOfGpu(HostView& view) {
    const bool debian = DistributionOf(view) == Distribution::kDebian && !IsUbuntu(view);
    return Install(view, {debian ? "firmware-amd-graphics" : "linux-firmware", "amd-gpu-firmware",
                          "linux-firmware-amdgpu"});
}

std::string InstallFirmwareTools(HostView& view) {
    if (DistributionOf(view) == Distribution::kArch) return "install mstflint (of the AUR)";
    return Install(view, {"mstflint", "mstflint", "mstflint"});
}

}  // namespace

std::string RebuildInitramfs(HostView& view) {
    switch (DistributionOf(view)) {
        case Distribution::kDebian: return "sudo update-initramfs -u";
        case Distribution::kFedora:
        case Distribution::kYum:
        case Distribution::kSuse: return "sudo dracut -f";
        case Distribution::kOstree: return "sudo rpm-ostree initramfs --enable";
        case Distribution::kArch: return "sudo mkinitcpio -P";
        case Distribution::kNixOs: return "sudo nixos-rebuild boot";
        case Distribution::kGentoo:
        case Distribution::kAlpine:
        case Distribution::kUnknown: return "";
    }
    WEFT_CHECK(false);
}

std::string SetModuleOption(HostView& view, const std::string& module, const std::string& option) {
    if (DistributionOf(view) == Distribution::kNixOs) {
        return fmt::format(
            "boot.extraModprobeConfig = \"options {} {}\"; in /etc/nixos/configuration.nix, then "
            "sudo nixos-rebuild boot, and boot",
            module, option);
    }
    const std::string initramfs = RebuildInitramfs(view);
    return fmt::format("echo 'options {0} {1}' | sudo tee /etc/modprobe.d/{0}.conf{2}, and boot",
                       module, option,
                       initramfs.empty() ? ", rebuild the initramfs" : " && " + initramfs);
}

std::string LoadModule(HostView& view, const std::string& module) {
    if (DistributionOf(view) == Distribution::kNixOs) {
        return fmt::format(
            "sudo modprobe {0} (kept: boot.kernelModules = [ \"{0}\" ]; in "
            "/etc/nixos/configuration.nix)",
            module);
    }
    return fmt::format("sudo modprobe {0} && echo {0} | sudo tee /etc/modules-load.d/{0}.conf",
                       module);
}

std::string InstallIcePackage(HostView& view) {
    if (DistributionOf(view) == Distribution::kNixOs) return FirmwareOfIce(view) + ", and boot";
    const std::string initramfs = RebuildInitramfs(view);
    return fmt::format("{} (it holds intel/ice/ddp/ice.pkg), then {}, and boot",
                       FirmwareOfIce(view),
                       initramfs.empty() ? "rebuild the initramfs" : initramfs);
}

std::string QueryFirmware(HostView& view, const std::string& pci) {
    const std::string query =
        pci.empty() ? "for d in $(lspci -D | awk '/Mellanox/ {print $1}'); do sudo mstflint -d $d "
                      "query; done"
                    : fmt::format("sudo mstflint -d {} query", ShellWord(pci));
    return InstallFirmwareTools(view) + ", then " + query;
}

std::string SetLinkType(HostView& view, const std::string& pci, int64_t port, bool infiniband,
                        bool mlx4) {
    const char* word = infiniband ? "ib" : "eth";
    const std::string card =
        pci.empty() ? "\"$(lspci -D | awk '/Mellanox/ {print $1; exit}')\"" : ShellWord(pci);
    const std::string kept = fmt::format(
        "{}, then sudo mstconfig -d {} set LINK_TYPE_P{}={} (mlxconfig of NVIDIA's tools does the "
        "same), and power the machine off and on",
        InstallFirmwareTools(view), card, port, infiniband ? 1 : 2);
    if (!mlx4 || pci.empty()) return kept;
    return fmt::format(
        "echo {} | sudo tee /sys/bus/pci/devices/{}/mlx4_port{} now, and for good: {}", word, pci,
        port, kept);
}

std::string FilledFix(HostView& view, std::string_view fix, const std::string& pci,
                      const std::string& device) {
    std::string text(fix);
    const auto fill = [&](std::string_view mark, auto&& make) {
        if (Contains(text, mark)) Replace(text, mark, make());
    };
    fill("{aspm}", [&] { return AddParameter(view, "pcie_aspm=off"); });
    fill("{iommu}", [&] { return AddParameter(view, "iommu=pt"); });
    fill("{ddp}", [&] { return InstallIcePackage(view); });
    fill("{steering}",
         [&] { return SetModuleOption(view, "mlx4_core", "log_num_mgm_entry_size=-7"); });
    fill("{ixgbe}", [&] { return SetModuleOption(view, "ixgbe", "allow_unsupported_sfp=1"); });
    fill("{mstflint}", [&] { return QueryFirmware(view, pci); });
    fill("{linktype}", [&] { return SetLinkType(view, pci, 1, true, true); });
    fill("{gpufirmware}", [&] { return FirmwareOfGpu(view); });
    fill("{device}", [&] {
        if (!device.empty()) return ShellWord(device);
        return fmt::format("\"$(ls /sys/bus/pci/devices/{}/net)\"", pci.empty() ? "*" : pci);
    });
    return text;
}

}  // namespace weft::doctor
