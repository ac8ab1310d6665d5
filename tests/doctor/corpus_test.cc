// Whole hosts of many distributions, hosts/data/*.txt: snapshots in text form. Each begins with the
// expected result and the source of its formats:
//
//     # healthy                                  or
//     # fault CHECK SEVERITY: words of the finding | words of the fix
//     # on: BASE                                 the host that it changes, if any
//     # without: PATH                            of the base
//     # source: documentation or driver
//
// A healthy host gets no warning, whatever its snapshot lacks, cuts or repeats. A faulty host gets
// the expected finding, with a fix for its own distribution, and no other warning.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>
// (GCC 12 warns of <regex> itself in a build with the address sanitizer.)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <regex>
#pragma GCC diagnostic pop
#include <set>

#include "base/file.h"
#include "doctor/check.h"
#include "doctor/remediation.h"
#include "doctor/save.h"
#include "doctor/snapshot.h"
#include "doctor/text.h"
#include "doctor/unreadable.h"
#include "support/nightly.h"
#include "support/paths.h"

namespace weft::doctor {
namespace {

namespace fs = std::filesystem;

struct CorpusHost {
    std::string name, expected, source, on;
    SnapshotFiles files;
    bool healthy() const { return expected == "healthy"; }
    // "fault memlock fail: words | fix" -> "memlock"
    std::string check() const { return std::string(Words(expected)[1]); }
    std::string severity() const {
        std::string word(Words(expected)[2]);
        word.pop_back();  // ':'
        return word;
    }
    std::string words() const { return std::string(After(expected, ": ", "|")); }
    std::string fix() const { return std::string(After(expected, " | ")); }
};

using Corpus = std::map<std::string, CorpusHost>;

CorpusHost ReadHost(const std::string& name, Corpus& all) {
    if (const auto known = all.find(name); known != all.end()) return known->second;
    const std::string path = support::TestData("/../doctor/hosts/data/" + name + ".txt");
    const std::string text = ReadTextFile(path).value();
    CorpusHost host{name, std::string(Trim(Lines(text)[0].substr(1))), "", "", {}};
    std::vector<std::string> without;
    for (std::string_view line : Lines(text)) {
        if (line.starts_with("==> ")) break;
        if (line.starts_with("# on: ")) host.on = line.substr(6);
        if (line.starts_with("# source: ")) host.source = line.substr(10);
        if (line.starts_with("# without: ")) without.emplace_back(line.substr(11));
    }
    if (!host.on.empty()) host.files = ReadHost(host.on, all).files;
    for (const std::string& gone : without) {
        EXPECT_EQ(host.files.erase(gone), 1u) << name << ": " << gone << " is not in " << host.on;
    }
    if (Contains(text, "\n==> ")) {
        SnapshotFiles own = ParseTextSnapshot(text, name).value();
        for (auto& [file, content] : own) host.files[file] = std::move(content);
    }
    return all[name] = host;
}

const Corpus& WholeHosts() {
    static const Corpus corpus = [] {
        Corpus all;
        for (const auto& file :
             fs::directory_iterator(support::TestData("/../doctor/hosts/data"))) {
            ReadHost(file.path().stem(), all);
        }
        return all;
    }();
    return corpus;
}

std::vector<Finding> LookAt(const SnapshotFiles& files) {
    std::vector<std::unique_ptr<HostView>> views;
    views.push_back(MakeSnapshotView(files, "host"));
    return RunChecks(views, {}).value();
}

std::string AllText(const std::vector<Finding>& findings, Severity least) {
    std::string text;
    for (const Finding& f : findings) {
        if (f.severity < least) continue;
        text += fmt::format("{} {}: {} | {}\n", SeverityName(f.severity), f.check, f.read, f.fix);
    }
    return text;
}

std::set<std::string> WarnedChecks(const SnapshotFiles& files) {
    std::set<std::string> checks;
    for (const Finding& f : LookAt(files)) {
        if (f.severity >= Severity::kWarn) checks.insert(f.check);
    }
    return checks;
}

// Whether the fault also causes a finding of this check.
bool FollowsFrom(const std::string& fault, const std::string& check) {
    static const std::map<std::string, std::set<std::string>> kFollow = {
        {"rdma-port", {"ib-subnet-manager"}},  {"memlock", {"memlock-login"}},
        {"kernel-parameters", {"gpu-memory"}}, {"pcie-link", {"nic-log", "pcie-upstream"}},
        {"net-subnet", {"firewall"}},
    };
    const auto found = kFollow.find(fault);
    return check == fault || (found != kFollow.end() && found->second.contains(check));
}

TEST(DoctorCorpus, IsLarge) {
    size_t healthy = 0, faulty = 0;
    std::set<std::string_view> distributions;
    for (const auto& [name, host] : WholeHosts()) {
        EXPECT_FALSE(host.source.empty()) << name;
        (host.healthy() ? healthy : faulty)++;
        const auto view = MakeSnapshotView(host.files, name);
        if (host.healthy()) distributions.insert(DistributionOf(*view));
    }
    EXPECT_GE(healthy + faulty, 60u);
    EXPECT_GE(healthy, 18u);
    EXPECT_EQ(distributions.size(), 6u);  // of remediation.h, but images, Gentoo, Alpine, none
}

TEST(DoctorCorpus, HealthyHostsAreNotWarned) {
    for (const auto& [name, host] : WholeHosts()) {
        if (!host.healthy()) continue;
        EXPECT_EQ(AllText(LookAt(host.files), Severity::kWarn), "") << name;
    }
}

TEST(DoctorCorpus, SavedHostsGetTheSameFindings) {
    const auto outline = [](const std::vector<Finding>& findings) {
        std::multiset<std::string> all;
        for (const Finding& f : findings) {
            if (f.severity < Severity::kWarn) continue;
            all.insert(fmt::format("{} {}", SeverityName(f.severity), f.check));
        }
        return all;
    };
    for (const auto& [name, host] : WholeHosts()) {
        std::vector<std::unique_ptr<HostView>> views;
        views.push_back(MakeSnapshotView(host.files, "host"));
        const auto found = RunChecks(views, {}).value();
        Pseudonyms names;
        const auto saved = LookAt(SavedFiles(views[0]->Recorded(), names));
        EXPECT_EQ(outline(saved), outline(found)) << name;
    }
}

TEST(DoctorCorpus, FaultyHostsGetTheirFinding) {
    for (const auto& [name, host] : WholeHosts()) {
        if (host.healthy()) continue;
        const auto findings = LookAt(host.files);
        const bool found = std::ranges::any_of(findings, [&](const Finding& f) {
            return f.check == host.check() && SeverityName(f.severity) == host.severity() &&
                   Contains(f.read, host.words()) && Contains(f.fix, host.fix());
        });
        EXPECT_TRUE(found) << name << ": " << host.expected << "\n"
                           << AllText(findings, Severity::kNote);
        for (const Finding& f : findings) {
            if (f.severity < Severity::kWarn || FollowsFrom(host.check(), f.check)) continue;
            ADD_FAILURE() << name << ": " << f.check << ": " << f.read;
        }
    }
}

// As made by hand: without the links, what only a process finds out, and the word that it is whole.
SnapshotFiles ByHand(SnapshotFiles files) {
    std::erase_if(files, [](const auto& file) {
        return file.first.starts_with("link/") || file.first.starts_with("probe/") ||
               file.first.starts_with("later/") || file.first == "unread";
    });
    return files;
}

TEST(DoctorCorpus, HealthyHostsAreNotWarnedWhenMadeByHand) {
    for (const auto& [name, host] : WholeHosts()) {
        if (!host.healthy()) continue;
        EXPECT_EQ(AllText(LookAt(ByHand(host.files)), Severity::kWarn), "") << name;
        SnapshotFiles whole = host.files;
        whole.erase("probe/complete");
        EXPECT_EQ(AllText(LookAt(whole), Severity::kWarn), "") << name;
    }
}

// Errors in place of outputs: nothing is claimed of what was not read.
TEST(DoctorCorpus, ErrorsAreNoOutput) {
    const char* const errors[] = {"bash: line 1: TOOL: command not found\n",
                                  "sudo: a password is required\n",
                                  "TOOL: read kernel buffer failed: Operation not permitted\n",
                                  "\n",
                                  "zsh: killed\n",
                                  "Failed to connect to bus: No such file or directory\n",
                                  "TOOL: Keine Berechtigung\n"};
    for (const char* said : weft::test::Some(errors, 3)) {
        for (const auto& [name, host] : WholeHosts()) {
            if (!host.healthy() || !host.on.empty()) continue;
            SnapshotFiles files = ByHand(host.files);
            for (auto& [path, text] : files) {
                if (path.starts_with("cmd/")) text = said;
            }
            EXPECT_EQ(AllText(LookAt(files), Severity::kWarn), "") << name << ": " << said;
        }
    }
}

constexpr const char* kLecture =
    "\nWe trust you have received the usual lecture from the local System\nAdministrator. It "
    "usually boils down to these three things:\n\n    #1) Respect the privacy of others.\n    #2) "
    "Think before you type.\n    #3) With great power comes great responsibility.\n\nFor security "
    "reasons, the password you type will not be visible.\n\n[sudo] password for ada: ";

// Line ends of other systems, NUL bytes, byte order marks and sudo's words change nothing.
TEST(DoctorCorpus, WhatSurroundsAnOutputDoesNotMatter) {
    const auto with_returns = [](std::string text) {
        std::string crlf;
        for (const char c : text) crlf += c == '\n' ? "\r\n" : std::string(1, c);
        return crlf;
    };
    const std::vector<std::function<std::string(const std::string&)>> kChanges = {
        with_returns, [](const std::string& text) { return text + '\0'; },
        [](const std::string& text) { return "\xef\xbb\xbf" + text; },
        [](const std::string& text) { return kLecture + text; },
        [](const std::string& text) { return "[sudo] password for ada: \n" + text; }};
    size_t turn = 0;
    for (const auto& [name, host] : WholeHosts()) {
        const SnapshotFiles plain = ByHand(host.files);
        const std::string expected = AllText(LookAt(plain), Severity::kOk);
        for (size_t i = 0; i < kChanges.size(); ++i) {
            if (!weft::test::InTurn(turn++, 4)) continue;
            SnapshotFiles changed = plain;
            for (auto& [path, text] : changed) {
                if (path.starts_with("cmd/") && !text.empty()) text = kChanges[i](text);
            }
            EXPECT_EQ(AllText(LookAt(changed), Severity::kOk), expected) << name << " " << i;
        }
    }
}

// Sources of which the order of lines means nothing.
bool IsUnordered(const std::string& path) {
    for (const char* part : {"proc/meminfo", "etc/os-release", "cmd/ethtool_-a", "cmd/ethtool_-i",
                             "limits.d/", "unread", "probe/"}) {
        if (path.starts_with(part) || (Contains(part, ".d/") && Contains(path, part))) return true;
    }
    return false;
}

std::string Shuffled(const std::string& text, std::mt19937& random) {
    std::vector<std::string_view> lines = Lines(text);
    std::ranges::shuffle(lines, random);
    std::string shuffled;
    for (std::string_view line : lines) shuffled += std::string(line) + '\n';
    return shuffled;
}

// With rules behind a cut missing, the firewall seems closed; ufw's output does not show the cut.
bool HoldsRules(const std::string& path) {
    return path == "cmd/ufw_status_verbose";
}

// Without a drop-in, the unit's limits are too low; without its file, the driver counts as not
// installed: nothing in such a folder shows that a file was omitted, so the file counts as absent.
bool MakesHealthy(const std::string& path) {
    for (const char* begin :
         {"etc/systemd/", "usr/share/vulkan/", "lib/modules/", "etc/default/grub"}) {
        if (path.starts_with(begin)) return true;
    }
    return false;
}

// Files removed, cut, doubled, their lines in another order: no healthy host is warned.
TEST(DoctorCorpus, DamageMakesNoHealthyHostFaulty) {
    std::mt19937 random(20260);
    for (const auto& [name, host] : WholeHosts()) {
        if (!host.healthy()) continue;
        std::vector<std::string> paths;
        for (const auto& [path, text] : host.files) {
            if (path != "probe/complete") paths.push_back(path);
        }
        for (int round = 0; round < (weft::test::Nightly() ? 60 : 8); ++round) {
            SnapshotFiles files = host.files;
            std::string done;
            const size_t changes = 1 + random() % 6;
            for (size_t i = 0; i < changes; ++i) {
                const std::string& path = paths[random() % paths.size()];
                if (!files.contains(path)) continue;
                std::string& text = files[path];
                const size_t lines = static_cast<size_t>(std::ranges::count(text, '\n'));
                const uint32_t kind = random() % 4;
                done += fmt::format("{} {}, ", kind, path);
                if (kind == 0 && !MakesHealthy(path)) {
                    files.erase(path);
                } else if (kind == 1 && lines > 1 && !HoldsRules(path)) {
                    const size_t first = text.find('\n');
                    text.resize(
                        std::min(text.size(), first + 2 + random() % (text.size() - first)));
                } else if (kind == 2 && (text.empty() || text.ends_with('\n'))) {
                    text += text;
                } else if (kind == 3 && IsUnordered(path)) {
                    text = Shuffled(text, random);
                }
            }
            EXPECT_EQ(AllText(LookAt(files), Severity::kWarn), "") << name << ": " << done;
        }
    }
}

TEST(DoctorCorpus, OneFileAloneIsNoFault) {
    for (const auto& [name, host] : WholeHosts()) {
        if (!host.healthy() || !host.on.empty()) continue;
        for (const auto& [path, text] : host.files) {
            // A port without a cable is not a fault of a card of which another port has one.
            if (path.starts_with("probe/") || text == "1: DOWN\n") continue;
            EXPECT_EQ(AllText(LookAt({{path, text}}), Severity::kWarn), "") << name << ": " << path;
        }
    }
    EXPECT_TRUE(LookAt({}).empty());
}

// The group of files read together: half of a folder of devices says nothing of the other half.
std::string PartOf(const std::string& path) {
    for (const char* hardware : {"sys/class/", "sys/bus/", "link/", "dev/", "cmd/ip_",
                                 "cmd/ethtool", "cmd/lspci", "probe/access"}) {
        if (path.starts_with(hardware)) return "hardware";
    }
    for (const char* begin :
         {"cmd/firewall-cmd", "sys/devices/system/cpu", "etc/security", "usr/share/vulkan"}) {
        if (path.starts_with(begin)) return begin;
    }
    return path;
}

// More evidence never gives fewer findings: what a part of a faulty host shows, all of it shows,
// and once files show the fault, further ones do not hide it.
TEST(DoctorCorpus, MoreEvidenceGivesNoFewerFindings) {
    std::mt19937 random(715);
    for (const auto& [name, host] : WholeHosts()) {
        if (host.healthy() || host.severity() == "note") continue;
        SnapshotFiles all = host.files;
        all.erase("probe/complete");
        const std::set<std::string> of_all = WarnedChecks(all);
        std::map<std::string, SnapshotFiles> parts;
        for (const auto& [path, text] : all) parts[PartOf(path)][path] = text;
        std::vector<std::string> order;
        for (const auto& [part, files] : parts) order.push_back(part);
        for (int round = 0; round < (weft::test::Nightly() ? 3 : 1); ++round) {
            std::ranges::shuffle(order, random);
            SnapshotFiles part;
            bool shown = false;
            for (size_t i = 0; i < order.size(); ++i) {
                part.insert(parts[order[i]].begin(), parts[order[i]].end());
                if (i % 3 != 0) continue;
                const std::set<std::string> warned = WarnedChecks(part);
                for (const std::string& check : warned) {
                    EXPECT_TRUE(of_all.contains(check) || FollowsFrom(host.check(), check))
                        << name << ": " << check << " with " << i << " files";
                }
                EXPECT_TRUE(!shown || warned.contains(host.check()))
                    << name << ": " << order[i] << " hides it";
                shown = shown || warned.contains(host.check());
            }
        }
    }
}

// The words of one distribution's tools, and the distributions that have them.
struct Tool {
    const char* word;
    std::set<std::string> releases;
};
const std::vector<Tool>& Tools() {
    static const std::vector<Tool> tools = {
        {"apt ", {"ubuntu", "debian", "proxmox", "raspberry"}},
        {"update-grub", {"ubuntu", "debian", "proxmox"}},
        {"dnf ", {"fedora", "rhel9"}},
        {"yum ", {"rhel7"}},
        {"grubby", {"fedora", "rhel9", "rhel7"}},
        {"zypper", {"suse"}},
        {"pacman", {"arch"}},
        {"nixos-rebuild", {"nixos"}},
        {"netplan", {"ubuntu"}},
        {"nmcli", {"fedora", "rhel9", "rhel7", "suse", "raspberry"}},
        {"/etc/network/interfaces", {"debian", "proxmox"}},
        {"/etc/security/limits.d",
         {"ubuntu", "debian", "proxmox", "raspberry", "fedora", "rhel9", "rhel7", "suse", "arch"}},
        {"systemctl edit",
         {"ubuntu", "debian", "proxmox", "raspberry", "fedora", "rhel9", "rhel7", "suse", "arch"}},
        {"sysctl --system",
         {"ubuntu", "debian", "proxmox", "raspberry", "fedora", "rhel9", "rhel7", "suse", "arch"}},
        {"/boot/firmware/cmdline.txt", {"raspberry"}},
        {"proxmox-boot-tool", {"proxmox"}},
        {"/etc/default/opensm", {"ubuntu", "debian", "proxmox", "raspberry"}},
        {"/etc/sysconfig/", {"fedora", "rhel9", "rhel7", "suse", "arch"}},
        {"Ubuntu", {"ubuntu"}},
        {"Fedora", {}},
        {"Debian", {"debian", "proxmox", "raspberry"}},
    };
    return tools;
}

struct Dress {
    const char* name;
    const char* release;  // etc/os-release
    const char* kernel;
};
constexpr Dress kDresses[] = {
    {"fedora", "ID=fedora\nVERSION_ID=43\n", "6.17.8-300.fc43.x86_64\n"},
    {"rhel9", "ID=\"rhel\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"9.7\"\n",
     "5.14.0-611.8.1.el9_7.x86_64\n"},
    {"rhel7", "ID=\"rhel\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"7.9\"\n",
     "3.10.0-1160.119.1.el7.x86_64\n"},
    {"ubuntu", "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n", "6.8.0-87-generic\n"},
    {"debian", "ID=debian\nVERSION_ID=\"12\"\n", "6.1.0-41-amd64\n"},
    {"proxmox", "ID=debian\nVERSION_ID=\"13\"\n", "6.17.2-1-pve\n"},
    {"raspberry", "ID=debian\nVERSION_ID=\"13\"\n", "6.12.47+rpt-rpi-2712\n"},
    {"suse", "ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\nVERSION_ID=\"16.0\"\n",
     "6.12.0-160000.6-default\n"},
    {"arch", "ID=arch\n", "6.17.7-arch1-1\n"},
    {"nixos", "ID=nixos\nVERSION_ID=\"25.11\"\n", "6.12.58\n"},
};

void ExpectOwnTools(const std::string& dress, const std::string& fix, const std::string& where) {
    for (const Tool& tool : Tools()) {
        const size_t at = fix.find(tool.word);
        const bool word = at != fix.npos && (at == 0 || !std::isalnum(fix[at - 1]));
        EXPECT_TRUE(!word || tool.releases.contains(dress))
            << where << " on " << dress << ": " << tool.word << ": " << fix;
    }
    EXPECT_TRUE(dress != "proxmox" || !Contains(fix, "sudo ")) << where << ": " << fix;
}

void ExpectWhole(const std::string& fix, const std::string& where) {
    static const std::regex kPlaceholder(
        R"(<[A-Za-z][A-Za-z_ -]*>|\b(PORT|IFACE|INTERFACE|DEVICE|HOST|ADDRESS|MODULE)\b)"
        R"(|\.\.\.|\{\})");
    static const std::regex kNegative(R"((^|[ =])-[0-9])");
    EXPECT_FALSE(std::regex_search(fix, kPlaceholder)) << where << ": " << fix;
    const bool steering =
        Contains(fix, "log_num_mgm_entry_size=-7") || Contains(fix, "--ulimit memlock=-1");
    EXPECT_TRUE(steering || !std::regex_search(fix, kNegative)) << where << ": " << fix;
    EXPECT_FALSE(Contains(fix, "nan") && Contains(fix, "=nan")) << where << ": " << fix;
}

// One value for each parameter, whichever check gives it.
void ExpectAgreement(const std::vector<Finding>& findings, const std::string& where) {
    static const std::regex kSetting(
        R"((ttm\.[a-z_]+|amdgpu\.[a-z_]+|kernel\.[a-z_]+|transparent_hugepage|iommu)=([0-9a-z]+))");
    std::map<std::string, std::string> values;
    for (const Finding& f : findings) {
        auto it = std::sregex_iterator(f.fix.begin(), f.fix.end(), kSetting);
        for (; it != std::sregex_iterator(); ++it) {
            const auto [entry, fresh] = values.try_emplace((*it)[1], (*it)[2]);
            EXPECT_EQ(entry->second, (*it)[2]) << where << ": " << f.check << ": " << f.fix;
        }
    }
}

// Every host in the clothes of every distribution: its cures are that distribution's own.
TEST(DoctorCorpus, CuresAreTheDistributions) {
    for (const auto& [name, host] : WholeHosts()) {
        for (const Dress& dress : kDresses) {
            SnapshotFiles files = host.files;
            files["etc/os-release"] = dress.release;
            files["proc/sys/kernel/osrelease"] = dress.kernel;
            for (const std::string& where : {std::string("whole"), std::string("by hand")}) {
                const auto findings = LookAt(where == "whole" ? files : ByHand(files));
                ExpectAgreement(findings, name + " " + dress.name);
                for (const Finding& f : findings) {
                    const std::string at = fmt::format("{} ({}): {}", name, where, f.check);
                    ExpectWhole(f.fix, at);
                    // Chains of another distribution's firewall stay what they are.
                    if (f.check != "firewall") ExpectOwnTools(dress.name, f.fix, at);
                }
            }
        }
    }
}

// A cure that replaces a file of the system's settings must own the file, and the file's name
// contains "weft". To other files, a cure only appends.
void ExpectOwnFiles(const std::string& fix, const std::string& where) {
    static const std::regex kWritten(R"(\btee (-a )?(/etc/[^ ,;)]*))");
    auto it = std::sregex_iterator(fix.begin(), fix.end(), kWritten);
    for (; it != std::sregex_iterator(); ++it) {
        EXPECT_TRUE((*it)[1].matched || Contains((*it)[2].str(), "weft")) << where << ": " << fix;
    }
}

// "sudo ip link set dev DEVICE mtu NUMBER": the interface has another MTU.
void ExpectOtherMtu(SnapshotFiles& files, const std::string& fix, const std::string& where) {
    static const std::regex kMtu(R"(ip link set dev ([^ ]+) mtu ([0-9]+))");
    auto it = std::sregex_iterator(fix.begin(), fix.end(), kMtu);
    for (; it != std::sregex_iterator(); ++it) {
        EXPECT_NE(Trim(files["sys/class/net/" + (*it)[1].str() + "/mtu"]), (*it)[2].str())
            << where << ": " << fix;
    }
}

// The kernel's command line after the cure's changes of /etc/default/grub: GRUB puts the words of
// GRUB_CMDLINE_LINUX_DEFAULT behind those of GRUB_CMDLINE_LINUX.
std::string LineAfter(const std::string& fix, std::string first, std::string last) {
    static const std::regex kStep(
        R"((add|remove) (.*?) (to the end of|from) (GRUB_CMDLINE_LINUX\w*) in /etc/default/grub)");
    auto it = std::sregex_iterator(fix.begin(), fix.end(), kStep);
    for (; it != std::sregex_iterator(); ++it) {
        std::string& line = (*it)[4].str().ends_with("_DEFAULT") ? last : first;
        if ((*it)[1] == "add") {
            line += " " + (*it)[2].str();
            continue;
        }
        std::string kept;
        for (std::string_view word : Words(line)) {
            if (word.substr(0, word.find('=')) != (*it)[2].str()) kept += std::string(word) + " ";
        }
        line = kept;
    }
    return "BOOT_IMAGE=/vmlinuz root=UUID=1b2e ro " + first + " " + last + "\n";
}

// The findings of the checks that read the kernel's command line, whose cure names GRUB.
std::map<std::string, std::string> LineFixes(const SnapshotFiles& files) {
    std::map<std::string, std::string> fixes;
    for (const Finding& f : LookAt(files)) {
        if (f.severity < Severity::kNote || !Contains(f.fix, "GRUB_CMDLINE_LINUX")) continue;
        fixes[f.check] = f.fix;
    }
    return fixes;
}

TEST(DoctorCorpus, CuresKeepFilesAndChangeSettings) {
    for (const auto& [name, host] : WholeHosts()) {
        for (const Dress& dress : kDresses) {
            SnapshotFiles files = host.files;
            files["etc/os-release"] = dress.release;
            files["proc/sys/kernel/osrelease"] = dress.kernel;
            for (const Finding& f : LookAt(files)) {
                const std::string at = fmt::format("{} {}: {}", name, dress.name, f.check);
                ExpectOwnFiles(f.fix, at);
                ExpectOtherMtu(files, f.fix, at);
            }
        }
    }
}

// A parameter that the user has set already, in either line of /etc/default/grub, does not defeat
// the cure: after the next boot the check passes.
TEST(DoctorCorpus, CuresOfTheCommandLineHold) {
    const std::string kGone = "ttm.pages_limit=27648000 amdgpu.gttsize=131072";
    for (const char* parameters :
         {"amdgpu.gttsize=131072", "ttm.pages_limit=99999999", kGone.c_str(), "nomodeset",
          "amdgpu.gttsize=131072 ttm.pages_limit=2764800 ttm.page_pool_size=2764800"}) {
        for (const bool in_first : {false, true}) {
            for (const char* module : {"ttm", "amdttm"}) {
                const std::string first = in_first ? parameters : "quiet";
                const std::string last = in_first ? "quiet" : parameters;
                SnapshotFiles files = WholeHosts().at("arch-strix-halo").files;
                files["etc/os-release"] = kDresses[3].release;
                files["proc/sys/kernel/osrelease"] = kDresses[3].kernel;
                files["etc/default/grub"] = fmt::format(
                    "GRUB_CMDLINE_LINUX_DEFAULT=\"{}\"\nGRUB_CMDLINE_LINUX=\"{}\"\n", last, first);
                files["proc/cmdline"] = LineAfter("", first, last);
                files[fmt::format("sys/module/{}/parameters/pages_limit", module)] = "4000000\n";
                for (const auto& [check, fix] : LineFixes(files)) {
                    if (check == "gpu-memory") continue;  // reads what the driver has taken
                    SnapshotFiles cured = files;
                    cured["proc/cmdline"] = LineAfter(fix, first, last);
                    EXPECT_FALSE(LineFixes(cured).contains(check))
                        << parameters << ": " << check << ": " << fix << "\n"
                        << cured["proc/cmdline"];
                }
            }
        }
    }
}

TEST(DoctorCorpus, DistributionsAreKnownByTheirKernels) {
    for (const Dress& dress : kDresses) {
        if (std::string(dress.name) == "nixos" || std::string(dress.name) == "debian") continue;
        const auto whole = MakeSnapshotView(
            {{"etc/os-release", dress.release}, {"proc/sys/kernel/osrelease", dress.kernel}},
            "whole");
        const auto bare = MakeSnapshotView({{"cmd/uname_-r", dress.kernel}}, "bare");
        EXPECT_EQ(DistributionOf(*bare), DistributionOf(*whole)) << dress.name;
        EXPECT_EQ(DebianKindOf(*bare), DebianKindOf(*whole)) << dress.name;
    }
}

TEST(DoctorCorpus, OutputsAreTidied) {
    EXPECT_EQ(TidiedOutput("a\r\nb\r\n"), "a\nb\n");
    EXPECT_EQ(TidiedOutput(std::string("1500\n\0\0", 7)), "1500\n");
    EXPECT_EQ(TidiedOutput(std::string("\xff\xfe"
                                       "a\0b\0\x3a\x26\n\0",
                                       10)),
              "ab?\n");
    EXPECT_EQ(TidiedOutput(std::string("\xfe\xff\0a\0\n", 6)), "a\n");
    EXPECT_EQ(TidiedOutput("[sudo] password for ada: [    1.0] x\n"), "[    1.0] x\n");
    EXPECT_EQ(TidiedOutput("a\n[sudo"), "a\n[sudo");
    EXPECT_EQ(ClassifyOutput("bash: ibstat: command not found\n"), Said::kNoSuch);
    EXPECT_EQ(ClassifyOutput("dmesg: read kernel buffer failed: Operation not permitted\n"),
              Said::kNotShown);
    EXPECT_EQ(ClassifyOutput("[    1.0] x: Operation not permitted\n"), Said::kOutput);
    EXPECT_EQ(ClassifyOutput(""), Said::kOutput);
    EXPECT_EQ(ClassifyOutput("not running\n"), Said::kOutput);
}

}  // namespace
}  // namespace weft::doctor
