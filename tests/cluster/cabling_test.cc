// Hosts without a common network: a cable between each pair, two networks, addresses that lead
// nowhere. Network namespaces are the hosts. Needs root and ip(8); else skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <regex>

#include "base/file.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using support::operator+;
using support::Words;
using test::Process;

bool Sh(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

class Cabling : public ::testing::Test {
  protected:
    static constexpr int kHosts = 4;

    void SetUp() override {
        if (::geteuid() != 0 || !Sh("ip -V") || !Sh("ip netns add " + Name(0))) {
            GTEST_SKIP() << "needs root and network namespaces (ip netns add): addresses_test "
                            "covers the choice of addresses";
        }
        made_ = 1;
        for (; made_ < kHosts; ++made_) ASSERT_TRUE(Sh("ip netns add " + Name(made_)));
        for (int host = 0; host < kHosts; ++host) In(host, "link set lo up");
        const std::string_view key = "a-shared-key-of-the-tests";
        ASSERT_TRUE(WriteFile(folder_ / "key", std::as_bytes(std::span(key))).ok());
        ::chmod((folder_ / "key").c_str(), 0600);
        model::Hyper hyper = support::OddHyper();
        hyper.layers = kHosts;  // a pipeline stage for each host
        support::WriteTinyGguf(folder_ / "tiny.gguf", {.hyper = hyper, .dtype = DType::kQ8_0});
    }
    void TearDown() override {
        workers_.clear();
        for (int host = 0; host < made_; ++host) Sh("ip netns del " + Name(host));
    }

    static std::string Name(int host) { return fmt::format("weftc{}-{}", ::getpid(), host); }
    static void In(int host, const std::string& words) {
        EXPECT_TRUE(Sh("ip -n " + Name(host) + " " + words)) << words;
    }
    // Until the kernel has checked that its link-local addresses are unique.
    static void AwaitLinkLocal(int host) {
        const std::string show = "test -z \"$(ip -6 -n " + Name(host) + " addr show tentative)\"";
        EXPECT_TRUE(test::Until([&] { return Sh(show); }));
    }
    // A cable between two hosts, with an interface `name` on each and addresses of `net`.
    static void Cable(int a, int b, const std::string& name, const std::string& net) {
        In(a, fmt::format("link add {0} type veth peer name {0} netns {1}", name, Name(b)));
        for (const int host : {a, b}) {
            In(host, fmt::format("link set {} up", name));
            if (!net.empty()) Address(host, name, fmt::format("{}.{}/24", net, host + 1));
        }
    }
    static void Address(int host, const std::string& interface, const std::string& address) {
        In(host, fmt::format("addr add {} dev {} nodad", address, interface));
    }
    // An interface that leads nowhere, with an address.
    static void Nowhere(int host, const std::string& name, const std::string& address) {
        In(host, fmt::format("link add {0} type veth peer name {0}x", name));
        for (const char* end : {"", "x"}) In(host, fmt::format("link set {}{} up", name, end));
        Address(host, name, address);
    }
    static Words Inside(int host, const Words& words) {
        return Words{"ip", "netns", "exec", Name(host), support::WeftProgram()} + words;
    }
    // Workers on hosts 1, 2, ... that rank 0 reaches at these addresses.
    void StartWorkers(const Words& addresses) {
        hosts_.clear();
        for (size_t i = 0; i < addresses.size(); ++i) {
            const std::string at = addresses[i] + ":7000";
            const int host = static_cast<int>(i) + 1;
            workers_.push_back(std::make_unique<Process>(
                Inside(host, {"worker", "--listen", at, "--key-file", folder_ / "key"})));
            ASSERT_TRUE(workers_.back()->ReadUntil("listening", Deadline::In(10'000)))
                << workers_.back()->output();
            hosts_ += (hosts_.empty() ? "" : ",") + at;
        }
    }
    Words Model() const {
        return {"run", folder_ / "tiny.gguf", "-p",       "Hello there", "-n",
                "12",  "--ignore-eos",        "--greedy", "-t",          "1"};
    }
    // The answer of three ranks over TCP, or their error.
    std::string Answer(int status, const Words& more) {
        const std::string out = folder_ / "out", err = folder_ / "err";
        Words words = Inside(
            0, Model() +
                   Words{"--hosts", hosts_, "--key-file", folder_ / "key", "--transport", "tcp"} +
                   more);
        std::string line = "exec";
        for (const std::string& word : words) line += " '" + word + "'";
        Process root({"sh", "-c", line + " >" + out + " 2>" + err});
        EXPECT_EQ(root.Wait(Deadline::In(30'000)), status) << Read(err);
        return status == 0 ? Read(out) : Read(err);
    }
    static std::string Read(const std::string& path) {
        std::ifstream file(path);
        return std::string(std::istreambuf_iterator<char>(file), {});
    }
    Words Tensor(const Words& more = {}) const {
        return Words{"--tp", std::to_string(1 + workers_.size())} + more;
    }
    void ExpectTheAnswerOfOne(const Words& more = {}) { ExpectTheAnswerOfOneWith(Tensor(more)); }
    void ExpectTheAnswerOfOneWith(const Words& words) {
        const support::Ran one = support::RunWeft(Model());
        ASSERT_EQ(one.status, 0) << one.err;
        EXPECT_EQ(Answer(0, words), one.out);
    }
    // A switch that joins all hosts for control messages, and cables 0 - 1 - 2 - 3.
    void MakeChain() {
        In(0, "link add control type bridge");
        In(0, "link set control up");
        Address(0, "control", "10.9.0.1/24");
        for (int host = 1; host < kHosts; ++host) {
            In(host,
               fmt::format("link add control type veth peer name to{} netns {}", host, Name(0)));
            In(0, fmt::format("link set to{} master control", host));
            In(0, fmt::format("link set to{} up", host));
            In(host, "link set control up");
            Address(host, "control", fmt::format("10.9.0.{}/24", host + 1));
            Cable(host - 1, host, fmt::format("c{}", host), fmt::format("10.0.{}", host));
        }
        StartWorkers({"10.9.0.2", "10.9.0.3", "10.9.0.4"});
    }

    int made_ = 0;
    test::TempDir folder_;
    std::string hosts_;
    std::vector<std::unique_ptr<Process>> workers_;
};

TEST_F(Cabling, ACableBetweenEachPairAndNoSwitch) {
    Cable(0, 1, "c01", "10.0.1");
    Cable(0, 2, "c02", "10.0.2");
    Cable(1, 2, "c12", "10.0.12");
    StartWorkers({"10.0.1.2", "10.0.2.3"});
    ExpectTheAnswerOfOne();
}

TEST_F(Cabling, OverIPv6Alone) {
    for (const auto& [a, b] : std::vector<std::pair<int, int>>{{0, 1}, {0, 2}, {1, 2}}) {
        const std::string name = fmt::format("c{}{}", a, b);
        Cable(a, b, name, "");
        for (const int host : {a, b}) {
            Address(host, name, fmt::format("fd00:{}{}::{}/64", a, b, host + 1));
        }
    }
    StartWorkers({"[fd00:01::2]", "[fd00:02::3]"});
    ExpectTheAnswerOfOne();
}

// The cable between hosts 1 and 2 has no assigned address; the kernel's link-local ones suffice.
TEST_F(Cabling, ACableWithLinkLocalAddressesAlone) {
    Cable(0, 1, "c01", "10.0.1");
    Cable(0, 2, "c02", "10.0.2");
    Cable(1, 2, "c12", "");
    StartWorkers({"10.0.1.2", "10.0.2.3"});
    for (const int host : {1, 2}) AwaitLinkLocal(host);
    ExpectTheAnswerOfOne({"--timeout-ms", "8000"});
}

// As on hosts with containers: each has a bridge with the same address; also unreachable addresses,
// and interfaces that are down.
TEST_F(Cabling, AddressesThatLeadNowhereAreNoWay) {
    Cable(0, 1, "c01", "10.0.1");
    Cable(0, 2, "c02", "10.0.2");
    Cable(1, 2, "c12", "10.0.12");
    for (int host = 0; host < kHosts; ++host) {
        In(host, "link add docker0 type bridge");
        In(host, "link set docker0 up");
        Address(host, "docker0", "172.17.0.1/16");
        Nowhere(host, "vpn0", "10.8.0.1/24");
        // The hosts are in one subnet, but no cable connects them.
        Nowhere(host, "apart0", fmt::format("192.168.9.{}/24", host + 1));
        In(host, "link add down0 type veth peer name down0x");
        Address(host, "down0", fmt::format("192.168.1.{}/24", host + 1));
    }
    StartWorkers({"10.0.1.2", "10.0.2.3"});
    ExpectTheAnswerOfOne({"--timeout-ms", "10000"});
}

TEST_F(Cabling, TheDataNetIsChosenOrNamedWhereItIsNot) {
    Cable(0, 1, "lan", "10.0.1");
    Cable(0, 1, "fast", "10.0.9");
    const auto bytes_over_fast = [&] {
        std::ifstream file("/proc/self/net/dev");
        Process cat(
            {"ip", "netns", "exec", Name(0), "cat", "/sys/class/net/fast/statistics/tx_bytes"});
        EXPECT_EQ(cat.Wait(Deadline::In(5000)), 0);
        return std::atoll(cat.output().c_str());
    };
    StartWorkers({"10.0.1.2"});
    for (const char* net : {"fast", "10.0.9.0/24", "10.7.0.0/16,fast"}) {
        const int64_t before = bytes_over_fast();
        ExpectTheAnswerOfOne({"--data-net", net});
        EXPECT_GT(bytes_over_fast(), before + 20'000) << net;
    }
    const int64_t before = bytes_over_fast();
    ExpectTheAnswerOfOne({"--data-net", "lan"});
    EXPECT_LT(bytes_over_fast(), before + 20'000);
    const std::string nowhere = Answer(1, Tensor({"--data-net", "10.7.0.0/16"}));
    EXPECT_NE(nowhere.find("--data-net 10.7.0.0/16: this host has no such address. It has: "),
              std::string::npos)
        << nowhere;
    // Either rank may report first.
    EXPECT_TRUE(nowhere.find("10.0.9.1/24 on fast") != std::string::npos ||
                nowhere.find("10.0.9.2/24 on fast") != std::string::npos)
        << nowhere;
    EXPECT_NE(Answer(2, Tensor({"--data-net", "10.7.0.0/99"})).find("expected networks such as"),
              std::string::npos);
}

// The named network is found among many, such as those of containers; so is a routed address on the
// loopback device.
TEST_F(Cabling, TheDataNetIsFoundAmongManyAndOnTheLoopbackDevice) {
    Cable(0, 1, "c01", "10.0.1");
    for (int i = 0; i < 17; ++i) {
        for (const int host : {0, 1}) {
            Nowhere(host, fmt::format("n{}", i), fmt::format("10.{}.{}.1/24", 100 + host, i));
        }
    }
    for (const int host : {0, 1}) {
        Address(host, "c01", fmt::format("fd00:1::{}/64", host + 1));
        Address(host, "lo", fmt::format("10.255.0.{}/32", host + 1));
        In(host, fmt::format("route add 10.255.0.{}/32 via 10.0.1.{}", 2 - host, 2 - host));
    }
    StartWorkers({"10.0.1.2"});
    for (const char* net : {"fd00:1::/64", "10.255.0.0/16", "lo"}) {
        ExpectTheAnswerOfOne({"--data-net", net});
    }
}

// Without a path, the error lists the addresses that were tried.
TEST_F(Cabling, APairWithoutACableIsNamedWithWhatWasTried) {
    Cable(0, 1, "c01", "10.0.1");
    Cable(0, 2, "c02", "10.0.2");
    for (const int host : {1, 2}) In(host, "link set lo up");
    // (A confirmed link-local address is offered, too, but no host answers at it.)
    for (const int host : {1, 2}) AwaitLinkLocal(host);
    StartWorkers({"10.0.1.2", "10.0.2.3"});
    const std::string said = Answer(3, Tensor({"--timeout-ms", "4000"}));
    EXPECT_NE(said.find("cannot connect to 10.0.1.2:"), std::string::npos) << said;
    EXPECT_NE(said.find("--data-net"), std::string::npos) << said;
}

// Stages need links between neighbors only. The last stage returns its answers over the control
// network.
TEST_F(Cabling, AChainOfFourHostsRunsAPipeline) {
    MakeChain();
    const Words data = {"--data-net", "10.0.0.0/16", "--timeout-ms", "4000"};
    ExpectTheAnswerOfOneWith(Words{"--pp", "4"} + data);
    // An open layout becomes the one that the cables allow.
    ExpectTheAnswerOfOneWith(data);
    const std::string said = Answer(3, Words{"--tp", "4"} + data);
    EXPECT_TRUE(
        std::regex_search(said, std::regex("rank \\d \\(host 10\\.9\\.0\\.\\d.* cannot reach "
                                           "rank \\d \\(host ")))
        << said;
    EXPECT_NE(said.find("--pp 4 works, because pipeline stages need links between consecutive "
                        "ranks only."),
              std::string::npos)
        << said;
}

// The user named the hosts in an order that differs from that of the cables.
TEST_F(Cabling, AnOrderInWhichAPipelineStartsIsNamed) {
    MakeChain();
    hosts_ = "10.9.0.2:7000,10.9.0.4:7000,10.9.0.3:7000";
    const std::string said =
        Answer(3, {"--pp", "4", "--data-net", "10.0.0.0/16", "--timeout-ms", "4000"});
    EXPECT_TRUE(std::regex_search(
        said, std::regex("--pp 4 works with the hosts in the order [^,]*, 10\\.9\\.0\\.2, "
                         "10\\.9\\.0\\.3, 10\\.9\\.0\\.4, because")))
        << said;
}

}  // namespace
}  // namespace weft::cluster
