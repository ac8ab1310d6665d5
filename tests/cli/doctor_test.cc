// weft doctor as a program: JSON, exit status, snapshots, and hosts over a stand-in for ssh.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/deadline.h"
#include "support/paths.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

using nlohmann::json;

const std::string kData = support::TestData("/../doctor/data/");

// The worst severity of the findings of `check`; "": none.
std::string Worst(const json& findings, const std::string& check) {
    const std::vector<std::string> order = {"ok", "note", "warn", "fail"};
    int worst = -1;
    for (const json& finding : findings["findings"]) {
        if (finding["check"] != check) continue;
        const auto at = std::ranges::find(order, finding["severity"].get<std::string>());
        worst = std::max(worst, static_cast<int>(at - order.begin()));
    }
    return worst < 0 ? "" : order.at(static_cast<size_t>(worst));
}

TEST(Doctor, JsonIsAContract) {
    const Ran ran = RunWeft({"doctor", "--from", kData + "pcie-link/bad-x4-in-x16.txt", "--json"});
    EXPECT_EQ(ran.status, 1) << ran.err;
    const json j = ran.Json();
    ASSERT_TRUE(j["findings"].is_array());
    for (const json& finding : j["findings"]) {
        std::set<std::string> keys;
        for (const auto& [key, value] : finding.items()) {
            keys.insert(key);
            EXPECT_EQ(value.is_string(), key != "cost");
        }
        keys.erase("cost");  // present only if a cost is known
        EXPECT_EQ(keys, (std::set<std::string>{"check", "severity", "host", "read", "expected",
                                               "why", "fix"}));
    }
    EXPECT_EQ(Worst(j, "pcie-link"), "fail");
}

// Holds for any machine.
TEST(Doctor, StatusFollowsFromTheFindings) {
    const Ran ran = RunWeft({"doctor", "--json"});
    const json j = ran.Json();
    const bool fails = std::ranges::any_of(
        j["findings"], [](const json& finding) { return finding["severity"] == "fail"; });
    EXPECT_EQ(ran.status, fails ? 1 : 0) << ran.out;
    EXPECT_NE(Worst(j, "measured"), "") << ran.out;
    EXPECT_LE(ran.seconds, test::LimitSeconds(20));
}

TEST(Doctor, SaveAndLookAgain) {
    test::TempDir dir;
    const std::string tar = dir / "snap.tar";
    const Ran saved = RunWeft({"doctor", "--save", tar, "--no-measure"});
    ASSERT_EQ(saved.status, 0) << saved.err;
    const Ran to_stdout = RunWeft({"doctor", "--save", "-", "--no-measure"});
    EXPECT_EQ(to_stdout.status, 0) << to_stdout.err;
    EXPECT_EQ(to_stdout.out.size() % 512, 0u);
    const Ran looked = RunWeft({"doctor", "--from", tar, "--json"});
    EXPECT_LE(looked.status, 1) << looked.err;
    EXPECT_GT(looked.Json()["findings"].size(), 3u);
}

