// `weft pull --shard`: each rank of a cluster has only the ranges that it reads, and the results
// equal those of ranks with the whole model.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/file.h"
#include "hub/cache.h"
#include "hub/part.h"
#include "model_files/weight_file.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/hub_server.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;
using namespace support;

class ShardTest : public HubTest {
  protected:
    void SetUp() override {
        HubTest::SetUp();
        key_ = folder_ / "key";
        std::ofstream(key_) << "a key for these tests only";
        ::chmod(key_.c_str(), 0600);
    }

    // Puts the files of `folder` on the Hub, all except JSON in large file storage.
    void Serve(const std::string& folder, const json& more = json::object()) {
        json words = more;
        for (const auto& entry : fs::directory_iterator(folder)) {
            const std::string name = entry.path().filename();
            words["files"].push_back({{"path", name},
                                      {"size", entry.file_size()},
                                      {"from", entry.path().string()},
                                      {"large", !name.ends_with(".json")}});
        }
        server_->Set(words);
    }
    // Three layers of a model with tensors of up to 1 MB, so that a shard is noticeably smaller.
    std::string WriteGguf(DType dtype = DType::kF32) {
        fs::create_directories(folder_ / "files");
        WriteTinyGguf(folder_ / "files/tiny-F32.gguf", {.hyper = OddHyper(), .dtype = dtype});
        return folder_ / "files";
    }

    Words Environment(const std::string& cache) const {
        return {"HF_ENDPOINT=" + server_->endpoint(),
                "HF_HUB_CACHE=" + std::string(folder_ / cache),
                "SSL_CERT_FILE=" + config_.ca_file,
                "HF_HOME=" + folder_.path(),
                "HF_TOKEN=",
                "HUGGING_FACE_HUB_TOKEN="};
    }
    Ran Pull(const std::string& cache, const std::string& shard, const Words& more = {}) const {
        Words words = {"pull", "hf:o/n", "--json"};
        if (!shard.empty()) words = words + Words{"--shard", shard, "--gap", "4"};
        return RunWeft(words + more, Environment(cache));
    }
    // The bytes that this pull downloaded.
    uint64_t Fetched(const std::string& cache, const std::string& shard, const Words& more = {}) {
        const Ran ran = Pull(cache, shard, more);
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ran.status == 0 ? ran.Json()["fetched_bytes"].get<uint64_t>() : 0;
    }
    static Words Command(const std::string& model) {
        return {"logits", model, "--tokens", "1,77,20,33,50,9,61", "--all", "-t", "1", "--json"};
    }
    // The logits of `model` on this machine, with ranks as in `layout`.
    static std::string Logits(const std::string& model, const Words& layout,
                              const Words& environment = {}) {
        const Ran ran = RunWeft(Command(model) + layout, environment);
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ran.status == 0 ? ran.Json()["logits"].dump() : ran.err;
    }

    std::string key_;
};

// A worker with its own cache folder for each rank except 0.
class Workers {
  public:
    Workers(const std::string& key, const std::vector<Words>& environments) : key_(key) {
        for (const Words& environment : environments) {
            workers_.push_back(std::make_unique<Weft>(
                Words{"worker", "--listen", "127.0.0.1:0", "--key-file", key}, environment));
        }
    }
    Words Flags() const {
        std::string hosts;
        for (const auto& worker : workers_) {
            hosts += fmt::format("{}127.0.0.1:{}", hosts.empty() ? "" : ",", test::PortOf(*worker));
        }
        return {"--hosts", hosts, "--key-file", key_};
    }

  private:
    std::string key_;
    std::vector<std::unique_ptr<Weft>> workers_;
};

TEST_F(ShardTest, EachRankGetsItsOwnShard) {
    const std::string files = WriteGguf();
    const uint64_t whole = fs::file_size(files + "/tiny-F32.gguf");
    const std::vector<Words> layouts = {
        {"--tp", "3"}, {"--tp", "3", "--tensor-split", "3,2,1"}, {"--pp", "3"}};
    for (size_t i = 0; i < layouts.size(); ++i) {
        if (!test::InTurn(i + 2, 3)) continue;
        const Words& layout = layouts[i];
        SCOPED_TRACE(testing::PrintToString(layout));
        Serve(files);
        std::vector<std::string> caches;
        for (int rank = 0; rank < 3; ++rank) {
            caches.push_back(fmt::format("cache{}-{}", i, rank));
            const uint64_t fetched = Fetched(caches.back(), fmt::format("{}/3", rank), layout);
            EXPECT_LT(fetched, whole * 3 / 4) << "rank " << rank;
            EXPECT_EQ(Fetched(caches.back(), fmt::format("{}/3", rank), layout), 0u);
        }
        const Workers workers(key_, {Environment(caches[1]), Environment(caches[2])});
        const std::string expected = Logits(files + "/tiny-F32.gguf", layout);
        EXPECT_EQ(Logits("hf:o/n", layout + workers.Flags(), Environment(caches[0])), expected);
    }
}

