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
