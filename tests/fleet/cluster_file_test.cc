#include "fleet/cluster_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <set>

#include "base/file.h"
#include "base/on_threads.h"
#include "base/output_file.h"
#include "cluster/join/build.h"
#include "fleet/find.h"
#include "fleet/hosts_change.h"
#include "support/temp_dir.h"

namespace weft::fleet {
namespace {

bool CanRead() {
    return ParseClusterFile("", "x").ok();
}

class ClusterFiles : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!CanRead()) GTEST_SKIP() << "built without toml++ (libtomlplusplus-dev)";
        ::setenv("XDG_CONFIG_HOME", folder_.path().c_str(), 1);
    }
    void TearDown() override { ::unsetenv("XDG_CONFIG_HOME"); }

    static std::string Why(const std::string& text) {
        const auto parsed = ParseClusterFile(text, "home.toml");
        if (parsed.ok()) return "";
        EXPECT_EQ(parsed.error().code, ErrorCode::kUsage) << text;
        return parsed.error().message;
    }
    static bool Says(const std::string& text, const std::string& words) {
        return Why(text).find(words) != std::string::npos;
    }

    test::TempDir folder_;
};

TEST_F(ClusterFiles, RoundTrip) {
    const ClusterFile file{"/etc/weft/lab.key",
                           {{"b", "10.0.0.2:7000", "me@b"}, {"c-1", "", ""}, {"d", "", "d"}}};
    EXPECT_EQ(ParseClusterFile(ClusterFileText(file), "x").value(), file);
    EXPECT_EQ(ParseClusterFile("", "x").value(), ClusterFile());
    ASSERT_TRUE(WriteClusterFile("lab", file).ok());
    EXPECT_EQ(ReadClusterFile("lab").value(), file);
}

TEST_F(ClusterFiles, AddedHostsKeepTheTextOfTheFile) {
    const ClusterPaths paths = PathsOf("lab").value();
    ClusterFile file{"", {{"b", "", "me@b"}}};
    ASSERT_TRUE(WriteClusterFile("lab", file).ok());
    const std::string by_hand =
        "# the rack on the left\n[[host]]\nname = 'b'  # noisy\nssh = \"me@b\" # g\xC3\xBCnstig";
    ASSERT_TRUE(ReplaceFile(paths.file, by_hand, 0644, true).ok());
    file = ReadClusterFile("lab").value();
    file.hosts.push_back({"c", "", "me@c"});
    ASSERT_TRUE(WriteClusterFile("lab", file).ok());
    EXPECT_EQ(ReadTextFile(paths.file, 4096).value(),
              by_hand + "\n\n[[host]]\nname = \"c\"\nssh = \"me@c\"\n");
    EXPECT_EQ(ReadClusterFile("lab").value(), file);
    // A list in one line cannot grow, nor can a host that changes.
    ASSERT_TRUE(ReplaceFile(paths.file, "# x\nhost = [{name = \"b\"}]\n", 0644, true).ok());
    file = ReadClusterFile("lab").value();
    file.hosts.push_back({"c", "", ""});
    ASSERT_TRUE(WriteClusterFile("lab", file).ok());
    EXPECT_EQ(ReadClusterFile("lab").value(), file);
    file.hosts[0].ssh = "you@b";
    ASSERT_TRUE(WriteClusterFile("lab", file).ok());
    EXPECT_EQ(ReadClusterFile("lab").value(), file);
}

