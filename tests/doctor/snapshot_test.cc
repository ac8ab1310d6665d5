// Snapshots as hostile input, as records of this machine, and what they leave out.
#include "doctor/snapshot.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/file.h"
#include "doctor/check.h"
#include "doctor/live_view.h"
#include "doctor/text.h"
#include "support/temp_dir.h"

namespace weft::doctor {
namespace {

namespace fs = std::filesystem;

Result<SnapshotFiles> ParseTarText(const std::string& tar) {
    return ParseTar(std::as_bytes(std::span(tar)), "test");
}

// The first header's name replaced, and its checksum with it (POSIX ustar).
std::string Renamed(std::string tar, const std::string& name, char type = '0',
                    const std::string& target = "") {
    tar.replace(0, 100, name + std::string(100 - name.size(), '\0'));
    tar[156] = type;
    tar.replace(157, 100, target + std::string(100 - target.size(), '\0'));
    tar.replace(148, 8, 8, ' ');
    unsigned sum = 0;
    for (int i = 0; i < 512; ++i) sum += static_cast<unsigned char>(tar[i]);
    tar.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
    return tar;
}

TEST(DoctorSnapshot, TarGivesBackWhatWasWritten) {
    SnapshotFiles files = {{"sys/class/net/eth0/mtu", "1500\n"},
                           {"dev/kfd/", ""},
                           {"cmd/dmesg", std::string(200'000, 'x')},
                           {"cmd/" + std::string(180, 'n'), "long name"},
                           {"empty", ""}};
    EXPECT_EQ(ParseTarText(WriteTar(files).value()).value(), files);
}

TEST(DoctorSnapshot, NamesThatClimbOutAreRefused) {
    const std::string tar = WriteTar({{"a", "text"}}).value();
    EXPECT_TRUE(ParseTarText(Renamed(tar, "b")).ok());
    EXPECT_EQ(ParseTarText(Renamed(tar, "./b")).value().begin()->first, "b");
    EXPECT_EQ(ParseTarText(Renamed(tar, "/etc/b")).value().begin()->first, "etc/b");
    for (const char* name : {"../b", "a/../../b", "..", "a/\x1b[2Jb"}) {
        const auto parsed = ParseTarText(Renamed(tar, name));
        ASSERT_FALSE(parsed.ok()) << name;
        EXPECT_EQ(parsed.error().code, ErrorCode::kCorrupt);
    }
}

TEST(DoctorSnapshot, LinksAreWordsAndNeverFollowed) {
    const std::string tar = WriteTar({{"a", ""}}).value();
    EXPECT_EQ(ParseTarText(Renamed(tar, "a", '2', "/etc/shadow")).value().at("a"), "/etc/shadow");
    EXPECT_FALSE(ParseTarText(Renamed(tar, "a", '1', "/etc/shadow")).ok());

    test::TempDir dir;
    fs::create_symlink("/etc/passwd", dir / "a");
    fs::create_directory_symlink("/etc", dir / "etc");
    const SnapshotFiles files = ReadSnapshotFiles(dir.path()).value();
    EXPECT_EQ(files, (SnapshotFiles{{"a", "/etc/passwd"}, {"etc", "/etc"}}));
}

TEST(DoctorSnapshot, DamagedTarsAreErrorsOrSnapshots) {
    std::mt19937 random(5);
    SnapshotFiles files;
    for (int i = 0; i < 20; ++i) files["sys/" + std::to_string(i)] = std::string(i * 40, 'a');
    const std::string tar = WriteTar(files).value();
    for (int round = 0; round < 3000; ++round) {
        std::string damaged = tar;
        for (size_t i = random() % 6; i > 0; --i) {
            damaged[random() % damaged.size()] = static_cast<char>(random());
        }
        if (random() % 2 == 0) damaged.resize(random() % damaged.size());
        const auto parsed = ParseTarText(damaged);
        const ErrorCode code = parsed.ok() ? ErrorCode::kCorrupt : parsed.error().code;
        EXPECT_EQ(code, ErrorCode::kCorrupt);
    }
}

TEST(DoctorSnapshot, LimitsHold) {
    // One that is too large is not read; the others are.
    const auto files = ParseTarText(
        WriteTar({{"cmd/dmesg", std::string(5 << 20, 'x')}, {"proc/x", "1\n"}}).value());
    ASSERT_TRUE(files.ok()) << files.error().message;
    const auto view = MakeSnapshotView(*files, "n");
    EXPECT_EQ(view->Text("proc/x"), "1");
    EXPECT_TRUE(view->Command("dmesg").refused());
    EXPECT_NE(view->Command("dmesg").text.find("too large"), std::string::npos);
    SnapshotFiles large;
    for (int i = 0; i < 20; ++i) large[std::to_string(i)] = std::string(4 << 20, 'x');
    EXPECT_FALSE(ParseTarText(WriteTar(large).value()).ok());
    SnapshotFiles many;
    for (int i = 0; i < 20'001; ++i) many["f/" + std::to_string(i)] = "";
    EXPECT_FALSE(ParseTarText(WriteTar(many).value()).ok());
    std::string deep = "a";
    for (int i = 0; i < 600; ++i) deep += "/a";
    EXPECT_FALSE(ParseTextSnapshot("==> " + deep + " <==\n", "test").ok());
    EXPECT_FALSE(ParseTextSnapshot("no header\n", "test").ok());
    EXPECT_FALSE(ParseSnapshot("", "test").ok() && !ParseSnapshot("", "test")->empty());
}

TEST(DoctorSnapshot, TextIsWhatTailPrints) {
    const auto files = ParseTextSnapshot(
        "# a comment\n==> /sys/a <==\n1500\n\n==> sys/b <==\nx\n\ny\n\n==> dev/kfd/ <==\n", "test");
    EXPECT_EQ(files.value(),
              (SnapshotFiles{{"sys/a", "1500\n"}, {"sys/b", "x\n\ny\n"}, {"dev/kfd/", ""}}));
}

TEST(DoctorSnapshot, ListsAreTheNamesInAFolder) {
    const auto view = MakeSnapshotView(
        {{"a/b/c", "1"}, {"a/b.d", "2"}, {"a/e/", ""}, {"ab", "3"}, {"a/b/f", ""}}, "name");
    EXPECT_EQ(view->List("a"), (std::vector<std::string>{"b", "b.d", "e"}));
    EXPECT_EQ(view->List("a/b"), (std::vector<std::string>{"c", "f"}));
    EXPECT_TRUE(view->Has("a/e"));
    EXPECT_FALSE(view->Has("a/x"));
    EXPECT_EQ(view->host(), "name");
}

// This machine: nothing fails, and its snapshot says the same as the machine did.
TEST(DoctorSnapshot, ThisMachineAndItsSnapshotAgree) {
    const auto live = MakeLiveView({.measure = false});
    std::vector<std::unique_ptr<HostView>> hosts, again;
    auto recording = std::make_unique<RecordingView>(*live);
    RecordingView& recorded = *recording;
    hosts.push_back(std::move(recording));
    const auto findings = RunChecks(hosts, {}).value();
    const SnapshotFiles files = recorded.Take();
    again.push_back(MakeSnapshotView(ParseTarText(WriteTar(files).value()).value(), "other"));
    const auto found_again = RunChecks(again, {}).value();
    ASSERT_EQ(findings.size(), found_again.size());
    for (size_t i = 0; i < findings.size(); ++i) {
        SCOPED_TRACE(findings[i].check);
        EXPECT_EQ(findings[i].check, found_again[i].check);
        EXPECT_EQ(findings[i].severity, found_again[i].severity);
    }
    EXPECT_TRUE(again.front()->host().starts_with("host-"));
    for (const auto& [name, text] : files) {
        EXPECT_FALSE(name.starts_with("etc/shadow") || Contains(name, "environ")) << name;
    }
}

TEST(DoctorSnapshot, WhatCannotBeReadIsRemembered) {
    class Refusing : public HostView {
      public:
        std::string host() const override { return "h"; }
        bool Complete() const override { return false; }
        Reading Read(const std::string&) override {
            return {ReadState::kRefused, "alice: Permission denied"};
        }
        Reading Link(const std::string&) override { return {}; }
        std::vector<std::string> List(const std::string&) override { return {}; }
        Reading Command(const std::string&) override { return {}; }
        Reading Probe(const std::string&) override { return {}; }
        Reading Later(const std::string&) override { return {}; }
    } refusing;
    RecordingView recording(refusing);
    EXPECT_TRUE(recording.Read("proc/cpuinfo").refused());
    const auto view = MakeSnapshotView(recording.Take(), "n");
    EXPECT_TRUE(view->Read("proc/cpuinfo").refused());
    EXPECT_EQ(view->Read("proc/cpuinfo").text, "Permission denied");
    EXPECT_FALSE(view->Read("proc/meminfo").refused());
}

}  // namespace
}  // namespace weft::doctor
