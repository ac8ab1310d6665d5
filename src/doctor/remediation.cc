#include "doctor/remediation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"
#include "base/shell_word.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

Distribution ByWord(std::string_view word) {
    struct Word {
        std::string_view name;
        Distribution distribution;
    };
    using enum Distribution;
    constexpr std::array<Word, 28> kWords = {
        {{"debian", kDebian},    {"ubuntu", kDebian},  {"linuxmint", kDebian}, {"pop", kDebian},
         {"bazzite", kOstree},   {"bluefin", kOstree}, {"aurora", kOstree},    {"fedora", kFedora},
         {"rhel", kFedora},      {"centos", kFedora},  {"rocky", kFedora},     {"ol", kFedora},
         {"almalinux", kFedora}, {"amzn", kFedora},    {"openEuler", kFedora}, {"arch", kArch},
         {"archlinux", kArch},   {"manjaro", kArch},   {"cachyos", kArch},     {"garuda", kArch},
         {"endeavouros", kArch}, {"nixos", kNixOs},    {"suse", kSuse},        {"sles", kSuse},
         {"gentoo", kGentoo},    {"alpine", kAlpine},  {"raspbian", kDebian},  {"dgx", kDebian}}};
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

bool EndsWithAny(std::string_view text, std::span<const std::string_view> ends) {
    return std::ranges::any_of(ends, [&](std::string_view end) { return text.ends_with(end); });
}

// The flavours of Ubuntu's kernels.
bool IsUbuntuKernel(std::string_view release) {
    constexpr std::array<std::string_view, 13> kFlavours = {
        "-generic", "-generic-64k", "-lowlatency", "-oem",    "-aws",        "-azure", "-gcp",
        "-oracle",  "-raspi",       "-gke",        "-nvidia", "-nvidia-64k", "-kvm"};
    return EndsWithAny(release, kFlavours);
}

Distribution ByKernel(std::string_view release) {
    using enum Distribution;
    if (Contains(release, ".el7")) return kYum;
    for (std::string_view mark : {".fc", ".el", ".amzn"}) {
        if (Contains(release, mark)) return kFedora;
    }
    for (std::string_view mark : {"-arch", "-zen", "-cachyos"}) {
        if (Contains(release, mark)) return kArch;
    }
    if (release.ends_with("-default")) return kSuse;
    const bool debian = Contains(release, "deb") || Contains(release, "+rpt") ||
                        release.ends_with("-pve") || IsUbuntuKernel(release);
    return debian ? kDebian : kUnknown;
}

// Whether the kernel is started by systemd-boot or the firmware itself: GRUB hands over no initrd.
bool BootsWithoutGrub(HostView& view) {
    const Reading line = view.Read("proc/cmdline");
    return line.found() && Contains(line.text, "initrd=\\") && !Contains(line.text, "BOOT_IMAGE=");
}

bool IsTransactional(HostView& view) {
    const std::string id = ValueOfCure(view.Text("etc/os-release"), "ID");
    return Contains(id, "microos") || Contains(id, "sl-micro") || Contains(id, "aeon") ||
           Contains(id, "kalpa") || Contains(id, "leap-micro");
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
    return ByKernel(KernelRelease(view));
}

DebianKind DebianKindOf(HostView& view) {
    const std::string kernel = KernelRelease(view);
    if (kernel.ends_with("-pve")) return DebianKind::kProxmox;
    if (Contains(kernel, "+rpt") || kernel.ends_with("-raspi")) return DebianKind::kRaspberry;
    const std::string release = view.Text("etc/os-release");
    const std::string id = ValueOfCure(release, "ID");
    if (id == "pop") return DebianKind::kPop;
    if (id == "raspbian") return DebianKind::kRaspberry;
    const bool ubuntu = id == "ubuntu" || Contains(ValueOfCure(release, "ID_LIKE"), "ubuntu") ||
                        (id.empty() && IsUbuntuKernel(kernel));
    return ubuntu ? DebianKind::kUbuntu : DebianKind::kPlain;
}

std::string Configure(const std::string& lines, bool boots) {
    return fmt::format("{} in /etc/nixos/configuration.nix, then sudo nixos-rebuild {}", lines,
                       boots ? "boot, and boot" : "switch");
}

std::string NixString(std::string_view name) {
    std::string text = "\"";
    for (const char c : name) {
        if (c == '"' || c == '\\' || c == '$') text += '\\';
        text += c;
    }
    return text + '"';
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
        case Distribution::kSuse:
            return fmt::format(
                "sudo {} {}",
                IsTransactional(view) ? "transactional-update pkg install" : "zypper install",
                packages.suse != nullptr ? packages.suse : packages.fedora);
        case Distribution::kNixOs:
            if (packages.nixos != nullptr) return Configure(packages.nixos);
            return Configure(
                fmt::format("environment.systemPackages = [ pkgs.{} ];", packages.arch));
        case Distribution::kDebian: return fmt::format("sudo apt install {}", packages.debian);
        case Distribution::kUnknown: return fmt::format("install the package {}", packages.debian);
    }
    WEFT_CHECK(false);
}

