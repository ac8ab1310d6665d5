// Every check against recorded snapshots: tests/doctor/data/CHECK/CASE.txt, or a folder CASE of
// several hosts. Each begins with the expected finding: "# SEVERITY: words of the finding", or
// "# SEVERITY: words of the finding | words of the fix", where "(none)" means that there is no fix.
//
// The snapshots are written by hand from the documented formats of sysfs, lspci -vv, ibstat, ip -j,
// ethtool and dmesg, and from users' reports.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "base/file.h"
#include "doctor/check.h"
#include "doctor/checks/checks.h"
#include "doctor/cost_model.h"
#include "doctor/save.h"
#include "doctor/snapshot.h"
#include "doctor/text.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace weft::doctor {
namespace {

namespace fs = std::filesystem;

struct Case {
    std::string check, name;
    std::vector<std::string> hosts;  // files
    std::string severity, words, fix;
};

std::string TextOf(const std::string& path) {
    return ReadTextFile(path).value();
}

std::vector<Case> Cases() {
    std::vector<Case> cases;
    for (const auto& folder : fs::directory_iterator(support::TestData("/../doctor/data"))) {
        for (const auto& entry : fs::directory_iterator(folder.path())) {
            Case one{folder.path().filename(), entry.path().stem(), {}, "", "", ""};
            if (entry.is_directory()) {
                for (const auto& host : fs::directory_iterator(entry.path())) {
                    one.hosts.push_back(host.path());
                }
                std::ranges::sort(one.hosts);
            } else {
                one.hosts.push_back(entry.path());
            }
            const std::string text = TextOf(one.hosts.front());
            const std::string_view first = Lines(text)[0];
            one.severity = std::string(After(first, "# ", ":"));
            one.words = std::string(After(first, ": ", "|"));
            one.fix = std::string(After(first, " | "));
            cases.push_back(std::move(one));
        }
    }
    std::ranges::sort(cases, {}, [](const Case& one) { return one.check + one.name; });
    return cases;
}

using Views = std::vector<std::unique_ptr<HostView>>;

Views Open(const std::vector<std::string>& paths) {
    Views views;
    for (const std::string& path : paths) {
        auto view = OpenSnapshot(path);
        EXPECT_TRUE(view.ok()) << view.error().message;
        if (view.ok()) views.push_back(std::move(*view));
    }
    return views;
}

std::vector<Finding> RunOne(const std::string& check, const Views& views) {
    return RunChecks(views, std::vector<std::string>{check}).value();
}

std::string Text(const std::vector<Finding>& findings) {
    std::string text;
    for (const Finding& f : findings) {
        text += fmt::format("{} {} {}: {} | {} | {} | {}\n", f.host, SeverityName(f.severity),
                            f.check, f.read, f.expected, f.why, f.fix);
    }
    return text;
}

TEST(DoctorChecks, FindWhatTheSnapshotsHold) {
    for (const Case& one : Cases()) {
        SCOPED_TRACE(one.check + "/" + one.name);
        const std::vector<Finding> findings = RunOne(one.check, Open(one.hosts));
        const auto is_fixed = [&](const Finding& finding) {
            return one.fix == "(none)" ? finding.fix.empty() : Contains(finding.fix, one.fix);
        };
        const auto expected = std::ranges::find_if(findings, [&](const Finding& finding) {
            return SeverityName(finding.severity) == one.severity &&
                   Contains(finding.read, one.words) && is_fixed(finding);
        });
        ASSERT_NE(expected, findings.end())
            << one.severity << ": " << one.words << " | " << one.fix << "\nfound:\n"
            << Text(findings);
        for (const Finding& finding : findings) {
            EXPECT_EQ(finding.check, one.check);
            // Nothing worse than what the snapshot was made for.
            EXPECT_LE(finding.severity, expected->severity) << Text(findings);
            EXPECT_FALSE(finding.read.empty());
            if (finding.severity < Severity::kWarn) continue;
            EXPECT_FALSE(finding.expected.empty()) << Text(findings);
            EXPECT_FALSE(finding.why.empty()) << Text(findings);
            EXPECT_FALSE(finding.fix.empty()) << Text(findings);
        }
    }
}

TEST(DoctorChecks, AnUnsetParameterHasNoValue) {
    Views views =
        Open({support::TestData("/../doctor/data/kernel-parameters/good-pages-alone.txt")});
    const std::vector<Finding> findings = RunOne("kernel-parameters", views);
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings[0].read, "ttm.pages_limit=30146560 (115.0 GiB)");
}

TEST(DoctorChecks, EachCureInAFixExists) {
    constexpr std::string_view kFixes[] = {
#define FINDING(name, severity, read, expected, why, fix) fix,
#include "doctor/checks/findings.inc"
#undef FINDING
    };
    const auto view = MakeSnapshotView({}, "empty");
    for (std::string_view fix : kFixes) {
        for (size_t at = fix.find("<<"); at != fix.npos; at = fix.find("<<", at + 1)) {
            const std::string_view mark = fix.substr(at + 2, fix.find(">>", at) - at - 2);
            Cure(*view, mark.substr(0, mark.find(' ')), {{"value", "1"}});  // ends without a row
        }
    }
    EXPECT_DEATH(Cure(*view, "no-such-row"), "row != nullptr");
}