// A user sees the archive's contents before sending it.
TEST(Doctor, SaveListsItsContent) {
    test::TempDir dir;
    const std::string both = dir / "both";
    const std::string command = fmt::format(
        "'{}' doctor --save - --no-measure --check swap >'{}' "
        "2>&1",
        WeftProgram(), both);
    ASSERT_EQ(std::system(command.c_str()), 0);
    std::ifstream file(both, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_TRUE(text.starts_with("The snapshot holds")) << text.substr(0, 200);
    EXPECT_LT(text.find("proc/meminfo"), text.find("ustar"));
    const Ran named = RunWeft({"doctor", "--save", dir / "a b.tar", "--no-measure"});
    EXPECT_NE(named.out.find("weft doctor --from '" + dir.path() + "/a b.tar'\n"),
              std::string::npos)
        << named.out;
}

// Programs of this machine print secrets: the archive contains none of them, and its contents are
// listed.
TEST(Doctor, SaveLeavesSecretsOut) {
    test::TempDir dir;
    const std::string bin = dir / "bin";
    std::filesystem::create_directory(bin);
    const auto program = [&](const std::string& name, const std::string& says) {
        const std::string path = bin + "/" + name;
        std::ofstream(path) << "#!/bin/sh\ncat <<'EOF'\n" << says << "\nEOF\n";
        ::chmod(path.c_str(), 0755);
    };
    program("dmesg",
            "[    1.0] user alice hf_SECRETtoken\n[    2.0] mlx4_core 0000:01:00.0: High "
            "Temperature alice e41d2d9a67b1");
    program("nft",
            "table inet f {\n\tchain input {\n\t\ttype filter hook input priority 0; policy "
            "accept;\n\t\ttcp dport 22 accept comment \"alice hf_SECRETtoken\"\n\t}\n}");
    program("iptables", "-P INPUT ACCEPT\n-A INPUT -m comment --comment \"alice\" -j ACCEPT");
    program("lspci",
            "01:00.0 Network controller: Mellanox Technologies MT27500 Family "
            "[ConnectX-3]\n\t\t\t[V3] Vendor specific: e41d2d9a67b1 alice");
    program("ip",
            "[{\"ifname\":\"enxe41d2d9a67b1\",\"address\":\"e4:1d:2d:9a:67:b1\","
            "\"addr_info\":[{\"family\":\"inet\",\"local\":\"203.0.113.77\","
            "\"prefixlen\":24},{\"family\":\"inet6\",\"local\":\"2001:db8:77::1\"}]}]");
    const std::string tar = dir / "snap.tar";
    const std::string path = "PATH=" + bin + ":" + std::getenv("PATH");
    const Ran saved = RunWeft({"doctor", "--save", tar, "--no-measure"},
                              {path, "HF_TOKEN=hf_SECRETtoken", "WEFT_KEY=weftKEYsecret"});
    ASSERT_EQ(saved.status, 0) << saved.err;
    EXPECT_NE(saved.out.find("cmd/nft_list_ruleset"), std::string::npos) << saved.out;
    std::ifstream file(tar, std::ios::binary);
    const std::string archive{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(archive.find("High Temperature"), std::string::npos);
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    for (const std::string& secret :
         {std::string("alice"), std::string("SECRET"), std::string("e41d2d9a67b1"),
          std::string("e4:1d"), std::string("203.0.113"), std::string("2001:db8"),
          std::string(name.data())}) {
        if (secret.size() < 4) continue;  // a short host name may occur within any word
        EXPECT_EQ(archive.find(secret), std::string::npos) << secret;
    }
}

TEST(Doctor, TwoHostsOfOneNameStayTwo) {
    test::TempDir dir;
    for (const char* folder : {"a", "b"}) {
        std::filesystem::create_directories(dir / folder + "/probe");
        std::filesystem::create_directories(dir / folder + "/proc");
        std::ofstream(dir / folder + "/probe/hostname") << "node\n";
        std::ofstream(dir / folder + "/proc/meminfo") << "SwapTotal: 0 kB\nSwapFree: 0 kB\n";
    }
    const json j = RunWeft({"doctor", "--from", dir / "a", "--from", dir / "b", "--json"}).Json();
    EXPECT_EQ(RunWeft({"doctor", "--from", dir / "a", dir / "b", "--json"}).Json(), j);
    std::set<std::string> hosts;
    for (const json& finding : j["findings"]) {
        if (finding["check"] == "swap") hosts.insert(finding["host"].get<std::string>());
    }
    EXPECT_EQ(hosts,
              (std::set<std::string>{"node (" + (dir / "a") + ")", "node (" + (dir / "b") + ")"}));
}

TEST(Doctor, ChecksCanBeChosenAndIgnored) {
    const Words from = {"doctor", "--from", kData + "swap/bad.txt", "--json"};
    const json one = RunWeft(from + Words{"--check", "swap"}).Json();
    ASSERT_EQ(one["findings"].size(), 1u);
    EXPECT_EQ(one["findings"][0]["severity"], "warn");
    const json noted = RunWeft(from + Words{"--check", "swap", "--ignore", "swap"}).Json();
    EXPECT_EQ(noted["findings"][0]["severity"], "note");
    const Ran ignored = RunWeft(from + Words{"--ignore", "swop"});
    EXPECT_EQ(ignored.status, 2);
    EXPECT_NE(ignored.err.find("--ignore swop: no such check"), ignored.err.npos) << ignored.err;
    EXPECT_NE(ignored.err.find("pcie-link, "), ignored.err.npos) << ignored.err;
    const Ran unknown = RunWeft(from + Words{"--check", "no-such"});
    EXPECT_EQ(unknown.status, 2);
    const Ran nothing = RunWeft(from + Words{"--check", "rdma-gid"});
    EXPECT_EQ(Worst(nothing.Json(), "rdma-gid"), "note");
    EXPECT_EQ(RunWeft({"doctor", "--from", "/no/such/file"}).status, 1);
    EXPECT_EQ(RunWeft({"doctor", "--save", "x", "--from", kData}).status, 2);
}

TEST(Doctor, TextNamesWhatWasRead) {
    const Ran ran = RunWeft({"doctor", "--from", kData + "memlock/bad.txt"});
    EXPECT_EQ(ran.status, 1);
    for (const char* word : {"FAIL", "memlock", "refused at 67108864", "expected", "why", "fix"}) {
        EXPECT_NE(ran.out.find(word), std::string::npos) << word << ran.out;
    }
    EXPECT_EQ(ran.out.find('\033'), std::string::npos);
}

TEST(Doctor, ListExplainsAll) {
    const Ran ran = RunWeft({"doctor", "--list"});
    EXPECT_EQ(ran.status, 0);
    const json list = RunWeft({"doctor", "--list", "--json"}).Json();
    EXPECT_GE(list["checks"].size(), 50u);
    for (const json& check : list["checks"]) {
        EXPECT_NE(ran.out.find(check["check"].get<std::string>()), std::string::npos);
    }
}

// A fake ssh on PATH: the last argument is the command, the one before it the host.
class DoctorHosts : public testing::Test {
  protected:
    void SetUp() override {
        std::ofstream(dir_ / "ssh") << fmt::format(R"(#!/bin/sh
for word; do before=$last; last=$word; done
test "$1" != -G || {{ echo "user x
hostname 127.0.0.1
port 22"; exit 0; }}
case $before in
    down) echo "ssh: connect to host down port 22: No route to host" >&2; exit 255 ;;
    stuck) exec sleep infinity ;;
    garbage) head -c 4000 /dev/urandom ;;
    silent) ;;
    banner) echo; printf 'This is no archive: ustar. \033[2J%02000d\n' 0 ;;
    kex) echo "ssh_dispatch_run_fatal: Connection to kex port 22: Connection timed out" >&2
         exit 255 ;;
    *) case $last in
        date*) sh -c "$last" ;;
        *ping*) PATH={0}/bin-$before:$PATH sh -c "$last" ;;
        *--model-content*) cd {0}/files-$before && sh -c "$last" ;;
        *--reach*) echo "Connection closed by $before" >&2; exit 255 ;;
        *) test $before != greeting ||
               printf 'Welcome to ustar, the star among machines. Have a lot of fun%0600d\n' 0
           sh -c "${{last%%;*}}"
           cat {0}/$before.tar
           test $before != greeting || echo "Bye" ;;
    esac ;;
