// Searches archives for private data: whole outputs of several distributions with private values in
// every field (tests/data/doctor/*.txt name them in their first lines), and markers in place of any
// word of any file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "doctor/check.h"
#include "doctor/healthy_hosts.h"
#include "doctor/save.h"
#include "doctor/text.h"
#include "support/paths.h"
#include "support/read_bytes.h"

namespace weft::doctor {
namespace {

namespace fs = std::filesystem;

struct Format {
    std::string name;
    SnapshotFiles files;
    std::vector<std::string> markers;
};

std::vector<Format> Formats() {
    std::vector<Format> formats;
    for (const auto& file : fs::directory_iterator(support::TestData("/doctor"))) {
        const std::string text = support::ReadBytes(file.path());
        Format format{file.path().filename(), ParseTextSnapshot(text, "format").value(), {}};
        for (std::string_view line : Lines(text)) {
            constexpr std::string_view kKey = "# private:";
            if (!line.starts_with(kKey)) continue;
            for (std::string_view word : Split(line.substr(kKey.size()), ',')) {
                format.markers.emplace_back(Trim(word));
            }
        }
        formats.push_back(std::move(format));
    }
    std::ranges::sort(formats, {}, &Format::name);
    return formats;
}

// Keeps only letters, in lower case, and digits: "e4:1d:2d" and "E4-1D-2D" become equal.
std::string Bare(std::string_view text) {
    std::string bare;
    for (const unsigned char c : text) {
        if (std::isalnum(c) != 0) bare += static_cast<char>(std::tolower(c));
    }
    return bare;
}

std::string Base64(std::string_view bytes) {
    constexpr std::string_view kLetters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string coded;
    uint32_t bits = 0;
    int count = 0;
    for (const unsigned char c : bytes) {
        bits = bits << 8 | c;
        for (count += 8; count >= 6; count -= 6) coded += kLetters[bits >> (count - 6) & 63];
    }
    return coded;
}

// A value in the forms in which it may be hidden.
std::vector<std::string> FormsOf(const std::string& marker) {
    std::vector<std::string> forms = {marker};
    const auto address = ParseIpv4(marker);
    if (address) {
        forms.push_back(fmt::format("{:04x}:{:04x}", address->bits >> 16, address->bits & 0xffff));
        forms.push_back(fmt::format("{:08x}", address->bits));
    }
    for (size_t skip = 0; skip < 3; ++skip) {  // in base64, earlier bytes change its form
        const std::string coded = Base64(std::string(skip, 'x') + marker);
        const size_t first = (skip * 8 + 5) / 6, last = (skip + marker.size()) * 8 / 6;
        if (last > first + 6) forms.push_back(coded.substr(first, last - first));
    }
    return forms;
}

std::string Searched(const SnapshotFiles& files) {
    std::string all;
    for (const auto& [path, text] : files) all += path + "\n" + text + "\n";
    return all;
}

void ExpectWithout(const SnapshotFiles& saved, const std::vector<std::string>& markers,
                   const std::string& where) {
    const std::string tar = WriteTar(saved).value();
    for (const std::string& marker : markers) {
        for (const std::string& form : FormsOf(marker)) {
            EXPECT_EQ(tar.find(form), tar.npos) << where << ": " << marker << " as " << form;
        }
        for (const auto& [path, text] : saved) {
            // Line by line: numbers of two lines are not one number.
            for (std::string_view line : Lines(text)) {
                EXPECT_EQ(Bare(line).find(Bare(marker)), std::string::npos)
                    << where << ": " << marker << " in " << path << ": " << line;
            }
            EXPECT_EQ(Bare(path).find(Bare(marker)), std::string::npos) << where << ": " << path;
        }
    }
}

// Every source, whether a check reads it or not.
TEST(DoctorLeaks, PrivateValuesOfRealOutputsStayOut) {
    const std::vector<Format> formats = Formats();
    EXPECT_GE(formats.size(), 4u);
    for (const Format& format : formats) {
        EXPECT_GE(format.markers.size(), 8u);
        const std::string before = Bare(Searched(format.files));
        for (const std::string& marker : format.markers) {
            EXPECT_NE(before.find(Bare(marker)), before.npos) << marker << " is not planted";
        }
        Pseudonyms names;
        const SnapshotFiles saved = SavedFiles(format.files, names);
        ExpectWithout(saved, format.markers, format.name);
        EXPECT_GT(saved.size() * 3, format.files.size());
        Pseudonyms later;
        EXPECT_EQ(Searched(SavedFiles(saved, later)), Searched(saved))
            << "not saved the same again";
    }
}

// The same, with real names: secrets, users and log lines of others stay out all the same.
TEST(DoctorLeaks, RealNamesLetNoSecretThrough) {
    const std::vector<std::string> secrets = {"hf_Zx81TokenQq", "s3cr3tPassw0rd", "weft-k3y",
                                              "sk-ant-Pq7Secret", "passphrase-Qq9"};
    for (const Format& format : Formats()) {
        Pseudonyms names(true);
        const std::string saved = Searched(SavedFiles(format.files, names));
        for (const std::string& secret : secrets) {
            EXPECT_EQ(saved.find(secret), saved.npos) << format.name << ": " << secret;
        }
    }
}

// ---- Markers in place of words -----------------------------------------------------------------

struct Piece {
    size_t begin = 0, end = 0;
};

// Runs of letters and digits, or (words) of all characters except blanks.
std::vector<Piece> PiecesOf(std::string_view text, bool words) {
    std::vector<Piece> pieces;
    for (size_t at = 0; at < text.size();) {
        const auto inside = [&](size_t i) {
            const auto c = static_cast<unsigned char>(text[i]);
            return words ? std::isspace(c) == 0 : std::isalnum(c) != 0;
        };
        size_t end = at;
        while (end < text.size() && inside(end)) ++end;
        if (end > at) pieces.push_back({at, end});
        at = end + 1;
    }
    return pieces;
}

// Some of the pieces replaced, or with the marker at one of their ends.
std::string Marked(std::string_view text, const std::string& marker, std::mt19937& random) {
    std::string marked;
    size_t done = 0;
    const unsigned rarity = 1u << (1 + random() % 6);
    const unsigned way = random() % 3;
    for (const Piece& piece : PiecesOf(text, random() % 2 == 0)) {
        if (random() % rarity != 0) continue;
        marked += text.substr(done, piece.begin - done);
        const std::string_view old = text.substr(piece.begin, piece.end - piece.begin);
        marked += way == 0   ? marker
                  : way == 1 ? marker + std::string(old)
                             : std::string(old) + marker;
        done = piece.end;
    }
    return marked + std::string(text.substr(done));
}

// Names of users, tokens, hardware addresses and GUIDs of every form.
const std::vector<std::string> kAnywhere = {
    "zqmarkerzq", "ZQ7MARKER", "e41d2d9a67b1",   "e4:1d:2d:9a:67:b1",   "E4-1D-2D-9A-67-B1",
    "e41d.2d9a",  "zqmark",    "2001:db8:77::9", "e41d:2d03:009a:67b1", "0xe41d2d03009a67b1"};

void ExpectNoMarker(const std::string& path, const std::string& text, const std::string& marker,
                    const std::string& from) {
    Pseudonyms names;
    for (const auto& [saved, kept] : SavedFiles({{path, text}}, names)) {
        for (const std::string_view line : Lines(kept)) {
            EXPECT_EQ(Bare(line).find(Bare(marker)), std::string::npos)
                << from << " " << path << ": " << line;
        }
        EXPECT_EQ(Bare(saved).find(Bare(marker)), std::string::npos) << from << " " << path;
    }
}

std::vector<Format> AllHosts() {
    std::vector<Format> all = Formats();
    for (const test_hosts::Cluster& cluster : test_hosts::HealthyClusters()) {
        for (const SnapshotFiles& files : cluster.hosts) all.push_back({cluster.name, files, {}});
    }
    return all;
}

TEST(DoctorLeaks, MarkersInPlaceOfAnyWordStayOut) {
    std::mt19937 random(19);
    constexpr int kRounds = 4;
    for (const Format& format : AllHosts()) {
        for (const auto& [path, text] : format.files) {
            for (const std::string& marker : kAnywhere) {
                for (int round = 0; round < kRounds; ++round) {
                    ExpectNoMarker(path, Marked(text, marker, random), marker, format.name);
                }
            }
            if (HasFailure()) return;
        }
    }
}

TEST(DoctorLeaks, MarkersInPlaceOfAnyPartOfAPathStayOut) {
    std::mt19937 random(20);
    for (const Format& format : AllHosts()) {
        for (const auto& [path, text] : format.files) {
            for (const std::string& marker : kAnywhere) {
                ExpectNoMarker(Marked(path, marker, random), text, marker, format.name);
            }
            if (HasFailure()) return;
        }
    }
}

// ---- The list is whole -------------------------------------------------------------------------

std::vector<Finding> FoundIn(const SnapshotFiles& files) {
    std::vector<std::unique_ptr<HostView>> views;
    views.push_back(MakeSnapshotView(files, "host"));
    return RunChecks(views, {}).value();
}

std::vector<std::string> Outlines(const std::vector<Finding>& findings) {
    std::vector<std::string> outlines;
    for (const Finding& f : findings) {
        outlines.push_back(fmt::format("{} {}", f.check, SeverityName(f.severity)));
    }
    std::ranges::sort(outlines);
    return outlines;
}

TEST(DoctorLeaks, TheChecksFindTheSameInTheArchive) {
    for (const Format& format : AllHosts()) {
        const std::vector<Finding> found = FoundIn(format.files);
        EXPECT_GE(found.size(), 3u) << format.name;
        Pseudonyms names, real(true);
        EXPECT_EQ(Outlines(FoundIn(SavedFiles(format.files, names))), Outlines(found))
            << format.name;
        // With real names, as over ssh, word by word, where no strange words are planted.
        if (!format.markers.empty()) continue;
        const std::vector<Finding> over_ssh = FoundIn(SavedFiles(format.files, real));
        ASSERT_EQ(over_ssh.size(), found.size()) << format.name;
        for (size_t i = 0; i < found.size(); ++i) {
            EXPECT_EQ(over_ssh[i].check, found[i].check);
            EXPECT_EQ(over_ssh[i].read, found[i].read) << format.name << " " << found[i].check;
            EXPECT_EQ(over_ssh[i].fix, found[i].fix) << format.name << " " << found[i].check;
        }
    }
}

// The last file of limits.d applies, and the last drop-in: snapshots keep their order.
TEST(DoctorLeaks, FilesKeepTheirOrder) {
    const auto shown = [](const std::vector<std::string>& given, bool real) {
        SnapshotFiles files;
        for (size_t i = 0; i < given.size(); ++i) {
            files["etc/security/limits.d/" + given[i]] = fmt::format("* soft memlock {}\n", i);
        }
        Pseudonyms names(real);
        std::vector<std::string> order;
        for (const auto& [path, text] : SavedFiles(files, names)) {
            EXPECT_EQ(text, fmt::format("* soft memlock {}\n", order.size())) << path;
            order.push_back(path.substr(path.rfind('/') + 1));
        }
        return order;
    };
    const std::vector<std::string> own = {"12345-z.conf", "20-zoe.conf", "90-memlock.conf",
                                          "alice.conf",   "rdma.conf",   "zoe.conf"};
    EXPECT_EQ(shown(own, false),
              (std::vector<std::string>{"0001-file.conf", "0002-file.conf", "0003-file.conf",
                                        "0004-file.conf", "0005-file.conf", "0006-file.conf"}));
    EXPECT_EQ(shown(own, true), own);
}

// Everything that a check reads is in the archive: otherwise, its result would differ there.
TEST(DoctorLeaks, WhateverAChecksReadsIsInTheList) {
    for (const Format& format : AllHosts()) {
        std::vector<std::unique_ptr<HostView>> views;
        views.push_back(MakeSnapshotView(format.files, "host"));
        ASSERT_TRUE(RunChecks(views, {}).ok());
        SnapshotFiles raw;
        for (const auto& [path, answer] : views[0]->answers()) raw[path];
        Pseudonyms names(true);
        names.OrderFiles({});
        for (const auto& [path, text] : raw) {
            const bool planted = std::ranges::any_of(format.markers, [&](const auto& marker) {
                return Bare(path).find(Bare(marker)) != std::string::npos;
            });
            if (planted && path.starts_with("sys/bus/")) continue;  // a name that no kernel gives
            EXPECT_FALSE(SavedFiles({{path, text}}, names).empty()) << format.name << ": " << path;
        }
    }
}

}  // namespace
}  // namespace weft::doctor