TEST(DoctorChecks, EachHasAGoodAndABadSnapshot) {
    std::set<std::string> good, bad;
    for (const Case& one : Cases()) {
        (one.severity == "ok" ? good : bad).insert(one.check);
        EXPECT_EQ(one.name.starts_with("good"), one.severity == "ok") << one.check << one.name;
    }
    size_t of_snapshots = 0;
    for (const Check& check : AllChecks()) {
        if (check.run == nullptr && check.across == nullptr) continue;  // see fabric_test.cc
        of_snapshots++;
        EXPECT_TRUE(good.contains(check.name)) << check.name;
        EXPECT_TRUE(bad.contains(check.name)) << check.name;
    }
    EXPECT_EQ(good.size(), of_snapshots);
}

// The same snapshot as a folder, as a tar and as text gives the same findings.
TEST(DoctorChecks, FormsOfSnapshotsAreEqual) {
    for (const Case& one : Cases()) {
        SCOPED_TRACE(one.check + "/" + one.name);
        test::TempDir dir;
        std::vector<std::string> folders, tars;
        for (size_t i = 0; i < one.hosts.size(); ++i) {
            SnapshotFiles files = ReadSnapshotFiles(one.hosts[i]).value();
            files.try_emplace("probe/hostname", "host" + std::to_string(i));
            folders.push_back(dir / ("folder" + std::to_string(i)));
            for (const auto& [name, text] : files) {
                const fs::path path = folders.back() + "/" + name;
                fs::create_directories(name.ends_with('/') ? path : path.parent_path());
                if (!name.ends_with('/')) std::ofstream(path) << text;
            }
            tars.push_back(dir / (std::to_string(i) + ".tar"));
            const Result<std::string> written = WriteTar(files);
            ASSERT_TRUE(written.ok()) << written.error().message;
            const std::string& tar = *written;
            ASSERT_TRUE(WriteFile(tars.back(), std::as_bytes(std::span(tar))).ok());
            EXPECT_EQ(ReadSnapshotFiles(tars.back()).value(), files);
            EXPECT_EQ(ReadSnapshotFiles(folders.back()).value(), files);
        }
        const std::string from_tars = Text(RunOne(one.check, Open(tars)));
        EXPECT_EQ(Text(RunOne(one.check, Open(folders))), from_tars);
        EXPECT_TRUE(Contains(from_tars, one.words)) << from_tars;
    }
}

// A snapshot omits nothing that a check reads.
TEST(DoctorChecks, SurviveBeingRecorded) {
    for (const Case& one : Cases()) {
        SCOPED_TRACE(one.check + "/" + one.name);
        Views again;
        const Views views = Open(one.hosts);
        const std::string first = Text(RunOne(one.check, views));
        for (const auto& view : views) {
            Pseudonyms names(true);
            again.push_back(MakeSnapshotView(SavedFiles(view->Recorded(), names), "again"));
        }
        EXPECT_EQ(Text(RunOne(one.check, again)), first);
    }
}

// Any check may be given any snapshot, whole or damaged.
TEST(DoctorChecks, SurviveDamage) {
    std::mt19937 random(4711);
    const std::vector<Case> cases = Cases();
    for (int round = 0; round < 1500; ++round) {
        const Case& one = cases[random() % cases.size()];
        std::string text = TextOf(one.hosts[random() % one.hosts.size()]);
        const size_t changes = random() % 8;
        for (size_t i = 0; i < changes && !text.empty(); ++i) {
            const size_t at = random() % text.size();
            switch (random() % 4) {
                case 0: text[at] = static_cast<char>(random()); break;
                case 1: text.erase(at, random() % 40); break;
                case 2: text.insert(at, std::to_string(random() * uint64_t{random()})); break;
                default: text.insert(at, text.substr(random() % text.size(), random() % 80));
            }
        }
        if (random() % 3 == 0) text.resize(random() % (text.size() + 1));
        Views views;
        for (int host = 0; host < 2; ++host) {
            auto files = ParseSnapshot(text, "damaged");
            if (!files.ok()) continue;
            views.push_back(MakeSnapshotView(std::move(*files), std::to_string(host)));
        }
        auto findings = RunChecks(views, {});
        ASSERT_TRUE(findings.ok());
        if (round % 50 != 0) continue;
        ASSERT_TRUE(StateCosts(*findings).ok());
        for (const Finding& finding : *findings) {
            if (finding.cost) {
                EXPECT_LT(finding.cost->Text().size(), 400u);
            }
        }
    }
}

}  // namespace
}  // namespace weft::doctor
