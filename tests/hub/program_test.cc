// `weft pull`, and `hf:` arguments of other commands, as a user types them; killed and stopped in
// between.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/hash.h"
#include "hub/part.h"
#include "support/hub_server.h"
#include "support/limits.h"
#include "support/paths.h"
#include "support/run_weft.h"
#include "support/wait.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;
using support::operator+;
using support::Ran;
using support::RunWeft;
using support::Weft;
using support::Words;

class HubProgramTest : public HubTest {
  protected:
    Words Environment() const {
        return {"HF_ENDPOINT=" + server_->endpoint(),
                "HF_HUB_CACHE=" + config_.cache,
                "SSL_CERT_FILE=" + config_.ca_file,
                "HF_HOME=" + folder_.path(),
                "HF_TOKEN=",
                "HUGGING_FACE_HUB_TOKEN="};
    }
    Ran Run(const Words& words) const { return RunWeft(words, Environment()); }
    uint64_t Sent() const { return server_->Counted()["sent"].get<uint64_t>(); }
    // Waits until this many bytes have been sent.
    void WaitForSent(uint64_t bytes) const {
        test::Until([&] { return Sent() >= bytes; });
    }
};

constexpr uint64_t kBig = 24 << 20;

TEST_F(HubProgramTest, ResumesAfterKill) {
    server_->Set({{"files", {Large("x.gguf", kBig)}}, {"rate", 2 << 20}});
    {
        Weft weft({"pull", "o/n"}, Environment());
        WaitForSent(kBig / 3);
        ::kill(weft.pid(), SIGKILL);
        EXPECT_EQ(weft.Wait().status, 128 + SIGKILL);
    }
    server_->Set({{"files", {Large("x.gguf", kBig)}}});
    const Ran ran = Run({"pull", "o/n", "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const json file = ran.Json()["files"][0];
    EXPECT_GT(file["resumed_bytes"], 0);
    EXPECT_EQ(file["resumed_bytes"].get<uint64_t>() + file["fetched_bytes"].get<uint64_t>(), kBig);
    // Only the bytes of the last quarter of a second before the kill, and those in transit, may be
    // sent again.
    EXPECT_LE(Sent(), kBig - kBig / 6);
    EXPECT_EQ(Sent(), file["fetched_bytes"]);
}

// The first program hashes what an earlier one downloaded, which takes longer than the time-out.
TEST_F(HubProgramTest, ASecondPullWaitsWhileTheFirstOneHashes) {
    const uint64_t size = 64 << 20, missing = 1000;
    const std::string zeros = folder_ / "zeros";
    std::ofstream(zeros).close();
    fs::resize_file(zeros, size);
    server_->Set(
        {{"files", {{{"path", "x.gguf"}, {"size", size}, {"from", zeros}, {"large", true}}}}});
    hub::PartNote note;
    note.hash = Hex(Sha256(std::vector<std::byte>(size)));
    note.size = size;
    note.done.Add({0, size - missing});
    const std::string blobs = config_.cache + "/models--o--n/blobs/";
    const std::string part = blobs + note.hash + hub::kPartSuffix;
    fs::create_directories(blobs);
    std::ofstream(part).close();
    fs::resize_file(part, size);
    std::ofstream(part + hub::kNoteSuffix) << hub::PrintNote(note);
    const Words words = {"pull", "o/n", "--json", "--timeout", "1"};
    Weft first(words,
               Environment() + Words{"LD_PRELOAD=" WEFT_SLOW_DISK,
                                     "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0"});
    test::Until(
        [&] { return fs::exists(config_.cache + "/.locks/models--o--n/" + note.hash + ".lock"); });
    const Ran second = Run(words);
    EXPECT_EQ(second.status, 0) << second.err;
    const Ran ran = first.Wait();
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(Sent(), missing);
}

TEST_F(HubProgramTest, ResumesAfterCtrlC) {
    server_->Set({{"files", {Large("x.gguf", kBig)}}, {"rate", 2 << 20}});
    Weft weft({"pull", "o/n"}, Environment());
    WaitForSent(kBig / 3);
    const int64_t begin_ns = NowNs();
    ::kill(weft.pid(), SIGINT);
    const Ran stopped = weft.Wait();
    EXPECT_EQ(stopped.status, 130) << stopped.err;
    EXPECT_LE(NowNs() - begin_ns, test::LimitNs(10000));
    EXPECT_NE(stopped.err.find("to continue"), std::string::npos) << stopped.err;
    server_->Set({{"files", {Large("x.gguf", kBig)}}});
    const Ran ran = Run({"pull", "hf:o/n", "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_LE(Sent(), kBig - kBig / 6);
}

TEST_F(HubProgramTest, ModelArguments) {
    std::ofstream(folder_ / "tiny.gguf", std::ios::binary)
        << std::ifstream(support::TestData("/gguf_golden.gguf"), std::ios::binary).rdbuf();
    const auto bytes = ReadTextFile(folder_ / "tiny.gguf");
    ASSERT_TRUE(bytes.ok());
    json file = Large("tiny-F32.gguf", bytes->size());
    file["from"] = folder_ / "tiny.gguf";
    server_->Set({{"files", {file}}});
    const Ran without = Run({"inspect", "hf:o/n:F32"});
    EXPECT_EQ(without.status, 1);
    EXPECT_NE(without.err.find("weft pull hf:o/n:F32"), std::string::npos) << without.err;
    EXPECT_EQ(Sent(), 0u);
    const Ran with = Run({"inspect", "hf:o/n:F32", "--pull"});
    EXPECT_EQ(with.status, 0) << with.err;
    EXPECT_EQ(Sent(), bytes->size());
    const Ran again = Run({"inspect", "hf:o/n:F32", "--pull", "--json"});
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(Sent(), bytes->size());
    const Ran file_too = Run({"inspect", folder_ / "tiny.gguf", "--pull"});
    EXPECT_EQ(file_too.status, 2) << file_too.err;
}

// No network requests are made.
TEST_F(HubProgramTest, Offline) {
    server_->Set({{"files", {Large("a-Q4_0.gguf", 1000)}}});
    for (const char* yes : {"HF_HUB_OFFLINE=1", "HF_HUB_OFFLINE=true", "TRANSFORMERS_OFFLINE=ON"}) {
        const Ran ran = RunWeft({"pull", "o/n"}, Environment() + Words{yes});
        EXPECT_EQ(ran.status, 1);
        EXPECT_NE(ran.err.find("HF_HUB_OFFLINE"), std::string::npos) << ran.err;
    }
    EXPECT_TRUE(server_->Counted()["requests"].empty());
    const Ran pulled =
        RunWeft({"pull", "o/n", "--json"}, Environment() + Words{"HF_HUB_OFFLINE=0"});
    ASSERT_EQ(pulled.status, 0) << pulled.err;
    server_->Set({{"files", json::array()}});
    const Ran there = RunWeft({"pull", "o/n", "--json"}, Environment() + Words{"HF_HUB_OFFLINE=1"});
    ASSERT_EQ(there.status, 0) << there.err;
    EXPECT_EQ(there.Json()["model"], pulled.Json()["model"]);
    EXPECT_EQ(there.Json()["commit"], pulled.Json()["commit"]);
    EXPECT_EQ(there.Json()["fetched_bytes"], 0);
    EXPECT_TRUE(server_->Counted()["requests"].empty());
}

// A name server that never answers: the pull ends with its time-out, and at once after Ctrl-C.
TEST_F(HubProgramTest, HostNamesThatNeverResolve) {
    const Words slow =
        Environment() + Words{"LD_PRELOAD=" WEFT_SLOW_RESOLVER, "HF_ENDPOINT=https://hub.invalid",
                              "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0"};
    const Ran late = RunWeft({"pull", "o/n", "--timeout", "2"}, slow);
    EXPECT_EQ(late.status, 1);
    EXPECT_LE(late.seconds, test::LimitSeconds(8));
    EXPECT_NE(late.err.find("hub.invalid"), std::string::npos) << late.err;
    Weft weft({"pull", "o/n"}, slow);
    ASSERT_TRUE(test::Reports(weft, "resolves a name")) << weft.Err();
    const int64_t begin_ns = NowNs();
    ::kill(weft.pid(), SIGINT);
    EXPECT_EQ(weft.Wait(20'000).status, 130);
    EXPECT_LE(NowNs() - begin_ns, test::LimitNs(5000));
}

// The snapshot holds the contents themselves, once, and 'weft rm' frees them.
TEST_F(HubProgramTest, AFileSystemWithoutSymbolicLinks) {
    const json index = {{"weight_map", {{"a", "m-1.safetensors"}}}};
    server_->Set({{"files",
                   {Small("config.json", "{}"), Large("m-1.safetensors", 5000),
                    Small("model.safetensors.index.json", index.dump())}}});
    const Words without =
        Environment() + Words{"LD_PRELOAD=" WEFT_NO_SYMLINKS,
                              "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0"};
    const Ran pulled = RunWeft({"pull", "o/n", "--json"}, without);
    ASSERT_EQ(pulled.status, 0) << pulled.err;
    const std::string model = pulled.Json()["model"];
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(model + "/m-1.safetensors")));
    EXPECT_EQ(fs::file_size(model + "/m-1.safetensors"), 5000u);
    EXPECT_TRUE(fs::is_empty(config_.cache + "/models--o--n/blobs"));
    const uint64_t sent = Sent();
    const Ran again = RunWeft({"pull", "o/n", "--json"}, without);
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(again.Json()["model"], model);
    EXPECT_EQ(again.Json()["fetched_bytes"], 0);
    EXPECT_EQ(Sent(), sent);
    ASSERT_EQ(RunWeft({"rm", "o/n", "--yes"}, without).status, 0);
    EXPECT_FALSE(fs::exists(config_.cache + "/models--o--n"));
    // Contents from before stay for the others that link to them.
    ASSERT_EQ(Run({"pull", "o/n"}).status, 0);
    fs::remove(model + "/m-1.safetensors");
    const Ran copied = RunWeft({"pull", "o/n"}, without);
    ASSERT_EQ(copied.status, 0) << copied.err;
    EXPECT_EQ(fs::file_size(model + "/m-1.safetensors"), 5000u);
    EXPECT_FALSE(fs::is_empty(config_.cache + "/models--o--n/blobs"));
}

TEST_F(HubProgramTest, ErrorsAsJsonAndUsage) {
    server_->Set({{"gated", true}});
    const Ran gated = Run({"pull", "o/n", "--json"});
    EXPECT_EQ(gated.status, 1);
    EXPECT_TRUE(gated.Json().contains("error")) << gated.out;
    EXPECT_EQ(Run({"pull", "nonsense"}).status, 2);
    EXPECT_EQ(Run({"pull"}).status, 2);
    EXPECT_EQ(Run({"pull", "o/n", "--timeout", "0"}).status, 2);
    server_->Set({{"files", {Large("a-Q4_0.gguf", 1000), Large("a-Q8_0.gguf", 2000)}}});
    const Ran several = Run({"pull", "o/n"});
    EXPECT_EQ(several.status, 2);
    EXPECT_NE(several.err.find("a-Q8_0.gguf"), std::string::npos) << several.err;
}

}  // namespace
}  // namespace weft::test
