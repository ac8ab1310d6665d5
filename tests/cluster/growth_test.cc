// A job that grows while it runs (--elastic with --wait-for): workers that dial in join between two
// steps, and whatever a newcomer does wrong leaves the others as they were. The answer is, to the
// token, that of one rank that nothing disturbed.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>

#include "base/file.h"
#include "cluster/gather.h"
#include "net/socket.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::cluster {
namespace {

using support::operator+;
using support::Ran;
using support::Weft;
using support::Words;
using test::Process;

constexpr std::string_view kGrowthKey = "a-shared-key-of-the-tests";
constexpr size_t kMoreText = 200;  // that a changed cluster has to say before it is believed

class Growth : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(WriteFile(dir_ / "key", std::as_bytes(std::span(kGrowthKey))).ok());
        ::chmod((dir_ / "key").c_str(), 0600);
        model::Hyper hyper = support::OddHyper();  // three layers
        hyper.context = 1 << 20;
        support::WriteTinyGguf(dir_ / "tiny.gguf", {.hyper = hyper, .dtype = DType::kQ8_0});
        const net::Fd fd = net::ListenTcp("127.0.0.1", 0).value();
        port_ = net::BoundPort(fd.get()).value();
    }
    // More tokens than anybody waits for: who has seen enough stops it.
    Words Command() const {
        return {"run", dir_ / "tiny.gguf", "-p", "hello", "-n", "60000", "-t", "1", "--ignore-eos"};
    }
    Words Dialled(int workers, const Words& more) const {
        return Words{"--transport",
                     "tcp",
                     "--elastic",
                     "--wait-for",
                     std::to_string(workers),
                     "--listen",
                     Address(),
                     "--key-file",
                     dir_ / "key",
                     "--timeout-ms",
                     std::to_string(test::Slower(1500))} +
               more;
    }
    std::string Address() const { return fmt::format("127.0.0.1:{}", port_); }
    std::unique_ptr<Process> Worker(const std::string& folder = "/") const {
        return std::make_unique<Process>(Words{"sh", "-c", "cd \"$0\" && exec \"$@\"", folder,
                                               support::WeftProgram(), "worker", "--join",
                                               Address(), "--key-file", dir_ / "key"});
    }
    static bool Until(const std::function<bool()>& ready) {
        test::LenientDeadline deadline(Deadline::In(60'000));
        while (!ready() && !deadline.expired()) ::usleep(1000);
        return ready();
    }
    // It says so, and then goes on answering.
    static bool UntilSaid(const Weft& root, const std::string& line) {
        if (!Until([&] { return root.Err().find(line) != std::string::npos; })) return false;
        const size_t so_far = root.Out().size();
        return Until([&] { return root.Out().size() > so_far + kMoreText; });
    }
    // What it has said so far is what one rank says.
    void ExpectTheAnswerOfOne(Weft& root) {
        ::kill(root.pid(), SIGINT);
        const Ran ran = root.Wait();
        EXPECT_EQ(ran.status, 130) << ran.err;
        Weft one(Command());
        ASSERT_TRUE(Until([&] { return one.Out().size() >= ran.out.size(); })) << one.Err();
        // (The last bytes are how it was stopped.)
        const size_t common = ran.out.size() - 1;
        ASSERT_GT(common, kMoreText);
        EXPECT_EQ(ran.out.substr(0, common), one.Out().substr(0, common)) << ran.err;
    }

    test::TempDir dir_;
    uint16_t port_ = 0;
};

TEST_F(Growth, WorkersThatDialInJoinAndLeaveAndJoinAgain) {
    const auto first = Worker();
    Weft root(Command() + Dialled(1, {"--tp", "2", "--rejoin-ms", "100"}));
    ASSERT_TRUE(Until([&] { return root.Out().size() > 20; })) << root.Err();
    auto second = Worker();
    ASSERT_TRUE(UntilSaid(root, " joins; epoch 2 with 3 ranks after ")) << root.Err();
    const auto children = test::ChildrenOf(second->pid());
    second->Signal(SIGKILL);
    for (const pid_t child : children) ::kill(child, SIGKILL);
    ASSERT_TRUE(UntilSaid(root, "; epoch 3 with 2 ranks after ")) << root.Err();
    second = Worker();
    ASSERT_TRUE(UntilSaid(root, " joins; epoch 4 with 3 ranks after ")) << root.Err();
    EXPECT_EQ(root.Err().find("could not join"), std::string::npos) << root.Err();
    ExpectTheAnswerOfOne(root);
}

// Stages stay stages; the fourth rank would have no layer.
TEST_F(Growth, WhomTheModelHasNoRoomForWaitsAndIsTheNextToTakeAPlace) {
    const auto first = Worker();
    Weft root(Command() + Dialled(1, {"--tp", "1", "--pp", "2", "--rejoin-ms", "60000"}));
    ASSERT_TRUE(Until([&] { return root.Out().size() > 20; })) << root.Err();
    const auto second = Worker(), third = Worker();
    ASSERT_TRUE(UntilSaid(root, " joins; epoch 2 with 3 ranks after ")) << root.Err();
    ASSERT_TRUE(UntilSaid(root, "waits to join, but the model cannot be cut for 4 ranks: "))
        << root.Err();
    const auto children = test::ChildrenOf(first->pid());
    first->Signal(SIGKILL);
    for (const pid_t child : children) ::kill(child, SIGKILL);
    ASSERT_TRUE(UntilSaid(root, "; epoch 3 with 3 ranks after ")) << root.Err();
    EXPECT_NE(root.Err().find(") takes the place of rank 1"), std::string::npos) << root.Err();
    ExpectTheAnswerOfOne(root);
}

// One that lacks the model: the others go on as before, and it hears why.
TEST_F(Growth, ANewcomerWithAFaultOfItsOwnIsLeftAgain) {
    const std::string here = dir_ / "";
    const auto first = Worker(here);
    const Words words = Command() + Dialled(1, {"--tp", "2"});
    Words in_folder = {"sh", "-c", "cd \"$0\" && exec \"$@\" 2>err", here, support::WeftProgram()};
    in_folder = in_folder + words;
    in_folder[6] = "tiny.gguf";
    Process root(in_folder);
    const auto err = [&] {
        const auto text = ReadTextFile(dir_ / "err", 1 << 20);
        return text.ok() ? *text : std::string();
    };
    const auto said = [&](const std::string& line) {
        return Until([&] { return err().find(line) != std::string::npos; });
    };
    ASSERT_TRUE(said("1 of 1 workers are here")) << err();
    const auto second = Worker();
    ASSERT_TRUE(said(") could not join: rank 2 (host ")) << err();
    ASSERT_TRUE(said("; epoch 3 with 2 ranks after ")) << err();
    EXPECT_NE(err().find("tiny.gguf"), std::string::npos) << err();
    EXPECT_TRUE(second->ReadUntil("was given up by rank 0", Deadline::In(20'000)))
        << second->output();
    EXPECT_FALSE(test::IsGone(root.pid()));
}

// Who knows the key, joins, and then says nothing, or hangs up.
TEST_F(Growth, ANewcomerThatIsSilentOrLeavesIsLeftAgain) {
    for (const bool silent : {true, false}) {
        const auto first = Worker();
        Weft root(Command() + Dialled(1, {"--tp", "2"}));
        ASSERT_TRUE(Until([&] { return root.Out().size() > 20; })) << root.Err();
        auto fd = net::DialTcp("127.0.0.1", port_, Deadline::In(5000));
        ASSERT_TRUE(fd.ok());
        const auto bytes = std::as_bytes(std::span(kGrowthKey));
        auto knocked = ProveRank(std::move(*fd), 0, 0, Bytes(bytes.begin(), bytes.end()),
                                 Deadline::In(10'000));
        ASSERT_TRUE(knocked.ok()) << knocked.error().message;
        // Its assignment is the first that comes.
        pollfd entry{knocked->fd.get(), POLLIN, 0};
        ASSERT_GT(::poll(&entry, 1, 60'000), 0) << root.Err();
        if (!silent) knocked = MakeError(ErrorCode::kIo, "hung up");
        ASSERT_TRUE(UntilSaid(root, "; epoch 3 with 2 ranks after ")) << root.Err();
        EXPECT_NE(root.Err().find(") could not join: "), std::string::npos) << root.Err();
        ExpectTheAnswerOfOne(root);
    }
}

// A user who asks for the end while ranks join gets it.
TEST_F(Growth, AStopWhileRanksJoinEndsAllAtOnce) {
    const auto first = Worker();
    Weft root(Command() + Dialled(1, {"--tp", "2"}));
    ASSERT_TRUE(Until([&] { return root.Out().size() > 20; })) << root.Err();
    auto fd = net::DialTcp("127.0.0.1", port_, Deadline::In(5000));
    ASSERT_TRUE(fd.ok());
    const auto bytes = std::as_bytes(std::span(kGrowthKey));
    const auto knocked =
        ProveRank(std::move(*fd), 0, 0, Bytes(bytes.begin(), bytes.end()), Deadline::In(10'000));
    ASSERT_TRUE(knocked.ok());
    pollfd entry{knocked->fd.get(), POLLIN, 0};
    ASSERT_GT(::poll(&entry, 1, 60'000), 0) << root.Err();
    const int64_t begin_ns = NowNs();
    ::kill(root.pid(), SIGINT);
    const Ran ran = root.Wait();
    EXPECT_EQ(ran.status, 130) << ran.err;
    EXPECT_LT(NowNs() - begin_ns, test::Slower(4000) * 1'000'000) << ran.err;
}

}  // namespace
}  // namespace weft::cluster