// Commands in several terminals change one file.
TEST_F(ClusterFiles, ChangesAtOnceAreAllKept) {
    constexpr size_t kHosts = 6;
    ClusterFile file{folder_ / "lab.key", {{"stays", "", ""}}};  // (an empty list has a meaning)
    for (size_t i = 0; i < kHosts; ++i) file.hosts.push_back({fmt::format("old{}", i), "", ""});
    ASSERT_TRUE(WriteClusterFile("lab", file).ok());
    const std::string ssh = fmt::format(
        "#!/bin/sh\nwhile [ $1 != -- ]; do shift; done\ncase $(cat) in *weft-probe*)\n"
        "printf '\\nweft-probe\\nname=%s\\nkernel=%s\\nprogram=/weft\\nversion=%s\\nweft-end\\n' "
        "${{2#me@}} $2 '{}' ;;\nesac\n",
        cluster::BuildText({}));
    ASSERT_TRUE(WriteFile(folder_ / "ssh", std::as_bytes(std::span(ssh))).ok());
    ASSERT_EQ(::chmod((folder_ / "ssh").c_str(), 0755), 0);
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", (folder_.path() + ":" + path).c_str(), 1);
    std::vector<std::string> faults(2 * kHosts);
    std::atomic<int> keys = 0;  // that were made
    const auto notice = [&](const std::string& line) {
        keys += line.starts_with("created") ? 1 : 0;
    };
    const Status ran = AllAtOnce(2 * kHosts, [&](size_t i) {
        if (i < kHosts) {
            const auto added = AddHost("lab", fmt::format("me@new{}", i), notice);
            if (!added.ok()) faults[i] = added.error().message;
        } else {
            const auto removed = RemoveHost("lab", fmt::format("old{}", i - kHosts));
            if (!removed.ok()) faults[i] = removed.error().message;
        }
    });
    ::setenv("PATH", path.c_str(), 1);
    ASSERT_TRUE(ran.ok());
    for (const std::string& fault : faults) EXPECT_EQ(fault, "");
    EXPECT_EQ(keys, 1);
    std::set<std::string> names;
    const ClusterFile changed = ReadClusterFile("lab").value();
    for (const ClusterHost& host : changed.hosts) names.insert(host.name);
    EXPECT_EQ(names,
              (std::set<std::string>{"new0", "new1", "new2", "new3", "new4", "new5", "stays"}));
}

TEST_F(ClusterFiles, TomlIsRead) {
    const char* text =
        "# what I have\nkey = 'my.key'\nhost = [ { name = \"b\", ssh = \"me@b\" } ]\n";
    const ClusterFile file = ParseClusterFile(text, "x").value();
    EXPECT_EQ(file.key, "my.key");
    EXPECT_EQ(file.hosts, (std::vector<ClusterHost>{{"b", "", "me@b"}}));
}

TEST_F(ClusterFiles, KeysAndCommentsHaveOtherThanAscii) {
    const ClusterFile file{"/srv/andr\u00e9/\U0001F511.key", {{"b", "", ""}}};
    EXPECT_EQ(ParseClusterFile("\uFEFF# l'\u00e9t\u00e9\n" + ClusterFileText(file), "x").value(),
              file);
    const std::string aside = "key = \"k\"  # sch\u00f6n\r\n\t # \xff\n";
    EXPECT_EQ(ParseClusterFile(aside, "x").value().key, "k");
}

