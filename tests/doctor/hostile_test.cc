// Names from hosts are hostile input: no control character and no bidirectional control gets into a
// report, and commands quote the names.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/shell_word.h"
#include "doctor/check.h"
#include "doctor/gpu.h"
#include "doctor/healthy_hosts.h"
#include "doctor/report.h"
#include "doctor/save.h"
#include "doctor/text.h"
#include "support/paths.h"

namespace weft::doctor {
namespace {

namespace fs = std::filesystem;
using Clusters = std::vector<std::vector<SnapshotFiles>>;

Clusters AllSnapshots() {
    Clusters all;
    for (const auto& cluster : test_hosts::HealthyClusters()) all.push_back(cluster.hosts);
    for (const auto& check : fs::directory_iterator(support::TestData("/../doctor/data"))) {
        for (const auto& entry : fs::directory_iterator(check.path())) {
            all.emplace_back();
            if (!entry.is_directory()) {
                all.back().push_back(ReadSnapshotFiles(entry.path()).value());
                continue;
            }
            for (const auto& file : fs::directory_iterator(entry.path())) {
                all.back().push_back(ReadSnapshotFiles(file.path()).value());
            }
        }
    }
    return all;
}

// The interfaces, RDMA devices, units, zones and chains that a snapshot names.
std::vector<std::string> NamesIn(const SnapshotFiles& files) {
    std::vector<std::string> names;
    for (const auto& [path, text] : files) {
        const auto parts = Split(path, '/');
        const bool device =
            path.starts_with("sys/class/net/") || path.starts_with("sys/class/infiniband/");
        if (device && parts.size() > 3) names.emplace_back(parts[3]);
        if (path.starts_with("etc/systemd/system/weft") && parts.size() > 3) {
            names.emplace_back(Split(parts[3], '.')[0]);
        }
        for (std::string_view line : Lines(text)) {
            for (const char* before : {"\"ifname\":\"", "CA '", "chain ", "table inet "}) {
                const auto name = After(line, before, "\"' {");
                if (!name.empty()) names.emplace_back(name);
            }
        }
    }
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    std::erase_if(names, [](const std::string& name) { return name.size() < 3 || name == "weft"; });
    std::ranges::sort(names, std::ranges::greater(), &std::string::size);
    return names;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
    return text;
}

// `name` with what is hostile in its middle, in every path and every text.
SnapshotFiles WithHostileName(const SnapshotFiles& files, const std::string& name,
                              const std::string& hostile) {
    std::string escaped =
        nlohmann::json(hostile).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    escaped = escaped.substr(1, escaped.size() - 2);
    SnapshotFiles renamed;
    for (const auto& [path, text] : files) {
        const bool json = path.starts_with("cmd/ip_-j");
        renamed[Replaced(path, name, hostile)] = Replaced(text, name, json ? escaped : hostile);
    }
    return renamed;
}

// Code points of UTF-8, by the table of RFC 3629; 0xffffffff for what is none.
std::vector<uint32_t> CodePoints(std::string_view text) {
    std::vector<uint32_t> codes;
    for (size_t at = 0; at < text.size();) {
        const auto first = static_cast<unsigned char>(text[at]);
        const size_t size = first < 0x80             ? 1
                            : (first & 0xe0) == 0xc0 ? 2
                            : (first & 0xf0) == 0xe0 ? 3
                            : (first & 0xf8) == 0xf0 ? 4
                                                     : 0;
        uint32_t code = size == 1 ? first : first & (0x7fu >> size);
        bool good = size > 0 && at + size <= text.size();
        for (size_t i = 1; good && i < size; ++i) {
            const auto next = static_cast<unsigned char>(text[at + i]);
            good = (next & 0xc0) == 0x80;
            code = code << 6 | (next & 0x3f);
        }
        constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
        good = good && code >= kLeast[size] && (code < 0xd800 || code > 0xdfff) && code < 0x110000;
        codes.push_back(good ? code : 0xffffffff);
        at += good ? size : 1;
    }
    return codes;
}

// Characters that no terminal may get (Unicode: Cc except newline, Bidi_Control, zero width, tags).
bool IsUnfit(uint32_t code) {
    const auto in = [&](uint32_t first, uint32_t last) { return first <= code && code <= last; };
    return code == 0xffffffff || (in(0, 0x1f) && code != '\n') || in(0x7f, 0x9f) || code == 0x61c ||
           in(0x200b, 0x200f) || in(0x2028, 0x202e) || in(0x2060, 0x206f) || code == 0xfeff ||
           in(0xe0000, 0xe007f);
}

std::string Escaped(std::string_view text) {
    return nlohmann::json(std::string(text))
        .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::vector<Finding> FindingsOfHostile(const std::vector<SnapshotFiles>& hosts) {
    std::vector<std::unique_ptr<HostView>> views;
    for (const SnapshotFiles& files : hosts) views.push_back(MakeSnapshotView(files, "host"));
    MakeNamesDistinct(views);
    return RunChecks(views, {}).value();
}

size_t CountOf(std::string_view text, std::string_view part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) {
        ++count;
    }
    return count;
}

const std::vector<std::string> kUnfit = {"\x1b[31m",
                                         "\x1b]0;x\a",
                                         "\xc2\x9b"
                                         "31m",
                                         "\xe2\x80\xae",
                                         "\xe2\x81\xa6",
                                         "\xc0\x9b"
                                         "31m",
                                         "\xff\xfe",
                                         "a\nFAIL\n",
                                         "\xe2\x80\x8b",
                                         "\xed\xa0\x80",
                                         "\x7f\b\b\r",
                                         "\xf3\xa0\x81\x81",
                                         "\xf4\x90\x80\x80",
                                         "\xe0\x9f\xbf"};

TEST(DoctorHostile, NoControlCharacterReachesATerminal) {
    size_t shown = 0;
    for (const auto& hosts : AllSnapshots()) {
        for (const std::string& name : NamesIn(hosts[0])) {
            for (const std::string& bad : kUnfit) {
                std::vector<SnapshotFiles> renamed;
                for (const SnapshotFiles& files : hosts) {
                    renamed.push_back(WithHostileName(files, name, name.substr(0, 2) + bad + "z"));
                    renamed.back()["probe/hostname"] = "h" + bad + "\n";
                }
                const auto findings = FindingsOfHostile(renamed);
                const std::string report = Report(findings, {.verbose = true});
                for (const uint32_t code : CodePoints(report)) {
                    ASSERT_FALSE(IsUnfit(code)) << fmt::format("{:x} ", code) << Escaped(report);
                }
                // One line of a report can't be made to look like two.
                ASSERT_EQ(report.find("\nFAIL"), report.npos) << report;
                shown += findings.size();
            }
            if (name.size() > 8) break;  // one long name of each snapshot
        }
    }
    EXPECT_GT(shown, 10'000u);
}

// Invisible characters include unassigned ones; marks that enclose digits are visible.
TEST(DoctorHostile, OnlyVisibleCharactersArePrintable) {
    for (const char* hidden :
         {"\xe2\x81\xa5", "\xf3\xa0\x80\x82", "\xd8\x9c", "\xc2\xad", "\xef\xb7\x90"}) {
        EXPECT_EQ(Printable(std::string("a") + hidden + "b"), "a?b") << Escaped(hidden);
    }
    for (const std::string shown : {"\xd8\x80", "\xd8\x85", "\xdb\x9d", "\xdc\x8f", "\xe0\xa2\x90",
                                    "\xe0\xa3\xa2", "\xf0\x91\x82\xbd", "\xf0\x91\x83\x8d"}) {
        EXPECT_EQ(Printable(shown), shown) << Escaped(shown);
    }
}

const std::vector<std::string> kShell = {
    "a$(reboot)b",     "a`reboot`b", "a;reboot;b", "a|reboot&b", "a'b$(reboot)'c",
    "a\"$(reboot)\"c", "a>b<c*?[d]", "~a!b#c",     "a\\$(x)\\",  "a\n$(x)b"};

// Each occurrence in a fix is a word in quotes.
TEST(DoctorHostile, NamesInCommandsAreQuoted) {
    size_t quoted = 0;
    for (const auto& hosts : AllSnapshots()) {
        for (const std::string& name : NamesIn(hosts[0])) {
            for (const std::string& bad : kShell) {
                const std::string hostile = (name.starts_with("weft") ? "weft" : "") + bad;
                std::vector<SnapshotFiles> renamed;
                for (const SnapshotFiles& files : hosts) {
                    renamed.push_back(WithHostileName(files, name, hostile));
                }
                const std::string inside = Replaced(hostile, "'", "'\\''");
                for (const Finding& finding : FindingsOfHostile(renamed)) {
                    const size_t words = CountOf(finding.fix, "'" + inside);
                    EXPECT_EQ(CountOf(finding.fix, inside), words)
                        << finding.check << " " << name << ": " << finding.fix;
                    EXPECT_TRUE(hostile == inside || CountOf(finding.fix, hostile) == 0)
                        << finding.fix;
                    quoted += words;
                }
            }
        }
    }
    EXPECT_GT(quoted, 100u);
}

// The host's own name, too: "on HOST: sudo ...".
TEST(DoctorHostile, NamesOfHostsInCommandsAreQuoted) {
    for (const auto& hosts : AllSnapshots()) {
        std::vector<SnapshotFiles> named = hosts;
        for (size_t i = 0; i < named.size(); ++i) {
            named[i]["probe/hostname"] = fmt::format("h{}$(reboot)\n", i);
        }
        for (const Finding& finding : FindingsOfHostile(named)) {
            EXPECT_EQ(CountOf(finding.fix, "$(reboot)"), CountOf(finding.fix, "$(reboot)'"))
                << finding.check << ": " << finding.fix;
        }
    }
}

// A shell that reads a quoted word gets the name, and nothing runs.
TEST(DoctorHostile, QuotedWordsAreOneWordOfTheShell) {
    for (const std::string& name : kShell) {
        const std::string word = ShellWord(name);
        std::string read;
        bool open = false;
        for (size_t i = 0; i < word.size(); ++i) {  // POSIX 2.2: quoting
            if (word[i] == '\'') {
                open = !open;
            } else if (!open) {
                ASSERT_EQ(word[i], '\\') << word;
                read += word[++i];
            } else {
                read += word[i];
            }
        }
        EXPECT_FALSE(open) << word;
        EXPECT_EQ(read, name);
    }
    EXPECT_EQ(ShellWord(""), "''");
    EXPECT_EQ(ShellWord("enp1s0f0"), "enp1s0f0");
}

// A host whose names are hostile can be saved with real names (--hosts does), and read again.
TEST(DoctorHostile, RealNamesOfAnyBytesMakeAnArchive) {
    for (const std::string& bad : kUnfit) {
        const std::string device = "e" + bad;
        SnapshotFiles files = {
            {"probe/complete", "yes\n"},
            {"probe/hostname", "h" + bad + "\n"},
            {"sys/class/net/" + device + "/mtu", "1500\n"},
            {"sys/class/net/b\xc3\xbcro0/mtu", "1500\n"},
            {"sys/class/infiniband/" + device + "/fw_ver", "1.2.3\n"},
            {"etc/security/limits.d/" + bad + ".conf", "* soft memlock 64\n"},
            {"etc/systemd/system/weft" + bad + ".service", "LimitMEMLOCK=64\n"},
            {"cmd/firewall-cmd_--get-active-zones", bad + "\n  interfaces: " + device + "\n"},
            {"unread", "sys/class/net/" + device + "/speed: " + bad + "\n"}};
        Pseudonyms names(true);
        const SnapshotFiles saved = SavedFiles(files, names);
        const auto tar = WriteTar(saved);
        ASSERT_TRUE(tar.ok()) << Escaped(bad) << tar.error().message;
        const auto again = ParseTar(std::as_bytes(std::span(*tar)), "again");
        ASSERT_TRUE(again.ok()) << Escaped(bad) << again.error().message;
        EXPECT_EQ(*again, saved);
        EXPECT_TRUE(again->contains("sys/class/net/b\xc3\xbcro0/mtu"));
    }
}

// A GPU's PCI id may be any text, even the name of a target.
TEST(DoctorHostile, IdsOfGpusAreNotComparedWithTargets) {
    const auto gpu = [](const std::string& id) {
        const std::string path = "sys/class/drm/card0/device/";
        const auto view =
            MakeSnapshotView({{path + "vendor", "0x1002\n"}, {path + "device", id + "\n"}}, "h");
        return AmdGpus(*view).at(0);
    };
    for (const char* id : {"0xgfx1035", "0xgfx1151", "0xgfx1103", "0x", ""}) {
        EXPECT_FALSE(gpu(id).unified) << id;
        EXPECT_EQ(gpu(id).target, "") << id;
    }
    EXPECT_TRUE(gpu("0x1681").unified);
    EXPECT_EQ(gpu("0x1681").target, "gfx1035");
    EXPECT_EQ(gpu("0x1586").target, "gfx1151");
}

}  // namespace
}  // namespace weft::doctor
