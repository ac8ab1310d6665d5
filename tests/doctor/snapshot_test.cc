// Snapshots as hostile input and as records of this machine, and the fields that they omit.
#include "doctor/snapshot.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/file.h"
#include "doctor/check.h"
#include "doctor/live_view.h"
#include "doctor/save.h"
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
    // A hard link is the file of the archive that it names, and no other.
    const auto view =
        MakeSnapshotView(ParseTarText(Renamed(tar, "a", '1', "/etc/shadow")).value(), "n");
    EXPECT_TRUE(view->Read("a").refused());
    const std::string two = WriteTar({{"a", "text"}, {"b", ""}}).value();
    const std::string linked = two.substr(0, 1024) + Renamed(two.substr(1024), "b", '1', "./a");
    EXPECT_EQ(ParseTarText(linked).value(), (SnapshotFiles{{"a", "text"}, {"b", "text"}}));

    test::TempDir dir;
    fs::create_symlink("/etc/passwd", dir / "a");
    fs::create_directory_symlink("/etc", dir / "etc");
    const SnapshotFiles files = ReadSnapshotFiles(dir.path()).value();
    EXPECT_EQ(files, (SnapshotFiles{{"a", "/etc/passwd"}, {"etc", "/etc"}}));
}

// The folder itself may be named by a link, with or without a slash behind it.
TEST(DoctorSnapshot, AFolderMayBeALink) {
    test::TempDir dir;
    fs::create_directories(dir / "real/sys");
    std::ofstream(dir / "real/sys/x") << "1\n";
    fs::create_symlink("/etc/passwd", dir / "real/a");
    fs::create_directory_symlink("real", dir / "link");
    for (const char* path : {"link", "link/"}) {
        EXPECT_EQ(ReadSnapshotFiles(dir / path).value(),
                  (SnapshotFiles{{"a", "/etc/passwd"}, {"sys/x", "1\n"}}));
    }
}

// A user who may not read all files. Root may, so this switches to the user nobody meanwhile.
class PlainUser {
  public:
    PlainUser() { EXPECT_EQ(root_ ? ::seteuid(65534) : 0, 0); }
    ~PlainUser() { EXPECT_EQ(root_ ? ::seteuid(0) : 0, 0); }

  private:
    const bool root_ = ::geteuid() == 0;
};