TEST_F(ClusterFiles, FaultsAreNamedWithTheirLine) {
    EXPECT_TRUE(Says("key = \"a\"\nhots = 1\n", "home.toml:2: 'hots' is not known here"));
    EXPECT_TRUE(Says("[[host]]\nname = \"b\"\nadress = \"c\"\n", "home.toml:3: 'adress'"));
    EXPECT_TRUE(Says("\n[[host]]\nname = 7\n", "home.toml:3: name = \"...\""));
    EXPECT_TRUE(Says("[[host]]\nname = \"b\n", "home.toml:2:"));
    EXPECT_TRUE(Says("host = \"b\"\n", "expected [[host]] tables"));
    EXPECT_TRUE(Says("host = [1]\n", "expected [[host]] tables"));
    EXPECT_TRUE(Says("[[host]]\nname = \"b\"\n[[host]]\nname = \"b\"\n", "b is listed twice"));
    EXPECT_TRUE(Says("[[host]]\nssh = \"b\"\n", "a host's name"));
    EXPECT_TRUE(Says("[[host]]\nname = \"-o\"\n", "a host's name"));
    EXPECT_TRUE(Says("[[host]]\nname = \"b\"\nssh = \"-oProxyCommand=x\"\n", "expected HOST or"));
    EXPECT_TRUE(Says("[[host]]\nname = \"b\"\nssh = \"b; rm x\"\n", "expected HOST or"));
    EXPECT_TRUE(Says("[[host]]\nname = \"b\"\naddress = \"b:99999\"\n", "not HOST:PORT"));
    EXPECT_TRUE(Says("[[host]]\nname = \"b\"\nname = \"c\"\n", "home.toml:3:"));
    EXPECT_TRUE(Says("key = \"a\\u0000b\"\n", "expected a string"));
    EXPECT_TRUE(Says("key = \"a\"\nb = 1 \u00a1\n", "home.toml:2:"));
    EXPECT_TRUE(Says("key =  0.2:7000\"\uFE7Fh = ", "home.toml:1:"));
    EXPECT_TRUE(Says("\nkey = '\u00e9'\n", "home.toml:2: a character that is not ASCII"));
    EXPECT_TRUE(Says("key = \"\xff\"\n", "home.toml:1: a character that is not ASCII"));
    EXPECT_TRUE(Says("\"\u00e9\" = 1\n", "home.toml:1: '\u00e9' is not known here"));
    EXPECT_FALSE(Why("host = [ { name = \"b\" }, } ]\n").empty());
    EXPECT_FALSE(Why(std::string(70'000, '#')).empty());
    EXPECT_FALSE(Why("a = " + std::string(20'000, '[')).empty());
}

TEST_F(ClusterFiles, AClusterWithoutFileHasNoHosts) {
    const ClusterFile file = ReadClusterFile("home").value();
    EXPECT_TRUE(file.hosts.empty());
    EXPECT_EQ(file.key, folder_.path() + "/weft/clusters/home.key");
    EXPECT_EQ(CheckHasKey("home", file).error().code, ErrorCode::kNotFound);
    ASSERT_TRUE(MakeKey(file.key, "words").ok());
    EXPECT_TRUE(CheckHasKey("home", file).ok());
    struct stat about {};
    ASSERT_EQ(::stat(file.key.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600U);
    EXPECT_EQ(ReadTextFile(file.key).value(), "words\n");
}

TEST_F(ClusterFiles, NamesOfClustersStayInTheirFolder) {
    for (const char* name : {"", "../x", "a/b", ".hidden", "-x", "a b", "a\n"}) {
        EXPECT_EQ(PathsOf(name).error().code, ErrorCode::kUsage) << name;
    }
    EXPECT_TRUE(PathsOf("Lab_2.b-c").ok());
}

TEST_F(ClusterFiles, SshHosts) {
    EXPECT_EQ(SshHostsOf("home").error().code, ErrorCode::kUsage);
    ASSERT_TRUE(WriteClusterFile("home", {"", {{"b", "", "me@b"}, {"c", "", "c"}}}).ok());
    EXPECT_EQ(SshHostsOf("home").value(), (std::vector<std::string>{"me@b", "c"}));
    ASSERT_TRUE(WriteClusterFile("home", {"", {{"b", "", "me@b"}, {"c", "", ""}}}).ok());
    EXPECT_NE(SshHostsOf("home").error().message.find("host c has no ssh"), std::string::npos);
}

TEST_F(ClusterFiles, RemovesAHostWithoutSsh) {
    ASSERT_TRUE(WriteClusterFile("home", {"", {{"b", "b:7000", ""}, {"c", "c:7000", ""}}}).ok());
    const auto removed = RemoveHost("home", "b");
    ASSERT_TRUE(removed.ok()) << removed.error().message;
    EXPECT_EQ(removed->host.name, "b");
    EXPECT_FALSE(removed->stopped.has_value());
    EXPECT_EQ(ReadClusterFile("home")->hosts.size(), 1u);
    EXPECT_EQ(RemoveHost("home", "b").error().code, ErrorCode::kNotFound);
}

Peer APeer(uint64_t host, const std::string& name, std::vector<ReportedCable> heard) {
    return {host, name, {}, "cpu", 1, 7000, std::move(heard), {}};
}

TEST(ChooseHosts, TheFastestCableOfEach) {
    Hearing hearing;
    hearing.wires = {{"eth0", 1, "fe80::1", 1000, "", ""},
                     {"eth1", 2, "fe80::2", 10'000, "", ""},
                     {"eth2", 3, "fe80::3", 10'000, "rdma0:1", ""}};
    hearing.peers = {
        APeer(1, "b",
              {{"eth0", "eth0", "fe80::b0", 1000, ""}, {"eth1", "eth1", "fe80::b1", 10'000, ""}}),
        APeer(2, "c",
              {{"eth1", "eth1", "fe80::c1", 10'000, ""},
               {"eth2", "eth2", "fe80::c2", 10'000, "rdma0:1"}})};
    const Chosen chosen = ChooseHosts({}, hearing);
    ASSERT_EQ(chosen.hosts.size(), 2U);
    EXPECT_EQ(chosen.hosts[0].address, "[fe80::b1%eth1]:7000");
    EXPECT_EQ(chosen.hosts[1].address, "[fe80::c2%eth2]:7000");
}

TEST(ChooseHosts, TheFileHasTheLastWord) {
    Hearing hearing;
    hearing.peers = {APeer(1, "b", {{"eth0", "eth0", "fe80::b", 0, ""}}),
                     APeer(2, "c", {{"eth0", "eth0", "fe80::c", 0, ""}})};
    const ClusterFile file{"", {{"c", "", ""}, {"x", "10.0.0.9", ""}, {"y", "", ""}}};
    const Chosen chosen = ChooseHosts(file, hearing);
    ASSERT_EQ(chosen.hosts.size(), 2U);
    EXPECT_EQ(chosen.hosts[0].address, "[fe80::c%eth0]:7000");
    EXPECT_EQ(chosen.hosts[1].address, "10.0.0.9:7000");
    EXPECT_EQ(chosen.missing, std::vector<std::string>{"y"});
}

TEST(ChooseHosts, AnotherProtocolIsLeftOutAndAnotherVersionOrCommitIsNot) {
    Hearing hearing;
    hearing.peers = {APeer(1, "b", {{"eth0", "eth0", "fe80::b", 0, ""}}),
                     APeer(2, "c", {{"eth0", "eth0", "fe80::c", 0, ""}}),
                     APeer(3, "d", {{"eth0", "eth0", "fe80::d", 0, ""}})};
    hearing.peers[0].build.version = "0.0.9";
    hearing.peers[0].build.protocol_hash = "0123456789ab";
    hearing.peers[1].build.commit = "1f3da7147a20";
    hearing.peers[2].build.version = "0.0.9";
    const Chosen chosen = ChooseHosts({}, hearing);
    ASSERT_EQ(chosen.hosts.size(), 2U);
    EXPECT_EQ(chosen.hosts[0].name, "c");
    EXPECT_EQ(chosen.hosts[1].name, "d");
    ASSERT_EQ(chosen.left_out.size(), 1U);
    EXPECT_NE(chosen.left_out[0].find("b runs weft 0.0.9"), std::string::npos);
    EXPECT_NE(chosen.left_out[0].find("protocol hash 0123456789ab), this is weft "),
              std::string::npos);
    EXPECT_NE(chosen.left_out[0].find("Install the same build"), std::string::npos);
    EXPECT_EQ(ChooseHosts({"", {{"b", "", ""}}}, hearing).missing, std::vector<std::string>{"b"});
    EXPECT_TRUE(AddressesOf("b", hearing).empty());
    EXPECT_EQ(AddressesOf("c", hearing).size(), 1U);
    EXPECT_EQ(AddressesOf("d", hearing).size(), 1U);
}

}  // namespace
}  // namespace weft::fleet