esac
)",
                                                   dir_.path());
        ::chmod((dir_ / "ssh").c_str(), 0755);
    }
    static std::string Addresses(const std::string& address) {
        return R"([{"ifname":"e1","mtu":9000,"operstate":"UP","addr_info":[{"family":"inet",)"
               R"("local":")" +
               address + R"(","prefixlen":24}]}])";
    }
    void AddHost(const std::string& name, const std::map<std::string, std::string>& files) {
        namespace fs = std::filesystem;
        for (const auto& [path, text] : files) {
            const fs::path file = fs::path(dir_ / name) / path;
            fs::create_directories(file.parent_path());
            std::ofstream(file) << text << "\n";
        }
        const std::string command =
            fmt::format("tar -C {0}/{1} -cf {0}/{1}.tar .", dir_.path(), name);
        ASSERT_EQ(std::system(command.c_str()), 0);
    }
    Ran Run(const Words& arguments) {
        return RunWeft(Words{"doctor", "--json", "--timeout-ms", "1500"} + arguments,
                       {"PATH=" + dir_.path() + ":/usr/bin:/bin"});
    }
    test::TempDir dir_;
};

// Facts about a host, as the tar that the host would send.
TEST_F(DoctorHosts, AreComparedWithEachOther) {
    for (const std::string name : {"a", "b"}) {
        AddHost(name, {{"proc/sys/kernel/osrelease", name == "a" ? "6.14.0" : "6.19.0"},
                       {"cmd/ip_-j_addr", Addresses(name == "a" ? "10.0.0.1" : "10.0.0.2")}});
    }
    std::filesystem::create_directories(dir_ / "bin-a");
    std::ofstream(dir_ / "bin-a/ping") << "#!/bin/sh\n"
                                          "test \"$8 $9\" = '548 10.0.0.2' && lost=0\n"
                                          "echo \"1 packets, ${lost-100}% packet loss\"\n"
                                          "exit ${lost-1}\n";
    ::chmod((dir_ / "bin-a/ping").c_str(), 0755);
    const Ran ran = Run({"--hosts", "a:7000,b"});
    EXPECT_EQ(ran.status, 1) << ran.err;
    const json j = ran.Json();
    EXPECT_EQ(Worst(j, "across-kernel"), "note") << j;
    EXPECT_EQ(Worst(j, "across-clock"), "ok") << j;
    EXPECT_EQ(Worst(j, "across-mtu"), "ok") << j;
    EXPECT_EQ(Worst(j, "across-path"), "fail") << j;
    // The hosts share a subnet, but ssh failed when they were to test each other's ports.
    EXPECT_EQ(Worst(j, "across-ports"), "note") << j;
    EXPECT_NE(ran.out.find("were not tested: Connection closed by a"), std::string::npos) << j;
}