// Rank 0 has the whole file, the other rank only its shard: they count as the same model.
TEST_F(ShardTest, BesideTheWholeFile) {
    const std::string files = WriteGguf(DType::kQ4_0);
    Serve(files);
    Fetched("whole", "");
    Fetched("part", "1/2");
    const Workers workers(key_, {Environment("part")});
    EXPECT_EQ(Logits("hf:o/n", workers.Flags(), Environment("whole")),
              Logits(files + "/tiny-F32.gguf", {"--tp", "2"}));
}

TEST_F(ShardTest, ShardsAddUpToTheFile) {
    const std::string files = WriteGguf();
    const uint64_t whole = fs::file_size(files + "/tiny-F32.gguf");
    Serve(files);
    uint64_t fetched = Fetched("c", "0/2");
    EXPECT_GT(fetched, whole / 4);
    // Half of it is not a model, and the error has the next step; other programs do not see it as a
    // model either.
    const Ran half = RunWeft(Command("hf:o/n") + Words{"--tp", "2"}, Environment("c"));
    EXPECT_EQ(half.status, 1);
    EXPECT_NE(half.err.find("--shard RANK/RANKS"), std::string::npos) << half.err;
    EXPECT_NE(half.err.find("tensor 'blk."), std::string::npos) << half.err;
    EXPECT_FALSE(fs::exists(folder_ / "c/models--o--n/snapshots"));
    EXPECT_FALSE(fs::exists(folder_ / "c/models--o--n/refs"));
    fetched += Fetched("c", "1/2");
    EXPECT_EQ(Logits("hf:o/n", {"--tp", "2"}, Environment("c")),
              Logits(files + "/tiny-F32.gguf", {"--tp", "2"}));
    // Pulling the whole model requests only the rest, and verifies it.
    fetched += Fetched("c", "");
    EXPECT_EQ(fetched, whole);
    EXPECT_EQ(Logits("hf:o/n", {"--tp", "1"}, Environment("c")),
              Logits(files + "/tiny-F32.gguf", {"--tp", "1"}));
    EXPECT_EQ(Fetched("c", "0/3"), 0u);
}

// The only rank reads everything: ranges that cover the whole file are verified and make a whole
// file.
TEST_F(ShardTest, TheLastRangeCompletesTheFile) {
    const std::string files = WriteGguf();
    Serve(files);
    const Ran ran = Pull("c", "0/1");
    ASSERT_EQ(ran.status, 0) << ran.err;
    Fetched("c", "");
    EXPECT_FALSE(server_->Counted()["bytes"].empty());
    EXPECT_EQ(Logits("hf:o/n", {}, Environment("c")), Logits(files + "/tiny-F32.gguf", {}));
}

TEST_F(ShardTest, FoldersOfShardsAndPackedWeights) {
    const HfGolden golden;
    golden.Write("mixtral", folder_ / "mixtral", 2);
    WriteText(folder_ / "mixtral/tokenizer.json", SmallTokenizer());
    WriteQuantized("qwen2", HfLayout::kPacked4, folder_ / "packed", folder_ / "floats");
    WriteQuantized("qwen2moe", HfLayout::kGptq4, folder_ / "gptq", folder_ / "floats2");
    const std::map<std::string, Words> layouts = {
        {"mixtral", {"--pp", "2"}}, {"packed", {"--tp", "2"}}, {"gptq", {"--tp", "2"}}};
    for (const auto& [name, layout] : test::Some(layouts, 2)) {
        SCOPED_TRACE(name);
        const std::string files = folder_ / name;
        Serve(files);
        const uint64_t one = Fetched(name + "1", "0/2", layout);
        EXPECT_GT(one, 0u);
        Fetched(name + "2", "1/2", layout);
        const Workers workers(key_, {Environment(name + "2")});
        EXPECT_EQ(Logits("hf:o/n", layout + workers.Flags(), Environment(name + "1")),
                  Logits(files, layout));
    }
}