TEST(DoctorSnapshot, UnreadableFilesAreNamed) {
    const bool root = ::geteuid() == 0;
    if (root && (::seteuid(65534) != 0 || ::seteuid(0) != 0)) {
        GTEST_SKIP() << "root cannot become another user here";
    }
    test::TempDir dir;
    fs::create_directories(dir / "s/sys");
    std::ofstream(dir / "s/sys/x") << "1\n";
    std::ofstream(dir / "s.tar") << WriteTar({{"sys/x", "1\n"}}).value();
    fs::permissions(dir.path(), fs::perms(0755));
    const auto why = [&](const std::string& from, const std::string& closed) {
        fs::permissions(dir / closed, fs::perms::none);
        const PlainUser user;
        const auto files = ReadSnapshotFiles(dir / from);
        EXPECT_FALSE(files.ok());
        return files.ok() ? Error{ErrorCode::kUsage, ""} : files.error();
    };
    const auto open = [&](const std::string& closed) {
        fs::permissions(dir / closed, fs::perms(0755));
    };
    const Error file = why("s", "s/sys/x");
    EXPECT_EQ(file.code, ErrorCode::kIo);
    EXPECT_EQ(file.message, dir / "s/sys/x: Permission denied; make it readable");
    open("s/sys/x");
    const Error folder = why("s", "s/sys");
    EXPECT_EQ(folder.code, ErrorCode::kIo);
    EXPECT_TRUE(folder.message.starts_with(dir / "s/sys: ")) << folder.message;
    EXPECT_TRUE(folder.message.ends_with("; make it readable")) << folder.message;
    open("s/sys");
    const Error tar = why("s.tar", "s.tar");
    EXPECT_EQ(tar.code, ErrorCode::kIo);
    EXPECT_EQ(tar.message, dir / "s.tar: Permission denied; make it readable");
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
    // Folders have their own limit, so they do not reduce the number of files allowed in them.
    SnapshotFiles inside;
    std::string listed;
    for (int i = 0; i < 15'000; ++i) {
        inside[fmt::format("f/{}/a", i)] = "1\n";
        listed += fmt::format("==> f/{0}/ <==\n==> f/{0}/a <==\n1\n", i);
    }
    EXPECT_EQ(ParseTextSnapshot(listed, "test").value(), inside);
    for (int i = 0; i < 20'001; ++i) listed += fmt::format("==> g/{}/ <==\n", i);
    EXPECT_FALSE(ParseTextSnapshot(listed, "test").ok());
    std::string deep = "a";
    for (int i = 0; i < 600; ++i) deep += "/a";
    EXPECT_FALSE(ParseTextSnapshot("==> " + deep + " <==\n", "test").ok());
    EXPECT_FALSE(ParseTextSnapshot("no header\n", "test").ok());
    EXPECT_FALSE(ParseSnapshot("", "test").ok() && !ParseSnapshot("", "test")->empty());
}

// A header that states a size, without the bytes.
std::string WithSize(std::string header, uint64_t bytes) {
    header.replace(124, 12, fmt::format("{:011o}", bytes) + std::string(1, '\0'));
    return Renamed(header.substr(0, 512), "cmd/dmesg");
}

Result<SnapshotFiles> OfFile(const std::string& bytes, const std::string& name) {
    test::TempDir dir;
    EXPECT_TRUE(WriteFile(dir / name, std::as_bytes(std::span(bytes))).ok());
    return ReadSnapshotFiles(dir / name);
}

// A file of 300 MB and a sparse one of 64 GiB: each refuses itself, and what is beside it is read.
TEST(DoctorSnapshot, OneHugeFileRefusesItselfAlone) {
    const std::string tar = WriteTar({{"proc/x", "1\n"}}).value();
    test::TempDir dir;
    const std::string path = dir / "huge.tar";
    constexpr uint64_t kBytes = 300'000'256;
    std::ofstream(path, std::ios::binary) << WithSize(tar, kBytes);
    fs::resize_file(path, 512 + kBytes);
    std::ofstream(path, std::ios::app | std::ios::binary) << tar;
    const auto files = ReadSnapshotFiles(path);
    ASSERT_TRUE(files.ok()) << files.error().message;
    const auto view = MakeSnapshotView(*files, "n");
    EXPECT_EQ(view->Text("proc/x"), "1");
    EXPECT_TRUE(view->Command("dmesg").refused());

    fs::create_directories(dir / "snap/cmd");
    std::ofstream(dir / "snap/proc") << "1\n";
    std::ofstream(dir / "snap/cmd/dmesg") << "x\n";
    fs::resize_file(dir / "snap/cmd/dmesg", uint64_t{1} << 36);
    EXPECT_EQ(MakeSnapshotView(ReadSnapshotFiles(dir / "snap").value(), "n")->Text("proc"), "1");
    const std::string sparse = fmt::format("tar -S -C {0}/snap -cf {0}/sparse.tar .", dir.path());
    ASSERT_EQ(std::system(sparse.c_str()), 0);
    const auto packed = MakeSnapshotView(ReadSnapshotFiles(dir / "sparse.tar").value(), "n");
    EXPECT_EQ(packed->Text("proc"), "1");
    EXPECT_TRUE(packed->Command("dmesg").refused());
}

// Unpacking unused bytes has a limit. Files that would have followed do not count as absent.
TEST(DoctorSnapshot, DecompressionIsBounded) {
    test::TempDir dir;
    constexpr int kPieces = 18;  // of 64 MiB
    const std::string complete = WriteTar({{"probe/complete", "yes\n"}}).value().substr(0, 1024);
    const std::string after = WriteTar({{"z", "1\n"}}).value();
    std::ofstream(dir / "first", std::ios::binary)
        << complete << WithSize(after, kPieces * (uint64_t{64} << 20));
    std::ofstream(dir / "last", std::ios::binary) << after;
    const std::string make = fmt::format(
        "cd {} && gzip -1 first last && head -c 67108864 /dev/zero | gzip -1 >zeros && (cat "
        "first.gz; for i in $(seq {}); do cat zeros; done; cat last.gz) >bomb.tgz",
        dir.path(), kPieces);
    ASSERT_EQ(std::system(make.c_str()), 0);
    const auto files = ReadSnapshotFiles(dir / "bomb.tgz");
    ASSERT_TRUE(files.ok()) << files.error().message;
    const auto view = MakeSnapshotView(*files, "n");
    EXPECT_TRUE(view->Command("dmesg").refused());
    EXPECT_FALSE(view->Complete());
    EXPECT_FALSE(files->contains("z"));
}

// A sparse file's holes are not in the archive, but its size is.
TEST(DoctorSnapshot, SparseFilesArePackedToo) {
    test::TempDir dir;
    const std::string make = fmt::format(
        "mkdir -p {0}/s/cmd && truncate -s 2G {0}/s/cmd/dmesg && echo 1 >{0}/s/z && tar "
        "-S -C {0}/s -czf {0}/sparse.tgz cmd z",
        dir.path());
    ASSERT_EQ(std::system(make.c_str()), 0);
    const auto view = MakeSnapshotView(ReadSnapshotFiles(dir / "sparse.tgz").value(), "n");
    EXPECT_TRUE(view->Command("dmesg").refused());
    EXPECT_EQ(view->Text("z"), "1");
}

TEST(DoctorSnapshot, TarsOfEveryKindAreRead) {
    test::TempDir dir;
    for (const char* folder : {"s/sys/class/net/b\xc3\xbcro0", "s/dev"}) {
        fs::create_directories(dir / folder);
    }
    std::ofstream(dir / "s/sys/class/net/b\xc3\xbcro0/mtu") << "1500\n";
    fs::create_symlink("../../../0000:01:00.0", dir / "s/sys/class/net/b\xc3\xbcro0/device");
    fs::create_hard_link(dir / "s/sys/class/net/b\xc3\xbcro0/mtu", dir / "s/same");
    ASSERT_EQ(::mkfifo((dir / "s/dev/pipe").c_str(), 0600), 0);
    for (const char* format : {"gnu", "oldgnu", "pax", "ustar", "posix --numeric-owner --xattrs"}) {
        for (const char* from : {"-C {0}/s .", "-C {0}/s dev same sys", "-P {0}/s/sys"}) {
            const std::string make =
                fmt::format("tar --format={} -cf {}/t.tar {} 2>&1", format, dir.path(),
                            fmt::format(fmt::runtime(from), dir.path()));
            ASSERT_EQ(std::system(make.c_str()), 0) << make;
            const auto files = ReadSnapshotFiles(dir / "t.tar");
            ASSERT_TRUE(files.ok()) << make << files.error().message;
            const std::string begin = from[1] == 'P' ? (dir / "s/").substr(1) : "";
            const std::string net = begin + "sys/class/net/b\xc3\xbcro0/";
            EXPECT_EQ(files->at(net + "mtu"), "1500\n") << make;
            EXPECT_EQ(files->at(net + "device"), "../../../0000:01:00.0");
            if (!begin.empty()) continue;
            EXPECT_EQ(files->at("same"), "1500\n") << make;
            EXPECT_EQ(files->at("dev/pipe"), "");
        }
    }
}

// A file and a folder of one name, and one file twice.
TEST(DoctorSnapshot, NamesMayMeet) {
    const std::string one = WriteTar({{"a", "1\n"}}).value().substr(0, 1024);
    const std::string inside = WriteTar({{"a/b", "2\n"}}).value().substr(0, 1024);
    const std::string again = WriteTar({{"a", "3\n"}}).value();
    const auto view = MakeSnapshotView(ParseTarText(one + inside + again).value(), "n");
    EXPECT_EQ(view->Text("a"), "3");
    EXPECT_EQ(view->Text("a/b"), "2");
    EXPECT_EQ(view->List("a"), std::vector<std::string>{"b"});
}

TEST(DoctorSnapshot, AMillionEntriesAreRefusedSoon) {
    std::string tar;
    const std::string tail = WriteTar({{"a", ""}}).value();
    for (int i = 0; i < 50'000; ++i) tar += Renamed(tail.substr(0, 512), "f" + std::to_string(i));
    const auto parsed = OfFile(tar + tail, "many.tar");
    ASSERT_FALSE(parsed.ok());
    EXPECT_NE(parsed.error().message.find("more than 20000 files"), std::string::npos);
}

TEST(DoctorSnapshot, TruncatedTextIsMarked) {
    const std::string tar = WriteTar({{"a", std::string(5000, 'x')}, {"b", "text"}}).value();
    for (const size_t size : {size_t{700}, size_t{4000}, size_t{6200}}) {
        const auto parsed = OfFile(tar.substr(0, size), "cut.tar");
        ASSERT_FALSE(parsed.ok()) << size;
        EXPECT_NE(parsed.error().message.find("copy it again"), std::string::npos)
            << parsed.error().message;
    }
}

// Names of an archive are in the message, but nothing that a terminal obeys.
TEST(DoctorSnapshot, ErrorsArePrintable) {
    const std::string tar = WriteTar({{"a", "text"}}).value();
    for (const char* name :
         {"../\x1b[2J", "a\x1b]0;x\a", "../\xe2\x80\xae", "../\xc2\x9b", "../\xff"}) {
        const auto parsed = ParseTarText(Renamed(tar, name));
        ASSERT_FALSE(parsed.ok());
        EXPECT_EQ(Printable(parsed.error().message), parsed.error().message);
    }
    const auto text = ParseTextSnapshot("==> ../\x1b[2J <==\nx\n", "test");
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(Printable(text.error().message), text.error().message);
}

TEST(DoctorSnapshot, TextMayHoldAHugeFile) {
    std::string text = "==> cmd/dmesg <==\n";
    for (int i = 0; i < 90'000; ++i) text += std::string(63, 'x') + "\n";
    const auto files = ParseTextSnapshot(text + "\n==> proc/x <==\n1\n", "test");
    ASSERT_TRUE(files.ok()) << files.error().message;
    const auto view = MakeSnapshotView(*files, "n");
    EXPECT_EQ(view->Text("proc/x"), "1");
    EXPECT_TRUE(view->Command("dmesg").refused());
}

TEST(DoctorSnapshot, TextIsWhatTailPrints) {
    const auto files = ParseTextSnapshot(
        "# a comment\n==> /sys/a <==\n1500\n\n==> sys/b <==\nx\n\ny\n\n==> dev/kfd/ <==\n", "test");
    EXPECT_EQ(files.value(),
              (SnapshotFiles{{"sys/a", "1500\n"}, {"sys/b", "x\n\ny\n"}, {"dev/kfd/", ""}}));
}

TEST(DoctorSnapshot, TextMayBeginWithAMarkOrBlankLines) {
    for (const std::string begin : {"\xef\xbb\xbf", "\n", "\r\n", "  \n\t\n"}) {
        const auto files = ParseSnapshot(begin + "==> proc/uptime <==\n5.0 2.0\n", "test");
        ASSERT_TRUE(files.ok()) << files.error().message;
        EXPECT_EQ(files->at("proc/uptime"), "5.0 2.0\n");
    }
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

// The checks run on this machine, and its snapshot gives the same findings.
TEST(DoctorSnapshot, ThisMachineAndItsSnapshotAgree) {
    std::vector<std::unique_ptr<HostView>> hosts, again;
    hosts.push_back(MakeLiveView({.measure = false}));
    const auto findings = RunChecks(hosts, {}).value();
    Pseudonyms names;
    const SnapshotFiles files = SavedFiles(hosts[0]->Recorded(), names);
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
        Refusing() : HostView("h") {}
        bool Complete() const override { return false; }

      protected:
        Reading Fetch(const std::string&) override {
            return {ReadState::kRefused, "alice: Permission denied"};
        }
        std::vector<std::string> FetchNames(const std::string&) override { return {}; }
    } refusing;
    EXPECT_TRUE(refusing.Read("proc/cpuinfo").refused());
    Pseudonyms names;
    const auto view = MakeSnapshotView(SavedFiles(refusing.Recorded(), names), "n");
    EXPECT_TRUE(view->Read("proc/cpuinfo").refused());
    EXPECT_EQ(view->Read("proc/cpuinfo").text, "Permission denied");
    EXPECT_FALSE(view->Read("proc/meminfo").refused());
}

}  // namespace
}  // namespace weft::doctor