// Output of a login script is not part of the archive.
TEST_F(DoctorHosts, MayGreet) {
    AddHost("greeting", {{"proc/sys/kernel/osrelease", "6.14.0"},
                         {"proc/meminfo", "SwapTotal: 0 kB\nSwapFree: 0 kB"}});
    const Ran ran = Run({"--hosts", "greeting"});
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
    EXPECT_EQ(Worst(ran.Json(), "swap"), "ok") << ran.out;
}

// The finding of the check "reachable" about a host.
json Reachable(const json& findings, const std::string& host) {
    for (const json& finding : findings["findings"]) {
        if (finding["check"] == "reachable" && finding["host"] == host) return finding;
    }
    return {{"read", ""}, {"fix", ""}};
}

// ssh breaks off, and the path carries full-size packets (ssh_path_test.py tests one that does
// not).
TEST_F(DoctorHosts, ABrokenConnectionIsNoLossOfPackets) {
    const json whole = Run({"--hosts", "kex"}).Json();
    EXPECT_NE(Reachable(whole, "kex")["read"].get<std::string>().find("Connection timed out"),
              std::string::npos);
    EXPECT_EQ(Reachable(whole, "kex")["read"].get<std::string>().find("do not arrive"),
              std::string::npos);
}

// Output of a login script is not an archive, whatever words it contains.
TEST_F(DoctorHosts, ABannerIsNoArchive) {
    const Ran ran = Run({"--hosts", "banner,silent"});
    EXPECT_EQ(ran.status, 1);
    const json j = ran.Json();
    const std::string banner = Reachable(j, "banner")["read"];
    EXPECT_NE(banner.find("is not a snapshot, it says 'This is no archive"), std::string::npos)
        << j;
    EXPECT_EQ(banner.find('\033'), std::string::npos);
    const std::string silent = Reachable(j, "silent")["read"];
    EXPECT_NE(silent.find("it is empty"), std::string::npos) << j;
}

TEST_F(DoctorHosts, OneOfAnothersNameIsNotTheOther) {
    AddHost("a", {{"probe/hostname", "down"}, {"proc/meminfo", "SwapTotal: 0 kB\nSwapFree: 0 kB"}});
    const json j = Run({"--hosts", "a,down"}).Json();
    for (const json& finding : j["findings"]) {
        const std::string check = finding["check"];
        const std::string host = finding["host"];
        if (check.starts_with("across-")) {  // also names the asking host
            EXPECT_TRUE(host.starts_with("down (a)")) << j;
            continue;
        }
        EXPECT_EQ(host, check == "reachable" ? "down" : "down (a)") << j;
    }
}

TEST_F(DoctorHosts, ThatDoNotAnswerAreNamed) {
    const Ran ran = Run({"--hosts", "down,stuck,garbage"});
    EXPECT_EQ(ran.status, 1);
    EXPECT_LE(ran.seconds, test::LimitSeconds(10));
    std::set<std::string> hosts;
    const json j = ran.Json();
    for (const json& finding : j["findings"]) {
        if (finding["check"] == "reachable") hosts.insert(finding["host"]);
    }
    EXPECT_EQ(hosts, (std::set<std::string>{"down", "stuck", "garbage"})) << ran.out;
    EXPECT_NE(ran.out.find("No route to host"), std::string::npos);
    EXPECT_EQ(Run({"--hosts", "-oProxyCommand=x"}).status, 2);
}

// ---- Models -------------------------------------------------------------------------------------

class DoctorModel : public DoctorHosts {
  protected:
    // Hosts with a folder, in which ssh runs the program.
    void Add(const std::string& host) {
        AddHost(host, {{"probe/hostname", host}});
        std::filesystem::create_directories(Folder(host));
        WriteTinyGguf(Folder(host) + "/tiny.gguf", {.hyper = TrainHyper()});
    }
    std::string Folder(const std::string& host) const { return dir_ / "files-" + host; }
    Ran Check(const std::string& model, const std::string& hosts = "") {
        Words words = {"--check", "model-files", "--model", model, "--remote", WeftProgram()};
        if (!hosts.empty()) words.insert(words.end(), {"--hosts", hosts});
        return Run(words);
    }
    // The findings as "SEVERITY HOST: READ; FIX".
    static std::string Findings(const Ran& ran) {
        std::string text;
        const json report = ran.Json();
        for (const json& finding : report["findings"]) {
            EXPECT_EQ(finding["check"], "model-files");
            text +=
                fmt::format("{} {}: {}; {}\n", finding["severity"].get<std::string>(),
                            finding["host"].get<std::string>(), finding["read"].get<std::string>(),
                            finding["fix"].get<std::string>());
        }
        return text;
    }
    static void ExpectHas(const std::string& text, const std::string& part) {
        EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks " << part;
    }
};