TEST_F(ShardTest, ResumesAfterKill) {
    const std::string files = WriteGguf();
    Serve(files, {{"rate", 1 << 20}});
    {
        Weft weft(Words{"pull", "hf:o/n", "--shard", "0/2", "--connections", "2"},
                  Environment("c"));
        test::Until([&] { return server_->Counted()["sent"] >= (5 << 20); });
        ::kill(weft.pid(), SIGKILL);
        EXPECT_EQ(weft.Wait().status, 128 + SIGKILL);
    }
    Serve(files);
    // The data of the last second is sent again; more than that is present.
    const uint64_t again = Fetched("c", "0/2");
    EXPECT_LT(again, Fetched("other", "0/2") - (3 << 19));
    Fetched("c", "1/2");
    EXPECT_EQ(Logits("hf:o/n", {"--tp", "2"}, Environment("c")),
              Logits(files + "/tiny-F32.gguf", {"--tp", "2"}));
}

// The ranges of a file are known by the name that a link points to: holes are never read as zeros.
TEST_F(ShardTest, NeedsSymbolicLinks) {
    Serve(WriteGguf());
    const Ran ran =
        RunWeft({"pull", "hf:o/n", "--shard", "0/2"},
                Environment("c") + Words{"LD_PRELOAD=" WEFT_NO_SYMLINKS,
                                         "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0"});
    EXPECT_NE(ran.status, 0);
    EXPECT_NE(ran.err.find("no symbolic links"), std::string::npos) << ran.err;
}

