#include "doctor/kernel_release.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/facts.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

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
    constexpr std::array<std::string_view, 8> kBeginnings = {
        "kernel-core-", "kernel-",        "linux-image-unsigned-", "linux-image-",
        "vmlinuz-",     "/boot/vmlinuz-", "kernel-default-",       "kernel-uek-core-"};
    for (std::string_view begin : kBeginnings) {
        if (!word.starts_with(begin) || word.size() == begin.size()) continue;
        word.remove_prefix(begin.size());
        if (IsDigitOf(word[0])) found.emplace_back(word);
        return;
    }
}

// "linux 6.18.1.arch1-1", "linux-lts 6.12.58-1" -> names as in /lib/modules.
void AddArch(std::string_view text, std::vector<std::string>& found) {
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line);
        if (words.size() < 2 || !words[0].starts_with("linux") || !IsDigitOf(words[1][0])) continue;
        std::string release(words[1]);
        for (std::string_view part : {".arch", ".zen", ".hardened"}) {
            if (const size_t at = release.find(part); at != release.npos) release[at] = '-';
        }
        const std::string_view kind = words[0].substr(5);
        const bool named = kind == "-zen" || kind == "-lts" || kind == "-hardened";
        if (!named && !kind.empty()) continue;
        found.push_back(named && !release.ends_with(kind) ? release + std::string(kind) : release);
    }
}

// A setting by which a boot loader chooses the kernel.
struct Keeper {
    const char* path;
    std::string_view key;  // beginning of the line
    const char* what;
};
constexpr std::array<Keeper, 9> kKeepers = {{
    {"etc/default/grub", "GRUB_DEFAULT=", "GRUB_DEFAULT in /etc/default/grub"},
    {"boot/grub/grubenv", "saved_entry=", "saved_entry in /boot/grub/grubenv"},
    {"boot/grub2/grubenv", "saved_entry=", "saved_entry in /boot/grub2/grubenv"},
    {"etc/kernel/proxmox-boot-pin", "", "proxmox-boot-tool kernel pin"},
    {"boot/loader/loader.conf", "default", "default in /boot/loader/loader.conf"},
    {"boot/efi/loader/loader.conf", "default", "default in /boot/efi/loader/loader.conf"},
    {"efi/loader/loader.conf", "default", "default in /efi/loader/loader.conf"},
    {"cmd/grubby_--default-kernel", "", "grubby --set-default"},
    {"cmd/grub2-editenv_list", "saved_entry=", "grub2-set-default"},
}};

// "GRUB_DEFAULT=2", "GRUB_DEFAULT=\"1>2\"": another entry than the first.
bool IsOtherEntry(std::string_view line) {
    constexpr std::string_view kKey = "GRUB_DEFAULT=";
    if (!line.starts_with(kKey)) return false;
    line.remove_prefix(kKey.size());
    if (line.starts_with('"') || line.starts_with('\'')) line.remove_prefix(1);
    return !line.empty() && IsDigitOf(line[0]) && LeadingNumber(line).value_or(0) > 0;
}

}  // namespace

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

std::string FlavourOfRelease(std::string_view release) {
    std::string flavour(release.substr(EndOfNumbers(release)));
    // "-arch1-1" and "-arch1-2" are one flavor.
    std::erase_if(flavour, IsDigitOf);
    return flavour;
}

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
        const bool packages = name.starts_with("rpm_-q") || name.starts_with("dpkg_-l") ||
                              name.starts_with("ls_") || name.starts_with("dpkg-query");
        if (!packages) continue;
        const std::string text = view.Text("cmd/" + name);
        for (std::string_view line : Lines(text)) {
            const auto words = Words(line);
            // For dpkg, only installed packages.
            if (name.starts_with("dpkg") && !words.empty() && words[0] != "ii") continue;
            for (std::string_view word : words) AddRelease(word, found);
        }
    }
    return found;
}

}  // namespace weft::doctor