namespace {

// A manager that runs on this host, but not for the port.
std::string ServePort(HostView& view, const RdmaPort& port) {
    const bool debian = DistributionOf(view) == Distribution::kDebian;
    const std::string config =
        DistributionOf(view) == Distribution::kNixOs
            ? Configure("what 'ibstat -p' prints as strings of hardware.infiniband.guids,")
            : fmt::format("{}, then sudo systemctl restart opensm",
                          debian ? "PORTS=ALL in /etc/default/opensm"
                                 : "GUIDS=\"$(ibstat -p | xargs)\" in /etc/sysconfig/opensm");
    return fmt::format(
        "opensm runs here, but not for {0} port {1}: {2}; or a second one for this port: sudo "
        "opensm -B -g "
        "\"$(ibstat {0} {1} | awk '/Port GUID/ {{print $3}}')\"",
        ShellWord(port.device), port.port, config);
}

}  // namespace

std::string StartManager(HostView& view, const RdmaPort& port) {
    if (RunsManagerHere(view)) return ServePort(view, port);
    constexpr const char* kBegin = "on one host only: ";
    constexpr const char* kUnit = "sudo systemctl enable --now opensm";
    switch (DistributionOf(view)) {
        case Distribution::kArch:
            return fmt::format("{}install opensm (of the AUR), then {}", kBegin, kUnit);
        case Distribution::kNixOs:
            return kBegin +
                   Configure(
                       "hardware.infiniband.enable = true; and what 'ibstat -p' prints as a "
                       "string of hardware.infiniband.guids,");
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

namespace {

// Where the parameters of a kernel that GRUB starts are, and what reads them.
constexpr const char* kGrub = "{0} GRUB_CMDLINE_LINUX in /etc/default/grub, then {1}, and boot";

std::string OfDebian(HostView& view, const std::string& change) {
    switch (DebianKindOf(view)) {
        case DebianKind::kRaspberry:
            return fmt::format("{} the one line of /boot/firmware/cmdline.txt, and boot", change);
        case DebianKind::kProxmox:
            if (!BootsWithoutGrub(view)) break;
            return fmt::format(
                "{} the one line of /etc/kernel/cmdline, then proxmox-boot-tool refresh, and boot",
                change);
        case DebianKind::kPop:
        case DebianKind::kPlain:
        case DebianKind::kUbuntu: break;
    }
    return fmt::format(kGrub, change, "sudo update-grub");
}

// change: "add iommu=pt to", "take nomodeset out of".
std::string EditCommandLine(HostView& view, const std::string& change) {
    switch (DistributionOf(view)) {
        case Distribution::kDebian: return OfDebian(view, change);
        case Distribution::kArch:
            if (BootsWithoutGrub(view)) {
                return fmt::format(
                    "{} the line options of the entry in /boot/loader/entries (a unified image: of "
                    "/etc/kernel/cmdline, then sudo mkinitcpio -P), and boot",
                    change);
            }
            return fmt::format(kGrub, change, "sudo grub-mkconfig -o /boot/grub/grub.cfg");
        case Distribution::kGentoo:
            return fmt::format(kGrub, change, "sudo grub-mkconfig -o /boot/grub/grub.cfg");
        case Distribution::kSuse:
            return fmt::format(kGrub, change,
                               IsTransactional(view)
                                   ? "sudo transactional-update grub.cfg"
                                   : "sudo grub2-mkconfig -o /boot/grub2/grub.cfg");
        case Distribution::kFedora:
        case Distribution::kYum:
        case Distribution::kOstree:
        case Distribution::kNixOs:
        case Distribution::kAlpine:
        case Distribution::kUnknown:
            return fmt::format("{} the kernel's command line, and boot", change);
    }
    WEFT_CHECK(false);
}

// "a b" with `before` and `after` around each word.
std::string EachWord(const std::string& words, std::string_view before, std::string_view after) {
    std::string text;
    for (std::string_view word : Words(words)) {
        text += fmt::format("{}{}{}{}", text.empty() ? "" : " ", before, word, after);
    }
    return text;
}

bool HasBlank(const std::string& words) {
    return words.find(' ') != std::string::npos;
}

}  // namespace

std::string AddParameter(HostView& view, const std::string& parameters) {
    switch (DistributionOf(view)) {
        case Distribution::kFedora:
        case Distribution::kYum:
            return fmt::format("sudo grubby --update-kernel=ALL --args={}, and boot",
                               HasBlank(parameters) ? "\"" + parameters + "\"" : parameters);
        case Distribution::kOstree:
            return fmt::format("sudo rpm-ostree kargs {}, and boot",
                               EachWord(parameters, "--append-if-missing=", ""));
        case Distribution::kNixOs:
            return Configure(
                fmt::format("boot.kernelParams = [ {} ];", EachWord(parameters, "\"", "\"")), true);
        case Distribution::kDebian:
            if (DebianKindOf(view) == DebianKind::kPop) {
                return fmt::format("sudo kernelstub -a \"{}\", and boot", parameters);
            }
            break;
        case Distribution::kArch:
        case Distribution::kGentoo:
        case Distribution::kSuse:
        case Distribution::kAlpine:
        case Distribution::kUnknown: break;
    }
    return EditCommandLine(view, fmt::format("add {} to", parameters));
}

std::string RemoveParameter(HostView& view, const std::string& parameter) {
    switch (DistributionOf(view)) {
        case Distribution::kFedora:
        case Distribution::kYum:
            return fmt::format("sudo grubby --update-kernel=ALL --remove-args={}, and boot",
                               parameter);
        case Distribution::kOstree:
            return fmt::format("sudo rpm-ostree kargs --delete-if-present={}, and boot", parameter);
        case Distribution::kNixOs:
            return fmt::format(
                "take {} out of boot.kernelParams in /etc/nixos/configuration.nix, then sudo "
                "nixos-rebuild boot, and boot",
                parameter);
        case Distribution::kDebian:
            if (DebianKindOf(view) == DebianKind::kPop) {
                return fmt::format("sudo kernelstub -d \"{}\", and boot", parameter);
            }
            break;
        case Distribution::kArch:
        case Distribution::kGentoo:
        case Distribution::kSuse:
        case Distribution::kAlpine:
        case Distribution::kUnknown: break;
    }
    return EditCommandLine(view, fmt::format("take {} out of", parameter));
}

std::string SetSysctl(HostView& view, const std::string& settings) {
    if (DistributionOf(view) == Distribution::kNixOs) {
        std::string lines;
        for (std::string_view line : Lines(settings)) {
            const size_t equals = line.find('=');
            lines += fmt::format("{}boot.kernel.sysctl.\"{}\" = \"{}\";", lines.empty() ? "" : " ",
                                 line.substr(0, equals), line.substr(equals + 1));
        }
        return Configure(lines);
    }
    std::string lines;
    for (std::string_view line : Lines(settings)) lines += fmt::format("{}\\n", line);
    return fmt::format(
        "printf '{}' | sudo tee -a /etc/sysctl.d/90-weft.conf && sudo sysctl --system", lines);
}

std::string UnlockLogin(HostView& view) {
    if (DistributionOf(view) == Distribution::kNixOs) {
        return Configure(
                   "security.pam.loginLimits = [ { domain = \"*\"; type = \"-\"; item = "
                   "\"memlock\"; value = \"unlimited\"; } ];") +
               ", and log in again";
    }
    return "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee "
           "/etc/security/limits.d/90-memlock.conf, then log in again (out of every session first)";
}

std::string UnlockUnit(HostView& view, const std::string& unit) {
    if (DistributionOf(view) == Distribution::kNixOs) {
        std::string name = unit;
        if (name.ends_with(".service")) name.resize(name.size() - 8);
        return Configure(fmt::format(
            "systemd.services.{}.serviceConfig.LimitMEMLOCK = \"infinity\";", NixString(name)));
    }
    return fmt::format(
        "sudo systemctl edit {0} (add [Service] and below it LimitMEMLOCK=infinity), then sudo "
        "systemctl restart {0}",
        ShellWord(unit));
}

namespace {

bool IsInfinibandName(const std::string& device) {
    return device.starts_with("ib");
}

// The profile that NetworkManager has for the interface.
std::string ProfileOf(const std::string& device) {
    return fmt::format("\"$(nmcli -g GENERAL.CONNECTION device show {})\"", device);
}

// What keeps a setting of the interface over boots; "" where that can't be told. nm: of nmcli;
// netplan, ifupdown, nixos: the setting in their words.
struct KeptSetting {
    std::string nm, netplan, ifupdown, nixos;
};
std::string KeepFor(HostView& view, const std::string& device, const KeptSetting& kept) {
    const std::string name = ShellWord(device);
    switch (DistributionOf(view)) {
        case Distribution::kFedora:
        case Distribution::kYum:
        case Distribution::kOstree:
        case Distribution::kSuse:
            return fmt::format("sudo nmcli connection modify {} {}", ProfileOf(name), kept.nm);
        case Distribution::kNixOs:
            return Configure(
                fmt::format("networking.interfaces.{}.{}", NixString(device), kept.nixos));
        case Distribution::kDebian:
            switch (DebianKindOf(view)) {
                case DebianKind::kUbuntu:
                    if (device.find('.') != std::string::npos) return "";  // of netplan's vlans
                    return fmt::format("sudo netplan set {}.{}.{} && sudo netplan apply",
                                       device.starts_with("bond") ? "bonds"
                                       : device.starts_with("br") ? "bridges"
                                                                  : "ethernets",
                                       name, kept.netplan);
                case DebianKind::kRaspberry:
                case DebianKind::kPop:
                    return fmt::format("sudo nmcli connection modify {} {}", ProfileOf(name),
                                       kept.nm);
                case DebianKind::kPlain:
                case DebianKind::kProxmox:
                    return fmt::format("'{}' below its iface line in /etc/network/interfaces",
                                       kept.ifupdown);
            }
            return "";
        case Distribution::kArch:
        case Distribution::kGentoo:
        case Distribution::kAlpine:
        case Distribution::kUnknown: return "";
    }
    WEFT_CHECK(false);
}

// The network of one of the host's addresses or routes?
bool IsTaken(HostView& view, const Ipv4& subnet) {
    const auto meets = [&](const Ipv4& other) {
        const int prefix = std::min(other.prefix, subnet.prefix);
        return prefix > 0 &&
               Ipv4{other.bits, prefix}.network() == Ipv4{subnet.bits, prefix}.network();
    };
    for (const NetDevice& device : NetDevices(view)) {
        if (std::ranges::any_of(device.addresses, meets)) return true;
    }
    return std::ranges::any_of(Routes(view), [&](const Route& route) { return meets(route.to); });
}

// Of the interfaces that want one, each its own subnet; the first is the same on every host.
Ipv4 FreeSubnet(HostView& view, const std::string& device) {
    size_t before = 0;
    for (const NetDevice& other : NetDevices(view)) {
        if (other.name == device) break;
        const bool fabric = IsInfinibandName(other.name) || other.name.starts_with("thunderbolt");
        before += fabric && other.addresses.empty() ? 1 : 0;
    }
    Ipv4 subnet{0x0a2a0000, 24};  // 10.42.0.0, 10.42.1.0, ...
    for (int i = 0; i < 255; ++i, subnet.bits += 256) {
        if (IsTaken(view, subnet)) continue;
        if (before-- == 0) break;
    }
    return subnet;
}

// From the name, so that hosts seldom get the same.
uint32_t LastByte(std::string_view name) {
    uint32_t hash = 2166136261;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
    return 1 + (hash ^ hash >> 16) % 250;
}

}  // namespace

std::string SetMtu(HostView& view, const std::string& device, int mtu) {
    const std::string kept = KeepFor(
        view, device,
        {fmt::format("{}.mtu {}", IsInfinibandName(device) ? "infiniband" : "802-3-ethernet", mtu),
         fmt::format("mtu={}", mtu), fmt::format("mtu {}", mtu), fmt::format("mtu = {};", mtu)});
    return fmt::format("sudo ip link set dev {} mtu {}{}", ShellWord(device), mtu,
                       kept.empty() ? "" : "; to keep it: " + kept);
}

std::string AddAddress(HostView& view, const std::string& device) {
    const Ipv4 subnet = FreeSubnet(view, device);
    const std::string address = Ipv4{subnet.bits + LastByte(view.host()), 32}.Text();
    const std::string kept = KeepFor(
        view, device,
        {fmt::format("ipv4.method manual ipv4.addresses {}/24", address),
         fmt::format("addresses=[{}/24]", address), fmt::format("address {}/24", address),
         fmt::format("ipv4.addresses = [ {{ address = \"{}\"; prefixLength = 24; }} ];", address)});
    return fmt::format(
        "sudo ip link set dev {0} up && sudo ip addr add {1}/24 dev {0} (on the other hosts "
        "further "
        "addresses of {2}/24){3}",
        ShellWord(device), address, Ipv4{subnet.bits, 32}.Text(),
        kept.empty() ? "" : "; to keep it: " + kept);
}

const char* NftablesFile(HostView& view) {
    switch (DistributionOf(view)) {
        case Distribution::kFedora:
        case Distribution::kYum:
        case Distribution::kOstree:
        case Distribution::kSuse: return "/etc/sysconfig/nftables.conf";
        case Distribution::kAlpine: return "/etc/nftables.nft";
        case Distribution::kArch:
        case Distribution::kDebian:
        case Distribution::kGentoo:
        case Distribution::kNixOs:
        case Distribution::kUnknown: return "/etc/nftables.conf";
    }
    WEFT_CHECK(false);
}

std::string ForHost(HostView& view, const std::string& fix) {
    if (DistributionOf(view) != Distribution::kDebian ||
        DebianKindOf(view) != DebianKind::kProxmox) {
        return fix;
    }
    std::string text = fix;
    for (size_t at = text.find("sudo "); at != text.npos; at = text.find("sudo ", at)) {
        const char before = at == 0 ? ' ' : text[at - 1];
        const bool word = before == ' ' || before == '\'' || before == '(' || before == '"';
        if (word) {
            text.erase(at, 5);
        } else {
            at += 5;
        }
    }
    return text;
}

}  // namespace weft::doctor