TEST_F(ShardTest, ServerThatMisbehaves) {
    const std::string files = WriteGguf();
    Serve(files, {{"cuts", {300'000, 10, 400'000}}, {"refuse", {{503, 0}, {429, 1}}}});
    Fetched("c", "0/2");
    Serve(files, {{"cuts", {5000, 70'000}}});
    Fetched("c", "1/2");
    EXPECT_EQ(Logits("hf:o/n", {"--tp", "2"}, Environment("c")),
              Logits(files + "/tiny-F32.gguf", {"--tp", "2"}));
    Serve(files, {{"no_range", true}});
    const Ran whole_only = Pull("d", "0/2");
    EXPECT_EQ(whole_only.status, 1);
    EXPECT_NE(whole_only.err.find("without --shard"), std::string::npos) << whole_only.err;
    // If the file's content changed under the same name, the old ranges are not kept.
    Serve(files);
    const uint64_t one = Fetched("e", "0/2");
    Serve(files, {{"etag", "\"cdn-2\""}});
    EXPECT_GE(Fetched("e", "1/2"), one / 4);
    const Ran half = RunWeft(Command("hf:o/n") + Words{"--tp", "2"}, Environment("e"));
    EXPECT_EQ(half.status, 1);
}

TEST_F(ShardTest, Refusals) {
    const std::string files = WriteGguf();
    Serve(files);
    for (const char* shard : {"3/3", "-1/3", "1", "a/b", "1/3x", "0/0", "0/5000"}) {
        const Ran ran = Pull("c", shard);
        EXPECT_EQ(ran.status, 2) << shard;
    }
    EXPECT_EQ(Pull("c", "0/3", {"--tp", "2"}).status, 2);
    EXPECT_EQ(RunWeft({"pull", "hf:o/n", "--tp", "2"}, Environment("c")).status, 2);
    // More ranks than the model can be divided into: fails before any weights are downloaded.
    const Ran many = Pull("c", "0/200");
    EXPECT_NE(many.status, 0);
    EXPECT_LE(server_->Counted()["sent"].get<uint64_t>(), 2u << 20);
    // A model with an architecture that Weft does not support.
    fs::create_directories(folder_ / "unknown");
    WriteTinyGguf(folder_ / "unknown/x.gguf", {.hyper = OddHyper(), .architecture = "gpt9"});
    Serve(folder_ / "unknown");
    const Ran unknown = Pull("u", "0/2");
    EXPECT_EQ(unknown.status, 1);
    EXPECT_NE(unknown.err.find("architecture"), std::string::npos) << unknown.err;
}

// Only the record of ranges distinguishes downloaded bytes from holes.
TEST_F(ShardTest, NoteMissingOrWrong) {
    const std::string files = WriteGguf();
    Serve(files);
    Fetched("c", "0/2");
    fs::path note;
    for (const auto& entry : fs::directory_iterator(folder_ / "c/models--o--n/blobs")) {
        if (entry.path().string().ends_with(".json")) note = entry.path();
    }
    ASSERT_FALSE(note.empty());
    const Words look = {"inspect", "hf:o/n"};
    EXPECT_EQ(RunWeft(look, Environment("c")).status, 0);
    WriteText(note, "{}");
    const Ran ran = RunWeft(look, Environment("c"));
    EXPECT_EQ(ran.status, 1);
    EXPECT_NE(ran.err.find("weft pull"), std::string::npos) << ran.err;
    fs::remove(note);
    EXPECT_EQ(RunWeft(look, Environment("c")).status, 1);
    // Ranges without a valid note are downloaded again.
    EXPECT_GT(Fetched("c", "0/2"), 4u << 20);
    EXPECT_EQ(RunWeft(look, Environment("c")).status, 0);
}

TEST(WeightFile, HolesAreNotRead) {
    TempDir dir;
    std::vector<std::byte> bytes(1000);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
    const std::string part = dir / ("blob" + std::string(hub::kPartSuffix));
    ASSERT_TRUE(WriteFile(part, bytes).ok());
    hub::PartNote note;
    note.size = bytes.size();
    note.done.Add({0, 100});
    note.done.Add({200, 300});
    note.done.Add({400, 1000});
    WriteText(part + hub::kNoteSuffix, hub::PrintNote(note));
    fs::create_symlink(part, std::string(dir / "model"));
    const auto file = model_files::WeightFile::Open(dir / "model");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_TRUE(file->is_partial());
    EXPECT_EQ(file->Prefix(), 100u);
    for (uint64_t begin = 0; begin < 450; begin += 3) {
        for (uint64_t size : {1, 10, 99, 100}) {
            std::vector<std::byte> out(size);
            bool held = true;
            for (uint64_t at = begin; at < begin + size; ++at) {
                held = held && (at < 100 || (at >= 200 && at < 300) || at >= 400);
            }
            const Status read = file->ReadAt(begin, out);
            ASSERT_EQ(read.ok(), held) << begin << " " << size;
            if (held) {
                EXPECT_TRUE(std::equal(out.begin(), out.end(), bytes.begin() + long(begin)));
            }
        }
    }
    // Pieces of 50 at 0, 200, 400 are present; of 101 they are not.
    std::vector<std::byte> out(150);
    EXPECT_TRUE(file->ReadStrided(0, 200, 50, out).ok());
    EXPECT_TRUE(std::equal(out.begin() + 100, out.end(), bytes.begin() + 400));
    out.resize(303);
    const Status hole = file->ReadStrided(0, 200, 101, out);
    EXPECT_EQ(static_cast<int>(hole.error().code), static_cast<int>(ErrorCode::kNotFound));
}

TEST(WeightFile, APlanRecordsReads) {
    TempDir dir;
    const std::string part = dir / ("blob" + std::string(hub::kPartSuffix));
    const std::vector<std::byte> bytes(1000, std::byte{1});
    ASSERT_TRUE(WriteFile(part, bytes).ok());
    hub::PartNote note;
    note.size = bytes.size();
    note.done.Add({0, 10});
    WriteText(part + hub::kNoteSuffix, hub::PrintNote(note));
    model_files::ReadPlan plan(20);
    const auto file = model_files::WeightFile::Open(part, &plan);
    ASSERT_TRUE(file.ok());
    std::vector<std::byte> out(30);
    EXPECT_TRUE(file->ReadAt(0, std::span(out).first(10)).ok());
    EXPECT_FALSE(file->ReadAt(100, out).ok());
    EXPECT_EQ(plan.Take().at(part).bytes(), 30u);
    plan.Pretend();
    EXPECT_TRUE(file->ReadStrided(200, 30, 10, out).ok());  // gaps of 20: one range of 70
    EXPECT_EQ(out, std::vector<std::byte>(30));
    EXPECT_TRUE(file->ReadStrided(500, 31, 10, out).ok());  // gaps of 21: three ranges
    const hub::RangeSet set = plan.Take().at(part);
    ASSERT_EQ(set.ranges().size(), 4u);
    EXPECT_EQ(set.bytes(), 100u);
}

}  // namespace
}  // namespace weft::test
