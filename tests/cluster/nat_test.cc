// Hosts behind NAT, behind forwarded ports, and behind a firewall. Network namespaces are hosts and
// routers on a bridged network. Needs root, ip(8) and iptables(8); else skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::cluster {
namespace {

using support::operator+;
using support::Words;
using test::Process;

constexpr int kFails = -2;  // 1 or 3: depends on which of two ranks reports first

bool Done(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

class BehindNat : public ::testing::Test {
  protected:
    void SetUp() override {
        if (::geteuid() != 0 || !Done("ip -V") || !Done("iptables --version") || !Add("lan") ||
            !Done(In("lan") + "iptables -t nat -L")) {
            GTEST_SKIP() << "needs root, network namespaces and iptables: addresses_test and "
                            "offer tests cover the choice of who dials whom";
        }
        Run("lan", "ip link add br0 type bridge");
        Run("lan", "ip link set br0 up");
        const std::string_view key = "a-shared-key-of-the-tests";
        ASSERT_TRUE(WriteFile(folder_ / "key", std::as_bytes(std::span(key))).ok());
        ::chmod((folder_ / "key").c_str(), 0600);
        support::WriteTinyGguf(folder_ / "tiny.gguf",
                               {.hyper = support::OddHyper(), .dtype = DType::kQ8_0});
    }
    void TearDown() override {
        workers_.clear();
        for (const std::string& name : made_) Done("ip netns del " + Name(name));
    }

    static std::string Name(const std::string& host) {
        return fmt::format("weftn{}-{}", ::getpid(), host);
    }
    static std::string In(const std::string& host) { return "ip netns exec " + Name(host) + " "; }
    static void Run(const std::string& host, const std::string& words) {
        EXPECT_TRUE(Done(In(host) + words)) << host << ": " << words;
    }
    bool Add(const std::string& host) {
        if (!Done("ip netns add " + Name(host))) return false;
        made_.push_back(host);
        return Done(In(host) + "ip link set lo up");
    }
    // A host (or router) with an interface `eth0` on the network, 10.9.0.N.
    void OnLan(const std::string& host, int number) {
        ASSERT_TRUE(Add(host));
        Run("lan",
            fmt::format("ip link add v{} type veth peer name eth0 netns {}", number, Name(host)));
        Run("lan", fmt::format("ip link set v{} master br0 up", number));
        Run(host, "ip link set eth0 up");
        Run(host, fmt::format("ip addr add 10.9.0.{}/24 dev eth0", number));
    }
    // A host 192.168.7.2 behind its own router, which is 10.9.0.N on the network. Every such host
    // has the same address.
    void BehindRouter(const std::string& host, const std::string& router, int number) {
        OnLan(router, number);
        ASSERT_TRUE(Add(host));
        Run(router, fmt::format("ip link add in0 type veth peer name eth0 netns {}", Name(host)));
        Run(router, "ip link set in0 up");
        Run(router, "ip addr add 192.168.7.1/24 dev in0");
        Run(router, "sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'");
        Run(router, "iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE");
        Run(host, "ip link set eth0 up");
        Run(host, "ip addr add 192.168.7.2/24 dev eth0");
        Run(host, "ip route add default via 192.168.7.1");
    }
    // Forwards these ports of the router to its host, as `podman run -p` does.
    static void Forward(const std::string& router, const std::string& ports) {
        Run(router, "iptables -t nat -A PREROUTING -i eth0 -p tcp --dport " + ports +
                        " -j DNAT --to-destination 192.168.7.2");
    }

    static Words Inside(const std::string& host, const Words& words) {
        return Words{"ip", "netns", "exec", Name(host), support::WeftProgram()} + words;
    }
    void Worker(const std::string& host, const Words& more) {
        workers_.push_back(std::make_unique<Process>(
            Inside(host, Words{"worker", "--key-file", folder_ / "key"} + more)));
    }
    Words Model() const {
        return {"run", folder_ / "tiny.gguf", "-p",       "Hello there", "-n",
                "12",  "--ignore-eos",        "--greedy", "-t",          "1"};
    }
    // Output of rank 0 on `host`, ending with its answer.
    std::string Answer(const std::string& host, int status, const Words& more) {
        Process root(Inside(host, Model() +
                                      Words{"--key-file", folder_ / "key", "--transport", "tcp",
                                            "--timeout-ms", "8000", "-v"} +
                                      more));
        const int ended = root.Wait(Deadline::In(60'000));
        const bool as_said = status == kFails ? ended == 1 || ended == 3 : ended == status;
        EXPECT_TRUE(as_said) << ended << root.output();
        return root.output();
    }
    void ExpectTheAnswerOfOne(const std::string& host, const Words& more) {
        const support::Ran one = support::RunWeft(Model());
        ASSERT_EQ(one.status, 0) << one.err;
        const std::string said = Answer(host, 0, more);
        EXPECT_NE(said.find(one.out.substr(0, one.out.find('\n'))), std::string::npos) << said;
    }

    test::TempDir folder_;
    std::vector<std::string> made_;
    std::vector<std::unique_ptr<Process>> workers_;
};

// Rank 2 could not dial rank 1, so rank 1 dials rank 2.
TEST_F(BehindNat, UnreachableWorkerDialsTheOthers) {
    OnLan("root", 1);
    BehindRouter("hidden", "router", 2);
    OnLan("open", 3);
    Worker("hidden", {"--join", "10.9.0.1", "--rank", "1"});
    Worker("open", {"--join", "10.9.0.1", "--rank", "2"});
    const Words words = {"--expect-workers", "2", "--tp", "3"};
    ExpectTheAnswerOfOne("root", words);
    const std::string said = Answer("root", 0, words);
    // Lines that name links and interfaces.
    EXPECT_NE(said.find(": tcp, encrypted, 10.9.0.1 (eth0) - 192.168.7.2 (eth0)"),
              std::string::npos)
        << said;
    EXPECT_NE(said.find(": tcp, encrypted, 192.168.7.2 (eth0) - 10.9.0.3 (eth0)"),
              std::string::npos)
        << said;
}

// Two NATs with equal addresses behind them: one of the two needs forwarded ports.
TEST_F(BehindNat, TwoUnreachableWorkersNeedForwardedPorts) {
    OnLan("root", 1);
    BehindRouter("one", "router1", 2);
    BehindRouter("two", "router2", 3);
    Worker("one", {"--join", "10.9.0.1", "--rank", "1"});
    Worker("two", {"--join", "10.9.0.1", "--rank", "2"});
    const std::string said = Answer("root", 3, {"--expect-workers", "2", "--tp", "3"});
    EXPECT_NE(said.find("behind NAT"), std::string::npos) << said;
    EXPECT_NE(said.find("--data-ports A-B"), std::string::npos) << said;
    // With named ports, rank 0 uses the address that it sees.
    workers_.clear();
    Forward("router1", "7001:7004");
    Worker("one", {"--join", "10.9.0.1", "--rank", "1", "--data-ports", "7001-7004"});
    Worker("two", {"--join", "10.9.0.1", "--rank", "2"});
    ExpectTheAnswerOfOne("root", {"--expect-workers", "2", "--tp", "3"});
}

// As in a container with published ports.
TEST_F(BehindNat, RankZeroBehindForwardedPortsIsDialledByTheAddressThatWorkersUse) {
    BehindRouter("root", "router", 1);
    Forward("router", "7000:7004");
    OnLan("a", 2);
    OnLan("b", 3);
    Worker("a", {"--join", "10.9.0.1"});
    Worker("b", {"--join", "10.9.0.1"});
    ExpectTheAnswerOfOne("root",
                         {"--expect-workers", "2", "--tp", "3", "--data-ports", "7001-7004"});
}

TEST_F(BehindNat, ListeningWorkerBehindForwardedPortsAdvertisesItsAddress) {
    OnLan("root", 1);
    BehindRouter("box", "router", 2);
    Forward("router", "7000:7004");
    OnLan("c", 3);
    Worker("box", {"--listen", "0.0.0.0", "--data-ports", "7001-7004", "--advertise", "10.9.0.2"});
    Worker("c", {"--listen", "0.0.0.0"});
    for (const auto& worker : workers_) {
        ASSERT_TRUE(worker->ReadUntil("listening", Deadline::In(20'000))) << worker->output();
    }
    ExpectTheAnswerOfOne("root", {"--hosts", "10.9.0.2,10.9.0.3", "--tp", "3"});
}

// A firewall that admits two ports.
TEST_F(BehindNat, DataTakeThePortsThatTheFirewallLeavesOpen) {
    OnLan("root", 1);
    OnLan("a", 2);
    Worker("a", {"--listen", "0.0.0.0"});
    ASSERT_TRUE(workers_[0]->ReadUntil("listening", Deadline::In(20'000)));
    for (const char* host : {"root", "a"}) {
        Run(host, "iptables -A INPUT -p tcp --dport 7000:7001 -j ACCEPT");
        Run(host, "iptables -A INPUT -p tcp --syn -j DROP");
    }
    const Words words = {"--hosts", "10.9.0.2", "--tp", "2"};
    const std::string blocked = Answer("root", kFails, words);
    EXPECT_NE(blocked.find("cannot connect to 10.9.0.1:"), std::string::npos) << blocked;
    ExpectTheAnswerOfOne("root", words + Words{"--data-ports", "7001"});
    // One port that another program has.
    Process taken(Words{"ip", "netns", "exec", Name("root"), "python3", "-c",
                        "import socket, time\ns = socket.create_server(('10.9.0.1', 7001))\n"
                        "print('taken', flush=True)\ns.accept()"});
    ASSERT_TRUE(taken.ReadUntil("taken", Deadline::In(20'000)));
    const std::string none = Answer("root", 1, words + Words{"--data-ports", "7001"});
    EXPECT_NE(none.find("no port of --data-ports 7001-7001 is free for rank 0"), std::string::npos)
        << none;
}

}  // namespace
}  // namespace weft::cluster