TEST_F(DoctorModel, CopiesOnHostsAreCompared) {
    for (const char* host : {"a", "b", "greeting"}) Add(host);
    const std::string own = Findings(Check(Folder("a") + "/tiny.gguf"));
    ExpectHas(own, "ok ");
    ExpectHas(own, "/tiny.gguf: complete, 0.00 GB in 1 file, hash ");
    // This machine lacks tiny.gguf; the hosts find it in their folders.
    Ran ran = Check("tiny.gguf", "a,b");
    EXPECT_EQ(ran.status, 0) << ran.err;
    std::string found = Findings(ran);
    ExpectHas(found, "note a, b: tiny.gguf");
    ExpectHas(found, "ok a, b: tiny.gguf: complete, 0.00 GB in 1 file, hash ");
    ExpectHas(found, ", equal on a, b;");
    std::fstream(Folder("b") + "/tiny.gguf", std::ios::in | std::ios::out)
        .seekp(-5, std::ios::end)
        .put('X');
    ran = Check("tiny.gguf", "a,b,greeting");
    EXPECT_EQ(ran.status, 1) << ran.err;
    ExpectHas(Findings(ran),
              "fail a, b, greeting: tiny.gguf on b differs from that on a, greeting: "
              "bytes 0 to ");
    ExpectHas(Findings(ran), "; 2 of 3 copies agree: copy the file again to b\n");
}

TEST_F(DoctorModel, MissingAndIncompleteFilesFail) {
    for (const char* host : {"a", "b"}) Add(host);
    std::filesystem::resize_file(Folder("a") + "/tiny.gguf", 20'000);
    std::filesystem::remove(Folder("b") + "/tiny.gguf");
    const Ran cut = Check(Folder("a") + "/tiny.gguf");
    EXPECT_EQ(cut.status, 1);
    ExpectHas(Findings(cut), "fail ");
    const Ran ran = Check("tiny.gguf", "a,b,down");
    EXPECT_EQ(ran.status, 1) << ran.err;
    const std::string all = ran.out;
    ExpectHas(all, "No such file");
    EXPECT_EQ(Worst(ran.Json(), "model-files"), "fail");
    EXPECT_EQ(Run({"--model", "m", "--from", "x.tar"}).status, 2);
    ExpectHas(Run({"--check", "model-files", "--model", "synthetic:smollm2-135m"}).out,
              "has no files");
}

// ---- Links to workers --------------------------------------------------------------------------

TEST(DoctorWorkers, LinksAreMeasuredAndAWorkerThatIsAwayFails) {
    test::TempDir dir;
    const std::string key = dir / "key";
    std::ofstream(key) << "a key for these tests only";
    ::chmod(key.c_str(), 0600);
    const Words measure = {"doctor", "--json", "--check", "across-measured", "--key-file", key};
    int port = 0;
    {
        Weft worker(Words{"worker", "--listen", "127.0.0.1:0", "--key-file", key});
        port = test::PortOf(worker);
        const Ran ran = RunWeft(
            measure + Words{"--workers", fmt::format("127.0.0.1:{}", port), "--transport", "tcp"});
        // A busy machine may be slow, but its bytes are right and both figures are present.
        EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
        const json j = ran.Json();
        ASSERT_EQ(j["findings"].size(), 1u) << j;
        for (const json& finding : j["findings"]) {
            EXPECT_EQ(finding["check"], "across-measured");
            EXPECT_NE(finding["read"].get<std::string>().find("tcp: 8 KiB one way"),
                      std::string::npos)
                << j;
        }
        ::kill(worker.pid(), SIGTERM);
    }
    const Ran gone = RunWeft(measure + Words{"--workers", fmt::format("127.0.0.1:{}", port)});
    EXPECT_EQ(gone.status, 1) << gone.err;
    EXPECT_EQ(Worst(gone.Json(), "across-measured"), "fail") << gone.out;
    EXPECT_EQ(RunWeft({"doctor", "--workers", "127.0.0.1:1"}).status, 2);
}

}  // namespace
}  // namespace weft::support
