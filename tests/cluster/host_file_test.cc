// Host files, addresses without a port, and calls without time.
#include "cluster/join/host_file.h"

#include <gtest/gtest.h>

#include "cluster/socket.h"

namespace weft::cluster {
namespace {

using HostList = std::vector<std::string>;

HostList Parsed(const std::string& text) {
    auto hosts = ParseHostFile(text, "hosts", {"localhost", "n0.cluster", "10.0.0.1"});
    EXPECT_TRUE(hosts.ok()) << hosts.error().message;
    return hosts.ok() ? *hosts : HostList();
}

std::string Refused(const std::string& text) {
    const auto hosts = ParseHostFile(text, "hosts", {"n0"});
    EXPECT_FALSE(hosts.ok());
    if (hosts.ok()) return "";
    EXPECT_EQ(hosts.error().code, ErrorCode::kUsage);
    return hosts.error().message;
}

TEST(HostFile, HostsWithAndWithoutPortsAndComments) {
    EXPECT_EQ(Parsed("# ours\n\nb:7000\n  c  # the old one\r\n\t[fd00::3]:7001\nd"),
              (HostList{"b:7000", "c", "[fd00::3]:7001", "d"}));
    EXPECT_EQ(Parsed("\xEF\xBB\xBF"
                     "b\n"),
              HostList{"b"})
        << "a byte order mark";
    EXPECT_EQ(Parsed("n0.cluster slots=1"), HostList()) << "this host alone";
    // A line without slots is a worker, also on this host.
    EXPECT_EQ(Parsed("localhost\nn0:7001\n"), (HostList{"localhost", "n0:7001"}));
}

TEST(HostFile, DeepSpeedsAndOpenMpisNameThisHostAsWell) {
    EXPECT_EQ(Parsed("n0 slots=1\nn1 slots=1\nn2 slots=1 max_slots=8\n"), (HostList{"n1", "n2"}));
    EXPECT_EQ(Parsed("n0.cluster slots=1\nn1.cluster slots=1"), HostList{"n1.cluster"});
    EXPECT_EQ(Parsed("10.0.0.1 slots=1\n10.0.0.2 slots=1"), HostList{"10.0.0.2"});
    // (A part of an address is not a host name.)
    EXPECT_EQ(Parsed("10.0.0.3 slots=1"), HostList{"10.0.0.3"});
}

TEST(HostFile, InvalidHostIsRejectedWithItsLine) {
    EXPECT_EQ(
        Refused("b\nc slots=8\n"),
        "hosts:2: slots=8 on c, but a worker runs one rank. Start a worker for each, on ports "
        "of their own, and give each a line: c:7000, c:7001");
    const std::string said = Refused("b:7000 slots=2");
    EXPECT_NE(said.find("a line: b:7000, b:7001"), said.npos) << said;
    for (const char* text : {"", "\n\n", "# b\n  # c\n", "\xEF\xBB\xBF"}) {
        EXPECT_EQ(Refused(text), "hosts lists no host; expected a host a line, as b or b:7000");
    }
    EXPECT_EQ(Refused("b\nme@c:7000 slots=1"),
              "hosts:2: 'me@c:7000' names a user; a worker is reached without ssh: c:7000");
    for (const char* word : {"slots=", "slots=x", "slots", "slots=1x", "gpus=1", "c", "=1"}) {
        const std::string unknown = Refused(std::string("b ") + word);
        EXPECT_NE(unknown.find(std::string("hosts:1: '") + word), unknown.npos) << unknown;
    }
}

// As "scontrol show hostnames" of Slurm expands them.
TEST(HostFile, RangesOfHostsAreExpanded) {
    EXPECT_EQ(Parsed("node[01-04]"), (HostList{"node01", "node02", "node03", "node04"}));
    EXPECT_EQ(
        Parsed("n[8-10,2,007]-ib:7001 slots=1\nb"),
        (HostList{"n8-ib:7001", "n9-ib:7001", "n10-ib:7001", "n2-ib:7001", "n007-ib:7001", "b"}));
    EXPECT_EQ(Parsed("r[1-2]n[08-09],x:7000"),
              (HostList{"r1n08", "r1n09", "r2n08", "r2n09", "x:7000"}));
    EXPECT_EQ(Parsed("n[0-1] slots=1"), HostList{"n1"}) << "without this host";
    EXPECT_EQ(
        Parsed("[fd00::3]:7001\n[fe80::1%eth0]:7000\n::1\nm\xC3\xBCller\nhost_7"),
        (HostList{"[fd00::3]:7001", "[fe80::1%eth0]:7000", "::1", "m\xC3\xBCller", "host_7"}));
    EXPECT_EQ(*ExpandHosts("a,,b[1-2],", ""), (HostList{"a", "b1", "b2"}));
}

TEST(HostFile, TextOfOtherProgramsIsNoHost) {
    for (const char* word : {"[workers]", "[all:vars]", "[workers:children]", "10.0.0.0/24",
                             "*.local", "-", "n?", "n[1-", "n[4-1]", "n[a-b]", "n[]", "n[1-99999]",
                             "http://b:7000/", "b;c", "{\"hosts\":", "b+4", "n[1-100][1-100]"}) {
        const std::string said = Refused(std::string("b\n") + word);
        EXPECT_TRUE(said.starts_with(std::string("hosts:2: '") + word + "' is not a host; "))
            << said;
    }
    using namespace std::string_literals;
    for (const std::string& text : {"\xFF\xFEl\0o\0"s, "\0l\0o"s, "127.0.0.1:7000\0\n"s}) {
        EXPECT_EQ(Refused(text),
                  "hosts is not UTF-8 text (UTF-16?); convert it: iconv -f UTF-16 -t UTF-8 hosts > "
                  "hosts.txt");
    }
    EXPECT_EQ(Refused("b slots=0"),
              "hosts:1: slots=0 gives b no rank, but each line is a rank. Remove the line");
}

TEST(HostFile, AHostWithoutAPortGetsThatOfWorkers) {
    EXPECT_EQ(WithWorkerPort("n1"), "n1:7000");
    EXPECT_EQ(WithWorkerPort("10.0.0.2"), "10.0.0.2:7000");
    EXPECT_EQ(WithWorkerPort("[fd00::2]"), "[fd00::2]:7000");
    EXPECT_EQ(WithWorkerPort("fd00::2"), "[fd00::2]:7000");
    EXPECT_EQ(WithWorkerPort("fe80::2%eth0"), "[fe80::2%eth0]:7000");
    for (const char* whole : {"n1:7001", "[fd00::2]:1", "n1:", "n1:x", "", ":7000", "a:b:c"}) {
        EXPECT_EQ(WithWorkerPort(whole), whole);
    }
}

TEST(HostFile, ALongWordIsRefusedByItsBeginning) {
    std::string word = "n";
    for (int i = 0; i < 40'000; ++i) word += "[1]";
    const auto refused = ExpandHosts(word, "--hosts: ");
    ASSERT_FALSE(refused.ok());
    EXPECT_LT(refused.error().message.size(), 400u);
}

TEST(Dialling, WithoutTimeForACallNothingIsSaidOfTheListener) {
    const auto fd = Dial({"127.0.0.1", 1}, "worker n0", Deadline::In(0), -1);
    ASSERT_FALSE(fd.ok());
    EXPECT_EQ(fd.error().code, ErrorCode::kTimeout) << fd.error().message;
}

TEST(Dialling, AFaultOfTheNameBlamesNeitherHostNorFirewall) {
    const auto fd = Dial({"a-host-that-nobody-knows.invalid", 7000}, "worker n0", Deadline::In(50));
    ASSERT_FALSE(fd.ok());
    const std::string& message = fd.error().message;
    EXPECT_TRUE(message.starts_with("worker n0: address 'a-host-that-nobody-knows.invalid': "))
        << message;
    EXPECT_NE(message.find("Is the host name right?"), std::string::npos) << message;
    for (const char* other : {"firewall", "weft worker"}) {
        EXPECT_EQ(message.find(other), std::string::npos) << message;
    }
}

}  // namespace
}  // namespace weft::cluster
